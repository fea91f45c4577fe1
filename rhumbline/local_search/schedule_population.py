"""The population of a memetic search for schedules: short schedules that differ from each other.

Survivors are chosen as in Constantino and Segura 2022 (best-non-penalised): the shortest schedule
first, then the shortest of those that differ enough from all survivors. What counts as enough
falls to zero as the time runs out, so the search explores first and intensifies at the end.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EliteSchedule:
    """A schedule from which rounds may begin."""

    makespan: int
    starts: np.ndarray
    following: np.ndarray  # the successor of each operation on its machine


class SchedulePopulation:
    """Up to `size` schedules, the shortest first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.members = list[EliteSchedule]()

    @property
    def is_full(self) -> bool:
        """Whether another schedule would replace one."""
        return len(self.members) >= self.size

    def add(self, schedule: EliteSchedule, min_distance: float) -> None:
        """Add a schedule, and remove one if there are too many.

        Distances are the shares of operations whose successors on machines differ. A schedule that
        equals another one takes its place.
        """
        candidates = [schedule]
        for member in self.members:
            if not np.array_equal(member.following, schedule.following):
                candidates.append(member)
        candidates.sort(key=lambda x: x.makespan)
        if len(candidates) > self.size:
            candidates = self.select_survivors(candidates, min_distance)
        self.members = candidates

    def select_survivors(
        self, candidates: list[EliteSchedule], min_distance: float
    ) -> list[EliteSchedule]:
        """Return `size` of these schedules, which are sorted: short ones that differ enough.

        If none differs enough from those chosen before, the one that differs most is next.
        """
        orders = np.stack([candidate.following for candidate in candidates])
        nearest = np.full(len(candidates), np.inf)  # distance to the nearest survivor
        chosen = list[int]()
        for _ in range(self.size):
            is_different = nearest >= min_distance
            is_different[chosen] = False
            ranking = is_different if is_different.any() else nearest
            place = int(ranking.argmax())
            chosen.append(place)
            distance = np.mean(orders != orders[place], axis=1)
            nearest = np.minimum(nearest, distance)
            nearest[place] = -1.0
        return [candidates[place] for place in sorted(chosen)]
