"""The training loop: a generator of reports. One process, or several under torchrun."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.checkpoint import TrainingFacts, load_with_facts, recorded_versions, save
from rhumbline.decoding import Rollouts
from rhumbline.errors import InputError
from rhumbline.training import parallel
from rhumbline.training.config import BEST_POLICY_FILE, POLICY_FILE, TrainConfig
from rhumbline.training.objectives.targets import Targets
from rhumbline.training.resume import newest_update, recipe_text, restore_trainer, save_state
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
    """Train until `minutes` or `config.updates`; yield a report whenever one is due and at the end.

    Each report writes three things into `out`: `policy.safetensors` (averaged weights, ready to
    use), `best.safetensors` (those with the lowest validation cost of the run so far) and the state
    to resume from. `notify` gets remarks about the data, in words.
    """
    if not minutes and not config.updates:
        raise InputError("give --minutes, or `updates` in the recipe: training needs an end")
    trainer = make_trainer(config, device, resume, notify)
    progress = TrainingProgress(trainer, minutes, clock)
    is_unvalidated = trainer.best_cost == float("inf")
    if resume and is_unvalidated:
        revalidate_best(trainer, resume, out)
    # On user data, the initial policy may be better than all that follow.
    if config.data and is_unvalidated:
        yield make_report(trainer, out, [], 0.0, 0.0)
    last_report = clock()
    metrics: list[Tensor] = []
    done = progress.completed_fraction()
    while done < 1.0:
        rollouts, targets = trainer.step(done)
        done = progress.completed_fraction()
        metrics.append(step_metrics(rollouts, targets))
        if done >= 1.0 or parallel.broadcast_from_first(clock() - last_report) >= config.report:
            pace = progress.updates_per_second()
            yield make_report(trainer, out, metrics, progress.minutes_so_far(), pace)
            metrics = []
            last_report = clock()


def make_trainer(
    config: TrainConfig,
    device: torch.device,
    resume: Path | None,
    notify: Callable[[str], None],
) -> Trainer:
    """Return a trainer, in the newest state of the folder `resume` if there is one."""
    if resume:
        newest_update(resume)  # refuses before any work
    trainer = Trainer(config, device)
    if trainer.source.summary and parallel.rank() == 0:
        notify(trainer.source.summary)
    if resume:
        restore_trainer(trainer, resume)
    return trainer


class TrainingProgress:
    """How far a run has come, by its clock and by its updates."""

    def __init__(self, trainer: Trainer, minutes: float | None, clock: Callable[[], float]) -> None:
        self.trainer = trainer
        self.minutes = minutes
        self.clock = clock
        self.began = clock()
        self.first_update = trainer.update

    def completed_fraction(self) -> float:
        """Return the completed fraction of the limit that is nearer; the same in all processes."""
        by_time = 0.0
        if self.minutes:
            passed = (self.clock() - self.began) / (60.0 * self.minutes)
            by_time = parallel.broadcast_from_first(passed)
        updates = self.trainer.config.updates
        by_updates = self.trainer.update / updates if updates else 0.0
        return max(by_time, by_updates)

    def updates_per_second(self) -> float:
        """Return the mean pace of this call, validation and writing included."""
        updates = self.trainer.update - self.first_update
        seconds = self.clock() - self.began
        return updates / max(1e-9, seconds)

    def minutes_so_far(self) -> float:
        """Return the minutes since the beginning of this call."""
        seconds = self.clock() - self.began
        return seconds / 60.0


def step_metrics(rollouts: Rollouts, targets: Targets) -> Float[Tensor, "3"]:
    """Return the mean cost, the mean best cost and the share of targets that trained."""
    numbers = targets.weight_or_cost.nan_to_num(0.0)
    trained = numbers.ne(0).float()
    best = rollouts.cost.flatten(1).amin(1)
    metrics = torch.stack(
        [
            rollouts.cost.mean(),
            best.mean(),
            trained.mean(),
        ]
    )
    return metrics.detach()


def make_report(
    trainer: Trainer, out: Path, metrics: list[Tensor], minutes: float, pace: float
) -> Report:
    """Validate, write weights and state, and return the report."""
    values = {f"weight {name}": p for name, p in trainer.parameters.items()}
    if metrics:
        values = {"recent cost": torch.stack(metrics)} | values
    trainer.check_finite(values)
    validation = trainer.validate()
    cost = best = kept = None
    if metrics:
        cost, best, kept = torch.stack(metrics).mean(0).tolist()
    report = Report(
        update=trainer.update,
        minutes=minutes,
        lr=trainer.rate,
        cost=cost,
        best=best,
        kept=kept,
        greedy=validation["greedy"],
        latent=validation["latent"],
        updates_per_second=pace,
    )
    if parallel.rank() == 0:
        write_checkpoints(trainer, out, validation)
    return report


def write_checkpoints(trainer: Trainer, out: Path, validation: dict[str, float]) -> None:
    """Write the averaged weights, also as the best ones if they are, and the state."""
    source = trainer.source
    facts = TrainingFacts(
        trainer.config.problem,
        source.typical_size,
        trainer.update,
        recipe_text(trainer.config, source.labels),
        validation,
        recorded_versions(),
    )
    save(out / POLICY_FILE, trainer.average, facts)
    if validation["latent"] < trainer.best_cost:
        trainer.best_cost = validation["latent"]
        save(out / BEST_POLICY_FILE, trainer.average, facts)
    save_state(trainer, out)


def revalidate_best(trainer: Trainer, folder: Path, out: Path) -> None:
    """Validate the best policy of a resumed run on the new validation instances."""
    if not (folder / BEST_POLICY_FILE).is_file():
        return
    policy, facts = load_with_facts(folder / BEST_POLICY_FILE, trainer.device)
    average = trainer.average
    trainer.average = policy
    validation = trainer.validate()
    trainer.average = average
    trainer.best_cost = validation["latent"]
    if parallel.rank() == 0:
        save(out / BEST_POLICY_FILE, policy, replace(facts, validation=validation))
