"""The CPU kernel, compiled, against the plain engine."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from asking import chosen, chosen_for_scores, why_not

from rhumbline.decoding import rollout
from rhumbline.errors import MissingExtra
from rhumbline.policies.tsp import Architecture
from rhumbline.problems.tsp import TSP, TSPBatch

pytest.importorskip("numba")
from rhumbline.kernels.numba.rollout import cache as kernel_cache
from rhumbline.kernels.numba.rollout import launch as numba_rollout

SEED, ATTEMPT = (5 << 32) + 17, 6
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def wide(make_policy):
    """A policy of the sizes that the kernel is made for."""
    return make_policy(latent=4, width=128, heads=8, hidden=64)


def problem_of(
    nodes: int, count: int, tried: int, starts: int, policy
) -> tuple[TSPBatch, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(nodes)
    batch = TSP().sample(count, nodes, rng)
    batch = replace(
        batch, key=torch.tensor([0xF0000001, 12, 0x7FFFFFFF])[:count]
    )  # keys are 32-bit hashes
    first = torch.stack([torch.randperm(nodes, generator=rng)[:starts] for _ in range(count)])
    return batch, policy.space.sample((count, tried), rng), first


def by_kernel(
    policy, batch, latents, first, temperature: float, **options
) -> tuple[torch.Tensor, torch.Tensor]:
    memory = policy.encode(batch)
    tables = numba_rollout.build_numba_tables(memory, policy.condition(memory, latents))
    return numba_rollout.run_rollouts(
        tables, batch.xy, first, batch.key, SEED, ATTEMPT, temperature=temperature, **options
    )


def assert_tours(actions: torch.Tensor) -> None:
    tours = actions.long()
    assert torch.equal(tours.sort(-1).values, torch.arange(tours.shape[-1]).expand_as(tours))


@pytest.fixture
def assert_same_choices(assert_choices):
    """Check that tours are those that torch would choose, for the counters of this file."""
    return partial(assert_choices, TSP(), seed=SEED, attempt=ATTEMPT)


@pytest.mark.parametrize("temperature", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("nodes", [2, 3, 13, 37, 101])
def test_kernel_chooses_as_torch_does(
    wide, assert_same_choices, nodes: int, temperature: float
) -> None:
    """Choices are the plain engine's except for near ties, costs agree to 1e-5, and tours begin at
    their starts.
    """
    batch, latents, first = problem_of(nodes, 3, 4, min(nodes, 7), wide)
    cost, actions = by_kernel(wide, batch, latents, first, temperature)
    assert_tours(actions)
    assert torch.equal(actions[..., 0].long(), first[:, None].expand(-1, 4, -1))
    assert_same_choices(wide, batch, latents, actions, temperature)
    priced = TSP().cost(batch, actions.flatten(1, 2).long()).view_as(cost)
    assert torch.allclose(cost, priced, rtol=1e-5)
    plain = rollout(
        TSP(),
        wide,
        batch,
        latents,
        first,
        seed=SEED,
        attempt=ATTEMPT,
        temperature=temperature,
        engine="torch",
    )
    same = (plain.actions == actions).all(-1)
    assert same.float().mean() > 0.8  # the rest left the path at a near tie
    assert torch.allclose(plain.cost[same], cost[same], rtol=1e-5)


def test_a_single_city(wide) -> None:
    """One city is a tour of length 0 for every latent."""
    batch, latents, first = problem_of(1, 2, 3, 1, wide)
    cost, actions = by_kernel(wide, batch, latents, first, 1.0)
    assert (tuple(actions.shape), actions.any().item(), cost.any().item()) == (
        (2, 3, 1, 1),
        False,
        False,
    )


def test_one_rollout(wide, assert_same_choices) -> None:
    """A single rollout fills one lane, and no other memory is written."""
    batch, latents, first = problem_of(13, 1, 1, 1, wide)
    cost, actions = by_kernel(wide, batch, latents, first, 1.0)
    assert (tuple(cost.shape), tuple(actions.shape)) == ((1, 1, 1), (1, 1, 1, 13))
    assert_same_choices(wide, batch, latents, actions, 1.0)


def test_threads_change_nothing(wide, assert_same_choices) -> None:
    """1,702 rollouts, the last tile partly filled, are bit-identical with 1, 2 and 5 threads."""
    batch, latents, first = problem_of(37, 2, 23, 37, wide)
    (cost, actions), *others = (
        by_kernel(wide, batch, latents, first, 1.0, threads=n) for n in (1, 2, 5)
    )
    assert_same_choices(wide, batch, latents, actions, 1.0)
    for other_cost, other_actions in others:
        assert torch.equal(other_cost, cost)
        assert torch.equal(other_actions, actions)


def test_threads_are_helpers_only() -> None:
    """Work ends when this thread and the helpers that began are done; helpers that did not begin
    are not awaited.
    """
    both, done = threading.Barrier(2, timeout=10), []

    def fail_here() -> None:
        both.wait()
        if threading.current_thread() is threading.main_thread():
            raise ZeroDivisionError
        time.sleep(0.05)
        done.append("helper")

    with pytest.raises(ZeroDivisionError):
        numba_rollout.run_in_threads(2, fail_here)
    assert done == ["helper"]
    release = threading.Event()
    numba_rollout.pool(1).submit(release.wait)  # keeps the only helper busy
    numba_rollout.run_in_threads(2, lambda: done.append(threading.current_thread().name))
    release.set()
    assert done == ["helper", "MainThread"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_of_a_forked_process() -> None:
    """Helper threads stay in the parent, so a forked process makes its own."""
    numba_rollout.run_in_threads(2, threading.Barrier(2, timeout=10).wait)
    child = os.fork()
    if not child:
        try:
            numba_rollout.run_in_threads(2, threading.Barrier(2, timeout=10).wait)
        except threading.BrokenBarrierError:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_torch_keeps_its_threads() -> None:
    """Torch has one thread while tables are made, and as many as before afterwards, also after an
    error.
    """
    before, seen = torch.get_num_threads(), []

    def fail() -> None:
        with numba_rollout.limit_torch_to_one_thread():
            seen.append(torch.get_num_threads())
            raise ZeroDivisionError

    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError):
        fail()
    seen.append(torch.get_num_threads())
    torch.set_num_threads(before)
    assert seen == [1, 2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_chunks_nor_lanes_change_anything(wide, temperature: float) -> None:
    """The other rollouts of a tile change no bit of a rollout's actions and cost."""
    batch, latents, first = problem_of(13, 3, 5, 13, wide)
    whole, *split = (
        rollout(
            TSP(),
            wide,
            batch,
            latents,
            first,
            seed=7,
            temperature=temperature,
            chunk=c,
            engine="fused",
        )
        for c in (None, 1, 13, 26, 65, 130)
    )
    for part in split:
        assert torch.equal(part.actions, whole.actions)
        assert torch.equal(part.cost, whole.cost)


@pytest.mark.parametrize(
    ("temperature", "rounds"), [(1.0, 100), (0.05, 10), (1e-30, 1), (1e30, 10)]
)
def test_sampled_tours_are_permutations(wide, temperature: float, rounds: int) -> None:
    """No uniform selects a visited city: a million decisions at temperature 1, fewer elsewhere."""
    batch, latents, first = problem_of(101, 1, rounds, 101, wide)
    _, actions = by_kernel(wide, batch, latents, first, temperature)
    assert_tours(actions)


def test_saturated_scores(wide) -> None:
    """Scores far beyond the range of tanh and of exp2 still give tours."""
    batch, latents, first = problem_of(37, 1, 4, 37, wide)
    memory = wide.encode(batch)
    tables = numba_rollout.build_numba_tables(
        memory.map(lambda x: x * 30.0), wide.condition(memory, latents).map(lambda x: x * 30.0)
    )
    for temperature in (0.0, 1.0):
        options = {"temperature": temperature}
        _, actions = numba_rollout.run_rollouts(
            tables, batch.xy, first, batch.key, SEED, ATTEMPT, **options
        )
        assert_tours(actions)


def test_nan_policy_is_safe(wide) -> None:
    """A policy of NaN makes no tour, but every action is a city and no other memory is written."""
    batch, latents, first = problem_of(37, 2, 2, 37, wide)
    memory = wide.encode(batch).map(lambda x: x * torch.nan)
    tables = numba_rollout.build_numba_tables(memory, wide.condition(memory, latents))
    for temperature in (0.0, 1.0):
        options = {"temperature": temperature, "threads": 2}
        _, actions = numba_rollout.run_rollouts(
            tables, batch.xy, first, batch.key, SEED, ATTEMPT, **options
        )
        assert ((actions >= 0) & (actions < 37)).all()


def test_costs_follow_the_metric(wide, make_instances) -> None:
    """If a file's metric rounds, costs are sums of its whole numbers, on this engine as on the
    plain one.
    """
    instance = replace(make_instances(1, 13, scale=50.0)[0], metric="EUC_2D")
    batch = TSP().collate([instance])
    latents, starts = torch.zeros(1, 2, 4), TSP().starts(batch)
    fused, plain = (
        rollout(TSP(), wide, batch, latents, starts, seed=1, engine=e) for e in ("fused", "torch")
    )
    assert torch.equal(fused.cost, fused.cost.round())
    assert torch.equal(fused.cost[0, 0, 0], TSP().cost(batch, fused.actions[:, 0, :1].long())[0, 0])
    same = (fused.actions == plain.actions).all(-1)
    assert same.any()
    assert torch.equal(fused.cost[same], plain.cost[same])


SMALL = """
import torch
from rhumbline.kernels.numba.rollout import launch as numba_rollout
rng = torch.Generator().manual_seed(0)
def some(*shape): return torch.randn(shape, generator=rng).numpy() * 0.3
tables = numba_rollout.NumbaTables(
    *(some(1, 8, 12, 16) for _ in range(2)), some(1, 12, 128),
    *(some(1, 11, 128) for _ in range(2)), some(1, 3, 128), some(1, 3, 11)
)
xy, starts = torch.rand(1, 11, 2, generator=rng), torch.arange(11)[None]
cost, tours = numba_rollout.run_rollouts(tables, xy, starts, torch.tensor([3]), 5, 0, threads=2)
fields = list(vars(tables).values())
tables = numba_rollout.NumbaTables(*fields[:4], some(1, 128), *fields[5:])
vehicles = torch.tensor([[0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 0]]), torch.tensor([9])
more, routes = numba_rollout.run_rollouts(
    tables, xy, starts[:, 1:], torch.tensor([3]), 5, 0, vehicles=vehicles, threads=2
)
for found in (tours, routes, cost, more):
    print(*(f"{x:.4f}" for x in found.flatten().tolist()))
print(numba_rollout.LANES)
"""


@pytest.mark.skipif(numba_rollout.LANES == 8, reason="this machine has no wider vectors")
def test_machines_without_avx_512(capsys) -> None:
    """Code for eight lanes of AVX2 makes the 33 tours and 30 plans that code for sixteen makes."""
    other = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+popcnt,+sse4.2",
    }
    done = subprocess.run(
        [sys.executable, "-c", SMALL],
        env=os.environ | other,
        capture_output=True,
        text=True,
        check=True,
    )
    exec(SMALL, {})
    narrow, wide = done.stdout.splitlines(), capsys.readouterr().out.splitlines()
    assert (narrow[-1], wide[-1]) == ("8", "16")
    assert [len(line.split()) for line in narrow[:-1]] == [33 * 11, 30 * 20, 33, 30]
    assert narrow[:2] == wide[:2]
    for ours, theirs in zip(narrow[2:-1], wide[2:-1], strict=True):
        assert [float(x) for x in ours.split()] == pytest.approx(
            [float(x) for x in theirs.split()], abs=2e-4
        )


# --- which engine


def test_policies_of_other_sizes_take_torch(policy, make_batch) -> None:
    """The kernel is for 8 heads of width 16; a smaller policy runs on torch, and the reason is
    available.
    """
    words = "takes policies with 8 heads of width 16, and this one has 2 of 16"
    assert words in why_not("tsp", CPU, 10, policy.architecture)
    assert chosen("auto", "tsp", CPU, 10, policy.architecture) == "torch"
    assert words in why_not("tsp", torch.device("cuda"), 10, policy.architecture)


def test_fused_engine_serves_any_size() -> None:
    """On a CPU `auto` and `fused` take the kernel for any number of cities, and scoring takes
    torch.
    """
    usual = Architecture()
    assert {chosen(e, "tsp", CPU, 1000, usual) for e in ("auto", "fused")} == {"fused"}
    assert chosen("torch", "tsp", CPU, 10, usual) == "torch"
    assert chosen("auto", "cvrp", CPU, 1001, usual) == "fused"
    assert chosen("auto", "jssp", CPU, 10, usual) == "torch"
    assert chosen_for_scores("auto", "tsp", CPU, 10) == "torch"
    with pytest.raises(MissingExtra, match="fused scoring needs an NVIDIA GPU"):
        chosen_for_scores("fused", "tsp", CPU, 10)


def test_unusable_cache_costs_only_time(monkeypatch) -> None:
    """If the compiled code can be neither read nor stored, it is compiled for this process."""
    asked = []

    def compile_(signature, cache=False, **options):
        asked.append(cache)
        if cache:
            raise OSError(28, "No space left on device")
        return lambda function: "compiled"

    monkeypatch.setattr(kernel_cache, "cfunc", compile_)
    assert kernel_cache.load_rollout_kernel.__wrapped__("tours") == "compiled"
    assert asked == [True, False]


def test_failed_compilation_is_explained(monkeypatch) -> None:
    """A numba that has changed too much for the kernel is an error with advice, not a traceback."""

    def compile_(signature, **options):
        raise TypeError("no such intrinsic\nand more")

    monkeypatch.setattr(kernel_cache, "cfunc", compile_)
    with pytest.raises(
        MissingExtra,
        match=r"cannot compile the fused engine \(no such intrinsic\)\. Use engine torch",
    ):
        kernel_cache.load_rollout_kernel.__wrapped__("tours")
