"""From a header and tensors to a policy: everything is compared before memory is taken for it."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from threading import get_ident
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rhumbline.domain import PolicyFamily
from rhumbline.errors import CheckpointError, shorten_repr
from rhumbline.toml_config import build_dataclass


@runtime_checkable
class HasGrowth(Protocol):
    """Sizes of a network whose attention scores grow with a power of the number of nodes."""

    growth: float


def build_network(family: PolicyFamily, table: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the network of a header with the weights of its file.

    A network without memory is built first, on torch's meta device. Only if its weights have the
    names and shapes of the file is the real one built.
    """
    architecture = parse_architecture(family, table)
    outline = outline_network(family, architecture, tensors)
    if outline is not None:
        compare_shapes(outline, tensors)
    policy = family.network(architecture)
    policy.load_state_dict(dict(tensors))
    check_finite_weights(policy.state_dict())
    return policy


def parse_architecture(family: PolicyFamily, table: Any) -> Any:
    """Return the sizes of a network from a header; refuse numbers that are not finite."""
    if not isinstance(table, dict):
        raise CheckpointError(f"its 'architecture' is {shorten_repr(table)}, expected a table")
    architecture = build_dataclass(family.architecture, table, "architecture")
    for name, value in asdict(architecture).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise CheckpointError(f"architecture: {name} is {value}, expected a finite number")
    if isinstance(architecture, HasGrowth):
        check_growth(architecture.growth)
    return architecture


def check_growth(growth: float) -> None:
    """Refuse a power of the number of nodes that no trained policy has."""
    max_growth = 4.0  # (nodes / 100) to a higher power leaves the range of a float32 soon
    if not abs(growth) <= max_growth:
        limits = f"from -{max_growth:g} to {max_growth:g}"
        raise CheckpointError(f"architecture: growth is {growth}, expected a power {limits}")


def outline_network(
    family: PolicyFamily, architecture: Any, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """Return the weights that a network would have, without memory behind them.

    Returns None for networks of other packages that read numbers while they are built.
    """
    # A network with a few tensors more is built, so that the first that is missing can be named.
    most = 2 * len(tensors) + 100
    try:
        with torch.device("meta"), limit_weights(most):
            return family.network(architecture).state_dict()
    except NotImplementedError:
        return None


@contextmanager
def limit_weights(most: int) -> Generator[None, None, None]:
    """Stop the construction of a network that gets more than `most` weight tensors.

    Even without memory for weights, a billion layers would take all memory.
    """
    thread = get_ident()  # the hook is called in all threads
    count = 0

    def count_weight(module: nn.Module, name: str, weight: nn.Parameter | None) -> None:
        nonlocal count
        if get_ident() != thread:
            return
        count += 1
        if count > most:
            raise CheckpointError(f"size mismatch: its network has more than {most} tensors")

    hook = register_module_parameter_registration_hook(count_weight)
    try:
        yield
    finally:
        hook.remove()


def compare_shapes(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those of a network, and name the first of them."""
    for name, tensor in expected.items():
        if name not in found:
            raise CheckpointError(f"the tensor '{name}' is missing")
        if found[name].shape != tensor.shape:
            shapes = f"{list(found[name].shape)}, expected {list(tensor.shape)}"
            raise CheckpointError(f"size mismatch: the tensor '{name}' has the shape {shapes}")
        if found[name].is_floating_point() != tensor.is_floating_point():
            kinds = f"{found[name].dtype}, expected {tensor.dtype}"
            raise CheckpointError(f"the tensor '{name}' is of type {kinds}")
    for name in found:
        if name not in expected:
            raise CheckpointError(f"its network has no tensor '{name}'")


def check_finite_weights(weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are NaN or infinite, and name the first tensor that has one."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise CheckpointError(f"the tensor '{name}' holds NaN or infinite weights")
