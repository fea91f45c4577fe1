"""Training on user files: what is held out, what mini-steps draw, and that policies learn."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import small_config

from rhumbline.checkpoint import load_with_facts
from rhumbline.cli.commands import train as verb
from rhumbline.domains import find_policy_family
from rhumbline.errors import InputError
from rhumbline.files import read
from rhumbline.formats.dataset import save_batch, save_dataset
from rhumbline.problems.metrics import scale_to_unit_square
from rhumbline.problems.tsp import TSP
from rhumbline.training.config import Optimiser, TrainConfig, Validation
from rhumbline.training.data import routing
from rhumbline.training.data.files import FileInstances, load_instances
from rhumbline.training.data.routing import RoutingStore, choose_sizes, stack_padded
from rhumbline.training.loop import train
from rhumbline.training.trainer import Trainer

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
    rules = find_policy_family(problem)[1].rules
    save_batch(path, rules.sample(count, size, rng(seed)), {"made": "for a test"})
    return [str(path)]


def own(data: list[str], problem: str = "tsp", **validation: int) -> FileInstances:
    size = "3x3" if problem == "jssp" else 100
    config = TrainConfig(
        problem=problem, size=size, data=tuple(data), validation=Validation(**validation)
    )
    return FileInstances(config, find_policy_family(problem)[1].rules, CPU)


def distances(xy: torch.Tensor) -> torch.Tensor:
    return torch.cdist(xy.double(), xy.double())


@pytest.mark.parametrize(("count", "most"), [(24, 9), (200, 9), (200, 100)])
def test_about_a_fifth_is_held_out(tmp_path: Path, count: int, most: int) -> None:
    """At most `validation.count` are held out; training has all other instances."""
    source = own(dataset(tmp_path / "d.safetensors", "tsp", count, 6), count=most)
    kept, out = (points(x) for x in (source.training_store, source.validation_store))
    assert len(kept) + len(out) == count
    assert not kept & out
    assert 1 <= len(out) <= most
    assert (
        count < 200 or most == len(out) or 25 <= len(out) <= 55
    )  # 40 are expected, with a standard deviation of 5.7
    assert "flatters" not in source.summary


def test_of_very_few_none_may_be_held_out(tmp_path: Path) -> None:
    """Each instance has a lottery number, so it may happen that none is held out.

    Validation then uses those trained on, and the summary says so.
    """
    for seed in range(9):
        source = own(dataset(tmp_path / f"{seed}.safetensors", "tsp", 2, 6, seed=seed))
        kept, out = points(source.training_store), points(source.validation_store)
        assert len(kept | out) == 2
        assert ("flatters" in source.summary) == (kept == out)
    assert own(dataset(tmp_path / "one.safetensors", "tsp", 1, 6)).training_store.counts == {6: 1}


def points(kept: Any) -> set[tuple[float, ...]]:
    """Return all instances, as coordinates."""
    return {tuple(xy.flatten().tolist()) for batch, _ in kept.all_batches() for xy in batch.xy}


def test_the_seed_decides_what_is_held_out(tmp_path: Path) -> None:
    """Equal seeds hold out equal instances, others do not."""
    data = dataset(tmp_path / "d.safetensors", "tsp", 40, 6)
    first, again, other = (
        points(own(data, count=8, seed=seed).validation_store) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_nothing_trained_on_is_held_out_later(tmp_path: Path) -> None:
    """As data grow, instances stay in training, in any order and under any name."""
    for few in (3, 4, 5, 30):
        one = dataset(tmp_path / f"{few}.safetensors", "tsp", few, 6, seed=few)
        before = points(own(one, count=7).training_store)
        more = dataset(tmp_path / "more.safetensors", "tsp", 70, 6, seed=99)
        after = own(more + one, count=7)
        assert not points(after.validation_store) & before
        assert len(points(after.training_store)) > len(before)


def test_duplicates_count_once(tmp_path: Path) -> None:
    """Otherwise they could be trained on and held out."""
    data = folder_of_sizes(tmp_path, [6] * 10)
    (tmp_path / "copy.tsp").write_text((tmp_path / "i003.tsp").read_text().replace("i003", "copy"))
    source = own(data + data)
    assert sum(source.training_store.counts.values()) + len(points(source.validation_store)) == 10
    assert "12 that are there twice left out" in source.summary


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_draws_are_rotated_instances(tmp_path: Path, problem: str) -> None:
    """Instances of one size stay whole, in some order of nodes.

    Their distances are those of the file, up to the unit square's side.
    """
    source = own(dataset(tmp_path / "d.safetensors", problem, 6, 6), problem)
    found = source.sample(32, 6, rng())
    ((whole, _),) = source.training_store.all_batches()
    known = {round(float(distances(xy).sum()), 3): k for k, xy in enumerate(whole.xy)}
    rows = [known[round(float(distances(xy).sum()), 3)] for xy in found.xy]
    assert set(rows) == set(range(len(whole.xy)))
    assert len(whole.xy) > 2
    assert len({tuple(xy.flatten().tolist()) for xy in found.xy}) == 32  # order and symmetry differ
    assert found.key.tolist() == list(range(32))  # rollouts of copies have other random numbers
    if problem == "cvrp":
        for xy, demand, capacity, row in zip(
            found.xy, found.demand, found.capacity, rows, strict=True
        ):
            assert capacity == whole.capacity[row]
            assert demand[0] == 0
            mine, theirs = (
                sorted(zip(d.tolist(), q.tolist(), strict=True))
                for d, q in (
                    (demand, distances(xy)[0]),
                    (whole.demand[row], distances(whole.xy[row])[0]),
                )
            )
            np.testing.assert_allclose(
                mine, theirs, atol=1e-5
            )  # demands by distance from the depot


def test_draws_fill_the_square(tmp_path: Path) -> None:
    """As for files that are solved, one side is 1 and nothing lies outside."""
    source = own(folder_of_sizes(tmp_path, [9, 12, 15]))
    found = source.sample(50, 9, rng()).xy
    assert found.amin() >= 0
    assert found.amax() <= 1 + 1e-6
    assert torch.allclose((found.amax(1) - found.amin(1)).amax(1), torch.ones(50))


def test_larger_instances_lose_nodes(tmp_path: Path) -> None:
    """Of nine sizes eight are chosen; the instance of 26 cities keeps 25 random ones."""
    found, _ = load_instances(folder_of_sizes(tmp_path, [9, 11, *range(20, 27)]), TSP())
    kept = RoutingStore(found, TSP(), CPU, with_matrices=False)
    assert kept.counts == {9: 1, 11: 1, 20: 1, 21: 1, 22: 1, 23: 1, 24: 1, 25: 2}
    assert kept.max_node_loss == pytest.approx(1 / 26)
    smaller, largest = kept.groups[25].xy
    parts = [smaller[:25], *(largest[torch.arange(26) != gone] for gone in range(26))]
    assert {scaled_distance_sum(xy) for xy in kept.draw(800, 25, rng()).xy} == {
        scaled_distance_sum(xy) for xy in parts
    }
    assert len({scaled_distance_sum(xy) for xy in parts}) == 27


def scaled_distance_sum(xy: torch.Tensor) -> float:
    """Return the sum of all distances in units of the bounding box; no symmetry changes it."""
    return round(float(distances(xy).sum()) / box_side(xy), 2)


def box_side(xy: torch.Tensor) -> float:
    """Return the longer side of the bounding box."""
    return float((xy.amax(0) - xy.amin(0)).max())


def test_choose_sizes_by_hand() -> None:
    """Up to eight sizes stay; otherwise the largest loss is as small as possible."""
    assert choose_sizes([5, 5, 9, 7]) == [5, 7, 9]
    assert choose_sizes(range(10, 26)) == [
        10,
        11,
        13,
        15,
        17,
        19,
        21,
        23,
    ]  # 12 loses one of twelve, 25 two
    many = [*range(20, 40), 1000]
    assert choose_sizes(many)[-1] == 1000  # a few large ones are not cut to 39
    assert len(choose_sizes(many)) <= 8


def test_sizes_come_as_often_as_instances(tmp_path: Path) -> None:
    """This holds in any long run; some instances of either size are held out."""
    source = own(folder_of_sizes(tmp_path, [5] * 36 + [8] * 12), count=1)
    turns = Counter(source.size_at(step) for step in range(470, 940))
    assert sum(source.training_store.counts.values()) == 47
    assert turns[5] / 470 == pytest.approx(source.training_store.counts[5] / 47, abs=0.01)


def write_matrices(folder: Path, count: int, size: int) -> None:
    draws = np.random.default_rng(0)
    for place in range(count):
        matrix = np.triu(draws.integers(10, 100, (size, size)), 1)
        write_matrix(folder / f"m{place}.tsp", matrix + matrix.T)


def test_explicit_distances(tmp_path: Path) -> None:
    """Costs are those of the file's matrix, up to one factor for each instance."""
    write_matrices(tmp_path, 3, 7)
    source = own([str(tmp_path)])
    found = source.sample(20, 7, rng())
    assert not found.has_euclidean_cost
    order = torch.arange(7).expand(20, 1, 7)
    steps = found.distance[:, range(7), [1, 2, 3, 4, 5, 6, 0]].sum(1)
    assert torch.allclose(TSP().cost(found, order)[:, 0], steps)
    files = {
        tuple(sorted((d / d.max()).flatten().tolist()))
        for d in (read(p).distances for p in tmp_path.iterdir())
    }
    for distance in found.distance.double():
        mine = torch.tensor(
            sorted((distance / distance.amax()).flatten().tolist()), dtype=torch.float64
        )
        assert any(
            torch.allclose(mine, torch.tensor(one, dtype=torch.float64), atol=1e-6) for one in files
        )


def test_distances_go_with_their_nodes(tmp_path: Path) -> None:
    """Nodes that stay keep their distances, here straight lines that are given as a matrix."""
    points_ = np.random.default_rng(0).random((9, 12, 2))
    for place, xy in enumerate(points_):
        whole = np.rint(10**6 * np.linalg.norm(xy[:, None] - xy[None], axis=2)).astype(int)
        write_matrix(tmp_path / f"m{place}.tsp", whole)
    found, _ = load_instances([str(tmp_path)], TSP())
    nodes = stack_padded(found, with_matrices=True)
    rows, order = (
        torch.arange(9),
        torch.stack([torch.randperm(12, generator=rng(k))[:7] for k in range(9)]),
    )
    batch = nodes.batch(rows, order)
    straight = torch.cdist(batch.xy, batch.xy)
    assert torch.allclose(
        batch.distance, straight, atol=2e-2
    )  # the plane is an embedding of the matrix
    assert torch.allclose(batch.distance, batch.distance.mT)


@pytest.mark.parametrize("metric", ["GEO", "ATT", "CEIL_2D"])
def test_units_are_those_of_the_square(tmp_path: Path, metric: str) -> None:
    """Units of files do not matter beside a matrix, such as kilometres between degrees."""
    write_matrices(tmp_path, 1, 7)
    write_tsp(tmp_path / "other.tsp", np.random.default_rng(1).random((7, 2)) * 40, metric)
    for batch, _ in own([str(tmp_path)]).training_store.all_batches():
        straight = torch.cdist(batch.xy, batch.xy).mean((1, 2))
        assert torch.allclose(batch.distance.mean((1, 2)), straight, rtol=0.02)


def test_too_many_matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small instances are not padded to large ones, so more of them fit."""
    write_matrices(tmp_path, 8, 5)
    write_tsp(tmp_path / "large.tsp", np.random.default_rng(1).random((40, 2)))
    enough = replace(routing.TUNING, max_matrix_numbers=8 * 5**2 + 40**2)
    monkeypatch.setattr(routing, "TUNING", enough)
    own([str(tmp_path)])
    monkeypatch.setattr(routing, "TUNING", replace(enough, max_matrix_numbers=900))
    with pytest.raises(InputError, match="needs a matrix"):
        own([str(tmp_path)])


def test_geography_is_not_straight(tmp_path: Path) -> None:
    write_tsp(tmp_path / "g.tsp", np.random.default_rng(0).random((6, 2)) * 20, "GEO")
    assert not own([str(tmp_path)]).sample(2, 6, rng()).has_euclidean_cost


def test_rounded_files_are_straight(tmp_path: Path) -> None:
    """Rounded distances need no matrix: kernels measure straight lines."""
    assert own(folder_of_sizes(tmp_path, [6] * 3)).sample(2, 6, rng()).has_euclidean_cost


def test_validation_is_of_whole_files(tmp_path: Path) -> None:
    """Held-out instances are complete, each once, in the square of `scale_to_unit_square`."""
    data = folder_of_sizes(tmp_path, list(range(10, 40)))
    source = own(data)
    files = {
        i.size: scale_to_unit_square(i.planar_xy)
        for i in (read(path) for path in tmp_path.iterdir())
    }
    sizes = [batch.xy.shape[1] for batch, _ in source.validation(rng())]
    assert len(set(sizes)) == len(sizes) == 30 - sum(source.training_store.counts.values())
    for batch, unit in source.validation(rng()):
        assert np.allclose(batch.xy[0], files[batch.xy.shape[1]], atol=1e-6)
        assert unit.tolist() == [1.0]


def test_validation_is_a_mean_over_instances(tmp_path: Path) -> None:
    """It is no mean over sizes, and shops count in units of their bounds."""
    data = dataset(tmp_path / "a.safetensors", "tsp", 8, 6) + dataset(
        tmp_path / "b.safetensors", "tsp", 1, 9, seed=1
    )
    trainer = Trainer(small_config("pomo", data=tuple(data), validation=Validation(count=100)), CPU)
    trainer.source.validation_store = (
        trainer.source.training_store
        if len(trainer.source.training_store.counts) == 2
        else trainer.source.validation_store
    )
    groups = trainer.source.validation(rng())
    costs = [trainer.validate_group(batch, rng())[0] for batch, _ in groups]
    assert trainer.validate()["greedy"] == pytest.approx(float(torch.cat(costs).mean()), rel=1e-5)
    shops = own(dataset(tmp_path / "c.safetensors", "jssp", 3, "3x2"), "jssp")
    ((batch, unit),) = shops.validation(rng())
    busiest = [
        max(d.sum(1).max(), *(d[m == k].sum() for k in range(2)))
        for d, m in zip(batch.duration[..., :-1], batch.machine[..., :-1], strict=True)
    ]
    assert unit.tolist() == [float(x) for x in busiest]


def test_shops_by_shape(tmp_path: Path) -> None:
    """Shops are drawn unchanged."""
    data = dataset(tmp_path / "a.safetensors", "jssp", 4, "3x2") + dataset(
        tmp_path / "b.safetensors", "jssp", 8, "2x3"
    )
    source = own(data, "jssp", count=2)
    assert sorted(source.labels) == ["2x3", "3x2"]
    for shape in source.training_store.counts:
        found, kept = source.sample(16, shape, rng()), source.training_store.batches[shape]
        assert {tuple(d.flatten().tolist()) for d in found.duration} <= {
            tuple(d.flatten().tolist()) for d in kept.duration
        }
        assert found.duration.shape[1:] == kept.duration.shape[1:]


@pytest.mark.parametrize(
    ("problem", "size"), [("tsp", 7), ("cvrp", 7), ("jssp", "3x3"), ("jssp-machines", "3x3")]
)
def test_training_on_files(tmp_path: Path, problem: str, size: int | str) -> None:
    """Training runs, validates on what is held out, and the checkpoint names the sizes."""
    solves = find_policy_family(problem)[1].rules.solves
    data = dataset(tmp_path / "d.safetensors", solves, 10, size)
    config = small_config("winner", problem=problem, size=size, data=tuple(data), updates=2)
    if problem == "jssp-machines":
        config = replace(config, policy={k: v for k, v in config.policy.items() if k != "layers"})
    said: list[str] = []
    reports = list(train(config, device=CPU, out=tmp_path / "out", notify=said.append))
    assert [report.update for report in reports] == [0, 1, 2]
    assert re.match(rf"\d instances of {size} .* to train on, \d held out", said[0])
    facts = load_with_facts(tmp_path / "out" / "policy.safetensors")[1]
    assert (facts.trained_at, facts.size) == (str(size), size)


def test_it_learns_what_its_files_have_in_common(tmp_path: Path) -> None:
    """Tours of files with cities on a line and one city far above it get shorter."""
    draws = np.random.default_rng(0)
    xy = np.stack([draws.random((60, 8)), np.zeros((60, 8))], axis=2)
    xy[:, 0] = 0.5, 1.0
    path = tmp_path / "lines.safetensors"
    save_dataset(path, xy, {"made": "for a test"})
    config = small_config("pomo", data=(str(path),), updates=60, batch=16)
    costs = [
        report.cost for report in train(config, device=CPU, out=tmp_path / "out") if report.update
    ]
    assert sum(costs[-5:]) < 0.9 * sum(costs[:5])


def test_resuming_with_more_data(tmp_path: Path) -> None:
    """A run may resume with other files; its best policy is then validated on the new instances."""
    out = tmp_path / "out"
    one = dataset(tmp_path / "a.safetensors", "tsp", 12, 5)
    two = one + dataset(tmp_path / "b.safetensors", "tsp", 12, 9, seed=1)
    list(train(small_config(data=tuple(one), updates=1), device=CPU, out=out))
    same = list(train(small_config(data=tuple(one), updates=2), device=CPU, out=out, resume=out))
    assert [report.update for report in same] == [2]
    more = list(train(small_config(data=tuple(two), updates=3), device=CPU, out=out, resume=out))
    assert [report.update for report in more] == [2, 3]
    best = load_with_facts(out / "best.safetensors")[1]
    assert best.validation["latent"] == min(report.latent for report in more)
    assert min(report.latent for report in more) > max(
        report.latent for report in same
    )  # tours of nine cities are longer


def test_the_earlier_best_is_validated_again(tmp_path: Path) -> None:
    """When data grow, the earlier best policy may still be better than the current one."""
    data, out = dataset(tmp_path / "a.safetensors", "tsp", 12, 7), tmp_path / "out"
    more = data + dataset(tmp_path / "b.safetensors", "tsp", 40, 7, seed=1)
    harm = small_config(
        "pomo", data=tuple(data), updates=20, optimiser=Optimiser(lr=0.3, warmup=1, average=0.0)
    )
    list(train(replace(harm, report=3600.0), device=CPU, out=out))
    before, facts = load_with_facts(out / "best.safetensors")
    assert facts.updates == 0
    resumed_config = replace(harm, data=tuple(more), updates=21)
    reports = list(train(resumed_config, device=CPU, out=out, resume=out))
    after, facts = load_with_facts(out / "best.safetensors")
    assert facts.updates == 0
    assert facts.validation["latent"] < min(report.latent for report in reports)
    assert all(torch.equal(x, after.state_dict()[name]) for name, x in before.state_dict().items())


def test_another_validation_validates_the_best_again(tmp_path: Path) -> None:
    """This holds for random instances too: the earlier best stays if it is better."""
    out, harm = tmp_path / "out", Optimiser(lr=0.3, warmup=1, average=0.0)
    list(train(small_config("pomo", updates=8, optimiser=harm), device=CPU, out=out))
    before, facts = load_with_facts(out / "best.safetensors")
    other = small_config(
        "pomo", updates=9, optimiser=harm, validation=Validation(count=40, latents=3, seed=7)
    )
    (report,) = train(other, device=CPU, out=out, resume=out)
    after, again = load_with_facts(out / "best.safetensors")
    assert facts.updates == again.updates < 8
    assert again.validation["latent"] < report.latent
    assert again.validation != facts.validation
    assert all(torch.equal(x, after.state_dict()[name]) for name, x in before.state_dict().items())


def test_a_run_stopped_at_once_resumes(tmp_path: Path) -> None:
    """The first report leaves a state like any other."""
    data, out = dataset(tmp_path / "d.safetensors", "tsp", 12, 7), tmp_path / "out"
    config = small_config(data=tuple(data), updates=2)
    assert next(train(config, device=CPU, out=out)).update == 0
    assert [report.update for report in train(config, device=CPU, out=out, resume=out)] == [1, 2]
    whole = tmp_path / "whole"
    list(train(config, device=CPU, out=whole))
    one, two = (
        load_with_facts(folder / "policy.safetensors")[0].state_dict() for folder in (out, whole)
    )
    assert all(torch.equal(x, two[name]) for name, x in one.items())


def test_the_initial_policy_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose training is harmful ends with its initial weights as the best, and says so."""
    data, out = dataset(tmp_path / "d.safetensors", "tsp", 12, 7), tmp_path / "out"
    harm = Optimiser(lr=0.3, warmup=1, average=0.0)
    config = small_config("pomo", data=tuple(data), updates=3, optimiser=harm)
    reports = list(train(config, device=CPU, out=out))
    assert min(reports, key=lambda report: report.latent).update == 0
    _, facts = load_with_facts(out / "best.safetensors")
    assert facts.updates == 0
    assert facts.validation["latent"] == reports[0].latent
    on = list(train(replace(config, updates=5), device=CPU, out=out, resume=out))
    assert on[0].cost is not None  # a resumed run has no report of the beginning
    for some in (reports, on):
        assert verb.finish_training(some, out, has_user_data=True) == 0
        said = capsys.readouterr()
        assert said.out == f"{out / 'best.safetensors'}\n"
        assert "no report was better than what the run began with" in said.err
    assert verb.finish_training(on, out, has_user_data=False) == 0
    assert capsys.readouterr().out == f"{out / 'policy.safetensors'}\n"


def test_wrong_data_is_refused(tmp_path: Path) -> None:
    """The message gives the reason."""
    shops = dataset(tmp_path / "shops.safetensors", "jssp", 2, "2x2")
    with pytest.raises(InputError, match="holds instances of jssp, the recipe is for tsp"):
        own(shops)
    with pytest.raises(InputError, match=r"nothing\.tsp"):
        own([str(tmp_path / "nothing.tsp")])
    with pytest.raises(InputError, match="leave out `sizes` and `variety`"):
        TrainConfig(data=("x",), sizes=(200, 300))
    write_tsp(tmp_path / "three.tsp", np.eye(3)[:, :2])
    with pytest.raises(InputError, match="of 1 instances none has anything to decide"):
        own([str(tmp_path / "three.tsp")])
    with pytest.raises(InputError, match="give them by --data FOLDER"):
        own(["YOUR-FOLDER"])


def test_other_problems_are_counted(tmp_path: Path) -> None:
    """A folder may hold several problems; the summary says what is left out."""
    folder_of_sizes(tmp_path, [6] * 3)
    dataset(tmp_path / "shops.safetensors", "jssp", 2, "2x2")
    write_tsp(tmp_path / "three.tsp", np.eye(3)[:, :2])
    about = own([str(tmp_path)]).summary
    assert "2 of other problems left out" in about
    assert "1 without anything to decide left out" in about


def test_the_command_takes_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--data` replaces the recipe's data, and the command says what it found."""
    data = folder_of_sizes(tmp_path, [6] * 5)
    recipe = tmp_path / "r.toml"
    settings = {"size": 6, "batch": 2, "updates": 1, "data": ["YOUR-FOLDER"]}
    recipe.write_text(
        "\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items())
        + (
            "\n[policy]\nwidth = 32\nheads = 2\nlayers = 1\nhidden = 32\nlatent = 0\n"
            "[objective]\nstarts = 2\n[validation]\ncount = 2\n"
        )
    )
    out = tmp_path / "out"
    assert verb.run_train([str(recipe), "--device", "cpu", "--out", str(out)]) == 3
    assert "give them by --data FOLDER" in capsys.readouterr().err
    files = sorted(map(str, Path(data[0]).glob("*.tsp")))  # as a shell expands a pattern
    assert (
        verb.run_train([str(recipe), "--data", *files, "--device", "cpu", "--out", str(out)]) == 0
    )
    said = capsys.readouterr()
    assert re.search(r"\d instances of 6 cities to train on, \d held out to validate", said.err)
    assert re.search(r"\n +0 +0\.00 .* +- +- +- ", said.err)
    assert said.out == f"{out / 'best.safetensors'}\n"
    assert all(json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
