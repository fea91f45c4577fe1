"""Run `rhumb bench SUITE` on nodes without typer, which the command's own parser needs.

    python tools/run_suite.py suites/standard.toml --out RESULTS.jsonl [--only NAME ...] [--limit N]

With --compile-only nothing is measured: every method makes the attempts that do not count, on as
many instances as it will be given at once. Several such commands side by side take as long as the
slowest of them.
"""

import argparse
from pathlib import Path

from rhumbline.bench.methods import BenchOptions, SearchRunner
from rhumbline.bench.runner import prepare_pairs, wanted_indices
from rhumbline.bench.suite import read_suite
from rhumbline.cli.bench_run import parse_folders, run_suite
from rhumbline.cli.process import install_signal_handlers, run_command


def compile_kernels(path: Path, options: BenchOptions) -> int:
    """Compile the kernels that a run needs."""
    for pair in prepare_pairs(read_suite(path), options):
        if isinstance(pair.runner, SearchRunner):
            indices = wanted_indices(pair, options.limit)[: pair.runner.together]
            pair.runner.warm_up([pair.instance_set.instances[index] for index in indices], 0)
    return 0


def main() -> None:
    """Run a suite, or compile its kernels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", type=Path)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--compile-only", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.limit is not None and args.limit < 1:
        parser.error(f"--limit {args.limit}: expected at least 1")

    def body() -> int:
        options = BenchOptions(
            tuple(args.only), args.limit, args.device, folders=parse_folders(args.folder)
        )
        if args.compile_only:
            return compile_kernels(args.suite, options)
        return run_suite(args.suite, args.out, options, args.quiet)

    install_signal_handlers()
    raise SystemExit(run_command(body))


if __name__ == "__main__":
    main()
