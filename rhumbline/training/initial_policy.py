"""The policy that a run begins with: a new one, or a checkpoint adapted to the recipe."""

from dataclasses import replace
from typing import Any

import torch

from rhumbline.checkpoint import find_checkpoint, load
from rhumbline.errors import InputError
from rhumbline.policies.population import make_population
from rhumbline.toml_config import build_dataclass
from rhumbline.training.config import TrainConfig


def initial_policy(config: TrainConfig, device: torch.device) -> Any:
    """Return a new policy, or the one of `init` adapted to the recipe's architecture.

    A policy without latents is widened if the recipe wants a latent space. If the recipe itself
    sets `amplify`, the influence of the latents changes. Some policies of other problems are
    converted, such as those for the TSP, from which CVRP may start.
    """
    family = config.family
    wanted = build_dataclass(family.architecture, config.policy, "policy")
    members: int = config.policy.get("members", 0)
    check_population(config, members)
    if not config.init:
        # Initialisers know no other source of random numbers than the default generator.
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(config.seed)
            return family.network(wanted).to(device)
    policy = load_for_problem(config, device)
    if policy.architecture.latent == 0 and wanted.latent:
        policy = policy.widened(wanted.latent, wanted.amplify)
    if policy.architecture.latent and "amplify" in config.policy:
        policy = rescale_latents(policy, wanted.amplify)
    if config.reset_latents:
        reset_latents(policy, config.init)
    if members and not policy.architecture.members:
        policy = make_population(policy, members)
    if policy.architecture != wanted:
        raise InputError(f"{config.init} has {policy.architecture}; the recipe asks for {wanted}")
    return policy.requires_grad_(True)


def check_population(config: TrainConfig, members: int) -> None:
    """Refuse recipes that do not train all members of a population, or that record its steps."""
    if not members:
        return
    if members != config.objective.latents:
        raise InputError(
            f"a population of {members} learns with objective.latents = {members}, "
            "all members at once"
        )
    if config.graph:
        raise InputError(
            "graph = true is not for populations: a step has to look which members have won"
        )


def load_for_problem(config: TrainConfig, device: torch.device) -> Any:
    """Load the recipe's `init`; a policy for another problem is converted if possible."""
    policy: Any = load(find_checkpoint(config.init, config.problem), device)
    converters = config.family.converters
    if policy.problem in converters:
        policy = converters[policy.problem](policy)
    if policy.problem != config.problem:
        raise InputError(
            f"{config.init} was trained for '{policy.problem}'; "
            f"the recipe is for '{config.problem}'"
        )
    return policy


@torch.no_grad()
def reset_latents(policy: Any, name: str) -> None:
    """Give every latent the behaviour of the centre, as a widened policy has it."""
    if not policy.architecture.latent:
        raise InputError(f"reset_latents is for policies with a latent space; {name} has none")
    for key, weight in policy.named_parameters():
        if key.endswith("_latent"):
            weight.zero_()


def rescale_latents(policy: Any, amplify: float) -> Any:
    """Return the same weights with another amplification of the latents.

    The policy at the centre of the latent space does not change. Where latents hardly differ, the
    winner among them is random, and none specialises; a larger amplification separates them.
    """
    architecture = replace(policy.architecture, amplify=amplify)
    other = type(policy)(architecture)
    weights: dict[str, Any] = {}
    for name, x in policy.state_dict().items():
        if not name.endswith("amplify"):
            weights[name] = x
    other.load_state_dict(weights, strict=False)
    device = next(policy.parameters()).device
    return other.to(device)
