"""Resume state: raw and averaged weights, Adam's moments and the random state, beside the finished
policy.

Two files, because a GPU node may hand back only files of up to 16 MiB. Their names carry the
update, and older ones are removed only once both are complete: whenever a run is killed, some
complete pair is there.
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

# What may differ between a run and its continuation; anything else would not be the same training.
FREE = ("updates", "report", "init", "compile", "graph", "engine", "validation", "data")
STATE_PARTS = ("weights", "moments")


def state_file(folder: Path, update: int, part: str) -> Path:
    """Where a part of the state after some update lies."""
    return folder / f"resume-{update:08d}-{part}.safetensors"


def complete_updates(folder: Path) -> list[int]:
    """Updates whose state is complete in a folder, oldest first."""
    found = {
        int(m[1])
        for p in folder.glob("resume-*.safetensors")
        if (m := re.match(r"resume-(\d+)-", p.name))
    }
    return sorted(
        u for u in found if all(state_file(folder, u, part).is_file() for part in STATE_PARTS)
    )


def save_state(trainer: "Trainer", out: Path) -> None:
    """Write everything a later process needs to go on as if nothing had happened."""
    weights: dict[str, Tensor] = {f"raw.{n}": x for n, x in trainer.policy.state_dict().items()}
    weights |= {f"average.{n}": x for n, x in trainer.average.state_dict().items()}
    weights["rng"] = trainer.rng.get_state()
    moments: dict[str, Tensor] = {}
    for name, parameter in trainer.names.items():
        moments |= {f"{name}.{key}": x for key, x in trainer.optimiser.state[parameter].items()}
    facts = {"update": trainer.update, "best": trainer.best, "judged": validation_id(trainer)}
    header = facts | {"config": asdict(trainer.config)}
    older = list(out.glob("resume-*.safetensors"))
    written = [state_file(out, trainer.update, part) for part in STATE_PARTS]
    for path, tensors in zip(written, (weights, moments), strict=True):
        write_tensor_file(
            path, {n: x.detach().cpu().contiguous() for n, x in tensors.items()}, header
        )
    for path in set(older) - set(written):
        path.unlink(missing_ok=True)


def restore_trainer(trainer: "Trainer", folder: Path) -> None:
    """Put a trainer into the newest complete state of a folder; refuses if the recipe is another
    one.
    """
    update = newest_update(folder)
    weights, header = read_tensor_file(state_file(folder, update, "weights"), trainer.device)
    moments, _ = read_tensor_file(state_file(folder, update, "moments"), trainer.device)
    _same(header.get("config", {}), trainer.config, folder)
    trainer.policy.load_state_dict(_part(weights, "raw."))
    trainer.average.load_state_dict(_part(weights, "average."))
    for name, parameter in trainer.names.items():
        trainer.optimiser.state[parameter] = _part(moments, f"{name}.")
    trainer.rng.set_state(weights["rng"].cpu())
    trainer.update = header["update"]
    if header.get("judged", validation_id(trainer)) == validation_id(
        trainer
    ):  # else its best is of other instances
        trainer.best = header["best"]


def validation_id(trainer: "Trainer") -> str:
    """What validation costs depend on besides the weights."""
    return f"{trainer.source.mark}, {trainer.config.validation}"


def newest_update(folder: Path) -> int:
    """The last update whose state is complete in a folder."""
    updates = complete_updates(folder)
    if not updates:
        raise CheckpointError(
            f"{folder}: no training to resume (no complete resume-*.safetensors pair)"
        )
    return updates[-1]


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    return {n.removeprefix(prefix): x for n, x in tensors.items() if n.startswith(prefix)}


def _same(old: dict[str, Any], config: TrainConfig, folder: Path) -> None:
    """Refuse to go on with another recipe: Adam's moments of another loss destroy a policy."""
    before = asdict(
        build_dataclass(TrainConfig, old, str(folder))
    )  # a setting it did not know yet has its default
    changed = [k for k, x in asdict(config).items() if k not in FREE and before[k] != x]
    if changed:
        raise CheckpointError(
            f"{folder}: was trained with other settings of {', '.join(changed)}; start anew from its policy with init="
        )


def recipe_text(config: TrainConfig, sizes: Sequence[int | str]) -> str:
    """The settings in one line, for the header of a checkpoint; sizes may have come from its
    data.
    """
    return json.dumps(asdict(config) | {"sizes": list(sizes)}, sort_keys=True)
