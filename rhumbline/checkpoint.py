"""Weights on disk: one safetensors file whose header says in JSON what they are.

No code runs on loading. Files are written aside and renamed, so a reader never sees half a
checkpoint.
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

from rhumbline.errors import CheckpointError, InputError
from rhumbline.policies import POLICIES, Policy

HEADER = "rhumbline"


@dataclass(frozen=True)
class TrainingFacts:
    """Training facts of a checkpoint."""

    problem: str
    size: (
        int | str
    )  # instances it was validated on, and trained on unless its recipe has several `sizes`
    updates: int = 0
    recipe: str = ""
    validation: Mapping[str, float] = field(default_factory=dict[str, float])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def trained_at(self) -> str:
        """The size of its training instances in words, or the smallest and the largest."""
        sizes = self._sizes
        return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"

    @property
    def largest(self) -> int:
        """How many there were to visit or to place in the largest of its training instances."""
        return _extent(self._sizes[-1])

    @property
    def _sizes(self) -> list[int | str]:
        """Of its training instances, the smallest first."""
        try:  # recipes of other makers need not be JSON
            return sorted(json.loads(self.recipe)["sizes"], key=_extent) or [self.size]
        except (ValueError, KeyError, TypeError):
            return [self.size]


def _extent(size: int | str) -> int:
    """Nodes, or operations of a job shop as in 15x10."""
    return math.prod(int(x) for x in str(size).split("x"))


def recorded_versions() -> dict[str, str]:
    """Versions that weights or results were made with."""
    from rhumbline import __version__

    return {"rhumbline": __version__, "torch": str(torch.__version__), "numpy": np.__version__}


def save(path: str | Path, policy: Policy[Any, Any, Any], about: TrainingFacts) -> None:
    """Write a policy's weights with their facts."""
    header = {"architecture": asdict(policy.architecture), "about": asdict(about)}
    state = {n: x.detach().cpu().contiguous() for n, x in policy.state_dict().items()}
    write_tensor_file(Path(path), state, header)


def write_tensor_file(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header aside, then rename: nothing half-written ever carries the
    name.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(tensors), aside, metadata={HEADER: json.dumps(header)})
        aside.chmod(0o644)  # safetensors makes files that only their owner can read
        os.replace(aside, path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be written ({error})") from error
    finally:
        with suppress(OSError):  # gone after the renaming; never there if the folder is not one
            aside.unlink()


def read_tensor_file(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a file that `write_tensors` wrote."""
    if not path.is_file():
        raise CheckpointError(
            f"{path}: no such checkpoint; `rhumb info` lists those that come with the package"
        )
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get(HEADER, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a readable checkpoint ({error}); it may be truncated"
        ) from error
    if not isinstance(header, dict):
        raise CheckpointError(
            f"{path}: a safetensors file, but no checkpoint of rhumbline (no '{HEADER}' header)"
        )
    return tensors, header


def load(path: str | Path, device: torch.device | str = "cpu") -> Policy[Any, Any, Any]:
    """The policy in a checkpoint, ready to decode."""
    policy, _ = load_with_facts(path, device)
    return policy


def load_with_facts(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[Policy[Any, Any, Any], TrainingFacts]:
    """The policy in a checkpoint and its training facts."""
    tensors, header = read_tensor_file(Path(path), device)
    try:
        about = TrainingFacts(**header["about"])
        kind, architecture = POLICIES[about.problem]
        policy = kind(architecture(**header["architecture"])).to(device)
        policy.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: does not hold what its header promises ({error})"
        ) from error
    return policy.requires_grad_(False), about


def shipped_checkpoints() -> dict[str, Path]:
    """Checkpoints inside the package, by name."""
    folder = Path(str(resources.files("rhumbline") / "weights"))
    return {p.stem: p for p in sorted(folder.glob("*.safetensors"))}


DEFAULT_CHECKPOINTS = {"tsp": "tsp", "cvrp": "cvrp", "jssp": "jssp"}


def find_checkpoint(policy: str | None, problem: str) -> Path:
    """The checkpoint a user means: a shipped name, a path, or the default for a problem."""
    known = shipped_checkpoints()
    name = policy or DEFAULT_CHECKPOINTS[problem]
    if name in known:
        return known[name]
    if policy and Path(policy).exists():
        return Path(policy)
    if policy is None:
        raise CheckpointError(
            f"no weights for {problem} come with this version; train some and give them by --policy"
        )
    raise CheckpointError(
        f"no checkpoint '{name}'; give a path or one of: {', '.join(known) or '(none shipped)'}"
    )
