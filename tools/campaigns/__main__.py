"""Run campaigns and print what they found; exit 1 if anything broke."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from rhumbline.kernels.threads import limit_spinning
from tools.campaigns.record import CampaignResult, Effort


def campaign_names() -> list[str]:
    """Return the names of all campaigns: the modules of this package that define `run`."""
    modules = Path(__file__).parent.glob("*.py")
    return sorted(path.stem for path in modules if "\ndef run(" in path.read_text())


def effort_of(name: str) -> Effort:
    """Return what a campaign needs."""
    module = import_module(f"tools.campaigns.{name}")
    return getattr(module, "EFFORT", Effort())


def share_seconds(efforts: Mapping[str, Effort], seconds: float) -> dict[str, float]:
    """Return the seconds of each campaign that the time suffices for.

    Those that need most are left out until the others can have what they need. The rest of the time
    is shared by weight.
    """
    by_need = sorted(efforts, key=lambda name: efforts[name].min_seconds)
    while by_need and sum(efforts[name].min_seconds for name in by_need) > seconds:
        by_need.pop()
    rest = seconds - sum(efforts[name].min_seconds for name in by_need)
    weights = sum(efforts[name].weight for name in by_need)
    return {
        name: effort.min_seconds + rest * effort.weight / weights
        for name, effort in efforts.items()
        if name in by_need
    }


def parse_options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
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
    return options


def plan_seconds(names: Sequence[str], seconds: float) -> dict[str, float]:
    """Return the seconds of each campaign: of those that a user names, or of all that fit."""
    if names:
        return {name: seconds / len(names) for name in names}
    efforts = {name: effort_of(name) for name in campaign_names()}
    shares = share_seconds(efforts, seconds)
    for name, effort in efforts.items():
        if name not in shares:
            print(f"{name}: left out, it needs {effort.min_seconds:.0f} s and more time in all")
    return shares


def main(words: Sequence[str] | None = None) -> int:
    """Run the named campaigns, or all, within about the given seconds."""
    limit_spinning()  # before a campaign imports torch
    options = parse_options(words)
    print(f"seed {options.seed}", flush=True)
    shares = plan_seconds(options.names, options.seconds)
    results = list[CampaignResult]()
    for name, seconds in shares.items():
        start = time.monotonic()
        campaign = import_module(f"tools.campaigns.{name}")
        result = campaign.run(seconds, options.seed)
        results.append(result)
        report(result, time.monotonic() - start)
        if options.json:  # after each one: a long run may be stopped
            write_results(options.json, options.seed, results)
    return 1 if any(result.faults for result in results) else 0


def report(result: CampaignResult, seconds: float) -> None:
    """Print one line for a campaign, one for each figure and one for each fault."""
    faults = len(result.faults)
    print(f"{result.name}: {result.tried:,} tried, {faults} faults, {seconds:.0f} s", flush=True)
    for name, figure in result.figures.items():
        print(f"    {name}: {figure}")
    for fault in result.faults:
        print(f"    FAULT {fault}", flush=True)


def write_results(path: Path, seed: int, results: Sequence[CampaignResult]) -> None:
    """Write what was found so far, with commit and date."""
    from rhumbline.bench.provenance import current_commit

    content = {
        "commit": current_commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "results": [asdict(result) for result in results],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
