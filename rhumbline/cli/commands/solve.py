"""`rhumb solve`: files to verified plans. The options; `solve_run` does the work with torch."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rhumbline.cli.options import (
    LARGEST_SEED,
    Device,
    DeviceChoice,
    Engine,
    Threads,
    flag,
)
from rhumbline.cli.output.files import OutputPaths
from rhumbline.cli.process import defer_signals, exit_on_error
from rhumbline.cli.signals import SignalGate
from rhumbline.domains import COMPILED_SUFFIXES
from rhumbline.errors import shorten
from rhumbline.kernels.numba.rollout import precompile

MANY = "Many instances"  # of the help (docs/guide/scale.md)


def start_compiling_for(place: Path) -> None:
    """Start to compile the CPU kernel, if there is one, for a file or the files of a folder.

    Only the suffix tells, because files are read later.
    """
    try:
        files = place.iterdir() if place.is_dir() else (place,)
        suffixes = {file.suffix.lower() for file in files}
    except OSError:  # reported when the files are read
        return
    compiled = [suffix for suffix in COMPILED_SUFFIXES if suffix in suffixes]
    if compiled:
        precompile.start_compiling(COMPILED_SUFFIXES[compiled[0]])


def check_seconds(value: float | None) -> float | None:
    """Return the number of seconds; refuse it unless it is finite and above 0."""
    is_valid = value is None or (value > 0 and math.isfinite(value))
    if not is_valid:
        raise typer.BadParameter(f"{value} is not a number of seconds above 0")
    return value


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="TSPLIB (.tsp), VRPLIB (.vrp), job-shop files, CSV, JSON, datasets (.safetensors), "
        "folders; - is standard input.",
    ),
]
Attempts = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Stop after N attempts per instance; one is a tour from each start.",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        callback=check_seconds,
        metavar="S",
        help="Stop after S seconds; equally sized instances share them.",
    ),
]
TotalSeconds = Annotated[
    float | None,
    typer.Option(
        callback=check_seconds,
        metavar="S",
        help="Stop after S seconds in all; each size gets an equal part of what is left.",
    ),
]
SearchName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="cmaes, cmaes-published, sampling, greedy, uniform, fixed, population, eas-emb, "
        "eas-lay, sgbs, sgbs-eas, cmaes-eas, cmaes-elite, cmaes-refine or sampling-elite. "
        "[cmaes-refine; without kernels cmaes, and cmaes-elite for vehicles; sampling-elite for "
        "job shops; population or sampling without a latent space]",
    ),
]
Augment = Annotated[
    int,
    typer.Option(
        min=1,
        max=8,
        metavar="N",
        help="Divide the attempts among up to 8 symmetric copies of each instance; routing only.",
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option("--policy", help="A shipped checkpoint's name or a path. [by problem]"),
]
Vehicles = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="K", help="At most K vehicles. [the file's VEHICLES, or any number]"
    ),
]
Capacity = Annotated[
    float | None,
    typer.Option(
        metavar="Q", help="Capacity of each vehicle. [the file's; CSV files need not have one]"
    ),
]
Seed = Annotated[
    int,
    typer.Option(min=0, max=LARGEST_SEED, metavar="N", help="Equal seeds give equal attempts."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        help="Write NAME.tour (.sol, .sched) of each instance to this folder; with --top "
        "NAME.2.tour too."
    ),
]
AsJson = Annotated[
    bool, flag("--json", "One JSON object per instance on stdout, and nothing else.")
]
Plot = Annotated[
    bool, flag("--plot", "Write NAME.png of each plan, to the folder of --output or here.")
]
SkipBad = Annotated[
    bool, flag("--skip-bad", "Report files that cannot be used, solve the others, and exit with 3.")
]
Quiet = Annotated[bool, flag("--quiet", "Only important notes and errors on stderr.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="A setting of the search, such as components=3; repeatable.",
    ),
]
Polish = Annotated[bool, flag("--polish", "Take the best plans to a local optimum at the end.")]
WarmStart = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PLAN",
        help="A plan (.tour, .sol, .sched, or --json output) to start from; repeatable.",
    ),
]
Then = Annotated[
    str,
    typer.Option(
        metavar="SOLVER",
        help="What continues after the search, for half of the --seconds or more: auto (our own "
        "local search, if each instance gets enough time), none, ils, lkh, pyvrp, ruin, tabu or "
        "cpsat.",
    ),
]
Top = Annotated[
    int,
    typer.Option(
        min=1,
        max=100,
        metavar="K",
        help="Return the K best different plans, in --json and --output.",
    ),
]
Trace = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write every improvement as a line of JSON.")
]

Results = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a line of JSON for each instance as soon as it is solved; run again, it solves "
        "only what is missing.",
        rich_help_panel=MANY,
    ),
]
ShardName = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Only part I of N; auto reads it from a Slurm array or an indexed Kubernetes job.",
        rich_help_panel=MANY,
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The number of parts, for --shard auto on Kubernetes.",
        rich_help_panel=MANY,
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto|ray",
        help="Solve in N processes; auto: one for each GPU or core; ray: the cluster of "
        "RAY_ADDRESS, or a local one.",
        rich_help_panel=MANY,
    ),
]
ChunkLength = Annotated[
    int | None,
    typer.Option(
        "--chunk",
        min=1,
        metavar="N",
        help="At most N instances are solved together and share the --seconds. [64; on a GPU "
        "10,000]",
        rich_help_panel=MANY,
    ),
]


def refuse_for_many(options: Mapping[str, object]) -> None:
    """Refuse options that need all instances at once, or that a results file replaces."""
    for name, value in options.items():
        if value:
            message = "is not for --results, --shard, --workers and --chunk; leave one of them out"
            raise typer.BadParameter(message, param_hint=name)


def parse_workers(text: str | None) -> int | str | None:
    """Return the workers that a user means: a number, "auto", "ray", or None for this process."""
    if text in (None, "auto", "ray"):
        return text
    if not re.fullmatch(r"[1-9]\d{0,4}", text):
        message = f"'{shorten(text)}' is not known, expected a number of processes, auto or ray"
        raise typer.BadParameter(message, param_hint="--workers")
    return int(text)


def solve_command(
    files: Files,
    attempts: Attempts = None,
    seconds: Seconds = None,
    total_seconds: TotalSeconds = None,
    search: SearchName = None,
    policy: PolicyName = None,
    settings: Settings = None,
    augment: Augment = 1,
    vehicles: Vehicles = None,
    capacity: Capacity = None,
    seed: Seed = 0,
    device: Device = DeviceChoice.auto,
    engine: Engine = "auto",
    threads: Threads = None,
    warm_start: WarmStart = None,
    polish: Polish = False,
    then: Then = "auto",
    top: Top = 1,
    trace: Trace = None,
    output: Output = None,
    as_json: AsJson = False,
    plot: Plot = False,
    skip_bad: SkipBad = False,
    quiet: Quiet = False,
    results: Results = None,
    shard: ShardName = None,
    shards: Shards = None,
    workers: Workers = None,
    chunk: ChunkLength = None,
) -> None:
    """Find short tours, vehicle routes or job-shop schedules; each is checked and measured in its
    file's own metric.

    The policy's search and local search share the seconds, and instances of equal size are solved
    together. Without --attempts and --seconds: up to 1600 attempts, 30 seconds at most. With
    --attempts alone there is no local search. Ctrl-C ends the call and keeps the best plans so far.

    With --results, --shard or --workers there may be millions of instances. They are read and
    solved in chunks of one size, of up to 64 instances (10,000 on a GPU).

    Exit codes: 0 done, 2 wrong usage, 3 an input cannot be used, 4 an engine or a package is
    missing, 5 no plan within the limits, 6 an output could not be written, 130 interrupted.

    Example: rhumb solve examples/harbour100.tsp --seconds 10 --output tours --plot
    """

    many_options = (results, shard, shards, workers, chunk)
    solves_many = any(option is not None for option in many_options)
    worker_kind = parse_workers(workers)
    if solves_many:
        refuse_for_many({"--output": output, "--plot": plot, "--trace": trace})
        refuse_for_many({"--warm-start": warm_start, "--total-seconds": total_seconds})
        refuse_for_many({"--json": as_json and results})
    with exit_on_error():
        if device is not DeviceChoice.cuda and engine != "torch":
            start_compiling_for(files[0])  # torch is imported in the meantime
        with defer_signals():
            import torch

            from rhumbline.cli import solve_request, solve_run
            from rhumbline.cli.many import run as many_run
            from rhumbline.distributed.run import WorkerOptions
            from rhumbline.distributed.shards import parse_shard
            from rhumbline.pipeline import SolveRequest, budget_or_default
            from rhumbline.search.after_search import AfterSearch
        given = tuple(settings or ())
        solve_request.check_after_search(then, attempts, seconds or total_seconds)
        solve_request.check_search(search, given)
        request = SolveRequest(
            budget=budget_or_default(attempts, seconds, total_seconds),
            total_seconds=total_seconds,
            strategy=search,
            settings=given,
            policy=policy,
            seed=seed,
            device=device.value,
            engine=engine,
            augment=augment,
            after=AfterSearch(top, polish, then),
        )
        options = solve_request.FileOptions(
            vehicles=vehicles,
            capacity=capacity,
            warm_starts=tuple(warm_start or ()),
            trace=trace,
            skip_bad=skip_bad,
        )
        paths = OutputPaths(output, plot)
        verbosity = solve_run.Verbosity(as_json, quiet)
        if threads:
            torch.set_num_threads(threads)  # the fused engine uses this number too
        if solves_many:
            many = many_run.ManyOptions(
                results=results,
                shard=parse_shard(shard, shards),
                workers=WorkerOptions(worker_kind, threads),
                chunk=chunk,
            )
            raise typer.Exit(many_run.run_many(files, request, options, many, verbosity))
        with solve_request.report_wrong_usage(), SignalGate() as gate:
            job = solve_run.prepare_job(files, request, options, paths, verbosity, gate)
            code = solve_run.run_job(job)
    raise typer.Exit(code)
