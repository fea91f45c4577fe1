"""Weights on disk: one safetensors file whose JSON header says what they are.

Loading runs no code from the file. A file is written under a temporary name and then renamed, so
that a reader never sees half a checkpoint.
"""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rhumbline.domains import DOMAINS, find_policy_family
from rhumbline.errors import CheckpointError, InputError
from rhumbline.policies import Policy
from rhumbline.registry import did_you_mean

METADATA_KEY = "rhumbline"  # the entry of the safetensors metadata that holds our header


@dataclass(frozen=True)
class TrainingFacts:
    """How the weights of a checkpoint were trained."""

    problem: str
    size: int | str  # of the validation instances, and of training unless its recipe has `sizes`
    updates: int = 0
    recipe: str = ""
    validation: Mapping[str, float] = field(default_factory=dict[str, float])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def trained_at(self) -> str:
        """Return the size of the training instances in words, as in "100" or "50 to 200"."""
        sizes = self._sizes
        if len(sizes) == 1:
            return f"{sizes[0]}"
        return f"{sizes[0]} to {sizes[-1]}"

    @property
    def largest(self) -> int:
        """Return the number of nodes or operations of the largest training instance."""
        return _node_count(self._sizes[-1])

    @property
    def _sizes(self) -> list[int | str]:
        """Return the sizes of the training instances, the smallest first."""
        try:  # recipes of other programs need not be JSON
            return sorted(json.loads(self.recipe)["sizes"], key=_node_count) or [self.size]
        except (ValueError, KeyError, TypeError):
            return [self.size]


def _node_count(size: int | str) -> int:
    """Return the number of nodes, or of operations of a size such as 15x10."""
    numbers = str(size).split("x")
    return math.prod(int(number) for number in numbers)


def recorded_versions() -> dict[str, str]:
    """Return the versions that weights or results were made with."""
    from rhumbline import __version__

    return {
        "rhumbline": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def save(path: str | Path, policy: Policy[Any, Any, Any], about: TrainingFacts) -> None:
    """Write the weights of a policy together with its training facts."""
    header = {"architecture": asdict(policy.architecture), "about": asdict(about)}
    tensors: dict[str, Tensor] = {}
    for name, weight in policy.state_dict().items():
        weight = weight.detach().cpu()
        tensors[name] = weight.contiguous()
    write_tensor_file(Path(path), tensors, header)


def write_tensor_file(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header to a temporary file, then rename it to `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    metadata = {METADATA_KEY: json.dumps(header)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(tensors), temporary, metadata=metadata)
        temporary.chmod(0o644)  # safetensors makes files that only their owner can read
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be written ({error})") from error
    finally:
        with suppress(OSError):  # it is gone after the renaming, and absent if the folder is none
            temporary.unlink()


def read_tensor_file(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the header of a file that `write_tensor_file` wrote."""
    if not path.is_file():
        listed = "`rhumb info` lists those that come with the package"
        raise CheckpointError(f"{path}: no such checkpoint; {listed}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            header = json.loads(metadata.get(METADATA_KEY, "null"))
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, ValueError) as error:
        message = f"{path}: not a readable checkpoint ({error}); it may be truncated"
        raise CheckpointError(message) from error
    if not isinstance(header, dict):
        foreign = "a safetensors file, but no checkpoint of rhumbline"
        raise CheckpointError(f"{path}: {foreign} (no '{METADATA_KEY}' header)")
    return tensors, header


def load(path: str | Path, device: torch.device | str = "cpu") -> Policy[Any, Any, Any]:
    """Load the policy of a checkpoint, ready to decode."""
    policy, _ = load_with_facts(path, device)
    return policy


def load_with_facts(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[Policy[Any, Any, Any], TrainingFacts]:
    """Load the policy of a checkpoint and its training facts."""
    tensors, header = read_tensor_file(Path(path), device)
    try:
        facts = TrainingFacts(**header["about"])
        _, family = find_policy_family(facts.problem)
        policy = family.network(family.architecture(**header["architecture"]))
        policy = policy.to(device)
        policy.load_state_dict(tensors)
    except (InputError, KeyError, TypeError, RuntimeError) as error:
        message = f"{path}: does not hold what its header promises ({error})"
        raise CheckpointError(message) from error
    return policy.requires_grad_(False), facts


def shipped_checkpoints() -> dict[str, Path]:
    """Return the checkpoints inside the package by name."""
    package = Path(str(resources.files("rhumbline")))
    folder = package / "weights"
    paths = sorted(folder.glob("*.safetensors"))
    return {path.stem: path for path in paths}


def find_checkpoint(policy: str | None, problem: str) -> Path:
    """Return the checkpoint a user means: a shipped name, a path, or the default of a problem."""
    known = shipped_checkpoints()
    name = policy or DOMAINS[problem].weights
    if name in known:
        return known[name]
    if policy and Path(policy).exists():
        return Path(policy)
    if policy is None:
        missing = f"no weights for {problem} come with this version"
        raise CheckpointError(f"{missing}; train some and give them by --policy")
    choices = ", ".join(known) or "(none shipped)"
    guess = did_you_mean(str(name), known)
    raise CheckpointError(f"no checkpoint '{name}'{guess}; give a path or one of: {choices}")
