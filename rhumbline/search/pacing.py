"""Pacing: how much work a task does between two readings of the clock."""

import math
from dataclasses import dataclass


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
    # Limit for plain torch on a CPU, which is faster in large pieces.
    max_piece_seconds: float = 3.0


TUNING = PacingTuning()


@dataclass
class Pacer:
    """Chooses the sizes of the pieces of one task, and stores how long the last one took.

    Work is counted in elements: the tensor elements of a rollout, times its steps. The pacer never
    reads the clock. Its callers pass the seconds left, which are infinite without a time limit.
    """

    elements_per_rollout: int
    seconds_per_element: float = 0.0  # of the last piece; 0 before the first

    def record(self, rollouts: int, seconds: float) -> None:
        """Store the pace of a piece: `rollouts` rollouts took `seconds` seconds."""
        self.seconds_per_element = seconds / (rollouts * self.elements_per_rollout)

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
        return max(1, limit // elements)

    def units_per_torch_piece(self, rollouts: int, seconds_left: float) -> int:
        """Return how many units make a piece for plain torch on a CPU, which prefers large pieces.

        The pace of the last piece tells how many units fit into half of the time left. The other
        half is a reserve in case the machine gets busier. Without a time limit the clock need not
        be read, and sizes must not depend on it: results would not be reproducible.
        """
        units = self.units_per_piece(rollouts, is_cuda=False)
        if seconds_left == math.inf:
            return TUNING.untimed_piece_factor * units
        if not self.seconds_per_element:
            return units
        seconds = min(TUNING.max_piece_seconds, 0.5 * seconds_left)
        elements = rollouts * self.elements_per_rollout
        fitting = int(seconds / (self.seconds_per_element * elements))
        return max(units, fitting)

    def prefixes_per_piece(self, units: int, samples: int) -> int:
        """Return how many prefixes make a piece: `units`, or more to fill a tile of the kernel.

        Each prefix is completed `samples` times.
        """
        min_prefixes = -(-TUNING.min_completions // samples)
        return max(min_prefixes, units)
