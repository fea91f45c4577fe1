"""Messages for job-shop files that cannot be used: the file, the line, and the words."""

import json
from pathlib import Path
from typing import Any

import pytest
from damaging import attempt, damage, damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.errors import InputError
from rhumbline.files import read
from rhumbline.formats.jsplib import read_jsp, read_schedule
from rhumbline.formats.jsplib_json import read_json
from rhumbline.problems.jssp import JSSPInstance, jssp_from_arrays

SHOP = """# a shop
3 3
0 3 1 2 2 1
2 4 0 1 1 2
1 2 2 2 0 2
"""
MATRICES = "3 3\nTimes\n3 2 1\n4 1 2\n2 2 2\nMachines\n1 2 3\n3 1 2\n2 3 1\n"
BARE = MATRICES.replace("Times\n", "").replace("Machines\n", "")
JSON = '{"durations": [[3, 2], [4, 1]], "machines": [[0, 1], [1, 0]]}'
TWO = jssp_from_arrays([[3, 2], [4, 1]], [[0, 1], [1, 0]], "two")
SCHEDULE = "# two\nMakespan 6\nJob 1: 0 4\nJob 2: 0 4\n"


def refusal(path: Path, text: str | bytes | None = None) -> str:
    """Return the message about a file of this content, without its folder."""
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value).removeprefix(f"{path.parent}/")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "3 3\n",
            "4 3\n",
            2,
            "3 rows follow, 4 jobs need 4 rows of pairs, or 8 of 3 numbers in Taillard's form",
        ),
        ("3 3\n", "2 3\n", 2, "3 rows follow, 2 jobs need 2 rows of pairs"),
        ("3 3\n", "3\n", 2, "read 1 words, expected two: the numbers of jobs and of machines"),
        ("3 3\n", "3 3 1\n", 2, "flexible job shops, which are not supported"),
        ("3 3\n", "0 3\n", 2, "the file has 0 jobs, expected 1 to 100"),
        ("3 3\n", "3 101\n", 2, "the file has 101 machines, expected 1 to 100"),
        ("3 3\n", "101 3\n", 2, "the file has 101 jobs"),
        ("3 3\n", "3 x\n", 2, "read 'x', expected the number of machines"),
        ("2 2 1\n", "2 2\n", 3, "read 5 numbers, expected pairs: machine and duration"),
        ("0 3 1 2", "0 -3 1 2", 3, "read '-3', expected a duration: a whole number, not negative"),
        ("0 3 1 2", "0 2.5 1 2", 3, "read '2.5', expected a duration"),
        ("0 3 1 2", "-1 3 1 2", 3, "read '-1', expected a machine"),
        (
            "2 4 0 1",
            "3 4 0 1",
            4,
            "read machine 3, expected 0 to 2, as the file counts its 3 machines from 0",
        ),
        ("2 4 0 1", "2 4 nan 1", 4, "read 'nan', expected a machine"),
        (
            "2 4 0 1",
            "2 2147483640 0 1",
            4,
            "the durations up to here add up to 2,147,483,649, at most 2,147,483,647",
        ),
        (
            "2 4 0 1",
            f"2 {'9' * 16} 0 1",
            4,
            "expected a duration: a whole number, not negative, of at most 15 digits",
        ),
        ("1 2 2 2 0 2", "job", 5, "read 1 numbers, expected pairs"),
        ("1 2 2 2 0 2\n", "1 2 2 2 0 2\n1 1\n", 2, "4 rows follow, 3 jobs need 3 rows of pairs"),
        (
            "# a shop",
            "# first machine: 1",
            3,
            "read machine 0, expected 1 to 3, as the file counts its 3 machines from 1",
        ),
        ("# a shop", "Times", 1, "read 1 words, expected two"),
        (
            "1 2 2 2 0 2\n",
            "1 2 2 2 0 2\n0 1 1 0\n1 1 0 0\n0 0 1 1\n",
            2,
            "6 rows follow, 3 jobs need 3 rows of pairs",
        ),
    ],
)
def test_a_bad_file_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    """Row counts, odd rows, signs, ranges and an overflowing horizon."""
    assert old in SHOP
    message = refusal(tmp_path / "shop.jsp", SHOP.replace(old, new))
    assert message.startswith(f"shop.jsp:{line}: ")
    assert words in message


@pytest.mark.parametrize("word", ["-3", "3.0", "+3", "3."])
def test_a_strange_number_of_jobs_is_said_to_be_one(tmp_path: Path, word: str) -> None:
    """A file of any suffix that begins with numbers is a job shop, even with wrong numbers."""
    message = refusal(tmp_path / "shop.txt", SHOP.replace("3 3\n", f"{word} 3\n"))
    assert message.startswith(
        f"shop.txt:2: read '{word}', expected the number of jobs: a whole number"
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("Machines\n", "", 2, "'Times' has 6 rows, the header says 3 jobs"),
        ("Machines\n1 2 3\n", "Machines\n", 6, "'Machines' has 2 rows, the header says 3 jobs"),
        ("Machines\n1 2 3\n3 1 2\n2 3 1\n", "", None, "'Machines' is missing"),
        ("Machines", "Times", 6, "'Times' is given twice"),
        ("Times\n", "", 5, "'Machines' stands behind rows without a title"),
        ("3 1 2", "3 1", 8, "read 2 machines, the durations on line 4 are 3"),
        (
            "3 1 2",
            "4 1 2",
            8,
            "read machine 4, expected 1 to 3, as the file counts its 3 machines from 1",
        ),
        (
            "3 1 2",
            "3 0 2",
            7,
            "read machine 3, expected 0 to 2, as the file counts its 3 machines from 0",
        ),
        ("4 1 2", "4 -1 2", 4, "read '-1', expected a duration"),
        ("2 3 1\n", "2 3 1\nNb of jobs, Nb of Machines\n", 10, "a second instance begins here"),
        ("3 3", "3 3 1 2", 1, "read 4 words, expected two"),
    ],
)
def test_a_bad_matrix_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """The same in Taillard's form."""
    assert old in MATRICES
    message = refusal(tmp_path / "shop.jsp", MATRICES.replace(old, new, 1))
    assert message.startswith(f"shop.jsp:{line}: " if line else "shop.jsp: ")
    assert words in message


@pytest.mark.parametrize(
    "text",
    [
        "2 3\n1 3 2 2\n2 4\n",
        "2 3\n3 2 5\n4 1 5\n1 2 1\n2 1 2\n",
        "2 4\n2 3 3 2\n3 4\n",
        "2 3\nTimes\n1\n2\nMachines\n1\n1\n",
    ],
)
def test_ambiguous_numbering_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    """Neither machine 0 nor the last one: both countings fit, so the file has to say it."""
    message = refusal(tmp_path / "shop.txt", text)
    assert message.startswith("shop.txt:1: of ")
    assert "they may count from 0 or from 1; add a line '# first machine: 0', or 1" in message
    (tmp_path / "shop.txt").write_text(f"{text}# first machine: 1\n")
    instance = read(tmp_path / "shop.txt")
    assert isinstance(instance, JSSPInstance)
    assert instance.first_machine == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"durations": [[3, 2], [4]]}, "durations and machines differ in shape"),
        ({"durations": [[3, 2]]}, "durations and machines differ in shape"),
        ({"durations": [[3, 2], []], "machines": [[0, 1], []]}, "job 2 has no operation"),
        ({"durations": [], "machines": []}, "has 0 jobs"),
        ({"durations": [[3, -2], [4, 1]]}, "operation 2 of job 1 takes -2"),
        ({"durations": [[3, 2**31], [4, 1]]}, "all durations together are"),
        (
            {"durations": [[3, 2.0], [4, 1]]},
            "'durations' of job 1: read 2.0, expected a list of whole numbers",
        ),
        ({"durations": [[3, True], [4, 1]]}, "'durations' of job 1: read true"),
        ({"durations": [3, 2]}, "'durations' of job 1: read 3"),
        ({"durations": 3}, "'durations' must be a list of lists"),
        ({"machines": [[0, "1"], [1, 0]]}, "'machines' of job 1: read \"1\""),
        ({"machines": [[0, -1], [1, 0]]}, "is on machine -1, expected 0 to 1"),
        ({"machines": [[0, 2], [1, 0]], "machine_count": 2}, "is on machine 2, expected 0 to 1"),
        (
            {"machines": [[1, 3], [3, 1]]},
            "machines 1 to 3 occur, so that they may count from 0 or from 1",
        ),
        ({"machines": [[1, 2], [2, 1]], "machine_count": 3}, "they may count from 0 or from 1"),
        ({"machine_count": "2"}, "'machine_count' is \"2\", expected a whole number"),
        ({"machine_count": 0}, "has 0 machines"),
        ({"first_machine": 2}, "the first machine is 2, expected 0 or 1"),
        ({"first_machine": 1}, "operation 1 of job 1 is on machine 0, expected 1 to"),
        ({"name": 3}, "'name' is 3, expected a text in quotes"),
        ({"name": "n" * 201}, "'name' has 201 characters, expected at most 200"),
        ({"best_known": "8"}, "'best_known' has '8', expected its best known cost"),
        ({"times": []}, "'times' is not known here, expected durations, machines, name"),
    ],
)
def test_a_bad_json_file_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """Each with the file, and the job and operation where there is one."""
    message = refusal(tmp_path / "two.json", json.dumps(json.loads(JSON) | change))
    assert message.startswith("two.json: ")
    assert words in message


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ('{"durations": [[1]],\n"machines": [[0]]', "two.json:2", "is not JSON"),
        ('{"durations": [[1]]}', "two.json", "'machines' is missing"),
        ("[[1]]", "two.json", "expected a JSON object with durations and machines"),
        ("[" * 100_000, "two.json", "is not JSON"),
        ("\xff", "two.json", "is not JSON"),
        ("", "two.json", "the file is empty"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str, where: str, words: str) -> None:
    """At the line where reading stopped, if there is one."""
    message = refusal(tmp_path / "two.json", text.encode("latin-1"))
    assert message.startswith(f"{where}: ")
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b" \n", "the file is empty"),
        (b"3 3\n\x000 1", "is a binary file"),
        (b"# nothing\n", "has no numbers, expected the numbers of jobs and machines"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    """Files that cannot be read at all."""
    message = refusal(tmp_path / "shop.jsp", content)
    assert message.startswith("shop.jsp: ")
    assert words in message


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("Job 2: 0 4\n", "", None, "job 2 is missing, two has 2"),
        ("Job 2", "Job 1", 4, "job 1 is given twice, expected jobs 1 to 2 once each"),
        ("Job 2", "Job 3", 4, "job 3 is not in two"),
        ("Job 2: 0 4", "Job 2: 0 4 5", 4, "job 2 has 3 start times, two has 2 operations"),
        ("Job 2: 0 4", "Job 2: 0 -4", 4, "read '-4', expected a start time"),
        (
            "Job 2: 0 4",
            "Job 2: 0 3",
            None,
            "is no schedule for two: operation 2 of job 2 starts at 3",
        ),
        ("Job 2: 0 4", "0 4", 4, "read '0 4', expected 'Job 1: '"),
        ("Makespan 6", "Makespan 5", 2, "the makespan is said to be 5, the schedule ends at 6"),
        ("Makespan 6", "Makespan six", 2, "read 'six', expected the makespan"),
    ],
)
def test_a_bad_schedule_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    """Schedules that are incomplete, infeasible or of another instance."""
    path = tmp_path / "two.sched"
    path.write_text(SCHEDULE.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_schedule(path, TWO)
    message = str(caught.value).removeprefix(f"{tmp_path}/")
    assert message.startswith(f"two.sched:{line}: " if line else "two.sched: ")
    assert words in message


# --- damage

GOOD = [SHOP, MATRICES, BARE, SHOP.replace("2 4 0 1 1 2", "2 4")]


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(good=st.sampled_from(GOOD), changes=damage, cut=st.integers(0, 100))
def test_damaged_files_give_an_instance_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory,
    good: str,
    changes: list[tuple[int, int, bool]],
    cut: int,
) -> None:
    """Whatever bytes change, only `InputError` escapes, and what is read is usable."""
    path = tmp_path_factory.getbasetemp() / "damaged.jsp"
    path.write_bytes(damaged(good, changes, cut))
    check_outcome(attempt(read_jsp, path), path)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(changes=damage, cut=st.integers(0, 100))
def test_damaged_json_gives_an_instance_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bool]], cut: int
) -> None:
    """The same for JSON."""
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(damaged(JSON, changes, cut))
    check_outcome(attempt(read_json, path), path)


def check_outcome(outcome: JSSPInstance | InputError, path: Path) -> None:
    """Fail unless an error names the file, or an instance keeps its own bounds."""
    if isinstance(outcome, InputError):
        assert str(outcome).startswith(str(path))
        return
    assert outcome.lower_bound <= outcome.horizon
    assert all(
        o.duration >= 0 and 0 <= o.machine < outcome.machine_count for o in outcome.operations
    )


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(changes=damage, cut=st.integers(0, 60))
def test_damaged_schedules_give_a_plan_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bool]], cut: int
) -> None:
    """A schedule that is read from a damaged file is feasible; nothing but `InputError` escapes."""
    path = tmp_path_factory.getbasetemp() / "damaged.sched"
    path.write_bytes(damaged(SCHEDULE, changes, cut))
    outcome = attempt(read_schedule, path, TWO)
    if isinstance(outcome, InputError):
        assert str(outcome).startswith(str(path))
    else:
        outcome.check(TWO)
