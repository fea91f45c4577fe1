"""One page per problem, with everything that is special about it.

An outside package adds a problem by an entry point:

    [project.entry-points."rhumbline.domains"]
    op = "my_package:OP"
"""

from rhumbline.domain import Domain, PolicyFamily
from rhumbline.errors import InputError
from rhumbline.registry import Registry

DOMAINS: Registry[Domain] = Registry(
    "domains",
    {
        "tsp": "rhumbline.domains.tsp:TSP_DOMAIN",
        "cvrp": "rhumbline.domains.cvrp:CVRP_DOMAIN",
        "jssp": "rhumbline.domains.jssp:JSSP_DOMAIN",
    },
)


def find_family(name: str) -> tuple[Domain, PolicyFamily]:
    """Return the domain and the policy family of a recipe's `problem` or a checkpoint's header."""
    known: list[str] = []
    for _, domain in DOMAINS.working():
        if name in domain.policies:
            return domain, domain.policies[name]
        known += domain.policies
    raise InputError(f"problem '{name}' is not known; known: {', '.join(known)}")
