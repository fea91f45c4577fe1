"""A critic that is trained beside a policy, as the baseline of each decision (actor-critic).

The critic predicts the final cost from the state before a decision. The cost of the sequence minus
this prediction is the advantage of the decision; negative ones are good. A domain names the critics
of its policies (`PolicyFamily.critic`). The state of a run holds the critic, a checkpoint does not.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rhumbline.decoding import Decisions, chosen_log_prob
from rhumbline.toml_config import build_dataclass
from rhumbline.training import parallel
from rhumbline.training.config import TrainConfig
from rhumbline.training.objectives.targets import Targets


@dataclass(frozen=True)
class CriticTuning:
    """The scale of the critic's loss."""

    cost_unit: float = 100.0  # unit of the squared errors, as published for makespans


TUNING = CriticTuning()


class ActorCriticLosses(NamedTuple):
    """Sums over the decisions of a mini-step. Policy and critic share no weights."""

    policy: Float[Tensor, ""]  # has gradients for the policy only
    critic: Float[Tensor, ""]  # has gradients for the critic only
    decisions: Float[Tensor, ""]  # the number of squared errors
    scores: Float[Tensor, "B R"]  # log-probability of each sequence


class CriticLearner:
    """A critic in training, with its optimiser: AdamW without weight decay."""

    def __init__(self, config: TrainConfig, device: torch.device):
        make_critic = config.family.critic
        assert make_critic is not None, "Reinforce.check_recipe refuses policies without a critic"
        sizes = build_dataclass(config.family.architecture, config.policy, "policy")
        # Initialisers of PyTorch modules draw from the default generator only.
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(config.seed)
            network = make_critic(sizes)
        self.network: nn.Module = network.to(device)
        self.parameters = dict(self.network.named_parameters())
        self.optimiser: torch.optim.Optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=config.optimiser.lr,
            betas=config.optimiser.betas,
            weight_decay=0.0,
            fused=device.type == "cuda",
        )

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next update, which is that of the policy."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def values(self, batch: Any, targets: Targets, decisions: Decisions) -> Float[Tensor, "B V"]:
        """Return the final cost that the critic expects before each decision."""
        network: Any = self.network
        memory = network.encode(batch)
        states = decisions.allowed.shape[1]
        per_latent = states // targets.latents.shape[1]
        latents = targets.latents.repeat_interleave(per_latent, dim=1)
        return network.values(memory, latents, decisions.state, decisions.allowed)

    def losses(self, batch: Any, targets: Targets, decisions: Decisions) -> ActorCriticLosses:
        """Return the losses of scored sequences, whose costs are in the targets."""
        chosen = chosen_log_prob(decisions.logits, decisions.allowed, targets.actions)
        values = self.values(batch, targets, decisions).view(chosen.shape)
        has_choice = decisions.allowed.sum(2) > 1
        return actor_critic_losses(
            chosen,
            values,
            targets.weight_or_cost,
            has_choice.view(chosen.shape),
        )

    def finish_gradient(self, clip: float) -> dict[str, Tensor]:
        """Add up the gradients of all processes, and clip them; return them by name."""
        parallel.add_gradients(self.parameters.values())
        if clip:
            nn.utils.clip_grad_norm_(self.parameters.values(), clip, foreach=True)
        gradients: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                gradients[f"gradient of the critic's {name}"] = parameter.grad
        return gradients


def actor_critic_losses(
    chosen: Float[Tensor, "B R t"],
    values: Float[Tensor, "B R t"],
    cost: Float[Tensor, "B R"],
    has_choice: Bool[Tensor, "B R t"],
) -> ActorCriticLosses:
    """Return the losses of decisions, given their log-probabilities and values.

    The weight of a decision is the cost of its sequence minus its value. Sequences whose cost is
    nan, and decisions without a choice, do not count.
    """
    is_used = has_choice & ~cost.isnan()[..., None]
    advantage = cost.nan_to_num()[..., None] - values
    advantage = advantage.masked_fill(~is_used, 0.0)
    weighted = advantage.detach() * chosen
    error = advantage / TUNING.cost_unit
    scores = chosen.detach()
    return ActorCriticLosses(
        policy=weighted.sum(),
        critic=error.square().sum(),
        decisions=is_used.sum().float(),
        scores=scores.sum(2),
    )
