"""Weights on disk: one safetensors file whose JSON header says what they are.

Loading runs no code from the file. A file is written under a temporary name and then renamed, so
that a reader never sees half a checkpoint. Whatever is wrong with a file is a `CheckpointError`
that names it.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rhumbline.checkpoint.facts import TrainingFacts, parse_facts
from rhumbline.checkpoint.facts import recorded_versions as recorded_versions
from rhumbline.checkpoint.network import build_network
from rhumbline.checkpoint.shipped import refuse_research_weights, shipped_checkpoints
from rhumbline.checkpoint.tensor_file import path_exists, read_tensor_file, shorten_words
from rhumbline.checkpoint.tensor_file import write_tensor_file as write_tensor_file
from rhumbline.domains import DOMAINS, find_policy_family
from rhumbline.errors import CheckpointError, InputError, shorten
from rhumbline.policies import Policy
from rhumbline.registry import did_you_mean

# What networks of any package, and torch, raise for sizes and tensors that do not fit.
HEADER_ERRORS = (
    InputError,
    KeyError,
    TypeError,
    ValueError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)


def save(path: str | Path, policy: Policy[Any, Any, Any], about: TrainingFacts) -> None:
    """Write the weights of a policy together with its training facts."""
    tensors, header = checkpoint_content(policy, about)
    write_tensor_file(Path(path), tensors, header)


def checkpoint_content(
    policy: Policy[Any, Any, Any], about: TrainingFacts
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a policy's checkpoint and its header."""
    header = {"architecture": asdict(policy.architecture), "about": asdict(about)}
    tensors: dict[str, Tensor] = {}
    for name, weight in policy.state_dict().items():
        weight = weight.detach().cpu()
        tensors[name] = weight.contiguous()
    return tensors, header


def load(path: str | Path, device: torch.device | str = "cpu") -> Policy[Any, Any, Any]:
    """Load the policy of a checkpoint, ready to decode."""
    policy, _ = load_with_facts(path, device)
    return policy


def load_with_facts(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[Policy[Any, Any, Any], TrainingFacts]:
    """Load the policy of a checkpoint and its training facts."""
    tensors, header = read_tensor_file(Path(path))
    try:
        facts = parse_facts(header.get("about"))
        _, family = find_policy_family(facts.problem)
        policy = build_network(family, header.get("architecture"), tensors)
        policy = policy.to(device)
    except HEADER_ERRORS as error:
        reason = shorten_words(str(error) or type(error).__name__)
        message = f"{path}: does not hold what its header promises ({reason})"
        raise CheckpointError(f"{message}; copy or train it again") from error
    return policy.requires_grad_(False), facts


def find_checkpoint(policy: str | None, problem: str) -> Path:
    """Return the checkpoint a user means: a shipped name, a path, or the default of a problem."""
    known = shipped_checkpoints()
    name = policy or DOMAINS[problem].weights
    if name in known:
        return known[name]
    if policy:
        path = Path(policy)
        if path_exists(path):
            return path
    if policy is None:
        missing = f"no weights for {problem} come with this version"
        raise CheckpointError(f"{missing}; train some and give them by --policy")
    refuse_research_weights(policy)
    choices = ", ".join(known) or "(none shipped)"
    guess = did_you_mean(str(name), known)
    wanted = shorten(str(name))
    raise CheckpointError(f"no checkpoint '{wanted}'{guess}; give a path or one of: {choices}")
