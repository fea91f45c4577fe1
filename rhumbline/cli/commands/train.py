"""`rhumb train`: run a recipe. It does without typer and rich, which bare GPU nodes do not have."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rhumbline.cli.arguments import SuggestingParser
from rhumbline.cli.output_files import prepare_folder
from rhumbline.cli.process import (
    INTERRUPTED,
    defer_signals,
    print_note,
    print_result,
    run_command,
)
from rhumbline.errors import InputError
from rhumbline.training.config import BEST_POLICY_FILE, POLICY_FILE, TrainConfig, read_recipe

if TYPE_CHECKING:
    from rhumbline.training.loop import Report

DESCRIPTION = """\
Train a policy by a recipe, until --minutes or the recipe's `updates`. \
Each report writes OUT/policy.safetensors, a line
of OUT/metrics.jsonl, and the state that --resume continues from, also on another machine.
"""
EXAMPLES = """examples:
  rhumb train recipes/tsp100.toml --minutes 30
  rhumb train recipes/tsp100.toml --minutes 30 --resume runs/tsp100
  rhumb train recipes/cvrp-own.toml --data deliveries/ --minutes 30
  torchrun --nproc-per-node 8 -m rhumbline train recipes/tsp100.toml --minutes 60
"""
# The title and the format of each field of a report.
COLUMNS = {
    "update": ",",
    "minutes": ".2f",
    "rate": ".2e",
    "cost": ".4f",
    "best": ".4f",
    "kept": ".0%",
    "greedy": ".4f",
    "latent": ".4f",
    "updates/s": ".2f",
}


def run_train(words: Sequence[str]) -> int:
    """Parse the words behind `train`, train, and return the exit code."""
    options = train_parser().parse_args(words)
    rank = os.environ.get("RANK", "0")  # set by torchrun
    prefix = "" if rank == "0" else f"process {rank}: "
    return run_command(partial(run_training, options), prefix)


def train_parser() -> SuggestingParser:
    """Return the parser of the options of `train`."""
    parser = SuggestingParser(
        "rhumb train",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recipe", type=Path, metavar="RECIPE", help="a TOML file such as those in recipes/"
    )
    parser.add_argument(
        "--data",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="train on instances of your own: files, folders, patterns and datasets; "
        "behind the recipe",
    )
    parser.add_argument("--minutes", type=positive_number, metavar="M", help="stop after M minutes")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="continue the run in DIR")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write [--resume, else runs/<recipe>]"
    )
    parser.add_choice("--device", ("auto", "cpu", "cuda"), "[auto: a GPU if there is one]")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the recipe; repeatable",
    )
    parser.add_argument("--quiet", action="store_true", help="no reports on stderr")
    return parser


def positive_number(text: str) -> float:
    """Parse a number above 0, for argparse."""
    number = float(text)
    if not number > 0:
        raise ValueError(text)
    return number


def run_training(options: argparse.Namespace) -> int:
    """Train to the end or until Ctrl-C; the last checkpoint stays in either case."""
    config = read_recipe(options.recipe, options.set)
    if options.data:
        config = replace(config, data=tuple(options.data))
    out = options.out or options.resume or Path("runs") / options.recipe.stem
    check_output_folder(out, options.resume)
    try:
        training = start_training(config, options, out)
        reports = list(record_reports(training, out, quiet=options.quiet))
    except KeyboardInterrupt:
        if (out / POLICY_FILE).is_file():
            print_note(f"interrupted; the last checkpoint in {out} is intact")
        else:
            print_note("interrupted before the first checkpoint")
        return INTERRUPTED
    return finish_training(reports, out, has_user_data=bool(config.data))


def check_output_folder(out: Path, resume: Path | None) -> None:
    """Refuse a folder that holds another run: the first report would overwrite its weights."""
    holds_run = (out / POLICY_FILE).exists()
    resumes = resume is not None and out.resolve() == resume.resolve()
    if holds_run and not resumes:
        remedy = f"go on with it by --resume {out}, or choose another --out"
        raise InputError(f"{out}: holds a run already; {remedy}")
    prepare_folder(out)


def start_training(
    config: TrainConfig, options: argparse.Namespace, out: Path
) -> "Iterator[Report]":
    """Train on the device of this process and yield the reports."""
    with defer_signals():
        import torch

        from rhumbline.pipeline import find_device
        from rhumbline.training import parallel
        from rhumbline.training.loop import train
    device = parallel.join_group(find_device(options.device))
    # The index is None if there is one GPU only.
    if device.index is not None:  # pyright: ignore[reportUnnecessaryComparison]
        torch.cuda.set_device(device)  # kernels and collectives use the current device
    try:
        yield from train(
            config,
            device=device,
            out=out,
            minutes=options.minutes,
            resume=options.resume,
            notify=ignore_notice if options.quiet else print_notice,
        )
    finally:
        parallel.leave_group()


def print_notice(words: str) -> None:
    """Print a notice of the training on stderr."""
    print(words, file=sys.stderr)


def ignore_notice(words: str) -> None:
    """Print nothing, for --quiet."""


def record_reports(reports: "Iterator[Report]", out: Path, *, quiet: bool) -> "Iterator[Report]":
    """Yield the same reports; the first process also prints them and writes them to a file."""
    for place, report in enumerate(reports):
        if is_first_process():
            append_metrics(out / "metrics.jsonl", report)
            if not quiet:
                print_report_row(report, titles=place == 0)
        yield report


def is_first_process() -> bool:
    """Return whether this is the process of rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def append_metrics(path: Path, report: "Report") -> None:
    """Append a report to a file as a line of JSON."""
    line = json.dumps(asdict(report))
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


def print_report_row(report: "Report", *, titles: bool) -> None:
    """Print a report as a row on stderr, below the titles if it is the first."""
    if titles:
        print_row(list(COLUMNS))
    values = asdict(report).values()
    cells: list[str] = []
    for value, style in zip(values, COLUMNS.values(), strict=True):
        cells.append("-" if value is None else format(value, style))
    print_row(cells)


def print_row(cells: Sequence[str]) -> None:
    """Print right-aligned cells on stderr."""
    row = "".join(f"{cell:>11}" for cell in cells)
    print(row, file=sys.stderr, flush=True)


def finish_training(reports: "Sequence[Report]", out: Path, *, has_user_data: bool) -> int:
    """Print the path of the policy and return the exit code.

    On user data that is the best policy so far, which may be the one a resumed run began with.
    """
    if not reports:
        remedy = "try --set updates=N or --minutes M"
        raise InputError(f"{out}: nothing to train, all updates are done; {remedy}")
    if not is_first_process():
        return 0
    best = out / BEST_POLICY_FILE
    # A run resumed in another folder may have found nothing better there.
    if not has_user_data or not best.is_file():
        print_result(str(out / POLICY_FILE))
        return 0
    from rhumbline.checkpoint import load_with_facts

    _, facts = load_with_facts(best)
    if not facts.updates:
        held = f"which is what {best} holds"
        print_note(f"no report was better than what the run began with, {held}")
    print_result(str(best))
    return 0
