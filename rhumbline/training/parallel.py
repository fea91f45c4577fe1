"""Several processes: each takes its share of the joint batch, and gradients are added up.

All processes draw the same random numbers and cut the same joint batch, so the sum of their
gradients is the gradient that one process would have computed. Without torchrun everything here
does nothing.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rhumbline.errors import InputError
from rhumbline.record import Record

X = TypeVar("X", Record, Tensor)


def join_group(device: torch.device) -> torch.device:
    """Join the group that torchrun made, if any; returns this process's device."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return device
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if device.type == "cuda" else device


def leave_group() -> None:
    """Leave the group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """This process's number."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes train."""
    return dist.get_world_size() if dist.is_initialized() else 1


def share(whole: X) -> X:
    """This process's instances of a joint batch."""
    if world_size() == 1:
        return whole
    length = (
        len(next(x for x in vars(whole).values() if isinstance(x, Tensor)))
        if isinstance(whole, Record)
        else len(whole)
    )
    if length % world_size():
        why = f"a batch of {length} cannot be shared by {world_size()} processes"
        raise InputError(f"{why}; make it a multiple (copies of an instance count once)")
    part = length // world_size()
    return whole[rank() * part : (rank() + 1) * part]


def sum_over_processes(count: Tensor) -> Tensor:
    """A number added up over all processes."""
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
        if (
            parameter.grad is None
        ):  # a member of a population that won nothing in this process, but may have in others
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def broadcast_from_first(value: float) -> float:
    """The first process's value, so that clocks cannot make processes part ways."""
    if world_size() == 1:
        return value
    answer = torch.tensor(value, dtype=torch.float64)
    if dist.get_backend() == "nccl":
        answer = answer.cuda()
    dist.broadcast(answer, 0)
    return answer.item()
