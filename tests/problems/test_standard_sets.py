"""The standard test sets come from seeds alone."""

from dataclasses import replace

import numpy as np
import pytest

from rhumbline.errors import InputError
from rhumbline.problems import standard_sets
from rhumbline.problems.cvrp import cvrp_from_arrays


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("tsp100", 0.1915194503788923),
        ("tsp125", 0.9537625822517408),
        ("tsp200", 0.9537625822517408),
    ],
)
def test_sets_have_their_published_hash(name: str, first: float) -> None:
    """A set is regenerated bit for bit: its hash is checked inside, its first number here."""
    assert standard_sets.tsp_set(name)[0, 0, 0] == first


def test_another_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that drew other numbers is refused, so no result is on the wrong set."""
    changed = standard_sets.StandardSet(125, 1_000, 1236, standard_sets.TSP_SETS["tsp125"].digest)
    monkeypatch.setitem(standard_sets.TSP_SETS, "tsp125", changed)
    with pytest.raises(
        InputError, match="tsp125: the regenerated set does not have the published hash"
    ):
        standard_sets.tsp_set("tsp125")


def test_unknown_set() -> None:
    """The message lists the sets there are."""
    with pytest.raises(
        InputError, match=r"no standard set 'tsp101' .did you mean 'tsp100'\?.; known: tsp100, "
    ):
        standard_sets.tsp_set("tsp101")


@pytest.mark.parametrize(
    ("name", "first", "capacity"),
    [
        ("vrp100", [0.1915194503788923, 0.6221087710398319], 50),
        ("vrp125", [0.9537625822517408, 0.9921264707372405], 55),
        ("vrp150", [0.9537625822517408, 0.9921264707372405], 60),
        ("vrp200", [0.9537625822517408, 0.9921264707372405], 70),
    ],
)
def test_vehicle_routing_sets_have_their_published_hash(
    name: str, first: list[float], capacity: int
) -> None:
    """Depots, customers and demands are regenerated bit for bit; the depot comes first."""
    xy, demands, load = standard_sets.cvrp_set(name)
    count, size = standard_sets.CVRP_SETS[name].count, standard_sets.CVRP_SETS[name].size
    assert (xy.shape, demands.shape, load) == ((count, size + 1, 2), (count, size + 1), capacity)
    assert xy[0, 0].tolist() == first
    assert not demands[:, 0].any()
    assert (demands[:, 1:].min(), demands[:, 1:].max()) == (1, 9)


def test_rows_of_a_set_are_instances() -> None:
    """The arrays go into `from_arrays` as they are."""
    xy, demands, capacity = standard_sets.cvrp_set("vrp125")
    instance = cvrp_from_arrays(xy[7, 0], xy[7, 1:], demands[7, 1:], capacity)
    assert (instance.size, instance.capacity) == (126, 55)
    assert instance.demands == tuple(demands[7].tolist())


def test_other_demands_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash covers the demands too: others at the same positions are refused."""

    class Other(np.random.RandomState):
        def randint(self, low: int, high: int, size: tuple[int, int]) -> np.ndarray:  # type: ignore[override]
            return super().randint(low, high, size=size)[:, ::-1]

    monkeypatch.setattr(np.random, "RandomState", Other)
    with pytest.raises(
        InputError, match="vrp125: the regenerated set does not have the published hash"
    ):
        standard_sets.cvrp_set("vrp125")


def test_unknown_vehicle_routing_set() -> None:
    """The sets of the two problems are not mixed up."""
    with pytest.raises(
        InputError, match=r"no standard set 'tsp100' .did you mean 'vrp100'\?.; known: vrp100, "
    ):
        standard_sets.cvrp_set("tsp100")


@pytest.mark.parametrize(
    ("name", "jobs", "machines"),
    [("jssp10x10", 10, 10), ("jssp15x15", 15, 15), ("jssp20x15", 20, 15)],
)
def test_job_shop_sets_have_their_published_hash(name: str, jobs: int, machines: int) -> None:
    """Durations are 1 to 98 and each job visits each machine once; the hash is checked inside."""
    shops = standard_sets.jssp_set(name)
    assert (shops.shape, shops.dtype) == ((100, 2, jobs, machines), np.int32)
    assert shops.ravel()[:3].tolist() == [27, 17, 69]
    assert (shops[:, 0].min(), shops[:, 0].max()) == (1, 98)
    assert (np.sort(shops[:, 1], axis=-1) == np.arange(machines)).all()


def test_other_shops_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed has another hash, and the sets of other problems are not mixed up."""
    changed = replace(standard_sets.JSSP_SETS["jssp10x10"], seed=201)
    monkeypatch.setitem(standard_sets.JSSP_SETS, "jssp10x10", changed)
    with pytest.raises(
        InputError, match="jssp10x10: the regenerated set does not have the published hash"
    ):
        standard_sets.jssp_set("jssp10x10")
    with pytest.raises(
        InputError, match=r"no standard set 'tsp100'.*; known: jssp10x10, jssp15x15, jssp20x15"
    ):
        standard_sets.jssp_set("tsp100")
