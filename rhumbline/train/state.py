"""Resume state: raw weights, averages, moments and random state in one safetensors file beside the weights."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rhumbline.checkpoint import read_tensors, write_tensors
from rhumbline.errors import CheckpointError
from rhumbline.train.config import TrainConfig

if TYPE_CHECKING:
    from rhumbline.train.run import Trainer

# What may differ between a run and its continuation; anything else would not be the same training.
FREE = ("updates", "report", "init", "compile", "validation")


def keep(trainer: "Trainer", out: Path) -> None:
    """Write everything a later process needs to go on as if nothing had happened."""
    tensors: dict[str, Tensor] = {f"raw.{n}": x for n, x in trainer.policy.state_dict().items()}
    tensors |= {f"average.{n}": x for n, x in trainer.average.state_dict().items()}
    for name, parameter in trainer.names.items():
        for key, value in trainer.optimiser.state[parameter].items():
            tensors[f"moment.{name}.{key}"] = value
    tensors["rng"] = trainer.rng.get_state()
    header = {"update": trainer.update, "config": asdict(trainer.config)}
    write_tensors(out / "resume.safetensors", {n: x.detach().cpu().contiguous() for n, x in tensors.items()}, header)


def restore(trainer: "Trainer", folder: Path) -> None:
    """Put a trainer into the state that `keep` wrote; refuses if the recipe is another one."""
    path = folder / "resume.safetensors"
    tensors, header = read_tensors(path, trainer.device)
    _same(header.get("config", {}), trainer.config, path)
    trainer.policy.load_state_dict(_part(tensors, "raw."))
    trainer.average.load_state_dict(_part(tensors, "average."))
    for name, parameter in trainer.names.items():
        moments: dict[str, Any] = _part(tensors, f"moment.{name}.")
        on_host = trainer.device.type == "cpu"
        trainer.optimiser.state[parameter] = {
            k: v.cpu() if k == "step" and on_host else v for k, v in moments.items()
        }
    trainer.rng.set_state(tensors["rng"].cpu())
    trainer.update = header["update"]


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    return {n.removeprefix(prefix): x for n, x in tensors.items() if n.startswith(prefix)}


def _same(old: dict[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to go on with another recipe: Adam's moments of another loss destroy a policy."""
    new = json.loads(json.dumps(asdict(config)))
    changed = [k for k in new if k not in FREE and old.get(k) != new[k]]
    if changed:
        raise CheckpointError(
            f"{path}: was trained with other settings of {', '.join(changed)}; start anew from its policy with init="
        )


def recipe_text(config: TrainConfig) -> str:
    """The settings in one line, for the header of a checkpoint."""
    return json.dumps(asdict(config), sort_keys=True)
