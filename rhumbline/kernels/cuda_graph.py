"""A loop of equal steps as a CUDA graph: one launch for each step instead of a hundred.

The graph is recorded for each loop. That takes a few milliseconds, and neither needs copies into
the buffers of an older recording nor keeps recordings of shapes that never come back.
"""

from collections.abc import Callable
from functools import cache

import torch

CHECK_INTERVAL = 16  # steps between two checks whether all is done, which wait for the device

# The last recording on each device. It is never replayed, but keeps memory for the next one.
_last: dict[torch.device, torch.cuda.CUDAGraph] = {}


@cache
def recording_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that records; the default stream cannot."""
    return torch.cuda.Stream(device)


def repeat(
    step: Callable[[], None], times: int, device: torch.device, done: Callable[[], bool]
) -> None:
    """Call `step` `times` times, or until `done`.

    The step works in place on the same tensors and reads nothing back. The first call is an
    ordinary one, so that libraries initialise themselves outside the recording.
    """
    default = torch.cuda.current_stream(device)
    stream = recording_stream(device)
    stream.wait_stream(default)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        step()
        if times > 1:
            graph = record_graph(step, device)
            for number in range(1, times):
                if number % CHECK_INTERVAL == 0 and done():
                    break
                graph.replay()
    default.wait_stream(stream)


def record_graph(step: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """Record one step as a graph. Recording runs nothing."""
    graph = torch.cuda.CUDAGraph()
    last = _last.get(device)
    memory = last.pool() if last else None
    graph.capture_begin(pool=memory, capture_error_mode="thread_local")
    try:
        step()
    finally:
        graph.capture_end()
    _last[device] = graph
    return graph
