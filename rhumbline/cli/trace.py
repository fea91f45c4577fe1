"""The file of `--trace`: every improvement as a line of JSON, as long as it can be written."""

import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rhumbline.cli.process import print_note
from rhumbline.errors import InputError
from rhumbline.formats.safe_io import error_reason
from rhumbline.search.after_search import Improvement


@dataclass
class Trace:
    """A file of improvements. The first failure ends it with a warning, but not the search."""

    path: Path
    file: TextIO
    has_failed: bool = False

    def write(self, found: Improvement) -> None:
        """Write an improvement as a line, unless a line before has failed."""
        if self.has_failed:
            return
        line = {
            "name": found.instance.name,
            "attempts": found.attempts,
            "seconds": round(found.seconds, 3),
            "cost": found.cost,
            "phase": found.phase,
        }
        try:
            self.file.write(json.dumps(line) + "\n")
        except OSError as error:
            self.has_failed = True
            reason = error_reason(error)
            print_note(f"warning: {self.path}: the trace ends here, it cannot be written: {reason}")

    def close(self) -> None:
        """Close the file; its lines are written already, so a failure loses nothing more."""
        with suppress(OSError):
            self.file.close()


@contextmanager
def open_trace(path: Path | None) -> Generator[Trace | None, None, None]:
    """Open the file of a trace, which is written line by line; yield None without one."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be written: {error_reason(error)}; choose another place"
        raise InputError(message) from error
    trace = Trace(path, file)
    try:
        yield trace
    finally:
        trace.close()
