"""benchmarks/strategies.py: what it counts, and that its profile runs without a GPU."""

import sys

import pytest
import torch

from rhumbline.search.driver import Budget


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("strategies")


@pytest.fixture
def bench(script, make_policy, make_instances):
    return script.Bench(make_instances(3, 6), make_policy(), torch.device("cpu"), augment=2)


def test_it_counts_trajectories(script, bench) -> None:
    """Seven attempts from six starts on each of three instances; those of the warm-up do not
    count.
    """
    row = script.measured("eas-emb", bench, Budget(7))
    assert (row.attempts, row.trajectories) == (7, 7 * 6 * 3)
    assert row.seconds > 0


def test_a_profile_names_operations(script, bench, capsys) -> None:
    """The steps after the settling ones, and the operations behind them."""
    script.profiled("eas-emb", bench, Budget(100))
    told = capsys.readouterr().out
    assert f"{script.WATCHED} steps by self_cpu_time_total" in told
    assert "aten::baddbmm" in told


def test_a_profile_of_nothing_is_refused(script, bench) -> None:
    """A budget that ends before the profile begins."""
    with pytest.raises(SystemExit, match="give more --attempts"):
        script.profiled("eas-emb", bench, Budget(16))


def test_policies_are_compared_instance_by_instance(script, capsys) -> None:
    """With two policies each strategy has a row of each; by hand, 10 % dearer on one of two
    instances is 5 ± 9.8.
    """
    budget, ours = Budget(1), script.np.array([10.0, 20.0])
    rows = [
        script.Row(name, budget, cost, 1, 2, 1.0)
        for name, cost in (("a", ours), ("b", ours * [1.1, 1.0]))
    ]
    script.table(rows, ours, "the reference")
    *_, first, second = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in first.split("|")[4:7]] == ["15.00000", "+0.0000 ± 0.0000", ""]
    assert [cell.strip() for cell in second.split("|")[4:7]] == [
        "15.50000",
        "+5.0000 ± 9.8000",
        "+5.0000 ± 9.8000",
    ]


def test_instances_that_are_left_out_take_their_references_with_them(
    script, capsys, monkeypatch
) -> None:
    """The third of the first three by itself has the gap to its own reference; to leave out all
    is refused.
    """
    words = "--set tsp100 --first 3 --attempts 1 --strategies greedy --device cpu --skip"
    monkeypatch.setattr(sys, "argv", ["strategies.py", *words.split(), "2"])
    script.main()
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| greedy"))
    cost, gap = (float(row.split("|")[column].split()[0]) for column in (4, 5))
    assert cost / script.references("tsp100", 3)[2] - 1 == pytest.approx(gap / 100, abs=1e-6)
    monkeypatch.setattr(sys, "argv", ["strategies.py", *words.split(), "3"])
    with pytest.raises(SystemExit, match="--skip 3 of the first 3 leaves nothing to solve"):
        script.main()


def test_rows_of_several_policies_name_them(script, capsys, monkeypatch) -> None:
    """One strategy by two policies: the rows that each has by itself, with names; the same twice
    is refused.
    """
    words = (
        "--set tsp40 --validation --first 4 --attempts 1 --strategies greedy --device cpu --policy"
    )

    def rows(policy: str) -> list[tuple[str, str]]:
        monkeypatch.setattr(sys, "argv", ["strategies.py", *words.split(), policy])
        script.main()
        table = [
            line.split("|")
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("| greedy")
        ]
        return [(row[1].strip(), row[4].strip()) for row in table]

    (one,), (other,) = rows("tsp"), rows("tsp100-single")
    assert (one[0], other[0]) == ("greedy", "greedy")
    assert one[1] != other[1]
    assert rows("tsp,tsp100-single") == [
        ("greedy, tsp", one[1]),
        ("greedy, tsp100-single", other[1]),
    ]
    for wrong in ("tsp,tsp", "tsp,"):
        with pytest.raises(SystemExit, match="expected different names or paths"):
            rows(wrong)
