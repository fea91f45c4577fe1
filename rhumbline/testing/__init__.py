"""Checks of the contracts that problems, policies, strategies and engines must keep.

They are plain functions for the tests of outside packages, with whatever test runner:

    from rhumbline.testing import check_problem

    def test_rules():
        check_problem(MyRules(), [my_instance(n) for n in (2, 5, 8)])

A broken contract raises `AssertionError` with a sentence that states it. Our own problems,
policies, strategies and engines are checked by the same functions.
"""

from rhumbline.testing.engines import check_engine
from rhumbline.testing.policies import check_policy
from rhumbline.testing.problems import check_problem
from rhumbline.testing.strategies import check_strategy

__all__ = ["check_engine", "check_policy", "check_problem", "check_strategy"]
