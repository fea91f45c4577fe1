"""The contracts of a search strategy, checked by short searches."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from rhumbline.errors import InputError
from rhumbline.policies import Policy
from rhumbline.problems import Problem
from rhumbline.search.driver import Budget, search, stream
from rhumbline.search.task import make_task
from rhumbline.testing.contracts import TOLERANCE, expect, group_by_shape


class TraceStep(NamedTuple):
    """The state of a search after a step."""

    attempts: int
    spare: int  # trajectories that are paid for and not made yet
    best: list[float]  # costs of the instances so far
    latest: list[float]  # costs of the step


@dataclass(frozen=True)
class StrategyTrials:
    """What a strategy is tried with."""

    min_refusal_words: int = 4  # of the sentence with which it refuses a problem
    many_attempts: int = 64  # enough for several generations


TRIALS = StrategyTrials()


@dataclass(frozen=True)
class Searcher:
    """A strategy with everything that it searches."""

    strategy: Any
    rules: Problem[Any, Any]
    policy: Policy[Any, Any, Any]
    augment: int = 1

    def trace(self, instances: Sequence[Any], attempts: int, seed: int = 0) -> list[TraceStep]:
        """Return the state after each step of a search."""
        task = make_task(self.rules, self.policy, instances, seed=seed, augment=self.augment)
        steps: list[TraceStep] = []
        for progress in stream(self.strategy, task, Budget(attempts)):
            best = progress.best.tolist()
            latest = progress.latest.tolist()
            spare = task.account.spare_trajectories
            steps.append(TraceStep(progress.attempts, spare, best, latest))
        return steps

    def solutions(self, instances: Sequence[Any], attempts: int) -> list[Any]:
        """Return the solutions of a whole search."""
        task = make_task(self.rules, self.policy, instances, augment=self.augment)
        solutions, interrupted = search(self.strategy, task, Budget(attempts))
        expect(not interrupted, "a search ends by its budget, without an interruption")
        return solutions


def check_strategy(
    strategy: Any,
    rules: Problem[Any, Any],
    policy: Policy[Any, Any, Any],
    instances: Sequence[Any],
    *,
    attempts: int = 24,
    augment: int = 1,
) -> str | None:
    """Check a strategy on some instances of a problem.

    Returns None if it serves, or the sentence of an `InputError` with which it refuses the policy
    or the problem before any work. Raises `AssertionError` with the contract that is broken.
    """
    searcher = Searcher(strategy, rules, policy, augment)
    group = max(group_by_shape(instances), key=len)
    try:
        trace = searcher.trace(group, attempts)
    except InputError as error:
        sentence = str(error)
        is_sentence = len(sentence.split()) >= TRIALS.min_refusal_words
        expect(is_sentence, f"a refusal is a sentence, not '{sentence}'")
        return sentence
    check_trace(strategy, trace, attempts)
    expect(searcher.trace(group, attempts) == trace, "the same seed gives the same search")
    check_solutions(searcher, group, attempts, trace)
    check_single_attempt(searcher, group)
    check_batch_mates(searcher, group)
    return None


def check_trace(strategy: Any, trace: list[TraceStep], attempts: int) -> None:
    """Check that the budget is kept, and that the best costs are those of all steps."""
    name = type(strategy).__name__
    expect(trace, f"{name} tries something")
    spent = trace[-1].attempts
    expect(spent <= attempts, f"{name} spends at most {attempts} attempts, not {spent}")
    first = trace[0]
    expect(first.best == first.latest, "the best cost after the first step is that of the step")
    for before, after in pairwise(trace):
        expect(before.attempts <= after.attempts, "attempts never become fewer")
        cheapest = list(map(min, before.best, after.latest))
        expect(after.best == cheapest, "the best cost is the cheapest of all steps so far")


def check_solutions(
    searcher: Searcher, instances: Sequence[Any], attempts: int, trace: list[TraceStep]
) -> None:
    """Check that solutions are feasible plans at the cost of the trace."""
    solutions = searcher.solutions(instances, attempts)
    expect(len(solutions) == len(instances), "every instance has a solution")
    last = trace[-1]
    for row, (instance, solution) in enumerate(zip(instances, solutions, strict=True)):
        solution.plan.check(instance)
        cost = solution.plan.cost(instance)
        expect(solution.cost == cost, "the cost of a solution is that of its plan")
        is_best = are_close(cost, last.best[row])
        expect(is_best, "the cost of a solution is the best of the trace")
        is_complete = solution.attempts == last.attempts
        expect(is_complete, "a solution knows the attempts spent on it")


def check_single_attempt(searcher: Searcher, instances: Sequence[Any]) -> None:
    """Check that one attempt is enough for a solution."""
    for solution in searcher.solutions(instances, 1):
        expect(solution.attempts == 1, "a budget of one attempt is spent on one attempt")


def check_batch_mates(searcher: Searcher, instances: Sequence[Any]) -> None:
    """Check that instances solved together take the steps they take alone."""
    together = searcher.trace(instances, TRIALS.many_attempts)
    for row, instance in enumerate(instances):
        alone = searcher.trace([instance], TRIALS.many_attempts)
        for one, whole in zip(alone, together, strict=False):
            if one[:2] != whole[:2]:  # a beam is as wide as its widest instance needs
                break
            contract = "what happens to an instance does not depend on the others"
            expect(are_close(one.best[0], whole.best[row]), contract)
            expect(are_close(one.latest[0], whole.latest[row]), contract)


def are_close(a: float, b: float) -> bool:
    """Return whether two costs agree but for rounding."""
    size = max(1.0, abs(a))
    difference = abs(a - b)
    return difference <= TOLERANCE * size
