"""`rhumb info`: what is installed, what can run, and what a checkpoint holds."""

import json
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from rhumbline import __version__
from rhumbline.cli.options import flag
from rhumbline.cli.process import defer_signals, print_result, run_command

Facts = dict[str, Any]


def info(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint to describe: a shipped name or a path.")
    ] = "",
    as_json: Annotated[bool, flag("--json", "One JSON object instead of text.")] = False,
) -> None:
    """Show versions, devices, engines and the checkpoints of the package, or the facts of one
    checkpoint.

    Example: rhumb info
    """
    raise typer.Exit(run_command(lambda: describe(checkpoint, as_json)))


def describe(checkpoint: str, as_json: bool) -> None:
    """Collect facts and print them."""
    with defer_signals():
        from rhumbline.checkpoint import find_checkpoint
    facts = checkpoint_facts(find_checkpoint(checkpoint, "tsp")) if checkpoint else installation()
    lines = (
        [json.dumps(facts)]
        if as_json
        else checkpoint_lines(facts)
        if checkpoint
        else installation_lines(facts)
    )
    for line in lines:
        print_result(line)


def installation() -> Facts:
    """Everything about this machine and package."""
    from rhumbline.checkpoint import shipped_checkpoints

    return {
        "versions": installed_versions(),
        "devices": devices(),
        "engines": engines(),
        "checkpoints": [checkpoint_facts(path) for path in shipped_checkpoints().values()],
    }


def installed_versions() -> dict[str, str | None]:
    """Of the package and of what its results depend on; None for what is not installed."""
    found: dict[str, str | None] = {"rhumbline": __version__, "python": platform.python_version()}
    for name in ("torch", "triton", "numba", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def devices() -> list[str]:
    """The CPU and every GPU that torch sees."""
    import torch

    gpus = (torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    return [
        f"cpu ({torch.get_num_threads()} threads)",
        *(f"cuda:{i} ({name})" for i, name in enumerate(gpus)),
    ]


def engines() -> dict[str, str | None]:
    """Each engine with the reason why it cannot run here, or None if it can."""
    from rhumbline.api import find_device
    from rhumbline.kernels import why_not

    return {"torch": None, "fused": why_not("tsp", find_device("auto"), 1)}


def checkpoint_facts(path: Path) -> Facts:
    """What a checkpoint holds and how it was trained."""
    from rhumbline.checkpoint import load_with_facts

    policy, about = load_with_facts(path)
    return {
        "name": path.stem,
        "path": str(path),
        "problem": about.problem,
        "size": about.size,
        "trained_at": about.trained_at,
        "updates": about.updates,
        "validation": dict(about.validation),
        "weights": sum(p.numel() for p in policy.parameters()),
        "latent": policy.architecture.latent,
        "members": getattr(policy.architecture, "members", 0),
        "versions": dict(about.versions),
        "recipe": recipe(about.recipe),
    }


def recipe(text: str) -> Any:
    """The settings of the training as they were: an object, or the text if it is none."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def installation_lines(facts: Facts) -> Iterator[str]:
    """The installation in words."""
    yield "versions     " + ", ".join(
        f"{k} {v or '(not installed)'}" for k, v in facts["versions"].items()
    )
    yield "devices      " + ", ".join(facts["devices"])
    for name, reason in facts["engines"].items():
        yield f"engine       {name}: {'not available: ' + reason if reason else 'available'}"
    for checkpoint in facts["checkpoints"]:
        yield "checkpoint   " + "   ".join(checkpoint_lines(checkpoint))
    if not facts["checkpoints"]:
        yield "checkpoint   none in this package; train one with `rhumb train`"


def checkpoint_lines(facts: Facts) -> Iterator[str]:
    """A checkpoint in words."""
    from rhumbline.problems import PROBLEMS

    latent = (
        f"latent space of {facts['latent']} dimensions"
        if facts["latent"]
        else "a single policy, no latent space"
    )
    latent = f"a population of {facts['members']} decoders" if facts["members"] else latent
    size = f"{facts['trained_at']} {PROBLEMS[facts['problem']].size_unit}"
    yield f"{facts['name']}: {facts['problem']}, trained at {size}, {facts['updates']:,} updates"
    yield f"{facts['weights']:,} weights, {latent}"
    if facts["validation"]:
        of_samples = (
            "best latent" if facts["latent"] else "best sample"
        )  # recipes validate both alike
        named = {"latent": of_samples}
        yield "validation " + ", ".join(
            f"{named.get(n, n)} {value:.4f}" for n, value in facts["validation"].items()
        )
    if facts["versions"]:
        yield "made with " + ", ".join(
            f"{name} {number}" for name, number in facts["versions"].items()
        )
