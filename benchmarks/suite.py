"""`rhumb bench SUITE` for nodes that have torch and no more: the command's own parser needs typer and what typer needs.

python benchmarks/suite.py suites/standard.toml --out RESULTS.jsonl [--only NAME ...] [--limit N]
"""

import argparse
from pathlib import Path

from rhumbline.bench.run import Options
from rhumbline.cli.benching import folders_of, run_suite
from rhumbline.cli.ending import conclude, listen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    if args.limit is not None and args.limit < 1:
        parser.error(f"--limit {args.limit}: expected at least 1")

    def body() -> int:
        options = Options(tuple(args.only), args.limit, args.device, folders=folders_of(args.folder))
        return run_suite(args.suite, args.out, options, args.quiet)

    listen()
    raise SystemExit(conclude(body))


if __name__ == "__main__":
    main()
