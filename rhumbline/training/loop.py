"""The training loop: a generator of reports. One process, or several under torchrun."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rhumbline.checkpoint import TrainingFacts, load_with_facts, recorded_versions, save
from rhumbline.errors import InputError
from rhumbline.training import parallel
from rhumbline.training import resume as state
from rhumbline.training.config import BEST_POLICY_FILE, POLICY_FILE, TrainConfig
from rhumbline.training.trainer import Trainer


@dataclass(frozen=True)
class Report:
    """One line of metrics."""

    update: int
    minutes: float
    lr: float
    cost: float | None  # mean cost of the sampled rollouts; None before the first update
    best: float | None  # mean over instances of the cheapest rollout
    kept: float | None  # share of targets that trained
    greedy: float  # validation: best over starts, greedy, at the centre of the latent space
    # validation: best over `validation.latents` random latents (or samples) and all starts
    latent: float
    updates_per_second: float


def train(
    config: TrainConfig,
    *,
    device: torch.device,
    out: Path,
    minutes: float | None = None,
    resume: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    notify: Callable[[str], None] = lambda words: None,
) -> Iterator[Report]:
    """Train until `minutes` or `config.updates`, yielding a report whenever one is due and at the
    end.

    Each report writes `out/policy.safetensors` (averaged weights, ready to use),
    `out/best.safetensors` (those with the lowest validation cost of the run so far) and the state
    to resume from.
    """
    if not minutes and not config.updates:
        raise InputError("give --minutes, or `updates` in the recipe: training needs an end")
    if resume:
        state.newest_update(resume)  # refuses before any work
    trainer = Trainer(config, device)
    if trainer.source.about and parallel.rank() == 0:
        notify(trainer.source.about)
    if resume:
        state.restore_trainer(trainer, resume)
    began = clock()
    first_update = trainer.update
    unjudged = trainer.best == float("inf")
    if resume and unjudged:
        revalidate_best(trainer, resume, out)
    if config.data and unjudged:  # what it begins with may be better than all that follows
        yield make_report(trainer, out, [], 0.0, 0.0)
    last_report = clock()
    recent: list[Tensor] = []

    def done() -> float:
        by_time = (
            parallel.broadcast_from_first((clock() - began) / (60.0 * minutes)) if minutes else 0.0
        )
        by_updates = trainer.update / config.updates if config.updates else 0.0
        return max(by_time, by_updates)

    behind = done()
    while behind < 1.0:
        rolled, targets = trainer.step(behind)
        behind = done()
        kept = targets.weight.nan_to_num(0.0).ne(0).float().mean()
        recent.append(
            torch.stack([rolled.cost.mean(), rolled.cost.flatten(1).amin(1).mean(), kept]).detach()
        )
        if behind >= 1.0 or parallel.broadcast_from_first(clock() - last_report) >= config.report:
            pace = (trainer.update - first_update) / max(1e-9, clock() - began)
            yield make_report(trainer, out, recent, (clock() - began) / 60.0, pace)
            recent = []
            last_report = clock()


def make_report(
    trainer: Trainer, out: Path, recent: list[Tensor], minutes: float, pace: float
) -> Report:
    """Validate, write both files, and return the metrics."""
    costs = {"recent cost": torch.stack(recent)} if recent else {}
    trainer.check_finite(costs | {f"weight {n}": p for n, p in trainer.names.items()})
    valid = trainer.validate()
    cost, best, kept = torch.stack(recent).mean(0).tolist() if recent else (None, None, None)
    line = Report(
        trainer.update,
        minutes,
        trainer.rate,
        cost,
        best,
        kept,
        valid["greedy"],
        valid["latent"],
        pace,
    )
    if parallel.rank() == 0:
        c = trainer.config
        source = trainer.source
        about = TrainingFacts(
            c.problem,
            source.usual,
            trainer.update,
            state.recipe_text(c, source.labels),
            valid,
            recorded_versions(),
        )
        save(out / POLICY_FILE, trainer.average, about)
        if valid["latent"] < trainer.best:
            trainer.best = valid["latent"]
            save(out / BEST_POLICY_FILE, trainer.average, about)
        state.save_state(trainer, out)
    return line


def revalidate_best(trainer: Trainer, folder: Path, out: Path) -> None:
    """Put the best of a run that goes on with other validation instances to the same test as all
    that follows.
    """
    if not (folder / BEST_POLICY_FILE).is_file():
        return
    policy, about = load_with_facts(folder / BEST_POLICY_FILE, trainer.device)
    average = trainer.average
    trainer.average = policy
    valid = trainer.validate()
    trainer.average = average
    trainer.best = valid["latent"]
    if parallel.rank() == 0:
        save(out / BEST_POLICY_FILE, policy, replace(about, validation=valid))
