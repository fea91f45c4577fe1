"""Training in several processes: each takes its share of the joint batch, and gradients are added.

All processes draw the same random numbers and split the same joint batch. The sum of their
gradients is therefore the gradient that one process would have computed. Without torchrun, all
functions of this module do nothing.
"""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rhumbline.errors import InputError, RhumbError, note_once
from rhumbline.record import Record

ResultT = TypeVar("ResultT")
BatchT = TypeVar("BatchT", Record, Tensor)


def join_group(device: torch.device) -> torch.device:
    """Join the group that torchrun made, if any; return this process's device."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return device
    note_shared_store()
    is_cuda = device.type == "cuda"
    dist.init_process_group("nccl" if is_cuda else "gloo")
    if not is_cuda:
        return device
    local_rank = int(os.environ["LOCAL_RANK"])
    return torch.device("cuda", local_rank)


def note_shared_store() -> None:
    """Say which setting of torchrun its restarts on several hosts need.

    By default, processes that are started again find the addresses of the dead ones in a store
    that torchrun keeps (seen with torch 2.13), and wait in vain.
    """
    hosts = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    is_shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_first = os.environ.get("RANK") == "0"
    if hosts > 1 and restarts and is_shared and is_first:
        setting = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
        note_once(f"--max-restarts on several hosts needs {setting} in the environment of torchrun")


@contextmanager
def report_lost_contact() -> Generator[None, None, None]:
    """Turn the error of a broken connection between the processes into one line."""
    try:
        yield
    except RuntimeError as error:
        is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
        if is_alone or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        words = "the connection to the other processes broke, because one of them has ended"
        raise RhumbError(f"{words}; what that one printed says why") from error


def leave_group() -> None:
    """Leave the group of processes, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Return this process's number."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes that train."""
    return dist.get_world_size() if dist.is_initialized() else 1


def share(whole: BatchT) -> BatchT:
    """Return this process's instances of a joint batch."""
    processes = world_size()
    if processes == 1:
        return whole
    length = batch_length(whole)
    if length % processes:
        why = f"a batch of {length} cannot be shared by {processes} processes"
        raise InputError(f"{why}; make it a multiple (copies of an instance count once)")
    part = length // processes
    first = rank() * part
    return whole[first : first + part]


def batch_length(batch: Record | Tensor) -> int:
    """Return the rows of a tensor, or of the first tensor of a record."""
    if not isinstance(batch, Record):
        return len(batch)
    fields = vars(batch).values()
    tensors = (x for x in fields if isinstance(x, Tensor))
    first = next(tensors)
    return len(first)


def sum_over_processes(count: Tensor) -> Tensor:
    """Return a number added up over all processes."""
    if world_size() > 1:
        count = count.clone()
        dist.all_reduce(count)
    return count


def add_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace each gradient by its sum over all processes."""
    if world_size() == 1:
        return
    gradients: list[Tensor] = []
    for parameter in parameters:
        # A member of a population may have won nothing here, but something in other processes.
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    sizes = [gradient.numel() for gradient in gradients]
    parts = flat.split(sizes)
    for gradient, part in zip(gradients, parts, strict=True):
        joint = part.view_as(gradient)
        gradient.copy_(joint)


def run_on_first(work: Callable[[], ResultT]) -> ResultT:
    """Call a function in the first process, and return what it returned in all of them.

    An error that the user can fix is raised in all of them too, so that none waits for ever.
    """
    if world_size() == 1:
        return work()
    answer: list[Any] = [None, None]
    if rank() == 0:
        try:
            answer[0] = work()
        except RhumbError as error:
            answer[1] = error
    dist.broadcast_object_list(answer, 0)
    result, error = answer
    if error is not None:
        raise error
    return result


def gather_from_all(value: int) -> list[int]:
    """Return the values that the processes have, that of the first process first."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast_from_first(value: float) -> float:
    """Return the first process's value, so that clocks cannot make processes diverge."""
    if world_size() == 1:
        return value
    shared = torch.tensor(value, dtype=torch.float64)
    if dist.get_backend() == "nccl":
        shared = shared.cuda()
    dist.broadcast(shared, 0)
    return shared.item()
