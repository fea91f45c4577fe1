"""Training on instances of one's own: which are held out, what a mini-step gets of them, and that it learns."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small import small_config

from rhumbline.checkpoint import load_with_facts
from rhumbline.cli import train as verb
from rhumbline.errors import InputError
from rhumbline.formats.dataset import save_batch, save_dataset
from rhumbline.problems import PROBLEMS
from rhumbline.problems.metrics import unit_square
from rhumbline.training.config import TrainConfig, Validation
from rhumbline.training.own import KeptNodes, Own, few_of, loaded
from rhumbline.training.run import train

CPU = torch.device("cpu")


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def write_tsp(path: Path, xy: np.ndarray, metric: str = "EUC_2D") -> None:
    rows = "\n".join(f"{n} {x:.6f} {y:.6f}" for n, (x, y) in enumerate(xy, 1))
    head = f"NAME: {path.stem}\nTYPE: TSP\nDIMENSION: {len(xy)}\nEDGE_WEIGHT_TYPE: {metric}\n"
    path.write_text(f"{head}NODE_COORD_SECTION\n{rows}\nEOF\n")


def write_matrix(path: Path, matrix: np.ndarray) -> None:
    rows = "\n".join(" ".join(map(str, row)) for row in matrix.tolist())
    head = f"NAME: {path.stem}\nTYPE: TSP\nDIMENSION: {len(matrix)}\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
    path.write_text(f"{head}EDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n{rows}\nEOF\n")


def folder_of_sizes(folder: Path, sizes: list[int], seed: int = 0) -> list[str]:
    draws = np.random.default_rng(seed)
    for place, size in enumerate(sizes):
        write_tsp(folder / f"i{place:03}.tsp", 1000 * draws.random((size, 2)))
    return [str(folder)]


def dataset(path: Path, problem: str, count: int, size: int | str, seed: int = 0) -> list[str]:
    save_batch(path, PROBLEMS[problem].sample(count, size, rng(seed)), {"made": "for a test"})
    return [str(path)]


def own(data: list[str], problem: str = "tsp", **validation: int) -> Own:
    size = "3x3" if problem == "jssp" else 100
    config = TrainConfig(problem=problem, size=size, data=tuple(data), validation=Validation(**validation))
    return Own(config, PROBLEMS[problem], CPU)


def distances(xy: torch.Tensor) -> torch.Tensor:
    return torch.cdist(xy.double(), xy.double())


@pytest.mark.parametrize(("count", "most", "held"), [(4, 9, 0), (5, 9, 1), (24, 9, 4), (100, 9, 9), (100, 50, 20)])
def test_a_fifth_is_held_out(tmp_path: Path, count: int, most: int, held: int) -> None:
    """And at most `validation.count`; what is held out is never drawn, and all else is."""
    source = own(dataset(tmp_path / "d.safetensors", "tsp", count, 6), count=most)
    kept, out = (set(map(tuple, x.nodes.xy.flatten(1).tolist())) for x in (source.kept, source.held))
    assert len(kept) == count - held
    assert len(out) == (held or count)
    assert not held or not kept & out
    assert ("flatters" in source.about) == (held == 0)


def test_the_lot_is_the_seed_s(tmp_path: Path) -> None:
    """Equal seeds hold out equal instances, others do not."""
    data = dataset(tmp_path / "d.safetensors", "tsp", 40, 6)
    first, again, other = (own(data, count=8, seed=seed).held.nodes.xy for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_draws_are_instances_turned_about(tmp_path: Path, problem: str) -> None:
    """Of one size: whole instances in some order of nodes; distances are theirs but for the unit square's side."""
    source = own(dataset(tmp_path / "d.safetensors", problem, 3, 6), problem)
    found = source.sample(32, 6, rng())
    given = [(b.xy[k], b) for b in source.kept.whole() for k in range(len(b.xy))]
    known = {round(float(distances(xy).sum()), 3): k for k, (xy, _) in enumerate(given)}
    rows = [known[round(float(distances(xy).sum()), 3)] for xy in found.xy]
    assert set(rows) == {0, 1, 2}
    assert len({tuple(xy.flatten().tolist()) for xy in found.xy}) == 32  # order and turn differ
    assert found.key.tolist() == list(range(32))  # rollouts of copies see other noise
    if problem == "cvrp":
        whole = source.kept.whole()[0]
        for xy, demand, capacity, row in zip(found.xy, found.demand, found.capacity, rows, strict=True):
            assert capacity == whole.capacity[row]
            assert demand[0] == 0
            mine, theirs = (sorted(zip(d.tolist(), q.tolist(), strict=True)) for d, q in (
                (demand, distances(xy)[0]), (whole.demand[row], distances(whole.xy[row])[0])))  # fmt: skip
            np.testing.assert_allclose(mine, theirs, atol=1e-5)  # demands by distance from the depot


def test_draws_fill_the_square(tmp_path: Path) -> None:
    """As files do when they are solved: one side is 1, and nothing lies outside."""
    source = own(folder_of_sizes(tmp_path, [9, 12, 15]))
    found = source.sample(50, 9, rng()).xy
    assert found.amin() >= 0
    assert found.amax() <= 1 + 1e-6
    assert torch.allclose((found.amax(1) - found.amin(1)).amax(1), torch.ones(50))


def test_larger_instances_lose_nodes(tmp_path: Path) -> None:
    """At random: of the nine sizes here eight are chosen, and of 26 cities 25 stay, one of 26 others each time."""
    found, _ = loaded(folder_of_sizes(tmp_path, [9, 11, *range(20, 27)]), "tsp")
    kept = KeptNodes(found, PROBLEMS["tsp"], CPU)
    assert list(kept.rows) == [9, 11, 20, 21, 22, 23, 24, 25]
    assert kept.rows[25].tolist() == [7, 8]
    largest = kept.nodes.xy[8]
    parts = [largest[torch.arange(26) != gone] for gone in range(26)]
    drawn = kept.draw(torch.full((400,), 8), 25, rng()).xy
    assert {spread(xy) for xy in drawn} == {spread(xy) for xy in parts}
    assert len({spread(xy) for xy in parts}) == 26


def spread(xy: torch.Tensor) -> float:
    """The sum of all distances in units of the bounding box, which neither turning nor scaling changes."""
    return round(float(distances(xy).sum()) / box(xy), 2)


def box(xy: torch.Tensor) -> float:
    """The longer side of the bounding box."""
    return float((xy.amax(0) - xy.amin(0)).max())


def test_few_sizes_by_hand() -> None:
    """Up to eight stay; else every eighth of the instances begins a size."""
    assert few_of([5, 5, 9, 7]) == [5, 7, 9]
    assert few_of(range(10, 26)) == [10, 12, 14, 16, 18, 20, 22, 24]
    assert few_of([10] * 50 + list(range(20, 30))) == [10, 22]


def test_sizes_come_as_often_as_instances(tmp_path: Path) -> None:
    """Thirty of one size, ten of another: three turns of four, in any long run."""
    source = own(folder_of_sizes(tmp_path, [5] * 36 + [8] * 12), count=1)
    turns = Counter(source.size_at(step) for step in range(470, 940))
    share = len(source.kept.rows[5]) / (len(source.kept.rows[5]) + len(source.kept.rows[8]))
    assert turns[5] / 470 == pytest.approx(share, abs=0.01)


def test_distances_of_one_s_own(tmp_path: Path) -> None:
    """Costs are those of the file's matrix, in sides of the square that the policy sees, whatever was left out."""
    draws = np.random.default_rng(0)
    for place in range(3):
        matrix = draws.integers(10, 100, (7, 7))
        matrix = np.triu(matrix, 1)
        write_matrix(tmp_path / f"m{place}.tsp", matrix + matrix.T)
    source = own([str(tmp_path)])
    found = source.sample(20, 7, rng())
    assert not found.straight
    order = torch.arange(7).expand(20, 1, 7)
    costs = PROBLEMS["tsp"].cost(found, order)[:, 0]
    steps = found.distance[:, range(7), [1, 2, 3, 4, 5, 6, 0]].sum(1)
    assert torch.allclose(costs, steps)
    totals = {round(float(d.sum() / d.amax()), 3) for d in found.distance}
    files = {round(float(i.sum() / i.amax()), 3) for b in source.kept.whole() for i in b.distance}
    assert totals == files


def test_geography_is_not_straight(tmp_path: Path) -> None:
    write_tsp(tmp_path / "g.tsp", np.random.default_rng(0).random((6, 2)) * 20, "GEO")
    assert not own([str(tmp_path)]).sample(2, 6, rng()).straight


def test_rounded_files_are_straight(tmp_path: Path) -> None:
    """Rounding is not worth a matrix: kernels measure straight lines."""
    assert own(folder_of_sizes(tmp_path, [6] * 3)).sample(2, 6, rng()).straight


def test_validation_is_of_whole_files(tmp_path: Path) -> None:
    """Those held out, nothing lost, each once, in the square of `unit_square`."""
    data = folder_of_sizes(tmp_path, list(range(10, 30)))
    source = own(data, count=50)
    groups = source.validation(rng())
    assert sum(len(b.xy) for b in groups) == 4
    files = {len(xy): xy for xy in (source.held.nodes.xy[k, :n] for k, n in enumerate(source.held.nodes.count))}
    for batch in groups:
        assert np.allclose(batch.xy[0], unit_square(files[batch.xy.shape[1]].numpy()), atol=1e-6)


def test_shops_by_shape(tmp_path: Path) -> None:
    """Each is drawn as it is."""
    data = dataset(tmp_path / "a.safetensors", "jssp", 4, "3x2") + dataset(tmp_path / "b.safetensors", "jssp", 8, "2x3")
    source = own(data, "jssp", count=2)
    assert source.labels == ["2x3", "3x2"]
    for shape in source.kept.rows:
        found, kept = source.sample(16, shape, rng()), source.kept.batches[shape]
        assert {tuple(d.flatten().tolist()) for d in found.duration} <= {
            tuple(d.flatten().tolist()) for d in kept.duration
        }
        assert found.duration.shape[1:] == kept.duration.shape[1:]


@pytest.mark.parametrize(("problem", "size"), [("tsp", 7), ("cvrp", 7), ("jssp", "3x3"), ("jssp-machines", "3x3")])
def test_training_on_files(tmp_path: Path, problem: str, size: int | str) -> None:
    """Runs, validates on what is held out, and the checkpoint says what it has seen."""
    solves = PROBLEMS[problem].solves
    data = dataset(tmp_path / "d.safetensors", solves, 10, size)
    config = small_config("winner", problem=problem, size=size, data=tuple(data), updates=2)
    if problem == "jssp-machines":
        config = replace(config, policy={k: v for k, v in config.policy.items() if k != "layers"})
    said: list[str] = []
    reports = list(train(config, device=CPU, out=tmp_path / "out", notify=said.append))
    assert len(reports) == 2
    assert said[0].startswith(f"8 instances of {size} ")
    facts = load_with_facts(tmp_path / "out" / "policy.safetensors")[1]
    assert facts.trained_at == facts.size == str(size) or facts.size == size


def test_it_learns_what_its_files_have_in_common(tmp_path: Path) -> None:
    """Cities on a line, with one far above it: tours of such files get shorter."""
    draws = np.random.default_rng(0)
    xy = np.stack([draws.random((60, 8)), np.zeros((60, 8))], axis=2)
    xy[:, 0] = 0.5, 1.0
    path = tmp_path / "lines.safetensors"
    save_dataset(path, xy, {"made": "for a test"})
    config = small_config("pomo", data=(str(path),), updates=60, batch=16)
    costs = [report.cost for report in train(config, device=CPU, out=tmp_path / "out")]
    assert sum(costs[-5:]) < 0.9 * sum(costs[:5])


def test_going_on_with_more_data(tmp_path: Path) -> None:
    """A run may go on with other files: data grow."""
    one = dataset(tmp_path / "a.safetensors", "tsp", 6, 7)
    two = one + dataset(tmp_path / "b.safetensors", "tsp", 6, 8, seed=1)
    list(train(small_config(data=tuple(one), updates=1), device=CPU, out=tmp_path / "out"))
    config = small_config(data=tuple(two), updates=2)
    (report,) = train(config, device=CPU, out=tmp_path / "out", resume=tmp_path / "out")
    assert report.update == 2


def test_wrong_data_is_refused(tmp_path: Path) -> None:
    """With the reason."""
    shops = dataset(tmp_path / "shops.safetensors", "jssp", 2, "2x2")
    with pytest.raises(InputError, match="holds instances of jssp, the recipe is for tsp"):
        own(shops)
    with pytest.raises(InputError, match=r"nothing\.tsp"):
        own([str(tmp_path / "nothing.tsp")])
    with pytest.raises(InputError, match="leave out `sizes` and `variety`"):
        TrainConfig(data=("x",), sizes=(200, 300))
    write_tsp(tmp_path / "one.tsp", np.zeros((1, 2)))
    with pytest.raises(InputError, match="one has nothing to decide"):
        own([str(tmp_path / "one.tsp")])


def test_other_problems_are_counted(tmp_path: Path) -> None:
    """A folder may hold both; what is left out is said."""
    folder_of_sizes(tmp_path, [6] * 3)
    dataset(tmp_path / "shops.safetensors", "jssp", 2, "2x2")
    assert "2 of other problems are left out" in own([str(tmp_path)]).about


def test_the_verb_takes_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of what the recipe says, and tells what it found."""
    data = folder_of_sizes(tmp_path, [6] * 5)
    recipe = tmp_path / "r.toml"
    settings = {"size": 6, "batch": 2, "updates": 1, "data": ["YOUR-FOLDER"]}
    recipe.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items()) + (
        "\n[policy]\nwidth = 32\nheads = 2\nlayers = 1\nhidden = 32\nlatent = 0\n[objective]\nstarts = 2\n"
        "[validation]\ncount = 2\n"
    ))  # fmt: skip
    out = tmp_path / "out"
    assert verb.main([str(recipe), "--device", "cpu", "--out", str(out)]) == 3
    assert "YOUR-FOLDER" in capsys.readouterr().err
    assert verb.main([str(recipe), "--data", data[0], "--device", "cpu", "--out", str(out)]) == 0
    assert "4 instances of 6 cities to train on, 1 held out to validate" in capsys.readouterr().err
