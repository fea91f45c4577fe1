"""A real Ray cluster of three nodes on this machine: equal results, lost nodes, what is refused."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import many_cases
import pytest
from many_cases import POISON, REFUSED, deadly_solver, make_cities, quick_request

from rhumbline.distributed.backends import ray_cluster
from rhumbline.distributed.backends.ray_cluster import RayBackend, RayResources
from rhumbline.distributed.chunks import cut_into_chunks
from rhumbline.distributed.run import solve_many
from rhumbline.distributed.schedule import solve_chunks
from rhumbline.errors import InputError, MissingExtra

slow = pytest.mark.slow
# Ray's own processes and sockets give warnings of all kinds.
pytestmark = pytest.mark.filterwarnings("ignore")
OPTIONS: dict[str, Any] = {"attempts": 4, "strategy": "sampling", "device": "cpu", "chunk": 4}
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of three nodes with a core each, and join it."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # Functions and classes of the tests are sent whole: the nodes do not have their modules.
    ray.cloudpickle.register_pickle_by_value(many_cases)
    started = Cluster(initialize_head=True, head_node_args=NODE)
    for _ in range(2):
        started.add_node(**NODE)
    started.wait_for_nodes()
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = started.address
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()
    del os.environ["RAY_ADDRESS"]
    if before:
        os.environ["RAY_ADDRESS"] = before


def plans(results: Any) -> dict[int, Any]:
    """Return the cost and the plan of each instance; each is there once."""
    found: dict[int, Any] = {}
    for result in results:
        assert result.place not in found
        assert result.solution is not None, result.error
        found[result.place] = (result.solution.cost, result.solution.plan)
    return found


def test_an_unreachable_cluster_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try for minutes. (A process that has joined a cluster stays with it.)"""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(InputError, match=r"cluster at 127\.0\.0\.1:9 cannot be reached .*RAY_ADDR"):
        list(solve_many(make_cities(2), workers="ray", **OPTIONS))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'rhumbline\[ray\]'"):
        list(solve_many(make_cities(2), workers="ray", **OPTIONS))


@slow
def test_three_nodes_find_the_plans_of_one_process(cluster: Any) -> None:
    """Bit for bit, whichever node solves a chunk."""
    instances = make_cities(40)
    here = plans(solve_many(instances, threads=1, **OPTIONS))
    assert plans(solve_many(instances, workers="ray", **OPTIONS)) == here


@slow
def test_poison_fails_alone(cluster: Any) -> None:
    """One instance kills its process, another one raises; all others are solved."""
    instances = make_cities(12)
    instances[5] = replace(instances[5], name=POISON)
    instances[10] = replace(instances[10], name=REFUSED)
    backend = RayBackend(deadly_solver(quick_request()), RayResources())
    solved: list[int] = []
    failed: dict[int, str] = {}
    for result in solve_chunks(cut_into_chunks(instances, 4), backend):
        solved += result.solutions
        failed |= result.failures
    assert sorted(solved) == [place for place in range(12) if place not in (5, 10)]
    assert failed == {
        5: "its worker process has died",
        10: "ValueError: an unexpected error",
    }


@slow
def test_a_node_without_the_package_or_with_another_version_is_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any chunk is sent."""
    monkeypatch.setattr(ray_cluster, "worker_version", lambda: "0.0.7")
    with pytest.raises(InputError, match=r"has rhumbline 0\.0\.7, this is .* the same version"):
        list(solve_many(make_cities(2), workers="ray", **OPTIONS))

    def missing() -> str:
        raise ModuleNotFoundError("No module named 'rhumbline'")

    monkeypatch.setattr(ray_cluster, "worker_version", missing)
    with pytest.raises(InputError, match=r"No module named 'rhumbline'.*on every node"):
        list(solve_many(make_cities(2), workers="ray", **OPTIONS))


@slow
def test_resources_that_no_node_has_are_refused(cluster: Any) -> None:
    """Ray would wait for such a node for ever."""
    with pytest.raises(InputError, match="no node of the Ray cluster has a GPU; it has 3 nodes"):
        list(solve_many(make_cities(2), workers="ray", **OPTIONS | {"device": "cuda"}))
    with pytest.raises(InputError, match="no node of the Ray cluster has 64 cores"):
        list(solve_many(make_cities(2), workers="ray", threads=64, **OPTIONS))


@slow
def test_a_node_killed_in_the_middle_loses_nothing(cluster: Any) -> None:
    """This is the last test with the cluster, which has two nodes afterwards."""
    instances = make_cities(80)
    here = plans(solve_many(instances, threads=1, **OPTIONS))
    found: list[Any] = []
    for result in solve_many(instances, workers="ray", **OPTIONS):
        found.append(result)
        if len(found) == 8:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert plans(found) == here
