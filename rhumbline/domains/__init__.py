"""One page per problem, with everything that is special about it.

An outside package adds a problem by an entry point:

    [project.entry-points."rhumbline.domains"]
    op = "my_package:OP"
"""

from rhumbline.domain import Domain
from rhumbline.registry import Registry

DOMAINS: Registry[Domain] = Registry(
    "domains",
    {
        "tsp": "rhumbline.domains.tsp:TSP_DOMAIN",
        "cvrp": "rhumbline.domains.cvrp:CVRP_DOMAIN",
        "jssp": "rhumbline.domains.jssp:JSSP_DOMAIN",
    },
)
