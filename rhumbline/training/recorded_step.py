"""A step recorded once as a CUDA graph and replayed: launching its kernels singly takes longer
than running them.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

X = TypeVar("X")

WARM_UP = 3  # calls before a recording: kernels get compiled and the optimiser makes its state


class CUDAGraphCache(Generic[X]):
    """Work without any reading back, on static shapes for each key it is called with: a graph for
    each key.

    The result of a key is the same tensors each time, with new contents. Graphs never run at the
    same time and read nothing of one another, so they share their memory: a result holds only until
    the next call, of whatever key.
    """

    def __init__(self, work: Callable[[], X], rng: torch.Generator):
        self.work = work
        self.rng = rng
        self.calls = Counter[Hashable]()
        self.recordings: dict[Hashable, tuple[torch.cuda.CUDAGraph, X]] = {}
        self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def __call__(self, key: Hashable) -> X:
        """Do the work: in the ordinary way at first, then by replay."""
        self.calls[key] += 1
        if self.calls[key] <= WARM_UP:
            return self.aside()
        if key not in self.recordings:
            self.recordings[key] = self.record()
        graph, result = self.recordings[key]
        graph.replay()
        return result

    def record(self) -> tuple[torch.cuda.CUDAGraph, X]:
        """A graph of the work and where its results will be. Recording runs nothing."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.rng)
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            result = self.work()
        return graph, result

    def aside(self) -> X:
        """The work on the stream that will be recorded, so that autograd's bookkeeping knows no
        other.
        """
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return result
