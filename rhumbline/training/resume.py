"""Resume state: raw and averaged weights, the optimiser's moments and the random state of a run.

It lies beside the finished policy in two files, because a GPU node may hand back only files of up
to 16 MiB. Their names carry the update. Older files are removed only once all new ones are
complete, so a complete pair exists whenever a run is killed. The policies get their names after the
state, from which they can be written again.
"""

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rhumbline.checkpoint.facts import is_json_number
from rhumbline.checkpoint.network import check_finite_weights, compare_shapes
from rhumbline.checkpoint.tensor_file import StagedFiles, read_tensor_file, shorten_words
from rhumbline.errors import CheckpointError, InputError, note_once, shorten_repr
from rhumbline.toml_config import build_dataclass
from rhumbline.training.config import TrainConfig
from rhumbline.training.critic import CriticLearner
from rhumbline.training.optimiser import moment_names
from rhumbline.training.run_folder import (
    RUN_FILES,
    complete_updates,
    keep_earlier_files,
    newest_update,
    state_file,
)

if TYPE_CHECKING:
    from rhumbline.training.trainer import Trainer


@dataclass(frozen=True)
class SavedState:
    """What two files of one save hold, on the host."""

    weights_file: Path
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    header: dict[str, Any]

    @property
    def folder(self) -> Path:
        """The folder it was read from."""
        return self.weights_file.parent

    @property
    def validation(self) -> dict[str, float] | None:
        """The validation costs of its report; None in states of earlier versions."""
        costs = self.header.get("validation")
        is_sound = isinstance(costs, dict) and all(map(is_json_number, costs.values()))
        return costs if is_sound else None

    @property
    def update(self) -> int:
        """The number of updates after which it was saved."""
        return self.header["update"]


def add_state(
    files: StagedFiles, trainer: "Trainer", out: Path, validation: dict[str, float]
) -> None:
    """Write everything that a later process needs to continue bit for bit."""
    weights: dict[str, Tensor] = {}
    for prefix, policy in (("raw.", trainer.policy), ("average.", trainer.average)):
        for name, x in policy.state_dict().items():
            weights[prefix + name] = x
    weights[RUN_FILES.random_state] = trainer.rng.get_state()
    moments = named_moments(trainer.optimiser, trainer.parameters)
    if trainer.critic is not None:
        for name, x in trainer.critic.network.state_dict().items():
            weights[RUN_FILES.critic_prefix + name] = x
        critic_moments = named_moments(trainer.critic.optimiser, trainer.critic.parameters)
        for name, x in critic_moments.items():
            moments[RUN_FILES.critic_prefix + name] = x
    header = {
        # The identity of this save: both files have it, and no file of another run or update.
        "save": secrets.token_hex(8),
        "update": trainer.update,
        "best": trainer.best_cost,
        "best_update": trainer.best_update,
        "validation": validation,
        "judged": validation_id(trainer),
        "config": asdict(trainer.config),
    }
    for part, tensors in zip(RUN_FILES.state_parts, (weights, moments), strict=True):
        on_host = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
        files.add(state_file(out, trainer.update, part), on_host, header)


def named_moments(
    optimiser: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """Return the moments of an optimiser by the names of their weights."""
    moments: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        for key, x in optimiser.state[parameter].items():
            moments[f"{name}.{key}"] = x
    return moments


def remove_older_states(out: Path, update: int) -> None:
    """Remove the states of a folder but that of an update."""
    newest = {state_file(out, update, part) for part in RUN_FILES.state_parts}
    for path in set(out.glob(RUN_FILES.state_pattern)) - newest:
        path.unlink(missing_ok=True)


def read_newest_state(folder: Path) -> SavedState:
    """Read the newest complete state of a folder, for `--resume DIR`."""
    update = newest_update(folder)
    return read_state(folder, update)


def find_state(folder: Path) -> SavedState | None:
    """Return the newest sound state of a folder, for `--resume auto`.

    If there is none, the files of an earlier run are kept in a subfolder, and None is returned.
    """
    for update in reversed(complete_updates(folder)):
        try:
            return read_state(folder, update)
        except CheckpointError as error:
            note_once(f"{error}; not resumed")
    place = keep_earlier_files(folder)
    if place:
        note_once(f"{folder}: no sound state to resume; its files are kept in {place}")
    return None


def read_state(folder: Path, update: int) -> SavedState:
    """Read the state after some update; refuse files that do not belong together."""
    weights_file, moments_file = (
        state_file(folder, update, part) for part in RUN_FILES.state_parts
    )
    weights, header = read_tensor_file(weights_file)
    moments, other = read_tensor_file(moments_file)
    if header != other:
        pair = f"{moments_file.name} does not belong to {weights_file.name}"
        raise CheckpointError(f"{folder}: {pair}; remove both, or bring back the right one")
    said = header.get("update")
    if type(said) is not int or said != update:
        words = f"says that its update is {shorten_repr(said)}, expected {update}"
        raise CheckpointError(f"{weights_file}: {words}; remove it and {moments_file.name}")
    check_state_tensors(weights_file, weights)
    check_state_tensors(moments_file, moments)
    if RUN_FILES.random_state not in weights:
        missing = f"the tensor '{RUN_FILES.random_state}' with the random state is missing"
        raise CheckpointError(f"{weights_file}: {missing}; remove the file and train again")
    return SavedState(weights_file, weights, moments, header)


def check_state_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors of a state that are NaN or infinite."""
    try:
        check_finite_weights(tensors)
    except (CheckpointError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {error}; remove the file and train again") from error


def restore_trainer(trainer: "Trainer", state: SavedState) -> None:
    """Put a trainer into a saved state; refuse that of another recipe."""
    path = state.weights_file
    header = state.header
    config = header.get("config", {})
    check_same_recipe(config, trainer.config, path.parent)
    raw = select_prefix(state.weights, "raw.")
    average = select_prefix(state.weights, "average.")
    try:
        compare_shapes(trainer.policy.state_dict(), raw)
        compare_shapes(trainer.policy.state_dict(), average)
        restore_critic(trainer.critic, state)
        moments = without_prefix(state.moments, RUN_FILES.critic_prefix)
        check_moments(trainer.optimiser, trainer.parameters, moments)
        trainer.policy.load_state_dict(raw)
        trainer.average.load_state_dict(average)
        generator_state = state.weights[RUN_FILES.random_state]
        trainer.rng.set_state(generator_state.cpu())
    except (CheckpointError, RuntimeError, TypeError) as error:
        remedy = "remove the state and train again"
        raise CheckpointError(f"{path}: does not fit the recipe ({error}); {remedy}") from error
    restore_moments(trainer.optimiser, trainer.parameters, moments)
    trainer.update = state.update
    restore_best(trainer, header, path)


def restore_critic(critic: CriticLearner | None, state: SavedState) -> None:
    """Put the critic of a run into a saved state, if the run has one."""
    if critic is None:
        return
    weights = select_prefix(state.weights, RUN_FILES.critic_prefix)
    moments = select_prefix(state.moments, RUN_FILES.critic_prefix)
    compare_shapes(critic.network.state_dict(), weights)
    check_moments(critic.optimiser, critic.parameters, moments)
    critic.network.load_state_dict(weights)
    restore_moments(critic.optimiser, critic.parameters, moments)


def restore_moments(
    optimiser: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    moments: dict[str, Tensor],
) -> None:
    """Give an optimiser the saved moments of its weights."""
    for name, parameter in parameters.items():
        saved = select_prefix(moments, f"{name}.")
        # Copies, because the optimiser changes them, and the file may disappear.
        on_device = {key: x.to(parameter.device, copy=True) for key, x in saved.items()}
        optimiser.state[parameter] = on_device


def restore_best(trainer: "Trainer", header: dict[str, Any], path: Path) -> None:
    """Restore the best validation cost, unless it is of other validation instances."""
    best = header.get("best")
    is_cost = is_json_number(best) or best == math.inf
    if not isinstance(best, int | float) or not is_cost:
        found = f"says that its best cost is {shorten_repr(best)}"
        raise CheckpointError(f"{path}: {found}, expected a number; remove the state")
    current = validation_id(trainer)
    if header.get("judged", current) == current:
        trainer.best_cost = float(best)
        trainer.best_update = header.get("best_update")


def check_moments(
    optimiser: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    moments: dict[str, Tensor],
) -> None:
    """Refuse moments that are not those of an optimiser of these weights."""
    known = 0
    for name, parameter in parameters.items():
        found = select_prefix(moments, f"{name}.")
        known += len(found)
        expected = moment_names(optimiser, parameter)
        differing = sorted(found.keys() ^ expected)
        if found and differing:  # a weight without a gradient so far has none
            raise CheckpointError(f"the moment '{name}.{differing[0]}' is missing or unknown")
        for key, x in found.items():
            if key != "step" and x.shape != parameter.shape:
                shapes = f"{list(x.shape)}, expected {list(parameter.shape)}"
                raise CheckpointError(f"the moment '{name}.{key}' has the shape {shapes}")
    unknown = len(moments) - known
    if unknown:
        raise CheckpointError(f"{unknown} moments belong to none of its weights")


def validation_id(trainer: "Trainer") -> str:
    """Return what validation costs depend on besides the weights, as text."""
    return f"{trainer.source.validation_data}, {trainer.config.validation}"


def select_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without it."""
    selected: dict[str, Tensor] = {}
    for name, x in tensors.items():
        if name.startswith(prefix):
            selected[name.removeprefix(prefix)] = x
    return selected


def without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names do not have a prefix."""
    others: dict[str, Tensor] = {}
    for name, x in tensors.items():
        if not name.startswith(prefix):
            others[name] = x
    return others


def check_same_recipe(old: Any, config: TrainConfig, folder: Path) -> None:
    """Refuse to continue with another recipe: moments of another loss destroy a policy.

    Settings that leave the training the same may change. A setting that did not exist when the
    state was written has its default.
    """
    changeable = (
        "updates",
        "report",
        "init",
        "compile",
        "graph",
        "engine",
        "validation",
        "data",
    )
    before = asdict(parse_recipe_of_state(old, folder))
    changed: list[str] = []
    for name, value in asdict(config).items():
        if name not in changeable and before[name] != value:
            changed.append(name)
    if changed:
        raise CheckpointError(
            f"{folder}: was trained with other settings of {', '.join(changed)}; "
            "start a new run from its policy with init="
        )


def parse_recipe_of_state(tables: Any, folder: Path) -> TrainConfig:
    """Return the recipe of a state; refuse one that this version cannot read."""
    if not isinstance(tables, dict):
        raise CheckpointError(f"{folder}: its state has no recipe; remove it and train again")
    try:
        return build_dataclass(TrainConfig, tables, "its recipe")
    except (InputError, TypeError, ValueError) as error:
        words = shorten_words(str(error))
        raise CheckpointError(f"{folder}: cannot be resumed by this version ({words})") from error


def recipe_text(config: TrainConfig, sizes: Sequence[int | str]) -> str:
    """Return the settings in one line, for a checkpoint's header; sizes may come from the data."""
    tables = asdict(config)
    tables["sizes"] = list(sizes)
    return json.dumps(tables, sort_keys=True)
