"""Pacing: how much work a task does between two looks at the clock."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class PacingTuning:
    """Sizes of a piece, which is the work between two looks at the clock."""

    # Numbers that all rollouts of a piece take, x their steps. On two cores torch needs about half
    # a second for them, the fused kernel a quarter of a second.
    piece_elements_cpu: int = 16_000_000
    piece_elements_cuda: int = 20_000_000_000
    min_completions: int = 16  # of a piece: a tile of the CPU kernel
    untimed_piece_factor: int = 8  # larger pieces where there is no time limit
    max_piece_seconds: float = 3.0  # for plain torch on a CPU, which is faster in large pieces


TUNING = PacingTuning()


@dataclass
class Pacer:
    """Sizes the pieces of one task, and remembers how long the last one took.

    Work is counted in elements: numbers that rollouts take over all their steps. The pacer never
    reads the clock: it is given the seconds left, which are infinite without a time limit.
    """

    elements_per_rollout: int
    seconds_per_element: float = 0.0  # of the last piece; 0 before the first

    def record(self, rollouts: int, seconds: float) -> None:
        """Note how long a piece of some rollouts took."""
        self.seconds_per_element = seconds / (rollouts * self.elements_per_rollout)

    def rollouts_within(self, rows: int, share: float, seconds_left: float) -> float:
        """Return how many rollouts of each row fit into a share of the time left.

        0 before the first piece has been timed, infinite without a time limit.
        """
        if seconds_left == math.inf:
            return math.inf
        seconds = self.seconds_per_element * (rows * self.elements_per_rollout)
        if not seconds:
            return 0.0
        return share * seconds_left / seconds

    def units_per_piece(self, rollouts: int, is_cuda: bool) -> int:
        """Return how many units, of `rollouts` each, make a piece on a fused engine or a GPU."""
        limit = TUNING.piece_elements_cuda if is_cuda else TUNING.piece_elements_cpu
        elements = rollouts * self.elements_per_rollout
        return max(1, limit // elements)

    def units_per_torch_piece(self, rollouts: int, seconds_left: float) -> int:
        """Return the same for plain torch on a CPU, which is faster in larger pieces.

        The time of the last piece tells how many units fit into half of the time left, in case the
        machine gets busier. Without a time limit there is no need to look, and pieces must not
        depend on the clock.
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
        """Return how many prefixes to complete `samples` times each, where `units` would do."""
        min_prefixes = -(-TUNING.min_completions // samples)
        return max(min_prefixes, units)
