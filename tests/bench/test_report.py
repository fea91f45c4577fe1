"""Tables are a pure function of the results; the files in `golden` show what they must be."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rhumbline.bench.report import (
    REPORT_FORMATS,
    describe_set,
    duration_text,
    instance_table,
    percent_text,
    replace_section,
    table_cells,
    table_rows,
)
from rhumbline.bench.results import Result, read_results

GOLDEN = Path(__file__).parent / "golden"
RESULTS = read_results(GOLDEN / "results.jsonl", print)
A = next(r for r in RESULTS if r.method == "A")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("md", "table.md"),
        ("compact", "table-compact.md"),
        ("csv", "table.csv"),
        ("latex", "table.tex"),
    ],
)
def test_tables_are_what_they_were(kind: str, name: str) -> None:
    """Ten results of two sets, three methods and two seeds: the whole text is compared."""
    assert REPORT_FORMATS[kind](RESULTS) == (GOLDEN / name).read_text(encoding="utf-8")


def test_a_row_computed_by_hand() -> None:
    """Gaps of 10, 20 and 30 % have a mean of 20 %.

    Their deviation of 10 points gives ± 1.96 x 10 / sqrt(3).
    """
    some = [
        replace(A, instance=str(k), reference=10.0, cost=10.0 + k, seconds=6.0, together=3)
        for k in (1, 2, 3)
    ]
    (row,) = table_rows(some)
    assert (row.n, row.cost) == (3, 12.0)
    half = 1.96 * 0.1 / 3**0.5
    assert row.gap == pytest.approx(0.2)
    assert (row.low, row.high) == (pytest.approx(0.2 - half), pytest.approx(0.2 + half))
    assert (row.seconds, row.total) == (2.0, 6.0)


def test_seeds_of_an_instance_are_not_a_sample() -> None:
    """Repeating every instance with another seed and the same cost does not narrow the interval."""
    some = [replace(A, instance=str(k), reference=10.0, cost=10.0 + k) for k in (1, 2, 3)]
    (one,), (two,) = table_rows(some), table_rows([*some, *(replace(r, seed=9) for r in some)])
    assert (one.gap, one.low, one.n, one.seeds) == (two.gap, two.low, two.n, two.seeds - 1)


def test_without_a_reference_there_is_no_gap() -> None:
    """One instance without a reference leaves its row without a gap.

    One instance has no interval.
    """
    some = [replace(A, instance=str(k), reference=10.0 if k else None) for k in (0, 1)]
    assert (table_rows(some)[0].gap, table_rows(some)[0].low) == (None, None)
    (row,) = table_rows(some[1:])
    assert row.gap is not None
    assert row.low is None


def test_hardware_and_commits_are_not_mixed() -> None:
    """The same method on other hardware, or of other code, is another row."""
    some = [A, replace(A, hardware="abacus"), replace(A, commit="decaf")]
    assert [(r.hardware, r.commit) for r in table_rows(some)] == [
        (x.hardware, x.commit) for x in some
    ]


@pytest.mark.parametrize("name", ["suite_hash", "budget", "solver", "hardware", "commit"])
def test_results_that_differ_are_two_rows(name: str) -> None:
    """Results that differ in a field are two rows, and every format shows the difference."""
    both = [A, replace(A, instance="one-2", **{name: "zebra"})]
    assert [row.n for row in table_rows(both)] == [1, 1]
    for text in (write(both) for write in REPORT_FORMATS.values()):
        (line,) = [
            x
            for x in text.splitlines()
            if x.startswith(("| A", "| one, ", "A &", "demo,one,A")) and "zebra" in x
        ]
        assert line


def test_versions_distinguish_rows() -> None:
    """Of two lists of versions, the table shows what is not in both."""
    both = [A, replace(A, instance="one-2", versions={**A.versions, "torch": "3.0"})]
    assert [line[-1] for line in table_cells(table_rows(both), hardware=False)] == [
        "commit",
        "c0ffee123456; torch 2.13.0",
        "c0ffee123456; torch 3.0",
    ]


def test_methods_of_one_set_may_have_other_commits() -> None:
    """Methods with different commits need no column.

    The notes say which method has which commit.
    """
    text = REPORT_FORMATS["md"]([A, replace(A, method="LKH", commit="decaf")])
    assert "| commit |" not in text
    assert (
        "- Suite demo (0123456789abcdef), commit c0ffee123456, "
        "rhumbline 0.1.0, torch 2.13.0; of A.\n" in text
    )
    assert (
        "- Suite demo (0123456789abcdef), commit decaf, rhumbline 0.1.0, torch 2.13.0; of LKH.\n"
        in text
    )


def test_other_hardware_has_other_versions() -> None:
    """Rows with different hardware need no column of commits.

    The notes say which commit was where.
    """
    text = REPORT_FORMATS["md"]([A, replace(A, hardware="abacus", commit="decaf")])
    assert "| hardware |" in text
    assert "| commit |" not in text
    assert (
        "commit c0ffee123456, rhumbline 0.1.0, torch 2.13.0; of A, on a CPU, 2 threads.\n" in text
    )
    assert "commit decaf, rhumbline 0.1.0, torch 2.13.0; of A, on abacus.\n" in text


def test_only_rows_of_the_same_instances_are_compared() -> None:
    """A row is bold only if several rows have the same instances, and no other row has more."""

    def lines(method: str, cost: float, *names: str) -> list[Result]:
        return [
            replace(A, method=method, instance=name, reference=10.0, cost=cost) for name in names
        ]

    def bold(*some: Result) -> list[str]:
        return [
            line.split(" | ")[0][2:]
            for line in REPORT_FORMATS["md"](some).splitlines()
            if "**" in line
        ]

    few, many, rest = (
        lines("few", 11.0, "1"),
        lines("many", 13.0, "1", "2"),
        lines("rest", 12.0, "1", "2"),
    )
    assert bold(*few, *many, *rest) == ["rest"]
    assert bold(*few, *many) == []
    assert bold(*many, *lines("strange", 12.0, "2", "3")) == []


def test_suites_are_named_where_there_are_several() -> None:
    """Sets of two suites may have one name. A single suite is not mentioned."""
    both = [A, replace(A, suite="other")]
    assert [x for x in REPORT_FORMATS["md"](both).splitlines() if x.startswith("#")] == [
        "### one (demo)",
        "### one (other)",
    ]
    assert [x[18:] for x in REPORT_FORMATS["latex"](both).splitlines() if "multicol" in x] == [
        "{one (demo)} \\\\",
        "{one (other)} \\\\",
    ]
    assert "### one\n" in REPORT_FORMATS["md"](both[:1])


def test_numbers_of_a_csv_are_not_rounded() -> None:
    """The means are exact to the last bit."""
    first = next(csv.DictReader(io.StringIO(REPORT_FORMATS["csv"](RESULTS))))
    mine = [r for r in RESULTS if (r.set, r.method) == (first["set"], first["method"])]
    assert float(first["cost"]) == np.mean([r.cost for r in mine])


def test_times_have_their_unit() -> None:
    """The unit is milliseconds up to 1 s, seconds up to 100, then minutes, then hours."""
    texts = [duration_text(s) for s in (0.0, 0.000919, 0.04, 0.994, 0.995, 99.0, 150.0, 7200.0)]
    assert texts == ["0 ms", "0.919 ms", "40 ms", "994 ms", "1.0 s", "99.0 s", "2.5 min", "2.0 h"]


def test_columns_that_say_nothing_are_left_out() -> None:
    """Without published gaps, references and several kinds of hardware, there are no columns for
    them. A single method is not bold.
    """
    text = REPORT_FORMATS["md"]([replace(A, reference=None, paper=None)])
    assert "| method | budget | n | mean cost | time / instance | total |" in text
    assert "- Hardware: a CPU, 2 threads." in text
    assert "**" not in text


def test_one_instance_has_no_interval() -> None:
    """Neither a number nor a title mentions it."""
    one = [replace(A, method=m) for m in ("A", "B")]
    assert "| gap |" in REPORT_FORMATS["md"](one)
    assert "interval" not in REPORT_FORMATS["md"](one) + REPORT_FORMATS["latex"](one)
    assert "| gap (95 % interval) |" in REPORT_FORMATS["md"](RESULTS)


def test_order_of_lines_within_a_row_does_not_matter() -> None:
    """Sorting the results by seed or instance changes no number of the rows."""
    shuffled = sorted(RESULTS, key=lambda r: (r.set != RESULTS[0].set, r.instance))
    key = {(r.set, r.method): (r.n, round(r.cost, 9)) for r in table_rows(RESULTS)}
    assert {(r.set, r.method): (r.n, round(r.cost, 9)) for r in table_rows(shuffled)} == key
    assert isinstance(RESULTS[0], Result)


def test_a_page_gets_its_tables_between_the_marks() -> None:
    """The text around the marks stays, the text between them is replaced.

    A page without marks does not change.
    """
    page = (
        "top\n<!-- suite: demo -->\nold\n<!-- end: demo -->\n"
        "bottom <!-- suite: other --><!-- end: other -->"
    )
    once = replace_section(page, "demo", "new\n")
    assert once == page.replace("\nold\n", "\n\nnew\n\n")
    assert replace_section(once, "demo", "new") == once
    assert replace_section(page, "third", "new") is None


def test_instances_of_different_sizes_are_listed() -> None:
    """Each file has a line with nodes, best known cost, and each method's cost and gap.

    A dash stands for a missing value.
    """
    some = [
        replace(A, instance="a280", size=280, cost=2600, reference=2579.0),
        replace(A, instance="d493", size=493),
    ]
    some = [some[0], replace(some[1], method="B", cost=36000, reference=None)]
    assert instance_table(some) == [
        ["instance", "nodes", "reference", "A", "B"],
        ["a280", "280", "2579", "2,600 (0.81 %)", "-"],
        ["d493", "493", "-", "-", "36,000"],
    ]


def test_instances_are_listed_for_each_machine() -> None:
    """The same method on two machines has two columns, named after the machines."""
    some = [replace(A, size=280), replace(A, instance="b", size=99, hardware="abacus")]
    assert instance_table(some)[0][3:] == ["A (a CPU, 2 threads)", "A (abacus)"]
    assert [line[3:].count("-") for line in instance_table(some)[1:]] == [1, 1]


def test_zero_has_no_sign() -> None:
    """A gap that rounds to zero is 0.000 %, from whichever side. Other gaps keep their sign."""
    assert [percent_text(x) for x in (-4e-6, 4e-6, -6e-6, None)] == [
        "0.000 %",
        "0.000 %",
        "-0.001 %",
        "-",
    ]
    some = [replace(A, instance=str(k), reference=10.0, cost=10.0 - 1e-7) for k in (1, 2)]
    assert "-0.0" not in REPORT_FORMATS["md"](some) + REPORT_FORMATS["latex"](some)
    assert instance_table(some)[1][-1].endswith("(0.00 %)")


def test_job_shops_have_jobs_and_machines() -> None:
    """They are shown if they are in the name of the set and fit the size.

    Otherwise the size is in operations, or in nodes for other problems.
    """
    shop = replace(A, problem="jssp", set="jssp20x15", size=300)
    assert describe_set([shop]).startswith("jssp, 20 jobs x 15 machines; ")
    assert describe_set([replace(shop, size=100)]).startswith("jssp, 100 operations; ")
    assert describe_set([shop, replace(shop, size=100)]).startswith("jssp, 100 to 300 operations; ")
    assert describe_set([replace(shop, problem="tsp")]).startswith("tsp, size 300; ")
    assert instance_table([shop])[0][1] == "operations"


def test_missing_results_are_counted_and_in_no_mean() -> None:
    """If one of three has no plan, the row is that of the other two and says so.

    The reason stands below.
    """
    some = [replace(A, instance=str(k), reference=10.0, cost=10.0 + k) for k in (1, 2)]
    lost = replace(
        A, instance="3", reference=10.0, cost=None, missing="too many vehicles", seconds=1000.0
    )
    (whole,), (row,), (nothing,) = table_rows(some), table_rows([*some, lost]), table_rows([lost])
    assert replace(row, missing=0) == whole
    assert (row.missing, nothing.missing, nothing.n, nothing.cost, nothing.gap) == (
        1,
        1,
        0,
        None,
        None,
    )
    text = REPORT_FORMATS["md"]([*some, lost])
    assert "| 2 (1 missing) |" in text
    assert "A on one: 1 missing, in no other number; the first: too many vehicles." in text
    assert instance_table([*some, lost])[-1][-1] == "missing"
    assert all("missing" in write([lost]) for write in REPORT_FORMATS.values())


def test_a_solver_with_many_budgets_is_named_once() -> None:
    """Methods of one solver share its line, in order of appearance. Names may contain commas."""
    some = [
        replace(A, method=m, solver=s)
        for m, s in (("X, 1 s", "X 2.0"), ("Y", "Y 1.0"), ("X, 9 s", "X 2.0"))
    ]
    assert "- X, 1 s; X, 9 s: X 2.0.\n- Y: Y 1.0." in REPORT_FORMATS["md"](some)
