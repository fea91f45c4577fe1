"""`rhumb train`: run a recipe. It needs no typer and rich, which bare GPU nodes do not have."""

import argparse
import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rhumbline.cli.arguments import SuggestingParser
from rhumbline.cli.output.files import prepare_folder
from rhumbline.cli.process import (
    ExitCode,
    defer_signals,
    print_note,
    print_result,
    run_command,
)
from rhumbline.errors import InputError
from rhumbline.training.config import TrainConfig, read_recipe
from rhumbline.training.run_folder import (
    RUN_FILES,
    holds_run,
    newest_update,
    remedy_for_full_disk,
)

if TYPE_CHECKING:
    from rhumbline.training.loop import Report

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
    parser = train_parser()
    options = parser.parse_args(words)
    rank = os.environ.get("RANK", "0")  # set by torchrun
    prefix = "" if rank == "0" else f"process {rank}: "
    body = partial(run_training, options)
    return run_command(body, prefix)


def train_parser() -> SuggestingParser:
    """Return the parser of the options of `train`."""
    parser = SuggestingParser(
        "rhumb train",
        description="""\
Train a policy by a recipe, until --minutes or the recipe's `updates`. \
Each report writes OUT/policy.safetensors, a line
of OUT/metrics.jsonl, and the state that --resume continues from, also on another machine.
""",
        epilog="""examples:
  rhumb train recipes/tsp100.toml --minutes 30
  rhumb train recipes/tsp100.toml --minutes 30 --resume runs/tsp100
  rhumb train recipes/cvrp-own.toml --data deliveries/ --minutes 30
  rhumb train recipes/tsp100.toml --set updates=50000 --out runs/a --resume auto
  torchrun --nproc-per-node 8 -m rhumbline train recipes/tsp100.toml --minutes 60
""",
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
        "give it after the recipe",
    )
    parser.add_argument("--minutes", type=positive_number, metavar="M", help="stop after M minutes")
    parser.add_argument(
        "--resume",
        metavar="DIR",
        help="continue the run in DIR; auto, for jobs that are restarted: continue that in --out, "
        "or start one if it holds no valid state",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write, one run at a time [--resume, else runs/<recipe>]",
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
    """Train to the end or until Ctrl-C; the last checkpoint is kept in either case."""
    config = read_recipe(options.recipe, options.set)
    if options.data:
        config = replace(config, data=tuple(options.data))
    resume = parse_resume(options.resume)
    default = resume if isinstance(resume, Path) else Path("runs") / options.recipe.stem
    out = options.out or default
    if is_first_process():
        check_output_folder(out, resume)
    try:
        training = start_training(config, options, out)
        reports = list(record_reports(training, out, quiet=options.quiet))
    except KeyboardInterrupt:
        if holds_run(out):
            print_note(f"interrupted; the last checkpoint in {out} is intact")
        else:
            print_note("interrupted before the first checkpoint")
        return ExitCode.INTERRUPTED
    if not reports and resume == "auto" and is_first_process():
        print_note(f"{out}: nothing to train, all updates are done")
    if not reports and resume != "auto":
        remedy = "try --set updates=N or --minutes M"
        raise InputError(f"{out}: nothing to train, all updates are done; {remedy}")
    return finish_training(out, has_user_data=bool(config.data))


def parse_resume(text: str | None) -> Path | Literal["auto"] | None:
    """Return the folder to resume from; "auto" is no folder, unless written as ./auto."""
    if text is None or text == "auto":
        return text
    return Path(text)


def check_output_folder(out: Path, resume: Path | Literal["auto"] | None) -> None:
    """Refuse a folder that holds another run: the first report would overwrite its weights."""
    if isinstance(resume, Path):
        newest_update(resume)  # refuses a folder without a state before one is created
    resumes = resume == "auto" or (resume is not None and out.resolve() == resume.resolve())
    if holds_run(out) and not resumes:
        remedy = f"continue it with --resume {out}, or choose another --out"
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
    with parallel.report_lost_contact():
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
                resume=parse_resume(options.resume),
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
            append_metrics(out / RUN_FILES.metrics, report)
            if not quiet:
                print_report_row(report, titles=place == 0)
        yield report


def is_first_process() -> bool:
    """Return whether this is the process of rank 0, or the only one."""
    rank = os.environ.get("RANK", "0")
    return rank == "0"


def append_metrics(path: Path, report: "Report") -> None:
    """Append a report to a file as a line of JSON; a part of a line is removed."""
    facts = asdict(report)
    line = json.dumps(facts) + "\n"
    content = line.encode()
    try:
        with path.open("a+b", buffering=0) as file:
            complete = complete_length(file)
            file.truncate(complete)
            if file.write(content) < len(content):
                file.truncate(complete)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        remedy = remedy_for_full_disk(path.parent)
        message = f"{path}: cannot be written ({error.strerror}); {remedy}"
        raise InputError(message) from error


def complete_length(file: FileIO) -> int:
    """Return the length of a file without the part of a line that a full disk or a kill left."""
    end = file.seek(0, os.SEEK_END)
    tail = 1 << 16  # more than a line has
    start = max(0, end - tail)
    file.seek(start)
    last = file.read(min(end, tail))
    last_break = last.rfind(b"\n")
    return end - len(last) + last_break + 1


def print_report_row(report: "Report", *, titles: bool) -> None:
    """Print a report as a row on stderr, below the titles if it is the first."""
    if titles:
        print_row(list(COLUMNS))
    facts = asdict(report)
    styles = COLUMNS.values()
    cells: list[str] = []
    for value, style in zip(facts.values(), styles, strict=True):
        text = "-" if value is None else format(value, style)
        cells.append(text)
    print_row(cells)


def print_row(cells: Sequence[str]) -> None:
    """Print right-aligned cells on stderr."""
    row = "".join(f"{cell:>11}" for cell in cells)
    print(row, file=sys.stderr, flush=True)


def finish_training(out: Path, *, has_user_data: bool) -> int:
    """Print the path of the policy and return the exit code.

    On user data that is the best policy so far, which may be the one a resumed run began with.
    """
    if not is_first_process():
        return 0
    best = out / RUN_FILES.best_policy
    # A run resumed in another folder may have found nothing better there.
    if not has_user_data or not best.is_file():
        print_result(str(out / RUN_FILES.policy))
        return 0
    from rhumbline.checkpoint import load_with_facts

    _, facts = load_with_facts(best)
    if not facts.updates:
        held = f"which is what {best} holds"
        print_note(f"no report was better than what the run began with, {held}")
    print_result(str(best))
    return 0
