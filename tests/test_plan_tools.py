"""Plan tools of the domains: who has them, and how what needs them is refused."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rhumbline.domain import Domain
from rhumbline.domains import DOMAINS, domain_of, find_policy_family, plan_tools
from rhumbline.errors import InputError
from rhumbline.problems.jssp import JSSPMachines
from rhumbline.search.after_search import AfterSearch
from rhumbline.search.driver import Budget

POLICY_FAMILIES = [name for domain in DOMAINS.values() for name in domain.policies]


@pytest.mark.parametrize("name", POLICY_FAMILIES)
def test_rules_belong_to_the_domain_of_what_they_solve(name: str) -> None:
    """Several rules of one problem share its domain."""
    domain, family = find_policy_family(name)
    rules = family.rules
    assert rules.name == name
    assert domain is DOMAINS[rules.solves]
    assert domain_of(rules) is DOMAINS[rules.solves]


@pytest.mark.parametrize("name", DOMAINS)
def test_standard_rules_bear_the_name_of_their_domain(name: str) -> None:
    """That is how plan tools know whose action sequences they read."""
    assert DOMAINS[name].problem.name == name
    assert plan_tools(name, "a wish") is DOMAINS[name].plans


def test_rules_without_a_domain_have_no_optional_parts() -> None:
    """A search in Python works without a domain; what needs a part of one is refused."""
    rules: Any = SimpleNamespace(name="knapsack", solves="knapsack")
    domain = domain_of(rules)
    assert domain.neighbourhoods is domain.plain_cost is None
    with pytest.raises(InputError, match="LNS is not supported for knapsack"):
        domain.require("neighbourhoods", "LNS")
    with pytest.raises(InputError, match="a warm start is not supported for knapsack"):
        plan_tools("knapsack", "a warm start")


def test_other_rules_of_a_problem_have_no_plan_tools() -> None:
    """Their action sequences are others, so several plans are refused before any work."""
    wanted = AfterSearch(top=2)
    with pytest.raises(InputError, match="best plan of a search is not supported for jssp-mach"):
        wanted.check(JSSPMachines().name, Budget(1))
    AfterSearch().check(JSSPMachines().name, Budget(1))


def test_a_polish_needs_a_polisher(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain may have plan tools without a local search."""
    domain: Domain = DOMAINS["tsp"]
    assert domain.plans is not None
    without = replace(domain, plans=replace(domain.plans, polisher=None))
    monkeypatch.setitem(DOMAINS.loaded, "tsp", without)
    AfterSearch(top=2).check("tsp", Budget(1))
    with pytest.raises(InputError, match="a polish is not supported for tsp"):
        AfterSearch(polish=True).check("tsp", Budget(1))
