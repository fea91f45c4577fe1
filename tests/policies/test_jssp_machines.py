"""The published network: skipping forced waits changes neither schedules nor probabilities."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

import rhumbline
from rhumbline.decoding import RolloutRequest, log_prob, rollout
from rhumbline.decoding.engines.cuda_graphs import construct_with_cuda_graph
from rhumbline.decoding.engines.plain_torch import construct_torch
from rhumbline.kernels import cuda_graph
from rhumbline.policies import jssp_machines
from rhumbline.policies.jssp_machines import (
    JSSPMachinesPolicy,
    MachinesArchitecture,
    operations_by_machine,
)
from rhumbline.problems.jssp import JSSPInstance, JSSPMachines, Schedule, jssp_from_arrays
from rhumbline.problems.jssp.machine_rules import MachinesState
from rhumbline.problems.jssp.rules import BEYOND_HORIZON
from rhumbline.search.strategies.greedy_sampling import Sampling


def small_policy(latent: int = 3) -> JSSPMachinesPolicy:
    """Return a random policy whose scores are not flat and whose latents matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = JSSPMachinesPolicy(
            MachinesArchitecture(width=16, heads=2, hidden=24, latent=latent)
        )
        for rows in (policy.decoder.machine_latent, policy.decoder.job_latent):
            rows.data.normal_(0, 0.004)  # times the amplification of 100
    return policy.requires_grad_(False)


@pytest.fixture(scope="module")
def policy() -> JSSPMachinesPolicy:
    return small_policy()


def random_instance(seed: int, jobs: int = 3, machines: int = 3, longest: int = 6) -> JSSPInstance:
    rng = np.random.default_rng(seed)
    shape = (jobs, machines)
    return jssp_from_arrays(
        rng.integers(1, longest, shape), rng.random(shape).argsort(1), f"random-{seed}"
    )


def odd_instance() -> JSSPInstance:
    """Return jobs of different lengths that revisit machines and skip some, with zero durations."""
    return JSSPInstance(
        "odd", ((3, 0, 0, 2, 1), (2,), (0, 4, 3)), ((0, 0, 1, 0, 2), (1,), (2, 0, 2)), 3
    )


# --- by hand


def test_a_shop_by_hand() -> None:
    """Machine 0 takes job 1, and only then machine 1 has a choice.

    Waiting lets one tick pass; work lets all of it pass.
    """
    shop = JSSPInstance("hand", ((3, 2), (3, 4)), ((0, 1), (0, 1)), 2)
    problem = JSSPMachines()
    batch = problem.collate([shop])
    state = problem.reset(batch, problem.starts(batch))
    assert problem.mask(state).tolist() == [[[False, True, True]]]  # some machine has to start
    state = problem.step(state, torch.tensor([[1]]))
    # Both machines: job 2 on the first, job 1 on the other.
    assert (state.clock.item(), state.turn.item()) == (
        3,
        1,
    )
    assert problem.mask(state).tolist() == [[[True, False, True]]]
    waited = problem.step(problem.step(state, torch.tensor([[0]])), torch.tensor([[1]]))
    # The first machine waited, so it is asked again at the next tick.
    assert waited.clock.item() == 4
    assert waited.busy.tolist() == [[[0, 1]]]
    both = problem.step(problem.step(state, torch.tensor([[2]])), torch.tensor([[1]]))
    assert both.clock.item() == 6
    assert problem.mask(both).tolist() == [[[False, False, True]]]
    done = problem.step(both, torch.tensor([[2]]))
    assert problem.finished(done)
    assert problem.outcome(batch, done, torch.zeros(1, 1, 1, dtype=torch.int64)).item() == 10
    assert problem.decode(shop, [0, 1, 2, 1, 2]) == Schedule(((0, 3), (3, 6)))


def test_no_machine_can_wait_for_ever() -> None:
    """If a machine waits whenever it may, rollouts still end within the horizon."""
    shop, problem = random_instance(0), JSSPMachines()
    batch = problem.collate([shop])
    state, actions = problem.reset(batch, problem.starts(batch)), [0]
    while not problem.finished(state):
        # The first allowed action is waiting.
        action = problem.mask(state).to(torch.uint8).argmax(-1)
        state = problem.step(state, action)
        actions.append(action.item())
    assert len(actions) <= problem.horizon(batch)
    plan = problem.decode(shop, actions)
    plan.check(shop)
    assert (
        plan.cost(shop)
        == problem.outcome(batch, state, torch.zeros(1, 1, 1, dtype=torch.int64)).item()
    )


# --- ticking


@dataclass
class Ticking:
    """The published environment of one instance, tick by tick, in plain Python."""

    shop: JSSPInstance
    clock: int = 0
    next: list[int] = field(default_factory=list)
    job: list[int] = field(default_factory=list)  # time left
    machine: list[int] = field(default_factory=list)
    starts: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        jobs = self.shop.job_count
        self.next, self.job, self.machine = [0] * jobs, [0] * jobs, [0] * self.shop.machine_count
        self.starts = [[] for _ in range(jobs)]
        batch = JSSPMachines().collate([self.shop])
        self.start = JSSPMachines().reset(batch, torch.zeros(1, 1, dtype=torch.int64))

    def valid(self, machine: int) -> list[int]:
        """Return the actions of a machine: waiting, and the jobs it can take."""
        return [0] + [
            j + 1
            for j, row in enumerate(self.shop.machines)
            if self.machine[machine] == 0
            and self.job[j] == 0
            and self.next[j] < len(row)
            and row[self.next[j]] == machine
        ]

    def tick(self, choices: list[int]) -> None:
        """Let all machines act, and one unit of time pass."""
        for machine, action in enumerate(choices):
            if action:
                job = action - 1
                duration = self.shop.durations[job][self.next[job]]
                self.starts[job].append(self.clock)
                self.next[job] += 1
                self.job[job] = self.machine[machine] = duration
        self.job, self.machine = ([max(0, x - 1) for x in xs] for xs in (self.job, self.machine))
        self.clock += 1

    def done(self) -> bool:
        return all(n == len(row) for n, row in zip(self.next, self.shop.durations, strict=True))

    def seen(self, choices: list[int]) -> MachinesState:
        """Return what a machine observes; earlier choices only tell whose turn it is.

        Times count from now.
        """
        start = self.start
        cell = start.cell + torch.tensor([[[0, *self.next]]])
        machine = torch.tensor([[[BEYOND_HORIZON, *self.machine, 0]]])
        ahead = start.operations[0, 0][cell]
        begin = torch.maximum(torch.tensor([[[0, *self.job]]]), machine.gather(2, ahead[..., 0]))
        last = torch.tensor([[len(choices)]])
        return replace(start, cell=cell, ahead=ahead, start=begin, machine=machine, last=last)


def ticked(
    policy: JSSPMachinesPolicy, shop: JSSPInstance, z: torch.Tensor, actions: list[int]
) -> tuple[Ticking, float]:
    """Replay recorded choices tick by tick, and sum the log-probabilities of all machines."""
    env, left, total = Ticking(shop), list(actions[1:]), 0.0
    memory = policy.encode(JSSPMachines().collate([shop]))
    while not env.done():
        choices: list[int] = []
        for machine in range(shop.machine_count):
            valid = env.valid(machine)
            choices.append(left.pop(0) if len(valid) > 1 else 0)
            allowed = torch.zeros(1, 1, shop.job_count + 1, dtype=torch.bool)
            allowed[0, 0, valid] = True
            idle = not any(env.machine) and not any(choices[:-1])
            if idle and not any(
                len(env.valid(m)) > 1 for m in range(machine + 1, shop.machine_count)
            ):
                allowed[0, 0, 0] = len(valid) == 1  # time would stand still
            state = env.seen(choices[:-1])
            logits = policy.logits(memory, policy.condition(memory, z), state, allowed)
            scores = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)[0, 0]
            total += scores[choices[-1]].item()
        env.tick(choices)
    assert not any(left)
    return env, total


@pytest.mark.parametrize("seed", range(4))
def test_skipping_is_ticking(policy: JSSPMachinesPolicy, seed: int) -> None:
    """The same choices, tick by tick with every forced wait, give the same schedule.

    The log-probability is the same, too.
    """
    shop, problem = random_instance(seed) if seed else odd_instance(), JSSPMachines()
    batch, z = (
        problem.collate([shop]),
        policy.space.sample((1, 2), torch.Generator().manual_seed(seed)),
    )
    rolled = rollout(problem, policy, batch, z, problem.starts(batch), seed=seed)
    scores = log_prob(problem, policy, batch, z, rolled.actions.flatten(1, 2))[0]
    for k, row in enumerate(rolled.actions[0, :, 0].tolist()):
        env, total = ticked(policy, shop, z[:, k : k + 1], row)
        plan = problem.decode(shop, row)
        assert plan.starts == tuple(map(tuple, env.starts))
        assert plan.cost(shop) == rolled.cost[0, k, 0].item()
        assert scores[k].item() == pytest.approx(total, abs=1e-3)
        assert total < -0.5


# --- the policy


def test_what_is_taken_no_longer_matters(policy: JSSPMachinesPolicy) -> None:
    """Durations of operations that were taken do not change the scores; those ahead do."""
    shop, problem = random_instance(1), JSSPMachines()
    batch = problem.collate([shop])
    start = problem.reset(batch, problem.starts(batch))
    state = problem.step(start, torch.tensor([[1]]))
    while problem.mask(state).sum() < 2 or torch.equal(state.cell, start.cell):
        state = problem.step(state, problem.mask(state).to(torch.uint8).argmax(-1))
    allowed, job = problem.mask(state), int((state.cell - start.cell)[0, 0, 1:].argmax())
    scores = []
    for step in (None, 0, 2):
        changed = batch.map(torch.clone)
        if step is not None:
            changed.duration[0, job, step] += 5
        memory = policy.encode(changed)
        scores.append(
            policy.logits(memory, policy.condition(memory, torch.zeros(1, 1, 3)), state, allowed)
        )
    assert torch.allclose(scores[0], scores[1], atol=1e-6)
    assert not torch.allclose(scores[0], scores[2], atol=1e-4)


def test_endings_from_a_table_are_those_of_the_moment(
    policy: JSSPMachinesPolicy, monkeypatch
) -> None:
    """A job's ending is the same from the table and computed at the decision.

    Schedules, scores and gradients agree.
    """
    problem, z = JSSPMachines(), policy.space.sample((1, 3), torch.Generator().manual_seed(0))
    batch, learner = problem.collate([odd_instance()]), small_policy().requires_grad_()
    found = []
    for most in (1 << 20, 0):
        tuning = replace(jssp_machines.TUNING, max_ending_elements={"cpu": most})
        monkeypatch.setattr(jssp_machines, "TUNING", tuning)
        assert (learner.encode(batch).endings is None) == (most == 0)
        rolled = rollout(problem, learner, batch, z, problem.starts(batch), seed=0)
        scores = log_prob(problem, learner, batch, z, rolled.actions.flatten(1, 2))
        found.append(
            (
                rolled.actions,
                scores,
                torch.autograd.grad(scores.sum(), list(learner.encoder.parameters())),
            )
        )
    (looked_up, scores, slopes), (computed, others, other_slopes) = found
    assert torch.equal(looked_up, computed)
    assert torch.allclose(scores, others, rtol=1e-5)
    for (name, _), one, other in zip(
        learner.encoder.named_parameters(), slopes, other_slopes, strict=True
    ):
        assert torch.allclose(one, other, atol=1e-3 * other.abs().max().item()), name
        assert one.abs().max() > 0, name


def test_attention_in_pieces_is_attention(monkeypatch) -> None:
    """Each row has its own attention, whatever the size of a chunk."""
    rng = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(5, 2, length, 4, generator=rng) for length in (3, 6, 6))
    bias = torch.randn(5, 1, 1, 6, generator=rng)
    whole = [jssp_machines.chunked_attention(query, key, value, given) for given in (bias, None)]
    tuning = replace(jssp_machines.TUNING, max_attention_rows=2)
    monkeypatch.setattr(jssp_machines, "TUNING", tuning)
    for given, expected in zip((bias, None), whole, strict=True):
        assert torch.allclose(
            jssp_machines.chunked_attention(query, key, value, given), expected, atol=1e-6
        )
    weights = (query[4] @ key[4].mT / 2 + bias[4]).softmax(-1)
    assert torch.allclose(whole[0][4], weights @ value[4], atol=1e-6)


def test_operations_lie_by_machine() -> None:
    """Places are sorted by machine, G for each; later visits come later."""
    # Three machines; the second job has one operation.
    machine = torch.tensor([[[2, 0, 2], [1, 3, 3]]])
    assert operations_by_machine(machine, 3).tolist() == [
        [[1, -1, -1, -1, 0, 2], [-1, -1, 0, -1, -1, -1]]
    ]


def test_scores_are_the_published_products_up_to_a_constant() -> None:
    """Scores are the published products of machines and jobs, less what all share.

    Each token is joined with the latent and goes through its own layer.
    """
    decoder, rng = small_policy().decoder, torch.Generator().manual_seed(0)
    tokens, z = torch.randn(5, 4, 16, generator=rng), torch.rand(5, 3, generator=rng)
    query = decoder.machine(tokens[:, 0]) + 100 * z @ decoder.machine_latent
    keys = decoder.job(tokens[:, 1:]) + (100 * z @ decoder.job_latent)[:, None]
    published = (keys @ query[..., None])[..., 0] / 24**0.5
    scores = decoder(decoder.match, tokens, decoder.condition(z[:, None]).match[:, 0])
    offset = published - scores
    assert torch.allclose(offset, offset[:, :1].expand_as(offset), atol=1e-5)
    assert scores.std() > 0.01


def test_a_new_latent_space_changes_nothing() -> None:
    """A widened policy decides as before, whatever the latent."""
    single, problem = small_policy(0), JSSPMachines()
    batch, wide = problem.sample(2, "3x3", torch.Generator().manual_seed(0)), single.widened(4)
    one = rollout(problem, single, batch, torch.zeros(2, 3, 0), problem.starts(batch), seed=1)
    z = wide.space.sample((2, 3), torch.Generator().manual_seed(0))
    assert torch.equal(
        rollout(problem, wide, batch, z, problem.starts(batch), seed=1).actions, one.actions
    )


def test_the_published_number_of_weights() -> None:
    """Encoder and conditioned decoder of the actor have the published sizes."""
    policy = JSSPMachinesPolicy()
    assert sum(p.numel() for p in policy.encoder.parameters()) == 498_688
    assert sum(p.numel() for p in policy.decoder.parameters()) == 148_480


def test_it_solves_instances_of_the_job_shop(policy: JSSPMachinesPolicy) -> None:
    """The policy has its own rules, but its instances and plans are those of the JSSP."""
    shops = [random_instance(0), random_instance(5, jobs=2)]
    for shop, found in zip(
        shops, rhumbline.solve(shops, policy=policy, strategy=Sampling(4), attempts=8), strict=True
    ):
        found.plan.check(shop)
        assert found.cost == found.plan.cost(shop) == found.trace[-1][2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_recorded_loop_is_the_plain_one(
    policy: JSSPMachinesPolicy, monkeypatch, temperature: float
) -> None:
    """Steps that work in place give what plain steps give, without a check for the end."""

    def run(step, times: int, device: torch.device, done) -> None:
        for number in range(times):
            if number % 7 == 0 and done():
                break
            step()

    monkeypatch.setattr(cuda_graph, "repeat", run)
    problem = JSSPMachines()
    batch = problem.sample(2, "3x2", torch.Generator().manual_seed(0))
    z = policy.space.sample((2, 3), torch.Generator().manual_seed(0))
    work = RolloutRequest(
        problem, policy, batch, policy.encode(batch), z, problem.starts(batch), 3, 2, temperature
    )
    plain, looped = construct_torch(work), construct_with_cuda_graph(work)
    assert torch.equal(plain.actions, looped.actions)
    assert torch.equal(plain.cost, looped.cost)
