"""The training loop: a generator of reports. One process, or several under torchrun."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rhumbline.checkpoint import (
    TrainingFacts,
    checkpoint_content,
    load_with_facts,
    read_tensor_file,
    recorded_versions,
    save,
)
from rhumbline.checkpoint.tensor_file import StagedFiles
from rhumbline.decoding import Rollouts
from rhumbline.errors import CheckpointError, InputError
from rhumbline.training import parallel
from rhumbline.training.config import TrainConfig
from rhumbline.training.objectives.targets import Targets
from rhumbline.training.resume import (
    SavedState,
    add_state,
    find_state,
    read_newest_state,
    recipe_text,
    remove_older_states,
    restore_trainer,
)
from rhumbline.training.run_folder import (
    RUN_FILES,
    complete_updates,
    lock_folder,
    remedy_for_full_disk,
)
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
    resume: Path | Literal["auto"] | None = None,
    clock: Callable[[], float] = time.monotonic,
    notify: Callable[[str], None] = lambda words: None,
) -> Iterator[Report]:
    """Train until `minutes` or `config.updates`; yield a report whenever one is due and at the end.

    Each report writes three things into `out`: `policy.safetensors` (averaged weights, ready to
    use), `best.safetensors` (those with the lowest validation cost of the run so far) and the state
    to resume from. `resume` is the folder of a run, or "auto": then the newest sound state in `out`
    is resumed, and a new run begins if there is none. A lock keeps other runs out of the folder.
    `notify` gets remarks about the data, in words.
    """
    if not minutes and not config.updates:
        raise InputError("give --minutes, or `updates` in the recipe: training needs an end")
    with ExitStack() as stack:
        parallel.run_on_first(partial(enter_folder, stack, out))
        state = load_state(resume, out)
        trainer = make_trainer(config, device, state, notify)
        if state and state.folder.resolve() == out.resolve():
            parallel.run_on_first(partial(complete_policies, trainer, out, state.validation))
        progress = TrainingProgress(trainer, minutes, clock)
        yield from make_reports(trainer, progress, state, out)


def enter_folder(stack: ExitStack, out: Path) -> None:
    """Lock the folder of a run until the stack is closed."""
    lock = lock_folder(out)
    stack.enter_context(lock)


def load_state(resume: Path | Literal["auto"] | None, out: Path) -> SavedState | None:
    """Return the state to continue from; only the first process reads files."""
    if resume is None:
        return None
    if resume == "auto":
        check_shared(out)
        return parallel.run_on_first(partial(find_state, out))
    return parallel.run_on_first(partial(read_newest_state, resume))


def check_shared(folder: Path) -> None:
    """Refuse a folder in which other processes see newer states than the first.

    After a restart, the first process may be on another host than before. Without a shared file
    system it would begin a new run.
    """
    updates = complete_updates(folder)
    newest = updates[-1] if updates else -1
    in_first, *in_others = parallel.gather_from_all(newest)
    if max(in_others, default=-1) > in_first:
        words = f"another host has the state of update {max(in_others)}, the first process has not"
        raise InputError(f"{folder}: {words}; put the folder on a file system that all hosts share")


def make_reports(
    trainer: Trainer, progress: "TrainingProgress", state: SavedState | None, out: Path
) -> Iterator[Report]:
    """Train to the end, and yield a report whenever one is due."""
    config = trainer.config
    clock = progress.clock
    is_unvalidated = trainer.best_cost == float("inf")
    if state and is_unvalidated:
        revalidate_best(trainer, state.folder, out)
    # On user data, the initial policy may be better than all that follow.
    if config.data and is_unvalidated:
        yield make_report(trainer, out, [], 0.0, 0.0)
    last_report = clock()
    metrics: list[Tensor] = []
    done = progress.completed_fraction()
    while done < 1.0:
        rollouts, targets = trainer.step(done)
        done = progress.completed_fraction()
        latest = step_metrics(rollouts, targets)
        metrics.append(latest)
        if done >= 1.0 or parallel.broadcast_from_first(clock() - last_report) >= config.report:
            pace = progress.updates_per_second()
            minutes = progress.minutes_so_far()
            yield make_report(trainer, out, metrics, minutes, pace)
            metrics = []
            last_report = clock()


def make_trainer(
    config: TrainConfig,
    device: torch.device,
    state: SavedState | None,
    notify: Callable[[str], None],
) -> Trainer:
    """Return a trainer, in a saved state if there is one."""
    trainer = Trainer(config, device)
    if trainer.source.summary and parallel.rank() == 0:
        notify(trainer.source.summary)
    if state:
        restore_trainer(trainer, state)
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
            seconds = self.clock() - self.began
            limit = 60.0 * self.minutes
            passed = seconds / limit
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
    if trainer.critic is not None:
        for name, weight in trainer.critic.parameters.items():
            values[f"weight of the critic's {name}"] = weight
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
    parallel.run_on_first(partial(write_checkpoints, trainer, out, validation))
    return report


def write_checkpoints(trainer: Trainer, out: Path, validation: dict[str, float]) -> None:
    """Write the state and the averaged weights, also as the best ones if they are."""
    facts = training_facts(trainer, validation)
    content = checkpoint_content(trainer.average, facts)
    cost = validation["latent"]
    is_best = cost < trainer.best_cost
    if is_best:
        trainer.best_cost = cost
        trainer.best_update = trainer.update
    try:
        with StagedFiles(durable=True) as files:
            add_state(files, trainer, out, validation)
            files.add(out / RUN_FILES.policy, *content)
            if is_best:
                files.add(out / RUN_FILES.best_policy, *content)
    except InputError as error:
        raise InputError(f"{error}; {remedy_for_full_disk(out)}") from error
    remove_older_states(out, trainer.update)


def training_facts(trainer: Trainer, validation: dict[str, float]) -> TrainingFacts:
    """Return what a checkpoint says about the training so far."""
    source = trainer.source
    return TrainingFacts(
        trainer.config.problem,
        source.typical_size,
        trainer.update,
        recipe_text(trainer.config, source.labels),
        validation,
        recorded_versions(),
    )


def complete_policies(trainer: Trainer, out: Path, validation: dict[str, float] | None) -> None:
    """Write the policies of the report whose state was resumed, if a kill came between them."""
    if validation is None:  # states of earlier versions, which wrote the policies first
        return
    facts = training_facts(trainer, validation)
    is_best = trainer.best_update == trainer.update
    for name in (RUN_FILES.policy, RUN_FILES.best_policy)[: 1 + is_best]:
        if read_update_count(out / name) != trainer.update:
            save(out / name, trainer.average, facts)


def read_update_count(path: Path) -> int | None:
    """Return the number of updates of a checkpoint, or None if it cannot be read."""
    try:
        _, header = read_tensor_file(path)
        return header["about"]["updates"]
    except (CheckpointError, KeyError, TypeError):
        return None


def revalidate_best(trainer: Trainer, folder: Path, out: Path) -> None:
    """Validate the best policy of a resumed run on the new validation instances."""
    path = folder / RUN_FILES.best_policy
    if not path.is_file():
        return
    policy, facts = load_with_facts(path, trainer.device)
    average = trainer.average
    trainer.average = policy
    validation = trainer.validate()
    trainer.average = average
    trainer.best_cost = validation["latent"]
    trainer.best_update = facts.updates
    if parallel.rank() == 0:
        facts = replace(facts, validation=validation)
        save(out / RUN_FILES.best_policy, policy, facts)
