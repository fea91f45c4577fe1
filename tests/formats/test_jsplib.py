"""Job-shop files: the same small shop in every form, and schedules out and in."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rhumbline.errors import Infeasible, InputError
from rhumbline.files import plan_suffix_for, read, read_many, write_plan
from rhumbline.formats.best_known import CLASSIC_MAKESPANS, classic_makespan
from rhumbline.formats.jsplib import read_schedule, write_jsp, write_schedule
from rhumbline.problems.jssp import JSSPInstance, Schedule

# Three jobs on three machines, by hand: 0-1-2, 2-0-1 and 1-2-0.
THREE = JSSPInstance(
    "three", ((3, 2, 1), (4, 1, 2), (2, 2, 2)), ((0, 1, 2), (2, 0, 1), (1, 2, 0)), 3
)
STANDARD = """# three jobs
3 3
0 3 1 2 2 1   # the first
2 4 0 1 1 2

1 2 2 2 0 2
"""
STANDARD_FROM_ONE = "3 3\n1 3 2 2 3 1\n3 4 1 1 2 2\n2 2 3 2 1 2\n"
TAILLARD = """Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound
 3 3 840612802 398197754 9 7
Times
 3 2 1
 4 1 2
 2 2 2
Machines
 1 2 3
 3 1 2
 2 3 1
"""
BARE = "3 3\n3 2 1\n4 1 2\n2 2 2\n0 1 2\n2 0 1\n1 2 0\n"
TURNED = "3 3\nMachines\n0 1 2\n2 0 1\n1 2 0\nTimes\n3 2 1\n4 1 2\n2 2 2\n"
JSON = (
    '{"durations": [[3, 2, 1], [4, 1, 2], [2, 2, 2]], '
    '"machines": [[0, 1, 2], [2, 0, 1], [1, 2, 0]]}'
)
# machine 0  111.2.33
# machine 1  33.1122.
# machine 2  2222331.
PLAN = Schedule(((0, 3, 6), (0, 4, 5), (0, 4, 6)))


def read_text(folder: Path, text: str, name: str = "three.txt") -> JSSPInstance:
    (folder / name).write_text(text)
    instance = read(folder / name)
    assert isinstance(instance, JSSPInstance)
    return instance


@pytest.mark.parametrize("ending", ["txt", "jsp", "dat", ""])
@pytest.mark.parametrize(
    ("text", "first"),
    [(STANDARD, 0), (STANDARD_FROM_ONE, 1), (TAILLARD, 1), (BARE, 0), (TURNED, 0)],
)
def test_every_form_of_a_file_says_the_same(
    tmp_path: Path, text: str, first: int, ending: str
) -> None:
    """Pairs or matrices, with or without titles, from 0 or 1, whatever the suffix."""
    name = f"three.{ending}" if ending else "three"
    assert read_text(tmp_path, text, name) == replace(THREE, first_machine=first)


def test_json_says_the_same(tmp_path: Path) -> None:
    """Also with machines from 1, and with all that may be said besides."""
    assert read_text(tmp_path, JSON, "three.json") == THREE
    facts = json.loads(JSON) | {"machines": [[1, 2, 3], [3, 1, 2], [2, 3, 1]]}
    assert read_text(tmp_path, json.dumps(facts), "three.json") == replace(THREE, first_machine=1)
    facts |= {"name": "shop", "best_known": 8, "machine_count": 4, "first_machine": 1}
    expected = replace(THREE, name="shop", best_known=8.0, machine_count=4, first_machine=1)
    assert read_text(tmp_path, json.dumps(facts), "three.json") == expected


def test_old_files_of_other_systems_are_read(tmp_path: Path) -> None:
    """Carriage returns, tabs, a byte order mark and Latin-1 comments."""
    text = "\ufeff" + STANDARD.replace("\n", "\r\n").replace(" ", "\t")
    assert read_text(tmp_path, text) == THREE
    (tmp_path / "three.txt").write_bytes(STANDARD.replace("three jobs", "fünf").encode("latin-1"))
    assert read(tmp_path / "three.txt") == THREE
    assert read_many(tmp_path / "three.txt") == [THREE]


def test_ragged_jobs_that_skip_and_revisit_machines(tmp_path: Path) -> None:
    """Jobs of 3, 1 and 2 operations, machine 1 twice in a row, machine 2 idle, a duration of 0."""
    instance = read_text(tmp_path, "3 3\n0 3 1 2 1 0\n1 4\n0 1 1 1\n", "odd.txt")
    assert instance.durations == ((3, 2, 0), (4,), (1, 1))
    assert instance.machines == ((0, 1, 1), (1,), (0, 1))
    assert (instance.machine_count, instance.first_machine) == (3, 0)


def test_ragged_matrices(tmp_path: Path) -> None:
    """Taillard's form with rows of different lengths, which needs the titles."""
    instance = read_text(tmp_path, "2 2\nTimes\n3 2\n4\nMachines\n1 2\n2\n", "odd.txt")
    assert (instance.durations, instance.machines) == (((3, 2), (4,)), ((0, 1), (1,)))


@pytest.mark.parametrize("text", ["1 1\n0 5\n", "1 1\n1 5\n", "1 1\n5\n1\n"])
def test_one_job_on_one_machine(tmp_path: Path, text: str) -> None:
    """The smallest shop is read, counted from 0 or 1, in both forms."""
    instance = read_text(tmp_path, text, "one.txt")
    assert (instance.durations, instance.machines, instance.machine_count) == (((5,),), ((0,),), 1)


def test_one_machine_and_one_job(tmp_path: Path) -> None:
    """Many jobs on one machine, and one job on many."""
    assert read_text(tmp_path, "3 1\n0 5\n0 6\n0 7\n").lower_bound == 18
    assert read_text(tmp_path, "1 3\n2 5 0 6 1 7\n").lower_bound == 18


@pytest.mark.parametrize(("said", "machines"), [(0, ((1, 2), (2,))), (1, ((0, 1), (1,)))])
def test_a_comment_settles_where_machines_begin(
    tmp_path: Path, said: int, machines: tuple[tuple[int, ...], ...]
) -> None:
    """Machines 1 and 2 of 4 may be either; a comment line says it."""
    instance = read_text(tmp_path, f"# first machine: {said}\n2 4\n1 3 2 2\n2 4\n")
    assert (instance.machines, instance.first_machine, instance.machine_count) == (
        machines,
        said,
        4,
    )


@pytest.mark.parametrize("first", [0, 1])
def test_an_instance_survives_writing(tmp_path: Path, first: int) -> None:
    """Also one whose numbers alone do not say where machines begin."""
    odd = JSSPInstance("odd", ((3, 0), (4,)), ((1, 1), (1,)), 3, first)
    write_jsp(tmp_path / "odd.jsp", odd, "by\nhand")
    assert (
        (tmp_path / "odd.jsp").read_text().startswith(f"# by hand\n# first machine: {first}\n2 3\n")
    )
    assert read(tmp_path / "odd.jsp") == odd


# --- best known makespans


def test_best_known_makespans_beside_the_file(tmp_path: Path) -> None:
    """A number, an optimum as JSPLIB writes it, or the upper one of its bounds."""
    for entry in (
        8,
        {"optimum": 8, "bounds": None},
        {"optimum": None, "bounds": {"upper": 8, "lower": 7}},
    ):
        (tmp_path / "optima.json").write_text(json.dumps({"three": entry}))
        assert read_text(tmp_path, STANDARD).best_known == 8


def test_an_entry_without_a_number_is_refused(tmp_path: Path) -> None:
    """An object that has neither optimum nor bounds is no cost."""
    (tmp_path / "optima.json").write_text('{"three": {"optimum": null}}')
    with pytest.raises(InputError, match=r"optima\.json: 'three' has"):
        read_text(tmp_path, STANDARD)


def rotated(name: str, jobs: int, machines: int, duration: int) -> JSSPInstance:
    """Return a job shop of this size that is not the classic of that name."""
    orders = tuple(tuple((j + s) % machines for s in range(machines)) for j in range(jobs))
    return JSSPInstance(name, ((duration,) * machines,) * jobs, orders, machines)


def test_classics_are_known_by_name_size_and_bound() -> None:
    """ft06 is 6 x 6 and takes 55; another size or a higher bound means another instance."""
    assert (
        classic_makespan(rotated("ft06", 6, 6, 5))
        == classic_makespan(rotated("FT06", 6, 6, 5))
        == 55
    )
    assert classic_makespan(rotated("ft06", 6, 5, 5)) is None
    assert classic_makespan(rotated("ft06", 6, 6, 10)) is None
    assert classic_makespan(rotated("workshop", 6, 6, 5)) is None


def test_the_table_of_classics_is_well_formed() -> None:
    """Pairs of a name, once each, and a whole number."""
    words = [word for row in CLASSIC_MAKESPANS.values() for word in row.split()]
    names, costs = words[::2], words[1::2]
    assert len(set(names)) == len(names)
    assert all(cost.isdecimal() for cost in costs)


# --- schedules


def test_a_schedule_survives_writing(tmp_path: Path) -> None:
    """The file says the makespan and the start times of each job, and reads back equal."""
    write_plan(tmp_path / "three.sched", PLAN, THREE, "found by hand")
    assert (tmp_path / "three.sched").read_text() == (
        "# three\n# found by hand\n# start times of the operations of each job\n"
        "Makespan 8\nJob 1: 0 3 6\nJob 2: 0 4 5\nJob 3: 0 4 6\n"
    )
    assert read_schedule(tmp_path / "three.sched", THREE) == PLAN
    assert plan_suffix_for(THREE) == ".sched"


def test_names_with_line_breaks_stay_comments(tmp_path: Path) -> None:
    """A name cannot smuggle a line into the file."""
    odd = replace(THREE, name="a\nJob 1: 9 9 9")
    write_schedule(tmp_path / "odd.sched", PLAN, odd, "")
    assert read_schedule(tmp_path / "odd.sched", THREE) == PLAN


def test_a_schedule_that_is_none_is_not_written(tmp_path: Path) -> None:
    """The checker comes first, and no file is left."""
    with pytest.raises(Infeasible):
        write_schedule(tmp_path / "bad.sched", Schedule(((0, 0, 0),) * 3), THREE, "")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the error names the path and the reason, and nothing changes."""
    (tmp_path / "three.sched").write_text("old")

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(
        InputError, match=r"three\.sched: cannot be written: No space left on device"
    ):
        write_schedule(tmp_path / "three.sched", PLAN, THREE, "")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("three.sched", "old")]
