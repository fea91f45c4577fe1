"""The policy that a run begins with: a new one, or one of before made fit for the recipe."""

from dataclasses import replace
from typing import Any, cast

import torch

from rhumbline.checkpoint import find_checkpoint, load
from rhumbline.errors import InputError
from rhumbline.policies import POLICIES
from rhumbline.policies.cvrp import CVRPPolicy
from rhumbline.policies.population import make_population
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.toml_config import build_dataclass
from rhumbline.training.config import TrainConfig


def initial_policy(config: TrainConfig, device: torch.device) -> Any:
    """A new policy, or the one of `init`, widened if the recipe wants a latent space that it lacks.

    Where the recipe itself says how much latents are amplified, they count for more or less than
    they did. Vehicle routing may also start from a salesman's policy.
    """
    kind, architecture = POLICIES[config.problem]
    wanted = build_dataclass(architecture, config.policy, "policy")
    members = getattr(wanted, "members", 0)
    if members and members != config.objective.latents:
        raise InputError(
            f"a population of {members} learns with objective.latents = {members}, all members at once"
        )
    if members and config.graph:
        raise InputError(
            "graph = true is not for populations: a step has to look which members have won"
        )
    if not config.init:
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(
                config.seed
            )  # initialisers know no other source
            return kind(wanted).to(device)
    policy = cast(Any, load(find_checkpoint(config.init, config.problem), device))
    if config.problem == "cvrp" and isinstance(policy, TSPPolicy):
        policy = CVRPPolicy.after(policy)
    if policy.problem != config.problem:
        raise InputError(
            f"{config.init} was trained for '{policy.problem}'; the recipe is for '{config.problem}'"
        )
    if policy.architecture.latent == 0 and wanted.latent:
        policy = policy.widened(wanted.latent, wanted.amplify)
    if policy.architecture.latent and "amplify" in config.policy:
        policy = rescale_latents(policy, wanted.amplify)
    if members and not policy.architecture.members:
        policy = make_population(policy, members)
    if policy.architecture != wanted:
        raise InputError(f"{config.init} has {policy.architecture}; the recipe asks for {wanted}")
    return policy.requires_grad_(True)


def rescale_latents(policy: Any, amplify: float) -> Any:
    """The same weights, latents amplified otherwise: unchanged at the centre of the space, nearer
    or farther around it.

    Where latents hardly differ, the winner among them is drawn by lot and none ever specialises;
    this draws them apart.
    """
    other = type(policy)(replace(policy.architecture, amplify=amplify))
    other.load_state_dict(
        {n: x for n, x in policy.state_dict().items() if not n.endswith("amplify")}, strict=False
    )
    return other.to(next(policy.parameters()).device)
