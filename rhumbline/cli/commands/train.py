"""`rhumb train`: run a recipe. Imports neither typer nor rich, which bare GPU nodes do not have."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rhumbline.cli.output_files import prepare_folder
from rhumbline.cli.process import INTERRUPTED, defer_signals, print_note, print_result, run_command
from rhumbline.errors import InputError
from rhumbline.training.config import BEST_POLICY_FILE, POLICY_FILE, TrainConfig, read_recipe

if TYPE_CHECKING:
    from rhumbline.training.loop import Report

DESCRIPTION = """\
Train a policy by a recipe, until --minutes or the recipe's `updates`. Each report writes OUT/policy.safetensors, a line
of OUT/metrics.jsonl, and the state from which --resume goes on, also on another machine.
"""
EXAMPLES = """examples:
  rhumb train recipes/tsp100.toml --minutes 30
  rhumb train recipes/tsp100.toml --minutes 30 --resume runs/tsp100
  rhumb train recipes/cvrp-own.toml --data deliveries/ --minutes 30
  torchrun --nproc-per-node 8 -m rhumbline train recipes/tsp100.toml --minutes 60
"""
TITLES = ("update", "minutes", "rate", "cost", "best", "kept", "greedy", "latent", "updates/s")
FORMATS = (",", ".2f", ".2e", ".4f", ".4f", ".0%", ".4f", ".4f", ".2f")


def run_train(words: Sequence[str]) -> int:
    """Parse the words behind `train` and run; the exit code."""
    options = parser().parse_args(words)
    rank = os.environ.get("RANK", "0")  # set by torchrun
    return run_command(partial(run_training, options), "" if rank == "0" else f"process {rank}: ")


def parser() -> argparse.ArgumentParser:
    """The verb's options."""
    shape = argparse.RawDescriptionHelpFormatter
    new = argparse.ArgumentParser(
        "rhumb train", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=shape
    )
    new.add_argument(
        "recipe", type=Path, metavar="RECIPE", help="a TOML file such as those in recipes/"
    )
    new.add_argument(
        "--data",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="train on instances of your own: files, folders, patterns and datasets; behind the recipe",
    )
    new.add_argument(
        "--minutes", type=positive_number, metavar="M", help="stop after so many minutes"
    )
    new.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    new.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write [--resume, else runs/<recipe>]"
    )
    new.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="[auto: a GPU if there is one]",
    )
    new.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the recipe; repeatable",
    )
    new.add_argument("--quiet", action="store_true", help="no reports on stderr")
    return new


def positive_number(text: str) -> float:
    """A number above 0, for argparse."""
    number = float(text)
    if not number > 0:
        raise ValueError(text)
    return number


def run_training(options: argparse.Namespace) -> int:
    """Train to the end, or until Ctrl-C; the last checkpoint stays either way."""
    config = read_recipe(options.recipe, options.set)
    config = replace(config, data=tuple(options.data)) if options.data else config
    out = options.out or options.resume or Path("runs") / options.recipe.stem
    check_output_folder(out, options.resume)
    try:
        reports = list(
            record_reports(start_training(config, options, out), out, quiet=options.quiet)
        )
    except KeyboardInterrupt:
        there = (out / POLICY_FILE).is_file()
        kept = (
            f"; the last checkpoint in {out} is intact" if there else " before the first checkpoint"
        )
        print_note(f"interrupted{kept}")
        return INTERRUPTED
    return finish_training(reports, out, own=bool(config.data))


def check_output_folder(out: Path, resume: Path | None) -> None:
    """Refuse to write over another run; that would destroy its weights at the first report."""
    if (out / POLICY_FILE).exists() and (resume is None or out.resolve() != resume.resolve()):
        raise InputError(
            f"{out}: holds a run already; go on with it by --resume {out}, or choose another --out"
        )
    prepare_folder(out)


def start_training(
    config: TrainConfig, options: argparse.Namespace, out: Path
) -> "Iterator[Report]":
    """Reports of the training, on this process's device."""
    with defer_signals():
        import torch

        from rhumbline.api import find_device
        from rhumbline.training import parallel
        from rhumbline.training.loop import train
    device = parallel.join_group(find_device(options.device))
    if device.index is not None:  # pyright: ignore[reportUnnecessaryComparison] (None where the only GPU is meant)
        torch.cuda.set_device(device)  # kernels and collectives go to the current device
    try:
        words = partial(print, file=sys.stderr) if not options.quiet else lambda words: None
        yield from train(
            config,
            device=device,
            out=out,
            minutes=options.minutes,
            resume=options.resume,
            notify=words,
        )
    finally:
        parallel.leave_group()


def record_reports(reports: "Iterator[Report]", out: Path, *, quiet: bool) -> "Iterator[Report]":
    """The same reports, each shown and kept by the first process."""
    for place, report in enumerate(reports):
        if os.environ.get("RANK", "0") == "0":
            append_metrics(out / "metrics.jsonl", report)
            if not quiet:
                print_report_row(report, titles=place == 0)
        yield report


def append_metrics(path: Path, report: "Report") -> None:
    """Append a report as a line of JSON."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(report)) + "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


def print_report_row(report: "Report", *, titles: bool) -> None:
    """A report as a row on stderr, below titles for the first."""
    if titles:
        print("".join(f"{title:>11}" for title in TITLES), file=sys.stderr)
    values = asdict(report).values()
    row = (
        f"{'-' if value is None else format(value, kind):>11}"
        for value, kind in zip(values, FORMATS, strict=True)
    )
    print("".join(row), file=sys.stderr, flush=True)


def finish_training(reports: "Sequence[Report]", out: Path, *, own: bool) -> int:
    """Say where the policy is; on instances of one's own the best counts, in which a run that
    goes on is included.
    """
    if not reports:
        raise InputError(
            f"{out}: nothing to train, all updates are done; try --set updates=N or --minutes M"
        )
    if os.environ.get("RANK", "0") == "0":
        from rhumbline.checkpoint import load_with_facts

        best = out / BEST_POLICY_FILE
        own = (
            own and best.is_file()
        )  # what goes on in another folder may have found nothing better there
        if own and not load_with_facts(best)[1].updates:
            print_note(
                f"no report was better than what the run began with, which is what {best} holds"
            )
        print_result(str(best if own else out / POLICY_FILE))
    return 0
