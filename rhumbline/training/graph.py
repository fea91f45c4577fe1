"""A step recorded once as a CUDA graph and replayed: launching its kernels singly takes longer than running them."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

X = TypeVar("X")

WARM_UP = 3  # calls before the recording: kernels get compiled and the optimiser makes its state


class Recorded(Generic[X]):
    """Work on static shapes without any reading back. Its result is the same tensors each time, with new contents."""

    def __init__(self, work: Callable[[], X], rng: torch.Generator):
        self.work, self.rng = work, rng
        self.calls, self.graph, self.result = 0, torch.cuda.CUDAGraph(), None
        self.stream = torch.cuda.Stream()

    def __call__(self) -> X:
        """Do the work: in the ordinary way at first, then by replay."""
        self.calls += 1
        if self.calls <= WARM_UP:
            return self.aside()
        if self.result is None:
            self.graph.register_generator_state(self.rng)
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.result = self.work()
        self.graph.replay()
        return self.result

    def aside(self) -> X:
        """The work on the stream that will be recorded, so that autograd's bookkeeping knows no other."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return result
