"""Muon: its updates, the weights that it moves, resuming, recording and learning."""

import dataclasses
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from small import POLICY

from rhumbline import checkpoint
from rhumbline.domains import DOMAINS
from rhumbline.toml_config import build_dataclass
from rhumbline.training import resume as state
from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation
from rhumbline.training.loop import train
from rhumbline.training.optimiser import Muon, make_optimiser, orthogonalise
from rhumbline.training.trainer import Trainer

CPU = torch.device("cpu")
MUON = Optimiser(kind="muon", lr=3e-3, warmup=3, clip=1.0, decay=0.5)


def random_matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(size: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(random_matrix(size, size, seed=seed))[0]


def one_update(
    weight: torch.Tensor, gradient: torch.Tensor, pieces: int = 1, **group: float
) -> torch.Tensor:
    """Return how one step at rate 1 changes a weight."""
    p = torch.nn.Parameter(weight.clone())
    p.grad = gradient
    rest = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    Muon([{"params": [p], "weight_decay": 0.0, "pieces": pieces} | group], rest, 1.0, 0.95).step()
    return p.detach() - weight


# --- the update


@pytest.mark.parametrize("shape", [(24, 24), (48, 12), (12, 48)])
def test_directions_stay_and_sizes_become_one(shape: tuple[int, int]) -> None:
    """U S V' becomes U T V' with T from 0.68 to 1.21, where S is at least 0.2 % of the norm.

    The test covers two decades.
    """
    rows, columns = shape
    rank = min(shape)
    u, v = rotation(rows, 1)[:, :rank], rotation(columns, 2)[:, :rank]
    before = torch.logspace(0, -2, rank, dtype=torch.float64)
    after = u.T @ orthogonalise((u * before @ v.T)[None])[0] @ v
    assert torch.allclose(after, after.diagonal().diag(), atol=1e-9)
    assert after.diagonal().min() > 0.68
    assert after.diagonal().max() < 1.21


def test_bfloat16_does_not_leave_the_band() -> None:
    """In a GPU's precision, the singular values of random wide matrices are still near 1."""
    values = torch.linalg.svdvals(orthogonalise(random_matrix(5, 32, 128).bfloat16()).float())
    assert values.min() > 0.65
    assert values.max() < 1.25


def test_a_rotated_gradient_gives_the_rotated_update() -> None:
    """The update of Q G R' is Q times the update of G times R'."""
    gradient, left, right = random_matrix(16, 32), rotation(16, 3), rotation(32, 4)
    weight = torch.zeros(16, 32, dtype=torch.float64)
    assert torch.allclose(
        one_update(weight, left @ gradient @ right.T), left @ one_update(weight, gradient) @ right.T
    )


def test_the_size_of_a_gradient_does_not_matter() -> None:
    """Gradients a million times larger move a weight as far; a gradient of 0 moves nothing."""
    weight, gradient = random_matrix(16, 16), random_matrix(16, 16, seed=1)
    assert torch.allclose(one_update(weight, 1e6 * gradient), one_update(weight, gradient))
    assert not one_update(weight, torch.zeros_like(weight)).any()


@pytest.mark.parametrize("shape", [(64, 64), (64, 16), (16, 64)])
def test_updates_are_as_large_as_those_of_adam(shape: tuple[int, int]) -> None:
    """At rate 1 their root mean square is 0.2 for any shape, up to the range of singular values."""
    change = one_update(torch.zeros(shape, dtype=torch.float64), random_matrix(*shape))
    assert 0.2 * 0.68 < change.square().mean().sqrt() < 0.2 * 1.21


def test_stacked_matrices_are_orthogonalised_separately() -> None:
    """Queries, keys and values move as separate weights, however unequal their gradients."""
    weight, gradient = (
        random_matrix(48, 16),
        torch.cat([random_matrix(16, 16, seed=s) * 10.0**s for s in range(3)]),
    )
    separate = [one_update(w, g) for w, g in zip(weight.split(16), gradient.split(16), strict=True)]
    assert torch.allclose(one_update(weight, gradient, pieces=3), torch.cat(separate))
    assert not torch.allclose(one_update(weight, gradient), torch.cat(separate), atol=0.1)


def test_momentum_by_hand() -> None:
    """With diagonal gradients a and b, the second step follows the momentum's definition.

    Its direction is 0.05 b + 0.95 (0.05 b + 0.95 * 0.05 a).
    """
    a, b = torch.tensor([1.0, 0.3]), torch.tensor([-0.2, 0.4])
    p = torch.nn.Parameter(torch.zeros(2, 2))
    muon = Muon(
        [{"params": [p], "weight_decay": 0.0, "pieces": 1}],
        torch.optim.AdamW([torch.nn.Parameter(a)]),
        1.0,
        0.95,
    )
    for gradient in (a, b):
        before, p.grad = p.detach().clone(), gradient.diag()
        muon.step()
    along = 0.05 * b + 0.95 * (0.05 * b + 0.95 * 0.05 * a)
    assert torch.allclose(
        before - p, 0.2 * 2**0.5 * orthogonalise(along.diag()[None])[0], atol=1e-6
    )


def test_decay_does_not_pass_through_the_momentum() -> None:
    """A weight shrinks by rate times decay, with or without a gradient."""
    weight, gradient = random_matrix(8, 8), random_matrix(8, 8, seed=1)
    assert torch.allclose(
        one_update(weight, torch.zeros_like(weight), weight_decay=0.1), -0.1 * weight
    )
    assert torch.allclose(
        one_update(weight, gradient, weight_decay=0.1), one_update(weight, gradient) - 0.1 * weight
    )


# --- which weights


def test_weights_that_muon_moves(make_config) -> None:
    """Muon moves the matrices of layers and pointer; AdamW moves everything else.

    That is embedding, biases, norms and latents.
    """
    trainer = Trainer(make_config("winner", optimiser=MUON), CPU)
    trainer.step(0.0)
    state = trainer.optimiser.state
    moved = {n for n, p in trainer.parameters.items() if "momentum" in state[p]}
    layer = {f"encoder.layers.0.{n}.weight" for n in ("qkv", "out", "up", "down")}
    pointer = {"query_mean", "query_last", "query_first", "key", "value", "output"}
    assert moved == layer | {f"decoder.{n}" for n in pointer}
    assert all("exp_avg" in state[p] for n, p in trainer.parameters.items() if n not in moved)


FAMILIES = {name: f for domain in DOMAINS.values() for name, f in domain.policies.items()}


@pytest.mark.parametrize("problem", FAMILIES)
def test_every_weight_has_one_optimiser(problem: str) -> None:
    """In all problems each weight is in one group, and Muon has all matrices of the layers."""
    family = FAMILIES[problem]
    fields = {field.name for field in dataclasses.fields(family.architecture)}
    settings = {"width": 16} | ({"heads": 2} if "heads" in fields else {})
    policy = family.network(build_dataclass(family.architecture, settings, "policy"))
    muon = make_optimiser(policy, TrainConfig(optimiser=MUON), CPU, is_recorded=False)
    assert isinstance(muon, Muon)
    grouped = [id(p) for group in muon.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in policy.parameters())
    for group in muon.matrices:
        assert all(
            p.ndim == 2 and min(p.shape) >= 16 and p.shape[0] % group["pieces"] == 0
            for p in group["params"]
        )
    taken = {id(p) for group in muon.matrices for p in group["params"]}
    assert all(
        id(p) in taken
        for n, p in policy.encoder.named_parameters()
        if n.endswith("weight") and p.ndim == 2 and min(p.shape) >= 16
    )


def test_only_the_encoder_decays(make_config) -> None:
    """This holds as with AdamW."""
    trainer = Trainer(make_config(optimiser=MUON), CPU)
    encoder = {id(p) for p in trainer.policy.encoder.parameters()}
    for group in trainer.optimiser.param_groups:
        decays = {id(p) in encoder for p in group["params"]}
        assert decays == {group["weight_decay"] == 1e-6}


def test_a_member_without_gradient_stays(make_config) -> None:
    """Members of a population that won no instance are not moved by their momentum."""
    config = make_config("poppy", policy=POLICY | {"latent": 0, "members": 3}, optimiser=MUON)
    trainer = Trainer(config, CPU)
    trainer.step(0.0)
    member = trainer.policy.decoder[1]
    before = [p.detach().clone() for p in trainer.policy.parameters()]
    trainer.update_gradient()
    for p in member.parameters():
        p.grad = None
    trainer.optimiser.step()
    still = {id(p) for p in member.parameters()}
    for p, x in zip(trainer.policy.parameters(), before, strict=True):
        assert p.numel() == 0 or torch.equal(p, x) == (id(p) in still)


# --- in the loop


def test_a_step_reads_nothing_back() -> None:
    """Tensors of the meta device have no contents, so a step that read one would raise."""
    p = torch.nn.Parameter(torch.zeros(48, 16, device="meta"))
    p.grad, rate = torch.zeros_like(p), torch.zeros((), device="meta")
    rest = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    muon = Muon([{"params": [p], "weight_decay": 0.1, "pieces": 3}], rest, rate, 0.95)
    muon.step()
    muon.step()
    with pytest.raises(RuntimeError, match="meta"):
        rate.item()


def test_a_rate_in_a_tensor_is_the_same_rate() -> None:
    """A recorded graph fills a tensor, others set a number; both give the same weights."""
    weights, results = (random_matrix(16, 16), random_matrix(16)), []
    for rate in (0.5, torch.tensor(0.5, dtype=torch.float64)):
        matrix, bias = (torch.nn.Parameter(w.clone()) for w in weights)
        matrix.grad, bias.grad = random_matrix(16, 16, seed=1), random_matrix(16, seed=1)
        rest = torch.optim.AdamW([bias], lr=1.0, weight_decay=0.0)
        muon = Muon([{"params": [matrix], "weight_decay": 0.1, "pieces": 1}], rest, 1.0, 0.95)
        for group in muon.param_groups:
            group["lr"] = rate
        muon.step()
        results.append((matrix.detach(), bias.detach()))
    (matrix, bias), again = results
    assert torch.allclose(matrix, again[0])
    assert torch.allclose(bias, again[1])
    assert (bias - weights[1]).abs().max() == pytest.approx(0.5)


def test_stopped_and_resumed_is_uninterrupted(make_config, tmp_path: Path) -> None:
    """Six updates equal three, a new process's worth of state, and three more, bit for bit."""
    config = make_config("winner", optimiser=MUON, updates=6)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    list(train(config, device=CPU, out=whole))
    for report in train(config, device=CPU, out=parts):
        if report.update == 3:
            break
    assert [r.update for r in train(config, device=CPU, out=parts, resume=parts)] == [4, 5, 6]
    for part in state.RUN_FILES.state_parts:
        one, two = (
            checkpoint.read_tensor_file(state.state_file(folder, 6, part))[0]
            for folder in (whole, parts)
        )
        assert one.keys() == two.keys()
        assert all(torch.equal(x, two[name]) for name, x in one.items())
    assert "encoder.layers.0.qkv.weight.momentum" in one


def test_a_state_without_the_setting_is_resumed(make_config, tmp_path: Path) -> None:
    """Older states are AdamW's: they resume with AdamW and are refused with Muon."""
    config = make_config("pomo", updates=1)
    list(train(config, device=CPU, out=tmp_path))
    tables = asdict(config)
    for key in ("kind", "momentum"):
        del tables["optimiser"][key]
    for part in state.RUN_FILES.state_parts:
        path = state.state_file(tmp_path, 1, part)
        tensors, header = checkpoint.read_tensor_file(path)
        checkpoint.write_tensor_file(
            path, tensors, header | {"config": json.loads(json.dumps(tables))}
        )
    muon = replace(config, updates=2, optimiser=replace(config.optimiser, kind="muon"))
    with pytest.raises(
        checkpoint.CheckpointError, match="was trained with other settings of optimiser"
    ):
        next(train(muon, device=CPU, out=tmp_path, resume=tmp_path))
    assert [
        r.update
        for r in train(replace(config, updates=2), device=CPU, out=tmp_path, resume=tmp_path)
    ] == [2]


def test_learning_happens(tmp_path: Path) -> None:
    """100 updates on ten cities lower the validation cost clearly."""
    config = TrainConfig(
        size=10,
        batch=16,
        updates=100,
        report=1e9,
        policy={"width": 32, "heads": 2, "layers": 2, "hidden": 64, "latent": 0},
        objective=Objective("prefer", latents=1, starts=10),
        optimiser=Optimiser(kind="muon", lr=2e-3, warmup=10, clip=1.0, average=0.95),
        validation=Validation(count=100),
    )
    before = Trainer(config, CPU).validate()["greedy"]
    (report,) = train(config, device=CPU, out=tmp_path)
    assert report.greedy < before - 0.15
