"""What a strategy needs of a policy and a problem, and the refusals where it is missing."""

from dataclasses import dataclass
from typing import Any

from rhumbline.domain import Domain
from rhumbline.errors import InputError
from rhumbline.policies import AdjustablePolicy, Members, Policy
from rhumbline.policies.attention.pointer import RoutingPolicy


@dataclass(frozen=True)
class Needs:
    """Parts of a policy and a problem that a strategy cannot do without."""

    latent_space: bool = False  # latents in a box of at least one dimension
    population: bool = False  # a population of decoders (`Members`)
    single_decoder: bool = False  # no population
    neighbourhoods: bool = False  # regions of plans that can be re-sampled (`Domain`)
    comparable_starts: bool = False  # several starts whose costs can be compared (`SearchDefaults`)
    tables: bool = False  # tables that a search can adjust (`AdjustablePolicy`)
    # A residual layer after the attention read-out. Not every fused engine supports that.
    layer: bool = False


def check_needs(needs: Needs, policy: Policy[Any, Any, Any], domain: Domain) -> None:
    """Raise `InputError`, with other strategies to take, if a need is not met."""
    reason = unmet_need(needs, policy, domain)
    if reason:
        raise InputError(reason)


def unmet_need(needs: Needs, policy: Policy[Any, Any, Any], domain: Domain) -> str | None:
    """Return what is missing and what to use instead, or None if all needs are met."""
    is_population = isinstance(policy.space, Members)
    others = "sampling-elite, cmaes-elite, sgbs or sampling"
    if needs.neighbourhoods and domain.neighbourhoods is None:
        why = f"there are no neighbourhoods in plans of {policy.problem} to re-sample"
        return f"{why}; use --search {others}"
    if needs.population and not is_population:
        why = "this policy is not a population of decoders"
        shipped = "tsp100-poppy is one for tours (--policy)"
        return f"{why}; {shipped}, and docs/search.md says how one is trained"
    if needs.latent_space and is_population:
        return "this policy is a population, without a latent space; use --search population"
    if needs.latent_space and not policy.space.size:
        return "this policy has no latent space to search; use --search sampling or greedy"
    if (needs.single_decoder or needs.tables or needs.layer) and is_population:
        why = "this policy is a population, and this search is for one decoder"
        return f"{why}; use --search population"
    if needs.comparable_starts and not domain.search.comparable_starts:
        why = f"active search compares the starts of an instance, and {policy.problem} has none"
        return f"{why}; use --search {others}"
    if needs.tables and not isinstance(policy, AdjustablePolicy):
        why = f"this search adjusts tables that the policy for {policy.problem} has not"
        return f"{why}; use --search cmaes, sgbs or sampling"
    if needs.layer and not isinstance(policy, RoutingPolicy):
        why = f"this search adds a layer that the policy for {policy.problem} has no place for"
        return f"{why}; use --search eas-emb, cmaes or sampling"
    return None
