"""One page per problem, with everything that is special about it.

An outside package adds a problem by an entry point:

    [project.entry-points."rhumbline.domains"]
    op = "my_package:OP"

This module imports no torch, so that the command line can read its tables at once.
"""

from typing import TYPE_CHECKING, Any

from rhumbline.errors import InputError, shorten
from rhumbline.registry import Registry, suggest_known

if TYPE_CHECKING:
    from rhumbline.domain import Domain, PlanTools, PolicyFamily
    from rhumbline.problems import Problem

DOMAINS: Registry["Domain"] = Registry(
    "domains",
    {
        "tsp": "rhumbline.domains.tsp:TSP_DOMAIN",
        "cvrp": "rhumbline.domains.cvrp:CVRP_DOMAIN",
        "jssp": "rhumbline.domains.jssp:JSSP_DOMAIN",
    },
)


# CPU kernels that may have to be compiled, by the suffix of the files that need them. In a folder
# the first suffix here counts: a text file may be a job shop, or a note beside the instances.
COMPILED_SUFFIXES = {".tsp": "tours", ".vrp": "routes", ".jsp": "schedules", ".txt": "schedules"}


def find_policy_family(name: str) -> tuple["Domain", "PolicyFamily"]:
    """Return the policy family that a checkpoint or a recipe names, and its domain."""
    if name in DOMAINS and name in DOMAINS[name].policies:
        return DOMAINS[name], DOMAINS[name].policies[name]
    known: list[str] = []
    for _, domain in DOMAINS.working():
        if name in domain.policies:
            return domain, domain.policies[name]
        known += domain.policies
    raise InputError(f"problem '{shorten(name)}' is not known{suggest_known(name, known)}")


def domain_of(rules: "Problem[Any, Any]") -> "Domain":
    """Return the domain that rules belong to.

    Rules that no domain knows get one without optional parts, so that Python code can search with
    them.
    """
    if rules.solves in DOMAINS:
        return DOMAINS[rules.solves]
    from rhumbline.domain import Domain

    return Domain(rules.solves, instance=object, plan=object, problem=rules, policies={})


def plan_tools(rules_name: str, what: str) -> "PlanTools":
    """Return the plan tools for rules; refuse `what` if there are none.

    Plan tools read the action sequences of a domain's standard rules, which bear its name. Other
    rules of the same problem have other sequences, and no tools.
    """
    if rules_name not in DOMAINS:
        raise InputError(f"{what} is not supported for {rules_name}")
    domain = DOMAINS[rules_name]
    tools: PlanTools = domain.require("plans", what)
    return tools
