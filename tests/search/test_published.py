"""The published search: settings by problem and size (Chalumeau et al. 2023, appendix D)."""

import pytest

from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError
from rhumbline.problems.tsp import TSP
from rhumbline.search.driver import Budget, search
from rhumbline.search.strategies.cmaes import CMAES
from rhumbline.search.strategies.published import CMAESPublished
from rhumbline.search.task import make_task

# Problem, cities or customers or operations; components, temperature and parents.
PUBLISHED = [
    ("tsp", 100, 3, 1.0, 8),
    ("tsp", 101, 3, 0.1, 8),
    ("tsp", 150, 3, 0.1, 8),
    ("tsp", 200, 2, 0.1, 8),
    ("cvrp", 100, 2, 0.1, 8),
    ("jssp", 225, 3, 0.1, 12),
]


@pytest.mark.parametrize(("problem", "size", "components", "temperature", "parents"), PUBLISHED)
def test_the_table_of_the_paper(
    problem: str, size: int, components: int, temperature: float, parents: int
) -> None:
    """The row of a size is the first that reaches it."""
    table = DOMAINS[problem].search.published
    row = next(row for row in table if size <= row.max_size)
    assert (row.components, row.temperature, row.parents) == (components, temperature, parents)


def test_it_is_plain_cmaes_with_those_settings(policy, make_instances) -> None:
    """The same plans as by the settings typed in full."""
    instances = make_instances(2, 9)
    full = CMAES(components=3, parents=8, temperature=1.0, starts=1.0)
    found = [
        search(strategy, make_task(TSP(), policy, instances), Budget(48))[0]
        for strategy in (CMAESPublished(), full)
    ]
    assert [s.plan for s in found[0]] == [s.plan for s in found[1]]


@pytest.mark.parametrize("parents", [0, 17])
def test_parents_are_of_the_population(parents: int) -> None:
    """More parents than latents, or none, are refused."""
    with pytest.raises(InputError, match=f"parents is {parents}; expected 1 to 16"):
        CMAES(parents=parents)


def test_parents_change_the_search(policy, make_instances) -> None:
    """Other parents move the component elsewhere from the second generation on."""
    instances = make_instances(1, 9)
    tried = []
    for parents in (None, 8, 12):
        task = make_task(TSP(), policy, instances)
        strategy = CMAES(components=1, parents=parents)
        task.account.limit = 100
        first = strategy.step(task, strategy.init(task))
        tried.append(first.state.components.mean)
    assert tried[0].equal(tried[1])
    assert not tried[0].equal(tried[2])
