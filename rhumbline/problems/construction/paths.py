"""Paths that are joined at their ends until they are routes or a tour; each node is one at first.

Only the two ends of a path know anything about it, so a join takes the same time at any length.
"""

from collections.abc import Iterator, Sequence


class JoinedPaths:
    """Paths over the nodes 0..N-1, and the load that each carries."""

    def __init__(self, loads: Sequence[int], capacity: int) -> None:
        self.capacity = capacity
        self.neighbours = [list[int]() for _ in loads]
        # Of an end of a path: its other end, the load of the path, and its head, where it begins.
        self.other_end = list(range(len(loads)))
        self.load = list(loads)
        self.head = list(range(len(loads)))

    def join(self, one: int, other: int) -> bool:
        """Join two different paths at these ends, if the load allows; return whether it was done.

        The path of `one` comes first.
        """
        if len(self.neighbours[one]) > 1 or len(self.neighbours[other]) > 1:
            return False
        head = self.other_end[one]
        tail = self.other_end[other]
        load = self.load[one] + self.load[other]
        if head == other or load > self.capacity:
            return False
        self.neighbours[one].append(other)
        self.neighbours[other].append(one)
        self.other_end[head] = tail
        self.other_end[tail] = head
        for end in (head, tail):
            self.load[end] = load
            self.head[end] = head
        return True

    def ends(self) -> list[int]:
        """Return the ends of all paths, in order; a path of one node has one."""
        ends = list[int]()
        for node, near in enumerate(self.neighbours):
            if len(near) < 2:
                ends.append(node)
        return ends

    def paths(self) -> Iterator[list[int]]:
        """Yield the nodes of each path from its head, in the order of the heads."""
        for end in self.ends():
            if self.head[end] == end:
                yield self.walk(end)

    def walk(self, end: int) -> list[int]:
        """Return the nodes of a path from one of its ends."""
        path = [end]
        before = -1
        here = end
        while here != self.other_end[end]:
            following = [node for node in self.neighbours[here] if node != before]
            before = here
            here = following[0]
            path.append(here)
        return path
