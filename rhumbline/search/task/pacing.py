"""Pacing: how much work a task does between two readings of the clock."""

import math
from dataclasses import dataclass


class Spent(Exception):
    """The budget is used up. Raised through a strategy's step, caught by the driver."""


@dataclass(frozen=True)
class PacingTuning:
    """Sizes of a piece, which is the work between two readings of the clock."""

    # Tensor elements of all rollouts of a piece, times their steps. On two cores plain torch takes
    # about half a second for such a piece, and the fused kernel a quarter of a second.
    piece_elements_cpu: int = 16_000_000
    piece_elements_cuda: int = 20_000_000_000
    # A piece has at least this many completions: they form one tile of the CPU kernel.
    min_completions: int = 16
    # Without a time limit, pieces of plain torch are this many times larger.
    untimed_piece_factor: int = 8
    # With a time limit on a CPU. The first piece is small: on a busy machine, the time that a piece
    # takes cannot be foreseen. The first pieces are mostly overhead, and the later ones grow.
    first_piece_elements: int = 1_000_000
    max_growth: int = 4
    # A piece takes this share of the time left, or these seconds, whichever is less.
    max_piece_share: float = 0.25
    max_piece_seconds: float = 0.25
    # Plain torch is faster in large pieces. It can be stopped within one; all of it is then lost.
    max_torch_piece_share: float = 0.5
    max_torch_piece_seconds: float = 3.0
    # A piece of more than this share of the time left is watched, which costs a tenth of a
    # millisecond.
    risky_share: float = 0.2
    # After the time limit, a single unit may end that much later.
    max_late_seconds: float = 0.1


TUNING = PacingTuning()


@dataclass
class Pacer:
    """Chooses the sizes of the pieces of one task, and stores how long the last one took.

    Work is counted in elements: the tensor elements of a rollout, times its steps. The pacer never
    reads the clock. Its callers pass the seconds left, which are infinite without a time limit.
    """

    elements_per_rollout: int
    tile: int = 1  # rollouts that a kernel constructs together: fewer take as long
    seconds_per_element: float = 0.0  # of the last piece; 0 before the first
    last_rollouts: int = 0  # of the last piece

    def whole_tiles(self, rollouts: int) -> int:
        """Return the number of rollouts in as many tiles as some rollouts need."""
        return -(-rollouts // self.tile) * self.tile

    def record(self, rollouts: int, seconds: float) -> None:
        """Store the pace of a piece: `rollouts` rollouts took `seconds` seconds."""
        self.last_rollouts = self.whole_tiles(rollouts)
        self.seconds_per_element = seconds / (self.last_rollouts * self.elements_per_rollout)

    def rollouts_within(self, rows: int, share: float, seconds_left: float) -> float:
        """Return how many rollouts of each row fit into a share of the time left.

        The result is 0 before the first piece has been timed, and infinite without a time limit.
        """
        if seconds_left == math.inf:
            return math.inf
        seconds = self.seconds_per_element * (rows * self.elements_per_rollout)
        if not seconds:
            return 0.0
        return share * seconds_left / seconds

    def units_per_piece(self, rollouts: int, is_cuda: bool) -> int:
        """Return how many units of `rollouts` rollouts make a piece on a fused engine or a GPU."""
        limit = TUNING.piece_elements_cuda if is_cuda else TUNING.piece_elements_cpu
        elements = rollouts * self.elements_per_rollout
        affordable = limit // elements
        return max(1, affordable)

    def units_per_torch_piece(self, rollouts: int, seconds_left: float) -> int:
        """Return how many units make a piece for plain torch on a CPU, which prefers large pieces.

        Without a time limit the clock need not be read, and sizes must not depend on it: results
        would not be reproducible.
        """
        if seconds_left == math.inf:
            units = self.units_per_piece(rollouts, is_cuda=False)
            return TUNING.untimed_piece_factor * units
        return self.units_within(
            rollouts, seconds_left, TUNING.max_torch_piece_seconds, TUNING.max_torch_piece_share
        )

    def units_per_timed_piece(self, rollouts: int, seconds_left: float) -> int:
        """Return how many units make a piece for a fused engine on a CPU with a time limit.

        A piece that has begun cannot be stopped.
        """
        max_seconds = TUNING.max_piece_seconds
        units = self.units_within(rollouts, seconds_left, max_seconds)
        max_units = self.units_per_piece(rollouts, is_cuda=False)
        return min(units, max_units)

    def units_within(
        self, rollouts: int, seconds_left: float, max_seconds: float, share: float | None = None
    ) -> int:
        """Return how many units fit into a share of the time left, at the pace of the last piece.

        The rest of the time is a reserve in case the machine gets busier. It is at least one.
        """
        rollouts = self.whole_tiles(rollouts)
        elements = rollouts * self.elements_per_rollout
        if not self.seconds_per_element:
            return max(1, TUNING.first_piece_elements // elements)
        share = TUNING.max_piece_share if share is None else share
        seconds = min(max_seconds, share * seconds_left)
        fitting = int(seconds / (self.seconds_per_element * elements))
        growing = TUNING.max_growth * self.last_rollouts // rollouts
        return max(1, min(fitting, growing))

    def check_fit(self, rollouts: int, seconds_left: float) -> None:
        """Raise `Spent` if some rollouts would end too late, at the pace of the last piece."""
        elements = self.whole_tiles(rollouts) * self.elements_per_rollout
        seconds = self.seconds_per_element * elements
        if seconds > seconds_left + TUNING.max_late_seconds:
            raise Spent

    def is_risky(self, rollouts: int, seconds_left: float) -> bool:
        """Return whether a piece may end after the time limit, should the machine get busier."""
        if seconds_left == math.inf:
            return False
        padded_rollouts = self.whole_tiles(rollouts)
        elements = padded_rollouts * self.elements_per_rollout
        seconds = self.seconds_per_element * elements
        return not seconds or seconds > TUNING.risky_share * seconds_left

    def prefixes_per_piece(self, units: int, samples: int) -> int:
        """Return how many prefixes make a piece: `units`, or more to fill a tile of the kernel.

        Each prefix is completed `samples` times.
        """
        min_prefixes = -(-TUNING.min_completions // samples)
        return max(min_prefixes, units)
