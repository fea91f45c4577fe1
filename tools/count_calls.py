"""Count what one `rhumb solve` calls: how deep it goes, and how often it decides what.

    python tools/count_calls.py examples/harbour100.tsp --attempts 40 --search cmaes-refine

prints one line per figure. All arguments are those of `rhumb solve`. Frames are those of functions
of this package; comprehensions and lambdas do not count. docs/architecture.md quotes the figures.
"""

import sys
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = str(Path(__file__).resolve().parents[1] / "rhumbline")
DECISIONS = (
    "choose_engine",
    "resolve",
    "collate",
    "check",
    "resolve_solver",
    "build_strategy",
    "encode",
)


class CallCounter:
    """Counts calls of functions of the package, by a profiler hook of the interpreter."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.deepest = 0
        self.first_rollout: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call."""
        if event != "call" or not is_ours(frame):
            return
        self.calls[label(frame)] += 1
        chain = own_chain(frame)
        self.deepest = max(self.deepest, len(chain))
        is_rollout = label(frame) in ("decoding.rollouts:rollout", "decoding.engines:rollout")
        if is_rollout and not self.first_rollout:
            self.first_rollout = chain


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame is of a named function of the package."""
    code = frame.f_code
    is_function = bool(code.co_flags & CO_OPTIMIZED) and not code.co_name.startswith("<")
    return is_function and code.co_filename.startswith(PACKAGE)


def label(frame: FrameType) -> str:
    """Return the module and the name of a frame's function."""
    code = frame.f_code
    place = Path(code.co_filename).relative_to(PACKAGE).with_suffix("")
    module = ".".join(part for part in place.parts if part != "__init__")
    return f"{module}:{code.co_qualname}"


def own_chain(frame: FrameType | None) -> list[str]:
    """Return our functions on the stack, the outermost first."""
    chain: list[str] = []
    while frame is not None:
        if is_ours(frame):
            chain.append(label(frame))
        frame = frame.f_back
    return chain[::-1]


def main() -> None:
    """Run `rhumb solve` with these arguments and print the figures."""
    from rhumbline import cli

    counter = CallCounter()
    sys.argv[1:1] = ["solve"]
    sys.setprofile(counter)
    try:
        cli.main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    modules = {name.partition(":")[0] for name in counter.calls}
    print(f"functions entered          {len(counter.calls)} in {len(modules)} modules")
    print(f"deepest chain              {counter.deepest}")
    print(f"frames to first rollout    {len(counter.first_rollout)}")
    for name in counter.first_rollout:
        print(f"    {name}")
    for name, count in sorted(counter.calls.items()):
        if name.rpartition(":")[2].rpartition(".")[2] in DECISIONS:
            print(f"{count:6} x {name}")


if __name__ == "__main__":
    main()
