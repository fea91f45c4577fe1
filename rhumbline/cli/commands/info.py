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


def info_command(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint to describe: a shipped name or a path.")
    ] = "",
    as_json: Annotated[bool, flag("--json", "One JSON object instead of text.")] = False,
) -> None:
    """Show versions, devices, engines and the checkpoints of the package, or the facts of one
    checkpoint.

    Example: rhumb info
    """
    exit_code = run_command(lambda: print_info(checkpoint, as_json))
    raise typer.Exit(exit_code)


def print_info(checkpoint: str, as_json: bool) -> None:
    """Collect the facts of a checkpoint, or of the installation, and print them."""
    with defer_signals():
        from rhumbline.checkpoint import find_checkpoint
    if checkpoint:
        facts = checkpoint_facts(find_checkpoint(checkpoint, ""))
    else:
        facts = installation_facts()
    if as_json:
        print_result(json.dumps(facts))
        return
    lines = checkpoint_lines(facts) if checkpoint else installation_lines(facts)
    for line in lines:
        print_result(line)


def installation_facts() -> Facts:
    """Return everything about this machine and package."""
    from rhumbline.checkpoint import shipped_checkpoints

    return {
        "versions": installed_versions(),
        "devices": device_names(),
        "engines": engine_reasons(),
        "checkpoints": [checkpoint_facts(path) for path in shipped_checkpoints().values()],
    }


def installed_versions() -> dict[str, str | None]:
    """Return the versions that results depend on, with None for what is not installed."""
    found: dict[str, str | None] = {
        "rhumbline": __version__,
        "python": platform.python_version(),
    }
    for name in ("torch", "triton", "numba", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def device_names() -> list[str]:
    """Return the CPU and every GPU that torch sees."""
    import torch

    threads = torch.get_num_threads()
    names = [f"cpu ({threads} threads)"]
    gpu_count = torch.cuda.device_count()
    for index in range(gpu_count):
        name = torch.cuda.get_device_name(index)
        names.append(f"cuda:{index} ({name})")
    return names


def engine_reasons() -> dict[str, str | None]:
    """Return each engine with the reason why it cannot run here, or None if it can."""
    from rhumbline.decoding.engines import Ask, why_not_fused
    from rhumbline.domains import DOMAINS
    from rhumbline.pipeline import find_device

    first = next(iter(DOMAINS.values()))
    return {"torch": None, "fused": why_not_fused(Ask(first.problem, find_device("auto"), 1))}


def checkpoint_facts(path: Path) -> Facts:
    """Return what a checkpoint holds and how it was trained."""
    from rhumbline.checkpoint import load_with_facts
    from rhumbline.policies import Members

    policy, about = load_with_facts(path)
    space = policy.space
    return {
        "name": path.stem,
        "path": str(path),
        "problem": about.problem,
        "size": about.size,
        "trained_at": about.trained_at,
        "updates": about.updates,
        "validation": dict(about.validation),
        "weights": sum(weights.numel() for weights in policy.parameters()),
        "latent": policy.architecture.latent,
        "members": space.count if isinstance(space, Members) else 0,
        "versions": dict(about.versions),
        "recipe": parse_recipe(about.recipe),
    }


def parse_recipe(text: str) -> Any:
    """Return the settings of a training as an object, or the text itself if it is no JSON.

    JSON knows neither NaN nor brackets that are nested too deep to be written again.
    """
    try:
        recipe = json.loads(text) if text else None
        json.dumps(recipe, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return recipe


def installation_lines(facts: Facts) -> Iterator[str]:
    """Yield the installation in words."""
    versions: list[str] = []
    for name, number in facts["versions"].items():
        installed = number or "(not installed)"
        versions.append(f"{name} {installed}")
    all_versions = ", ".join(versions)
    devices = ", ".join(facts["devices"])
    yield f"versions     {all_versions}"
    yield f"devices      {devices}"
    for name, reason in facts["engines"].items():
        state = f"not available: {reason}" if reason else "available"
        yield f"engine       {name}: {state}"
    for checkpoint in facts["checkpoints"]:
        words = "   ".join(checkpoint_lines(checkpoint))
        yield f"checkpoint   {words}"
    if not facts["checkpoints"]:
        yield "checkpoint   none in this package; train one with `rhumb train`"


def checkpoint_lines(facts: Facts) -> Iterator[str]:
    """Yield a checkpoint in words, in lines of limited length."""
    from rhumbline.checkpoint.tensor_file import shorten_words

    yield from map(shorten_words, describe_checkpoint(facts))


def describe_checkpoint(facts: Facts) -> Iterator[str]:
    """Yield the facts of a checkpoint, of any length."""
    name = facts["name"]
    problem = facts["problem"]
    unit = size_unit(problem)
    training = f"trained at {facts['trained_at']} {unit}"
    updates = f"{facts['updates']:,} updates"
    yield f"{name}: {problem}, {training}, {updates}"
    latents = latent_text(facts)
    yield f"{facts['weights']:,} weights, {latents}"
    if facts["validation"]:
        yield validation_text(facts)
    versions = [f"{library} {number}" for library, number in facts["versions"].items()]
    if versions:
        libraries = ", ".join(versions)
        yield f"made with {libraries}"


def size_unit(problem: str) -> str:
    """Return the unit of a policy's instance sizes, such as cities."""
    from rhumbline.domains import find_policy_family

    _, family = find_policy_family(problem)
    return family.rules.size_unit


def validation_text(facts: Facts) -> str:
    """Return the costs of the validation in words.

    Recipes validate a policy without latents by samples, but call the result "latent" too.
    """
    labels = {"latent": "best latent" if facts["latent"] else "best sample"}
    costs: list[str] = []
    for name, cost in facts["validation"].items():
        label = labels.get(name, name)
        costs.append(f"{label} {cost:.4f}")
    listed = ", ".join(costs)
    return f"validation {listed}"


def latent_text(facts: Facts) -> str:
    """Say what a search can vary in the policy of a checkpoint."""
    if facts["members"]:
        return f"a population of {facts['members']} decoders"
    if facts["latent"]:
        return f"latent space of {facts['latent']} dimensions"
    return "a single policy, no latent space"
