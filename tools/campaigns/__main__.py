"""Run campaigns and print what they found; exit 1 if anything broke."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tools.campaigns.record import CampaignResult


def campaign_names() -> list[str]:
    """Return the names of all campaigns: the modules of this package that define `run`."""
    modules = Path(__file__).parent.glob("*.py")
    return sorted(path.stem for path in modules if "\ndef run(" in path.read_text())


def main(words: Sequence[str] | None = None) -> int:
    """Run the named campaigns, or all, within about the given seconds."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns", description=__doc__)
    names = campaign_names()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of them [600]")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="[the clock]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    options = parser.parse_args(words)
    for name in options.names:
        if name not in names:
            parser.error(f"'{name}' is no campaign; known: {', '.join(names)}")
    chosen = options.names or names
    print(f"seed {options.seed}", flush=True)
    results = []
    for name in chosen:
        start = time.monotonic()
        campaign = import_module(f"tools.campaigns.{name}")
        result = campaign.run(options.seconds / len(chosen), options.seed)
        results.append(result)
        report(result, time.monotonic() - start)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if any(result.faults for result in results) else 0


def report(result: CampaignResult, seconds: float) -> None:
    """Print one line for a campaign, one for each figure and one for each fault."""
    faults = len(result.faults)
    print(f"{result.name}: {result.tried:,} tried, {faults} faults, {seconds:.0f} s", flush=True)
    for name, figure in result.figures.items():
        print(f"    {name}: {figure}")
    for fault in result.faults:
        print(f"    FAULT {fault}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
