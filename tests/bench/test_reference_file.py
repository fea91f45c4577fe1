"""Reference files hold the costs of several makers and never become worse."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rhumbline.bench.reference.file import References, add_references, read_references
from rhumbline.bench.reference.make import ReferenceOptions, fill_references, solve_by_cpsat
from rhumbline.errors import Infeasible, InputError
from rhumbline.problems.jssp import Schedule, jssp_from_arrays

STORED = sorted((Path(__file__).parents[2] / "benchmarks" / "reference").glob("*.npz"))


def references_of(
    costs: list[float], made_by: str, bounds: list[float] | None = None
) -> References:
    """Return costs of one maker."""
    made = References.empty(len(costs), made_by, "a day")
    made.cost[:], made.bound[:] = costs, bounds or [np.nan] * len(costs)
    return made


def test_the_better_cost_stays_with_its_maker() -> None:
    """The lower cost wins, the earlier of equal ones, and any cost over none.

    The higher bound wins independently.
    """
    old = references_of([5.0, 5.0, 5.0, np.nan], "old", [1.0, 4.0, np.nan, np.nan])
    new = references_of([6.0, 4.0, 5.0, 7.0, 8.0], "new", [2.0, 3.0, 5.0, np.nan, np.nan])
    both = old.merge(new)
    assert both.cost.tolist() == [5.0, 4.0, 5.0, 7.0, 8.0]
    assert both.made_by.tolist() == ["old", "new", "old", "new", "new"]
    assert both.bound[:3].tolist() == [2.0, 4.0, 5.0]
    assert both.is_proven.tolist() == [False, True, True, False, False]
    assert both.makers() == "old (2); new (3)"


def test_a_file_keeps_its_better_costs(tmp_path: Path) -> None:
    """Whatever is added in whatever order, costs only fall and keep their makers.

    A missing cost stays missing.
    """
    file = tmp_path / "deep" / "r.npz"
    add_references(file, references_of([3.0, np.nan], "a"))
    add_references(file, references_of([2.0, np.nan, 9.0], "the second maker"))
    add_references(file, references_of([4.0], "c"))
    stored = read_references(file)
    assert stored.cost.tolist()[::2] == [2.0, 9.0]
    assert stored.has_cost.tolist() == [True, False, True]
    assert stored.makers() == "the second maker"


def test_one_maker_is_one_sentence(tmp_path: Path) -> None:
    """Such a file has two sentences and costs, and no bounds if there are none.

    Older scripts wrote and read the same.
    """
    file = tmp_path / "r.npz"
    add_references(file, references_of([3.0, np.nan], "a"))
    with np.load(file) as stored:
        assert {name: stored[name].shape for name in stored.files} == {
            "cost": (2,),
            "made_by": (),
            "made_on": (),
        }
    add_references(file, references_of([np.nan, 2.0], "b", [np.nan, 1.0]))
    with np.load(file) as stored:
        assert stored["made_by"].tolist() == ["a", "b"]
        assert stored["bound"].shape == (2,)


@pytest.mark.parametrize("path", STORED, ids=lambda p: p.stem)
def test_stored_files_stay_what_they_are(path: Path, tmp_path: Path) -> None:
    """Neither reading and writing the files of the project nor adding higher costs changes them."""
    stored, copy = read_references(path), tmp_path / path.name
    assert len(stored.makers()) > 10
    add_references(copy, stored)
    add_references(copy, references_of((stored.cost + 1.0).tolist(), "a weak solver"))
    with np.load(path) as before, np.load(copy) as after:
        assert set(before.files) == set(after.files)
        for name in before.files:
            np.testing.assert_array_equal(before[name], after[name])


def test_costs_below_a_bound_are_of_other_instances(tmp_path: Path) -> None:
    """They are refused, and the file does not change."""
    add_references(tmp_path / "r.npz", references_of([5.0], "a", [5.0]))
    with pytest.raises(
        InputError, match="instance 1 has cost 4 below its bound 5; the file is of other instances"
    ):
        add_references(tmp_path / "r.npz", references_of([4.0], "b"))
    assert read_references(tmp_path / "r.npz").cost.tolist() == [5.0]


def test_columns_of_other_lengths_are_refused(tmp_path: Path) -> None:
    """The message has both numbers."""
    np.savez(tmp_path / "r.npz", cost=np.ones(3), made_by=["a", "b"])
    with pytest.raises(InputError, match=r"`made_by` has shape \[2\], but there are 3 costs"):
        read_references(tmp_path / "r.npz")


def double(number: float) -> tuple[float, float]:
    return 2.0 * number, np.nan


@pytest.mark.parametrize(("again", "solved"), [(False, [3.0]), (True, [1.0, 3.0])])
def test_only_what_is_wanted_is_solved(tmp_path: Path, again: bool, solved: list[float]) -> None:
    """These are the instances without a cost; with `again`, also those whose cost is not proven."""
    seen: list[float] = []
    add_references(tmp_path / "r.npz", references_of([9.0, 1.0, np.nan], "a", [0.0, 1.0, np.nan]))
    solve = lambda number: seen.append(number) or double(number)  # noqa: E731
    steps = list(
        fill_references(
            tmp_path / "r.npz", [1.0, 2.0, 3.0], solve, "b", ReferenceOptions(again=again)
        )
    )
    assert seen == solved
    assert [x.done for x in steps] == [*range(3 - len(solved), 4)]
    assert read_references(tmp_path / "r.npz").cost.tolist() == [2.0 if again else 9.0, 1.0, 6.0]


def test_an_instance_without_a_plan_does_not_end_the_rest(tmp_path: Path) -> None:
    """It stays without a cost, and the next run tries it again."""

    def solve(number: float) -> tuple[float, float]:
        if number == 1.0:
            raise Infeasible("nothing in time")
        return double(number)

    assert [
        x.done
        for x in fill_references(tmp_path / "r.npz", [1.0, 2.0], solve, "b", ReferenceOptions())
    ] == [
        0,
        1,
        2,
    ]
    assert read_references(tmp_path / "r.npz").has_cost.tolist() == [False, True]


def test_an_interruption_keeps_what_is_done(tmp_path: Path) -> None:
    """After Ctrl-C at the second instance, the first is in the file."""

    def solve(number: float) -> tuple[float, float]:
        if number > 1.0:
            raise KeyboardInterrupt
        return double(number)

    with pytest.raises(KeyboardInterrupt):
        list(fill_references(tmp_path / "r.npz", [1.0, 2.0], solve, "b", ReferenceOptions()))
    assert read_references(tmp_path / "r.npz").has_cost.tolist() == [True, False]


def test_a_makespan_is_proven() -> None:
    """CP-SAT finds the optimum of a shop of 3 jobs (11, by hand) and a bound that meets it, with
    and without a hint.
    """
    instance = jssp_from_arrays(
        [[3, 2, 2], [2, 1, 4], [4, 3, 1]], [[0, 1, 2], [0, 2, 1], [1, 2, 0]]
    )
    hint = Schedule(((0, 3, 5), (7, 9, 10), (14, 18, 21)))
    assert (
        solve_by_cpsat(instance, 60.0)
        == partial(solve_by_cpsat, hint=hint)(instance, 60.0)
        == (11, 11.0)
    )
