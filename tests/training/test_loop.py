"""The training loop: schedules, accumulation, resuming, divergence, and that it learns."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import POLICY, small_config

from rhumbline import checkpoint
from rhumbline.checkpoint import load, load_with_facts
from rhumbline.errors import CheckpointError, InputError
from rhumbline.policies.attention.encoder import attention_ranges
from rhumbline.problems.tsp import TSP
from rhumbline.training import trainer as training
from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation
from rhumbline.training.initial_policy import initial_policy
from rhumbline.training.loop import train
from rhumbline.training.objectives.targets import random_subset
from rhumbline.training.optimiser import learning_rate
from rhumbline.training.trainer import Diverged, Trainer

CPU = torch.device("cpu")
POLICIES = ("policy", "best")


def bits(folder: Path) -> dict[str, torch.Tensor]:
    """Return everything in the files of a folder that a run resumes from."""
    files = sorted(folder.glob("resume-*.safetensors"))
    return {
        f"{f.stem}.{name}": x
        for f in files
        for name, x in checkpoint.read_tensor_file(f)[0].items()
    }


# --- pieces


@pytest.mark.parametrize(
    ("update", "done", "rate"),
    [
        (0, 0.0, 0.25),
        (1, 0.0, 0.5),
        (3, 0.0, 1.0),
        (99, 0.0, 1.0),  # warm-up over 4 updates
        (99, 0.5, 1.0),
        (99, 0.75, 0.55),
        (99, 1.0, 0.1),
        (99, 1.3, 0.1),  # falls over the second half to a tenth
        (1, 0.75, 0.275),  # both at once
    ],
)
def test_learning_rate_by_hand(update: int, done: float, rate: float) -> None:
    """It rises linearly, stays, and falls linearly to its floor."""
    config = TrainConfig(optimiser=Optimiser(lr=1.0, warmup=4, decay=0.5, floor=0.1))
    assert learning_rate(config, update, done) == pytest.approx(rate)


def test_attention_is_kept_within_its_limit(make_config, make_batch) -> None:
    """With `optimiser.spread`, a head beyond the limit is rescaled before the next update."""
    config = make_config("pomo", optimiser=Optimiser(lr=1e-6, spread=5.0))
    trainer = Trainer(config, CPU)
    with torch.no_grad():
        trainer.policy.encoder.layers[0].qkv.weight *= 30.0
    batch = make_batch(16, 7)
    assert max(attention_ranges(trainer.policy.encoder, batch.xy)[0]) > 50.0
    trainer.step(0.0)
    assert (
        max(attention_ranges(trainer.policy.encoder, batch.xy)[0]) < 10.0
    )  # other instances than those it measured


def test_learning_rate_without_a_schedule() -> None:
    """Without warm-up and decay the rate is constant."""
    config = TrainConfig(optimiser=Optimiser(lr=0.3, warmup=0, decay=0.0))
    assert {learning_rate(config, u, d) for u in (0, 1, 500) for d in (0.0, 0.5, 1.0)} == {0.3}


@pytest.mark.parametrize("objective", ["pomo", "winner"])
def test_accumulation_is_the_mean_of_gradients(make_config, objective: str) -> None:
    """Three mini-steps accumulate the mean of their three gradients."""
    config = make_config(objective)
    config = replace(
        config, policy=config.policy | {"amplify": 1.0}
    )  # an amplification of 100 would amplify rounding errors too
    together, single = Trainer(replace(config, accumulate=3), CPU), Trainer(config, CPU)
    for mini in range(3):
        together.gradient(mini)
    sums = {n: torch.zeros_like(p) for n, p in single.parameters.items()}
    for update in range(3):
        single.update = update  # numbers the noise as the mini-steps of update 0 are numbered
        single.optimiser.zero_grad()
        single.gradient(0)
        for name, p in single.parameters.items():
            sums[name] += p.grad / 3
    for name, p in together.parameters.items():
        assert torch.allclose(p.grad, sums[name], rtol=1e-4, atol=1e-6), name
    assert together.parameters["decoder.query_mean"].grad.any()


def test_starts_of_a_single_policy_are_different() -> None:
    """A random subset has no start twice, and draws all starts equally often.

    It is the whole set if there are no more starts.
    """
    starts, rng = torch.arange(10, 16).expand(600, 6), torch.Generator().manual_seed(0)
    some = random_subset(starts, 3, rng)
    assert all(len(set(row)) == 3 for row in some.tolist())
    counts = torch.bincount(some.flatten(), minlength=16)[10:]
    assert (counts - 300).abs().max() < 55  # 4.5 standard deviations of 12.2
    assert random_subset(starts, 9, rng).sort(1).values.tolist() == starts.tolist()


def test_latents_of_an_instance_share_their_starts(make_config) -> None:
    """Latents differ between instances, starts are cities, and each mini-step draws others."""
    trainer = Trainer(make_config("winner"), CPU)
    (batch, latents, starts), (again, _, _) = trainer.sample(), trainer.sample()
    assert (tuple(latents.shape), tuple(starts.shape)) == ((4, 5, 4), (4, 3))
    assert len({tuple(z) for z in latents.flatten(0, 1).tolist()}) == 20
    assert starts.min() >= 0
    assert starts.max() < 7
    assert not torch.equal(batch.xy, again.xy)


def test_average_follows_the_weights(make_config) -> None:
    """The average moves by 1 - min(limit, (1+u)/(10+u)) of the way at update u."""
    trainer = Trainer(make_config(), CPU)
    before = {n: x.clone() for n, x in trainer.average.named_parameters()}
    trainer.step(0.0)
    for name, x in trainer.average.named_parameters():
        expected = before[name] + (1 - 2 / 11) * (trainer.parameters[name] - before[name])
        assert torch.allclose(x, expected, atol=1e-7)
        assert not x.requires_grad


def test_only_the_encoder_decays(make_config) -> None:
    """Weight decay belongs to the encoder alone, and every weight is in exactly one group."""
    trainer = Trainer(make_config(), CPU)
    encoder, decoder = trainer.optimiser.param_groups
    assert (encoder["weight_decay"], decoder["weight_decay"]) == (1e-6, 0.0)
    assert {id(p) for p in decoder["params"]} == {
        id(p) for p in trainer.policy.decoder.parameters()
    }
    assert len(encoder["params"]) + len(decoder["params"]) == len(trainer.parameters)


def test_global_random_state_is_left_alone(make_config) -> None:
    """Training draws nothing from torch's global generator and leaves it where it was."""
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    first = Trainer(make_config(), CPU)
    first.step(0.0)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(77)
    second = Trainer(make_config(), CPU)
    second.step(0.0)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.parameters.values(), second.parameters.values(), strict=True)
    )


# --- whole runs


@pytest.mark.parametrize("objective", ["pomo", "winner", "imitate"])
def test_stopped_and_resumed_is_uninterrupted(make_config, tmp_path: Path, objective: str) -> None:
    """20 updates equal 10, a new process's worth of state, and 10 more, bit for bit.

    This holds for weights, average, moments and random state.
    """
    config = make_config(objective, accumulate=2)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert [r.update for r in train(config, device=CPU, out=whole)] == list(range(1, 21))
    for report in train(config, device=CPU, out=parts):
        if report.update == 10:
            break
    resumed = list(train(config, device=CPU, out=parts, resume=parts))
    assert [r.update for r in resumed] == list(range(11, 21))
    one, two = bits(whole), bits(parts)
    assert one.keys() == two.keys()
    for part in ("raw.decoder.key", "average.decoder.key", "decoder.key.exp_avg_sq", "weights.rng"):
        assert any(name.endswith(part) for name in one), part
    for name, x in one.items():
        assert torch.equal(x, two[name]), name
    policy, about = load_with_facts(parts / "policy.safetensors")
    assert about.updates == 20
    assert all(
        torch.equal(x, two[f"resume-00000020-weights.average.{n}"])
        for n, x in policy.state_dict().items()
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective": Objective("reinforce", latents=6, starts=3)}, "objective"),
        ({"optimiser": Optimiser(lr=1e-2)}, "optimiser"),
        ({"batch": 8, "seed": 1}, "batch, seed"),
    ],
)
def test_resuming_with_another_recipe_is_refused(
    make_config, tmp_path: Path, changes, named: str
) -> None:
    """The error names what changed; the number of updates may change."""
    config = make_config(updates=1)
    list(train(config, device=CPU, out=tmp_path))
    with pytest.raises(
        CheckpointError,
        match=f"{tmp_path}: was trained with other settings of {named}; start a new run",
    ):
        next(
            train(replace(config, updates=2, **changes), device=CPU, out=tmp_path, resume=tmp_path)
        )
    assert [
        r.update
        for r in train(replace(config, updates=2), device=CPU, out=tmp_path, resume=tmp_path)
    ] == [2]


def test_resuming_from_nothing_is_refused(make_config, tmp_path: Path) -> None:
    """The error names a folder without a complete state."""
    with pytest.raises(CheckpointError, match=f"{tmp_path}: no training to resume"):
        next(train(make_config(), device=CPU, out=tmp_path, resume=tmp_path))


def test_a_finished_run_is_not_trained_further(make_config, tmp_path: Path) -> None:
    """Resuming a run that has reached its updates trains nothing and leaves the files as they
    are.
    """
    config = make_config(updates=2)
    list(train(config, device=CPU, out=tmp_path))
    before = bits(tmp_path)
    with suppress(InputError):  # an error that says so is as good as doing nothing
        assert list(train(config, device=CPU, out=tmp_path, resume=tmp_path)) == []
    assert before.keys() == bits(tmp_path).keys()


def test_training_needs_an_end(tmp_path: Path) -> None:
    """Neither minutes nor updates is an error before any work is done."""
    with pytest.raises(InputError, match="training needs an end"):
        next(train(TrainConfig(), device=CPU, out=tmp_path))


def test_minutes_end_a_run(make_config, tmp_path: Path) -> None:
    """The clock ends a run and its last report covers everything since the one before."""
    ticks = iter(range(10_000))
    config = make_config(updates=0, report=25.0)
    reports = list(
        train(config, device=CPU, out=tmp_path, minutes=1.0, clock=lambda: float(next(ticks)))
    )
    assert len(reports) >= 2
    assert reports[-1].minutes >= 1.0
    assert load_with_facts(tmp_path / "policy.safetensors")[1].updates == reports[-1].update


def test_minutes_do_not_outlast_updates(make_config, tmp_path: Path) -> None:
    """With both limits, the first one reached ends the run."""
    reports = list(
        train(make_config(updates=3, report=1e9), device=CPU, out=tmp_path, minutes=60.0)
    )
    assert [r.update for r in reports] == [3]


# --- divergence and crashes


def test_divergence_names_its_place_and_spares_the_files(
    make_config, tmp_path: Path, monkeypatch
) -> None:
    """A cost of nan in the third update stops the run; both files are those of the second."""
    real, trained = training.rollout, []

    def poisoned(*arguments, **options):
        rolled = real(*arguments, **options)
        trained.append(options["temperature"])
        if trained.count(1.0) == 3:
            rolled.cost[0, 0, 0] = torch.nan
        return rolled

    monkeypatch.setattr(training, "rollout", poisoned)
    reports = []
    with pytest.raises(
        Diverged, match=r"^update 2: the cost is not finite; the last checkpoint is intact$"
    ):
        reports.extend(train(make_config("pomo"), device=CPU, out=tmp_path))
    assert load_with_facts(tmp_path / "policy.safetensors")[1].updates == 2
    assert all(torch.isfinite(x.float()).all() for x in bits(tmp_path).values())
    assert {p.name[:15] for p in tmp_path.glob("resume-*")} == {"resume-00000002"}


@pytest.mark.parametrize("weight", ["decoder.key", "encoder.embed.weight"])
def test_a_poisoned_weight_is_found_before_it_spreads(make_config, weight: str) -> None:
    """One NaN among the weights stops the next update, before the optimiser moves anything."""
    trainer = Trainer(make_config(), CPU)
    trainer.parameters[weight].data.view(-1)[0] = torch.nan
    before = {n: p.detach().clone() for n, p in trainer.parameters.items()}
    with pytest.raises(Diverged, match=r"update 0: the .* is not finite"):
        trainer.step(0.0)
    assert all(
        torch.equal(p[~p.isnan()], before[n][~before[n].isnan()])
        for n, p in trainer.parameters.items()
    )


@pytest.mark.parametrize("which", [1, 2, 3, 4])
@pytest.mark.parametrize("blow", [OSError("disk full"), KeyboardInterrupt()], ids=["disk", "kill"])
def test_a_run_that_dies_while_writing_resumes(
    make_config, tmp_path: Path, monkeypatch, blow, which: int
) -> None:
    """Whichever of a report's four renamings fails, all files are complete and the run resumes.

    The state gets its names first. What is missing of the policies is written from it.
    """
    config = make_config(updates=3)
    whole, broken, real, calls = tmp_path / "whole", tmp_path / "broken", os.replace, []
    list(train(config, device=CPU, out=whole))
    run_ = train(config, device=CPU, out=broken)
    next(run_)
    state = {p.name: p.read_bytes() for p in broken.glob("resume-*")}
    assert len(state) == 2

    def die(*paths):
        calls.append(paths)
        if len(calls) == which:
            raise blow
        real(*paths)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises((InputError, KeyboardInterrupt)):
        next(run_)
    monkeypatch.undo()
    assert {n: (broken / n).read_bytes() for n in state} == state
    assert not list(broken.glob(".*.part"))
    updates = [load_with_facts(broken / f"{name}.safetensors")[1].updates for name in POLICIES]
    assert updates == ([2, 1] if which == 4 else [1, 1])
    resumed = train(config, device=CPU, out=broken, resume=broken)
    first = next(resumed)
    assert first.update == (2 if which < 3 else 3)
    assert [r.update for r in resumed] == ([3] if which < 3 else [])
    one, two = bits(whole), bits(broken)
    assert one.keys() == two.keys()
    assert all(torch.equal(x, two[name]) for name, x in one.items())
    for name in POLICIES:
        file = f"{name}.safetensors"
        assert (whole / file).read_bytes() == (broken / file).read_bytes()


# --- starting from another policy


def test_a_single_policy_is_widened(make_config, make_policy, tmp_path: Path) -> None:
    """A latent space from a single policy starts with that policy at every latent."""
    single, path = make_policy(0), tmp_path / "single.safetensors"
    checkpoint.save(path, single, checkpoint.TrainingFacts("tsp", 7))
    policy = initial_policy(make_config(init=str(path)), CPU)
    assert policy.space.size == 4
    assert all(p.requires_grad for p in policy.parameters())
    batch = TSP().sample(2, 6, torch.Generator().manual_seed(0))
    assert torch.equal(policy.encode(batch).key, single.encode(batch).key)
    assert not policy.decoder.query_latent.any()


def test_latents_are_amplified(make_config, make_policy, tmp_path: Path) -> None:
    """With three times the amplification, a latent does what three times that latent did.

    Without a setting, nothing is amplified.
    """
    path, batch = (
        tmp_path / "policy.safetensors",
        TSP().sample(2, 6, torch.Generator().manual_seed(0)),
    )
    before = make_policy(4, amplify=5.0)
    before.decoder.query_latent.data.normal_(generator=torch.Generator().manual_seed(1))
    checkpoint.save(path, before, checkpoint.TrainingFacts("tsp", 7))
    after = initial_policy(make_config(init=str(path), policy=POLICY | {"amplify": 15.0}), CPU)
    latents, memory = torch.full((2, 1, 4), 0.3), before.encode(batch)
    assert torch.allclose(
        after.condition(memory, latents).query, before.condition(memory, 3.0 * latents).query
    )
    with pytest.raises(InputError, match=r"has .*amplify=5\.0.*recipe asks for .*amplify=100\.0"):
        initial_policy(make_config(init=str(path)), CPU)


def test_latents_are_reset(make_config, make_policy, tmp_path: Path) -> None:
    """Every latent then behaves like the centre did, and all weights learn."""
    batch = TSP().sample(2, 6, torch.Generator().manual_seed(0))
    before = make_policy(4, amplify=5.0)
    before.decoder.query_latent.data.normal_(generator=torch.Generator().manual_seed(1))
    path = tmp_path / "policy.safetensors"
    checkpoint.save(path, before, checkpoint.TrainingFacts("tsp", 7))
    config = make_config(init=str(path), policy=POLICY | {"amplify": 100.0}, reset_latents=True)
    after = initial_policy(config, CPU)
    memory = before.encode(batch)
    centre = before.condition(memory, torch.zeros(2, 1, 4))
    somewhere = after.condition(memory, torch.full((2, 1, 4), 0.3))
    assert torch.equal(somewhere.query, centre.query)
    assert all(weight.requires_grad for weight in after.parameters())
    single = tmp_path / "single.safetensors"
    checkpoint.save(single, make_policy(0), checkpoint.TrainingFacts("tsp", 7))
    alone = make_config(init=str(single), policy=POLICY | {"latent": 0}, reset_latents=True)
    with pytest.raises(InputError, match="reset_latents is for policies with a latent space; "):
        initial_policy(alone, CPU)


def test_a_single_policy_becomes_a_population(make_config, make_policy, tmp_path: Path) -> None:
    """All members begin as the policy of `init`; training makes them differ.

    The checkpoint is a population.
    """
    checkpoint.save(
        tmp_path / "single.safetensors", make_policy(0), checkpoint.TrainingFacts("tsp", 7)
    )
    policy = POLICY | {"latent": 0, "members": 3}
    config = make_config(
        "poppy", policy=policy, init=str(tmp_path / "single.safetensors"), updates=3
    )
    members = Trainer(config, CPU).policy.decoder
    assert torch.equal(members[0].query_last, members[2].query_last)
    assert list(train(config, device=CPU, out=tmp_path / "run"))
    trained = load(tmp_path / "run" / "policy.safetensors")
    assert trained.architecture.members == 3
    assert not torch.equal(trained.decoder[0].query_last, trained.decoder[2].query_last)
    with pytest.raises(InputError, match="graph = true is not for populations"):
        Trainer(replace(config, graph=True), CPU)
    with pytest.raises(InputError, match=r"objective\.latents = 3, all members at once"):
        Trainer(make_config("winner", policy=policy), CPU)


def test_a_policy_of_another_shape_is_refused(make_config, make_policy, tmp_path: Path) -> None:
    """The message has both architectures."""
    path = tmp_path / "other.safetensors"
    checkpoint.save(path, make_policy(4, width=16), checkpoint.TrainingFacts("tsp", 7))
    with pytest.raises(
        InputError, match=r"other\.safetensors has .*width=16.*recipe asks for .*width=32"
    ):
        initial_policy(make_config(init=str(path)), CPU)


def test_a_shipped_policy_is_known_by_name(make_config) -> None:
    """`init` knows it as `--policy` does."""
    shipped = load(checkpoint.shipped_checkpoints()["tsp100-single"])
    policy = initial_policy(make_config(init="tsp100-single", policy={"latent": 3}), CPU)
    assert torch.equal(policy.decoder.query_last, shipped.decoder.query_last)
    assert policy.space.size == 3


def test_an_unknown_key_of_the_policy_is_refused(make_config) -> None:
    """The architecture's table is checked like all others: unknown keys list the known ones."""
    with pytest.raises(InputError, match=r"widht.*width"):
        Trainer(make_config(policy={"widht": 32}), CPU)


def test_an_unknown_problem_is_refused(make_config) -> None:
    """The error lists the problems that exist."""
    with pytest.raises(InputError, match="tsp"):
        Trainer(make_config(problem="tps"), CPU)


# --- learning


@pytest.mark.parametrize("loss", ["reinforce", "imitate"])
def test_learning_happens(tmp_path: Path, loss: str) -> None:
    """150 updates on ten cities lower the validation cost clearly."""
    objective = (
        Objective("reinforce", latents=1, starts=10)
        if loss == "reinforce"
        else Objective("imitate", latents=1, starts=10, top=2, improve=3, views=4)
    )
    config = TrainConfig(
        size=10,
        batch=32,
        updates=150,
        report=1e9,
        policy={"width": 32, "heads": 2, "layers": 2, "hidden": 64, "latent": 0},
        objective=objective,
        optimiser=Optimiser(lr=2e-3, warmup=10, clip=1.0, average=0.95),
        validation=Validation(count=100),
    )
    before = Trainer(config, CPU).validate()["greedy"]
    (report,) = train(config, device=CPU, out=tmp_path)
    assert report.greedy < before - 0.15
    assert load(tmp_path / "policy.safetensors").space.size == 0


def test_compiling_reaches_the_encoder_and_the_tables(monkeypatch) -> None:
    """A single decoder's tables are compiled too, for fixed shapes; a population's are not."""
    seen: list[str] = []

    def note(what, **options):
        assert options == {"dynamic": False}
        seen.append(what.__name__)
        return what

    monkeypatch.setattr(torch, "compile", note)
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda module, **options: note(type(module), **options)
    )
    Trainer(small_config(), torch.device("cpu")).compile_layers()
    assert seen == ["Encoder", "tables"]
    many = {"width": 32, "heads": 2, "layers": 1, "hidden": 32, "latent": 0, "members": 3}
    Trainer(small_config("poppy", policy=many), torch.device("cpu")).compile_layers()
    assert seen == ["Encoder", "tables", "Encoder"]
