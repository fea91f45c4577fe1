"""Resume state: raw and averaged weights, the optimiser's moments and the random state of a run.

It lies beside the finished policy in two files, because a GPU node may hand back only files of up
to 16 MiB. Their names carry the update. Older files are removed only once both new ones are
complete, so a complete pair exists whenever a run is killed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rhumbline.checkpoint import read_tensor_file, write_tensor_file
from rhumbline.errors import CheckpointError
from rhumbline.toml_config import build_dataclass
from rhumbline.training.config import TrainConfig

if TYPE_CHECKING:
    from rhumbline.training.trainer import Trainer

STATE_PARTS = ("weights", "moments")


def state_file(folder: Path, update: int, part: str) -> Path:
    """Return the path of a part of the state after some update."""
    return folder / f"resume-{update:08d}-{part}.safetensors"


def complete_updates(folder: Path) -> list[int]:
    """Return the updates whose state is complete in a folder, oldest first."""
    updates = set[int]()
    for path in folder.glob("resume-*.safetensors"):
        match = re.match(r"resume-(\d+)-", path.name)
        if match:
            updates.add(int(match[1]))
    return [update for update in sorted(updates) if is_complete(folder, update)]


def is_complete(folder: Path, update: int) -> bool:
    """Return whether all parts of the state after some update exist."""
    return all(state_file(folder, update, part).is_file() for part in STATE_PARTS)


def save_state(trainer: "Trainer", out: Path) -> None:
    """Write everything that a later process needs to continue bit for bit."""
    weights: dict[str, Tensor] = {}
    for prefix, policy in (("raw.", trainer.policy), ("average.", trainer.average)):
        for name, x in policy.state_dict().items():
            weights[prefix + name] = x
    weights["rng"] = trainer.rng.get_state()
    moments: dict[str, Tensor] = {}
    for name, parameter in trainer.parameters.items():
        for key, x in trainer.optimiser.state[parameter].items():
            moments[f"{name}.{key}"] = x
    header = {
        "update": trainer.update,
        "best": trainer.best_cost,
        "judged": validation_id(trainer),
        "config": asdict(trainer.config),
    }
    older = set(out.glob("resume-*.safetensors"))
    written = [state_file(out, trainer.update, part) for part in STATE_PARTS]
    for path, tensors in zip(written, (weights, moments), strict=True):
        on_host = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
        write_tensor_file(path, on_host, header)
    for path in older - set(written):
        path.unlink(missing_ok=True)


def restore_trainer(trainer: "Trainer", folder: Path) -> None:
    """Put a trainer into the newest complete state of a folder; refuse that of another recipe."""
    update = newest_update(folder)
    weights_file, moments_file = (state_file(folder, update, part) for part in STATE_PARTS)
    weights, header = read_tensor_file(weights_file, trainer.device)
    moments, _ = read_tensor_file(moments_file, trainer.device)
    check_same_recipe(header.get("config", {}), trainer.config, folder)
    raw = select_prefix(weights, "raw.")
    average = select_prefix(weights, "average.")
    trainer.policy.load_state_dict(raw)
    trainer.average.load_state_dict(average)
    for name, parameter in trainer.parameters.items():
        trainer.optimiser.state[parameter] = select_prefix(moments, f"{name}.")
    trainer.rng.set_state(weights["rng"].cpu())
    trainer.update = header["update"]
    # The best cost on other validation instances cannot be compared.
    current = validation_id(trainer)
    if header.get("judged", current) == current:
        trainer.best_cost = header["best"]


def validation_id(trainer: "Trainer") -> str:
    """Return what validation costs depend on besides the weights, as text."""
    return f"{trainer.source.validation_data}, {trainer.config.validation}"


def newest_update(folder: Path) -> int:
    """Return the last update whose state is complete in a folder."""
    updates = complete_updates(folder)
    if not updates:
        raise CheckpointError(
            f"{folder}: no training to resume (no complete resume-*.safetensors pair)"
        )
    return updates[-1]


def select_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without it."""
    selected: dict[str, Tensor] = {}
    for name, x in tensors.items():
        if name.startswith(prefix):
            selected[name.removeprefix(prefix)] = x
    return selected


def check_same_recipe(old: dict[str, Any], config: TrainConfig, folder: Path) -> None:
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
    before = asdict(build_dataclass(TrainConfig, old, str(folder)))
    changed: list[str] = []
    for name, value in asdict(config).items():
        if name not in changeable and before[name] != value:
            changed.append(name)
    if changed:
        raise CheckpointError(
            f"{folder}: was trained with other settings of {', '.join(changed)}; "
            "start a new run from its policy with init="
        )


def recipe_text(config: TrainConfig, sizes: Sequence[int | str]) -> str:
    """Return the settings in one line, for a checkpoint's header; sizes may come from the data."""
    tables = asdict(config)
    tables["sizes"] = list(sizes)
    return json.dumps(tables, sort_keys=True)
