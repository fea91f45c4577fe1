"""`rhumb bench compare`: compare strategies and policies.

Parsed without typer and rich, which bare GPU nodes do not have.
"""

import argparse
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rhumbline.cli.arguments import SuggestingParser, known_engines
from rhumbline.cli.process import (
    ExitCode,
    defer_signals,
    print_note,
    print_result,
    run_command,
)

if TYPE_CHECKING:
    from rhumbline.bench.compare import Comparison
    from rhumbline.bench.instance_sets import InstanceSet
    from rhumbline.bench.methods import BenchOptions
    from rhumbline.bench.runner import MethodOnSet


def run_compare(words: Sequence[str]) -> int:
    """Parse the words behind `bench compare` and run; return the exit code."""
    given = make_parser().parse_args(words)
    body = partial(compare_methods, given)
    return run_command(body)


def make_parser() -> SuggestingParser:
    """Return the parser of the command's options."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = SuggestingParser(
        "rhumb bench compare",
        description="""\
Compare strategies and policies at equal attempts or equal seconds, instance by instance. SET is a
standard test set (tsp100, vrp200, jssp10x10, ...), a file, a folder or a pattern. With --validation
it names a set of validation instances, of any size.

Prints a table for each set: gaps to the references (or to the best cost of each instance in the
table) and the mean difference to the first method of the same budget, instance by instance, with
95 % intervals. Lines of JSON are added to --out, as for a suite. Run again with the same
file, a comparison continues where it stopped; other strategies or budgets are added. Choose
settings on validation instances, never on a test set.
""",
        epilog="""examples:
  rhumb bench compare tsp100 --first 1000 --search sampling,cmaes,cmaes-refine --attempts 160,1600
  rhumb bench compare vrp200 --validation --varied --first 32 --policy cvrp,runs/new.safetensors
  rhumb bench compare tsp150 --validation --search cmaes,cmaes+top=4+components=2 --seconds 2
  rhumb bench compare instances/cvrplib --seconds 10 --together 1 --then none,auto
""",
        formatter_class=as_written,
    )
    add_set_options(parser)
    add_method_options(parser)
    parser.add_choice("--device", ("auto", "cpu", "cuda"))
    parser.add_choice("--engine", known_engines())
    parser.add_argument(
        "--threads", type=positive_integer, metavar="N", help="threads on a CPU [all cores]"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where lines are added [results/compare-SET.jsonl]"
    )
    parser.add_argument(
        "--compile-only", action="store_true", help="measure nothing, only compile the kernels"
    )
    parser.add_argument("--quiet", action="store_true", help="only warnings and errors on stderr")
    return parser


def add_set_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which instances are solved."""
    parser.add_argument(
        "sets", nargs="+", metavar="SET", help="a test set, a file, a folder or a pattern"
    )
    parser.add_argument(
        "--first",
        type=positive_integer,
        default=100,
        metavar="N",
        help="the first N instances [100]",
    )
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="leave out the first N of these"
    )
    parser.add_argument("--validation", action="store_true", help="draw validation instances")
    parser.add_argument(
        "--varied",
        action="store_true",
        help="validation instances of varied layouts, for sizes such as tsp200 or vrp300",
    )
    parser.add_argument(
        "--references", type=Path, metavar="DIR", help="costs by set [benchmarks/reference]"
    )


def add_method_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how instances are solved."""
    parser.add_argument(
        "--search",
        type=parse_words,
        default=("default",),
        metavar="NAME[+FIELD=VALUE],...",
        help="strategies with settings; default is what `rhumb solve` takes [default]",
    )
    parser.add_argument(
        "--policy",
        type=parse_words,
        default=("",),
        metavar="NAME,...",
        help="shipped names or paths; {problem} is filled in [the default of the problem]",
    )
    parser.add_argument(
        "--attempts", type=parse_integers, default=(), metavar="N,...", help="per instance [160]"
    )
    parser.add_argument(
        "--seconds",
        type=parse_numbers,
        default=(),
        metavar="S,...",
        help="per instance; instances solved together share the sum",
    )
    parser.add_argument(
        "--then",
        type=parse_solvers,
        default=("",),
        metavar="SOLVER,...",
        help="solvers that continue for the second half of the seconds, as for `rhumb solve`, or "
        "none [none]",
    )
    parser.add_argument(
        "--polish", action="store_true", help="take the best plans to a local optimum at the end"
    )
    parser.add_argument(
        "--augment", type=positive_integer, default=1, metavar="N", help="symmetric copies [1]"
    )
    parser.add_argument(
        "--together",
        type=positive_integer,
        default=0,
        metavar="N",
        help="instances solved at once [what memory allows; on a CPU 8]",
    )
    parser.add_argument(
        "--seeds", type=parse_integers, default=(0,), metavar="N,...", help="of the searches [0]"
    )


def positive_integer(text: str) -> int:
    """Return a number of at least 1, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def parse_words(text: str) -> tuple[str, ...]:
    """Return words with commas between them, for argparse."""
    words = tuple(text.split(","))
    if "" in words:
        raise argparse.ArgumentTypeError(f"{text!r}: expected names with commas between them")
    return words


def parse_solvers(text: str) -> tuple[str, ...]:
    """Return names of solvers with commas between them, for argparse; "" stands for none."""
    words = parse_words(text)
    solvers = ["" if word == "none" else word for word in words]
    return tuple(solvers)


def parse_integers(text: str) -> tuple[int, ...]:
    """Return whole numbers with commas between them, for argparse."""
    words = text.split(",")
    numbers = [int(word) for word in words]
    return tuple(numbers)


def parse_numbers(text: str) -> tuple[float, ...]:
    """Return numbers with commas between them, for argparse."""
    words = text.split(",")
    numbers = [float(word) for word in words]
    return tuple(numbers)


def compare_methods(given: argparse.Namespace) -> int:
    """Read the sets, prepare the methods, and measure."""
    with defer_signals():
        from rhumbline.bench.compare import Comparison, compile_kernels, prepare_comparison
        from rhumbline.bench.compare.sets import SetSelection, load_sets
        from rhumbline.bench.methods import BenchOptions
        from rhumbline.cli.bench_run import print_warning
    selection = SetSelection(
        first=given.first,
        skip=given.skip,
        validation=given.validation,
        varied=given.varied,
        references=given.references or SetSelection.references,
    )
    comparison = Comparison(
        strategies=given.search,
        policies=given.policy,
        attempts=given.attempts,
        seconds=given.seconds,
        solvers=given.then,
        polish=given.polish,
        augment=given.augment,
        together=given.together,
        seeds=given.seeds,
    )
    options = BenchOptions(device=given.device, engine=given.engine, threads=given.threads)
    sets: list[InstanceSet] = []
    for place in given.sets:
        sets += load_sets(place, selection, print_warning)
    pairs = prepare_comparison(comparison, sets, options)
    if given.compile_only:
        compile_kernels(pairs)
        return 0
    return measure_and_print(comparison, pairs, options, given)


def measure_and_print(
    comparison: "Comparison",
    pairs: "Sequence[MethodOnSet]",
    options: "BenchOptions",
    given: argparse.Namespace,
) -> int:
    """Measure what is missing and print the tables, also after Ctrl-C: then of what is done."""
    from rhumbline.bench.compare import measure_comparison
    from rhumbline.cli.bench_run import ProgressPrinter, print_warning
    from rhumbline.cli.output.files import prepare_folder

    out = given.out or default_file(pairs)
    prepare_folder(out.parent)
    printer = ProgressPrinter(given.quiet)
    interrupted = False
    try:
        for progress in measure_comparison(
            pairs, comparison.seeds, out, options, print_warning, printer.update
        ):
            printer.update(progress)
    except KeyboardInterrupt:
        printer.report_interruption(out)
        interrupted = True
    print_tables(out, comparison, pairs)
    if not given.quiet:
        print_note(f"-> {out}")
    return ExitCode.INTERRUPTED if interrupted else 0


def default_file(pairs: "Sequence[MethodOnSet]") -> Path:
    """Return where lines are added if no file is named: one file for each choice of sets."""
    from rhumbline.cli.bench_run import default_results_file

    names = [pair.instance_set.spec.name for pair in pairs]
    distinct_names = dict.fromkeys(names)
    words = " ".join(distinct_names)
    stem = re.sub(r"[^\w.]+", "-", words)[:100]
    return default_results_file(f"compare-{stem}")


def print_tables(file: Path, comparison: "Comparison", pairs: "Sequence[MethodOnSet]") -> None:
    """Print the tables of the methods, sets and seeds that were asked for."""
    from rhumbline.bench.compare.tables import comparison_tables
    from rhumbline.bench.results import read_results
    from rhumbline.cli.bench_run import print_warning

    methods = [method.name for method in comparison.methods()]
    sets = {pair.instance_set.spec.name for pair in pairs}
    results = [
        result
        for result in read_results(file, print_warning)
        if result.method in methods and result.set in sets and result.seed in comparison.seeds
    ]
    results.sort(key=lambda result: methods.index(result.method))
    if results:
        print_result(comparison_tables(results))
