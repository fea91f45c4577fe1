"""A loop of equal steps as a CUDA graph: one launch per step instead of a hundred.

The graph is recorded anew for each loop. That takes a few milliseconds, and nothing has to be
copied into buffers of an older recording or kept for shapes that never come back.
"""

from collections.abc import Callable
from functools import cache

import torch

# The last recording on each device. It is never replayed again, but keeps the memory that the next
# one reuses.
_last: dict[torch.device, torch.cuda.CUDAGraph] = {}


@cache
def recording_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that records; graphs cannot be recorded on the usual one."""
    return torch.cuda.Stream(device)


BLOCK = 16  # steps between two questions whether all is done, which wait for the device


def repeat(
    step: Callable[[], None], times: int, device: torch.device, done: Callable[[], bool]
) -> None:
    """Call `step` so many times, or until all is done. It must work in place on the same tensors
    and ask nothing.

    The first call is an ordinary one, so that libraries set themselves up outside the recording.
    """
    usual = torch.cuda.current_stream(device)
    own = recording_stream(device)
    own.wait_stream(usual)
    with torch.cuda.device(device), torch.cuda.stream(own):
        step()
        if times > 1:
            graph = record_graph(step, device)
            for number in range(1, times):
                if number % BLOCK == 0 and done():
                    break
                graph.replay()
    usual.wait_stream(own)


def record_graph(step: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """A graph of one step. Recording runs nothing."""
    graph = torch.cuda.CUDAGraph()
    older = _last.get(device)
    graph.capture_begin(pool=older.pool() if older else None, capture_error_mode="thread_local")
    try:
        step()
    finally:
        graph.capture_end()
    _last[device] = graph
    return graph
