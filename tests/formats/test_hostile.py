"""Files that claim, hide or repeat too much: each is refused in a short sentence, at once."""

import json
import os
import random
import string
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.errors import Infeasible, InputError, note_once
from rhumbline.files import read, read_many, write_plan
from rhumbline.files.plans import resolve_plan
from rhumbline.formats import safe_io
from rhumbline.formats.best_known import read_best_known
from rhumbline.formats.jsplib import write_jsp
from rhumbline.formats.safe_io import read_stream
from rhumbline.formats.tsplib import read_tsp, write_tsp
from rhumbline.problems.cvrp import CVRPInstance, Routes
from rhumbline.problems.jssp import Schedule, jssp_from_arrays
from rhumbline.problems.tsp import TSP, Tour, TSPInstance

SQUARE = np.array([[0.0, 0], [0, 3], [4, 3], [4, 0]])
HOUSE = "DIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 4\nEOF\n"
MATRIX = """NAME : four
DIMENSION : 4
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : UPPER_ROW
EDGE_WEIGHT_SECTION
"""
SHOP = jssp_from_arrays([[3, 2], [4, 1]], [[0, 1], [1, 0]], "shop")
DELIVERY = CVRPInstance("four", "EUC_2D", (0, 1, 2, 1), 3, xy=SQUARE)


def refusal(path: Path, content: str | bytes | None, reader: Callable[[Path], Any] = read) -> str:
    """Return the message that refuses a file, without its folder; it is short and printable."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        reader(path)
    message = str(caught.value).replace(f"{path.parent}{os.sep}", "")
    assert len(message) < 500
    assert message.isprintable()
    return message


# --- sizes are checked before anything of that size is made


def test_a_huge_machine_number_takes_no_memory(tmp_path: Path) -> None:
    """One operation on machine 2147483647 is refused without a set of all machines below it."""
    facts = {"durations": [[1]], "machines": [[2147483647]]}
    refusal(tmp_path / "a.json", "{}")  # imports are not counted
    tracemalloc.start()
    message = refusal(tmp_path / "a.json", json.dumps(facts))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "machine 2147483647 occurs; up to 100 machines are supported" in message
    assert peak < 5e6


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '{"durations": [[1]], "machines": [[0]], "machine_count": 1%s}', "machines"),
        ("a.json", '{"durations": [[1%s]], "machines": [[0]]}', "expected at most 15 digits"),
        ("a.json", '{"durations": [[1]], "machines": [[1%s]]}', "up to 100 machines are supported"),
        ("a.json", '{"durations": [[1]], "machines": [[0, 1%s]]}', "machines differ in shape"),
        ("a.tsp", "DIMENSION : 1%s\n", "of at most 15 digits"),
        ("a.vrp", "DIMENSION : 1%s\n", "of at most 15 digits"),
        ("a.jsp", "1%s 2\n", "of at most 15 digits"),
    ],
)
def test_numbers_of_thousands_of_digits(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    """Such a number is shortened in the message about it."""
    assert words in refusal(tmp_path / name, content % ("0" * 4_000))


@pytest.mark.parametrize(("name", "line"), [("a.tsp", 1), ("a.vrp", 1), ("a.jsp", 1)])
def test_a_large_dimension_is_refused_at_its_line(tmp_path: Path, name: str, line: int) -> None:
    """A dimension of 10^12 is compared with the limit before arrays of that size are made."""
    content = "1000000000000 2\n" if name == "a.jsp" else "DIMENSION : 1000000000000\n"
    assert refusal(tmp_path / name, content).startswith(f"{name}:{line}: ")


def test_a_header_that_claims_more_than_the_file_has(tmp_path: Path) -> None:
    """A dataset whose header would have 10^18 bytes is no dataset."""
    content = (10**18).to_bytes(8, "little") + b"{}" * 50
    message = refusal(tmp_path / "a.safetensors", content, read_many)
    assert "is not a dataset in safetensors format" in message


def test_coordinates_of_a_dataset_are_bounded(tmp_path: Path) -> None:
    """Distances of 1e308 cannot be squared; text files have the same limit."""
    from safetensors.numpy import save

    content = save({"xy": np.full((1, 3, 2), 1e308)})
    assert "numbers beyond 1e+12" in refusal(tmp_path / "a.safetensors", content, read_many)


# --- distances at the end of the range


@pytest.mark.parametrize(
    "weights",
    ["1e-320 " * 6, "5e-324 " * 6, "0 " * 6, "1e12 " * 6, "1e-320 1 1e12 0 5e-324 1e-200"],
)
def test_extreme_distances_give_finite_positions(tmp_path: Path, weights: str) -> None:
    """Weights whose squares leave the range of float64 are embedded all the same."""
    (tmp_path / "a.tsp").write_text(f"{MATRIX}{weights}\nEOF\n")
    batch = TSP().collate([read(tmp_path / "a.tsp")])
    assert batch.xy.isfinite().all()
    assert batch.xy.min() >= 0
    assert batch.xy.max() <= 1


@pytest.mark.parametrize("weight", ["1e308", "-1e-320", "1e13", "nan"])
def test_distances_that_are_refused(tmp_path: Path, weight: str) -> None:
    """Weights beyond 1e12 and negative ones are refused at their line."""
    message = refusal(tmp_path / "a.tsp", f"{MATRIX}1 1 1\n1 1 {weight}\nEOF\n")
    assert message.startswith("a.tsp:7: ")


# --- plans


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400])
def test_plans_with_numbers_beyond_64_bits_are_infeasible(number: int, tmp_path: Path) -> None:
    """They are refused like any other wrong number, from Python and from a file."""
    cities = TSPInstance("four", "EUC_2D", xy=SQUARE)
    plans: dict[str, tuple[Any, Any, Any]] = {
        "tsp": (cities, Tour((0, 1, 2, number)), [1, 2, 3, number]),
        "cvrp": (DELIVERY, Routes(((1, 2), (number,))), [[1, 2], [number]]),
        "jssp": (SHOP, Schedule(((0, number), (0, 4))), [[0, number], [0, 4]]),
    }
    for problem, (instance, plan, numbers) in plans.items():
        with pytest.raises(Infeasible) as caught:
            plan.check(instance)
        assert len(str(caught.value)) < 200
        result = {"name": instance.name, "problem": problem, "plan": numbers}
        message = refusal(
            tmp_path / "a.json",
            json.dumps(result),
            lambda path, instance=instance: resolve_plan(path, instance),
        )
        assert "is no plan for" in message


@pytest.mark.parametrize("content", ['{"name": %s, "plan": [1]}', '{"name": "a", "plan": %s}'])
@pytest.mark.parametrize("depth", [900, 100_000])
def test_deeply_nested_results(tmp_path: Path, content: str, depth: int) -> None:
    """Depth is an input error wherever it is, as name, as plan, and beyond what JSON may have."""
    nested = "[" * depth + "]" * depth
    refusal(tmp_path / "a.json", content % nested, lambda path: resolve_plan(path, SHOP))


NAMES = st.one_of(
    st.text(max_size=30),
    st.text(string.whitespace + "\x85\u2028\xa0ab.:#-", max_size=12),
    st.sampled_from(["two  spaces", " ends ", "a\tb", "x" * 5_000, "São Paulo", "\x1b[31mred"]),
    st.sampled_from(["NAME : x", "EOF", "-1", "a.b.c", ".", "", "nan", "\ud800", "\0", "ß", "İ"]),
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(name=NAMES)
def test_a_tour_is_read_back_whatever_its_instance_is_called(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Writing and reading agree on names with spaces, control characters and half characters."""
    folder = tmp_path_factory.getbasetemp()
    instance = TSPInstance(name, "EUC_2D", xy=SQUARE)
    tour = Tour((0, 2, 1, 3))
    write_plan(folder / "a.tour", tour, instance, name)
    assert resolve_plan(folder / "a.tour", instance) == tour
    write_tsp(folder / "a.tsp", instance, name)
    again = read_tsp(folder / "a.tsp")
    assert resolve_plan(folder / "a.tour", again) == tour
    write_plan(folder / "b.tour", tour, again, "")
    assert resolve_plan(folder / "b.tour", instance) == tour


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(name=NAMES)
def test_other_plans_are_read_back(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Solutions and schedules of instances with such names, too."""
    folder = tmp_path_factory.getbasetemp()
    delivery = CVRPInstance(name, "EUC_2D", (0, 1, 2, 1), 3, xy=SQUARE)
    routes = Routes(((1, 2), (3,)))
    write_plan(folder / "a.sol", routes, delivery, name)
    assert resolve_plan(folder / "a.sol", delivery) == routes
    shop = jssp_from_arrays([[3, 2], [4, 1]], [[0, 1], [1, 0]], name)
    schedule = Schedule(((0, 4), (0, 4)))
    write_plan(folder / "a.sched", schedule, shop, name)
    assert resolve_plan(folder / "a.sched", shop) == schedule
    write_jsp(folder / "a.jsp", shop, name)
    assert read(folder / "a.jsp").machines == shop.machines


def test_a_tour_of_another_name_is_still_refused(tmp_path: Path) -> None:
    """A name with two spaces is not a name with another word."""
    write_plan(tmp_path / "a.tour", Tour((0, 1, 2, 3)), TSPInstance("a  b", "EUC_2D", SQUARE), "")
    other = TSPInstance("a c", "EUC_2D", xy=SQUARE)
    message = refusal(tmp_path / "a.tour", None, lambda path: resolve_plan(path, other))
    assert "is a tour of a b, not of a c" in message


@pytest.mark.parametrize(
    ("name", "line", "instance"),
    [
        ("a.sol", "Route%s x", DELIVERY),
        ("a.sol", "Cost%s", DELIVERY),
        ("a.sched", "Job%s x", SHOP),
        ("a.sched", "Makespan%s", SHOP),
        ("a.sched", "# first machine%s x", SHOP),
    ],
)
def test_lines_of_spaces_take_linear_time(
    tmp_path: Path, name: str, line: str, instance: Any
) -> None:
    """Patterns do not try all ways to divide 100,000 spaces, which would take hours."""
    content = line % (" " * 100_000)
    refusal(tmp_path / name, content, lambda path: resolve_plan(path, instance))


# --- reads are bounded


@pytest.mark.parametrize("name", ["a.tsp", "a.jsp", "a.json", "a.txt", "a.safetensors"])
def test_a_pipe_that_nothing_is_written_to(tmp_path: Path, name: str) -> None:
    """It is refused at once; reading it would block for ever."""
    os.mkfifo(tmp_path / name)
    assert "is a pipe, expected a file" in refusal(tmp_path / name, None, read_many)


def test_a_device_is_refused() -> None:
    """/dev/zero never ends."""
    with pytest.raises(InputError, match="/dev/zero: is a device or a socket, expected a file"):
        read("/dev/zero")


@pytest.mark.parametrize("name", ["a.tsp", "a.json", "a.safetensors"])
def test_a_file_of_a_terabyte_is_refused(tmp_path: Path, name: str) -> None:
    """Its size is looked at before it is read."""
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 2**40)
    assert "MiB, the limit; is it the right file?" in refusal(tmp_path / name, None, read_many)


def test_a_stream_is_read_up_to_the_limit(tmp_path: Path) -> None:
    """A stream has no size; it is refused as soon as it exceeds the limit."""
    with (
        Path("/dev/zero").open("rb") as zeros,
        pytest.raises(InputError, match="standard input: is larger than 3 MiB, the limit"),
    ):
        read_stream(zeros, "standard input", 3 * 2**20)
    (tmp_path / "a").write_bytes(b"word")
    with (tmp_path / "a").open("rb") as stream:
        assert read_stream(stream, "standard input", 4) == b"word"
    assert safe_io.read_any_bytes(Path("/proc/self/stat"))  # a file that states no size


# --- messages


@pytest.mark.parametrize("unit", ["x", "9", "\x1b[2J", "é", "\u202e", "' "])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsp", "NAME : %s\nDIMENSION : 2\n%s"),
        ("a.tsp", "DIMENSION : %s\n"),
        ("a.tsp", "TYPE : %s\n"),
        ("a.tsp", "EDGE_%s : 1\nEDGE_%s : 1\n"),
        ("a.tsp", "%s\n"),
        ("a.tsp", "DIMENSION : 2\nEDGE_WEIGHT_TYPE : %s\n"),
        ("a.vrp", "DIMENSION : 2\nCAPACITY : %s\n"),
        ("a.jsp", "%s 2\n"),
        ("a.jsp", "2 2\n0 1 1 %s\n0 1 1 1\n"),
        ("a.json", '{"durations": [["%s"]], "machines": [[0]]}'),
        ("a.json", '{"durations": [[1]], "machines": [[0]], "%s": 1}'),
        ("a.json", '{"durations": [[1, 1]], "machines": [[0]], "name": "%s"}'),
    ],
)
def test_messages_stay_short(tmp_path: Path, name: str, content: str, unit: str) -> None:
    """A word of thousands of characters is cut, and control characters are escaped."""
    refusal(tmp_path / name, content.replace("%s", unit * 3_000))


def test_messages_about_plans_stay_short(tmp_path: Path) -> None:
    """The name of an instance is shortened too."""
    instance = TSPInstance("n" * 5_000, "EUC_2D", xy=SQUARE)
    contents = {
        "a.tour": "NAME : x\nTOUR_SECTION\n1\n2\n3\n4\n-1\n",
        "b.tour": "TOUR_SECTION\n1\n2\n3\n-1\n",
        "c.tour": "TOUR_SECTION\n1\n2\n3\n9\n-1\n",
        "a.json": json.dumps({"name": "m" * 5_000, "plan": [1]}),
        "b.json": json.dumps({"name": "n" * 5_000, "plan": [1]}),
        "c.json": json.dumps({"name": "n" * 5_000, "plan": "p" * 5_000}),
        "a.sol": "Route #1: 1\n",
        "a." + "s" * 200: "1 2 3",
    }
    for name, content in contents.items():
        refusal(tmp_path / name, content, lambda path: resolve_plan(path, instance))


def test_names_with_control_characters_are_made_visible(tmp_path: Path) -> None:
    """Names are printed, so an escape sequence in a file must not reach the terminal."""
    (tmp_path / "a.tsp").write_text(f"NAME : a\x1b[31mb\tc\n{HOUSE}")
    assert read(tmp_path / "a.tsp").name == r"a\x1b[31mb c"


@pytest.mark.parametrize("value", ['"x"', "[" * 500 + "]" * 500, '{"a": 1}', f'"{"y" * 999}"'])
def test_best_known_costs_of_any_shape(tmp_path: Path, value: str) -> None:
    """What stands in the place of a cost is shortened."""
    (tmp_path / "optima.json").write_text(f'{{"a": {value}}}')
    with pytest.raises(InputError, match="expected its best known cost") as caught:
        read_best_known(tmp_path, "a")
    assert len(str(caught.value)) < 300


# --- rows that are shorter than the header says


def notes_of(path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the notes that reading a job shop twice gives."""
    note_once.cache_clear()
    path.write_text(content)
    read(path)
    read(path)
    return capsys.readouterr().err


def test_a_short_row_gives_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the file, the first such line and how many there are, once."""
    content = "3 3\n0 1 1 2 2 3\n0 1 1 2\n2 5\n"
    note = notes_of(tmp_path / "a.jsp", content, capsys)
    assert note == (
        f"note: {tmp_path}/a.jsp:3: this job has 2 operations, the header says 3 machines "
        "(shorter rows: 2 of 3); is the file complete?\n"
    )


@pytest.mark.parametrize(
    "content",
    [
        "2 2\n0 1 1 2\n1 1 0 2\n",
        "2 2\n0 1 1 2 0 3\n1 1 0 2\n",
        "# first machine: 0\n2 2\n0 1\n1 1 0 2\n",  # our own form
    ],
)
def test_other_rows_give_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    """Full and longer rows are as the header says; our own files have rows of any length."""
    assert not notes_of(tmp_path / "a.jsp", content, capsys)


# --- a sample of the campaign


def test_a_sample_of_the_campaign(tmp_path: Path) -> None:
    """Some damaged files of every format are read, or refused in a short printable sentence."""
    from tools.campaigns.file_samples import formats
    from tools.campaigns.parsers import judge_message

    for name, kind in formats().items():
        rng = random.Random(name)
        for _ in range(12):
            path = tmp_path / kind.name
            path.write_bytes(kind.make_damaged(rng))
            try:
                kind.read(path)
            except InputError as error:
                message = str(error).replace(str(tmp_path), "")
                assert judge_message(message) == "refused", name


def test_every_sample_of_the_campaign_is_valid(tmp_path: Path) -> None:
    """Undamaged samples are read; otherwise a campaign would test nothing but the first check."""
    from tools.campaigns.file_samples import formats

    for kind in formats().values():
        for sample in kind.samples:
            (tmp_path / kind.name).write_bytes(sample)
            kind.read(tmp_path / kind.name)
