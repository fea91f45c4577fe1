"""Training steps recorded once as a CUDA graph and replayed.

Launching the kernels of a step one by one takes longer than running them.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

ResultT = TypeVar("ResultT")


class CUDAGraphCache(Generic[ResultT]):
    """One CUDA graph of `work` for each key that it is called with.

    The work must not read back from the device, and shapes must depend on the key alone. The result
    of a key is the same tensors each time, with new contents. Graphs never run at the same time and
    read nothing of one another, so they share their memory: a result is valid until the next call
    with any key.
    """

    # Ordinary calls before a recording: kernels get compiled, and the optimiser makes its state.
    warm_up_calls = 3

    def __init__(self, work: Callable[[], ResultT], rng: torch.Generator):
        self.work = work
        self.rng = rng
        self.calls = Counter[Hashable]()
        self.recordings: dict[Hashable, tuple[torch.cuda.CUDAGraph, ResultT]] = {}
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, key: Hashable) -> ResultT:
        """Do the work: by ordinary calls at first, then by replay."""
        self.calls[key] += 1
        if self.calls[key] <= self.warm_up_calls:
            return self.run_on_own_stream()
        if key not in self.recordings:
            self.recordings[key] = self.record()
        graph, result = self.recordings[key]
        graph.replay()
        return result

    def record(self) -> tuple[torch.cuda.CUDAGraph, ResultT]:
        """Return a graph of the work and the tensors of its results. Recording runs nothing."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.rng)
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            result = self.work()
        return graph, result

    def run_on_own_stream(self) -> ResultT:
        """Do the work on the stream of the recordings, the only one that autograd gets to know."""
        stream_of_caller = torch.cuda.current_stream()
        self.stream.wait_stream(stream_of_caller)
        with torch.cuda.stream(self.stream):
            result = self.work()
        stream_of_caller.wait_stream(self.stream)
        return result
