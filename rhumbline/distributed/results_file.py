"""Results as lines of JSON in a file that survives everything: `rhumb solve --results`.

A line is written whole and flushed when its chunk is done. A killed run leaves at most one line cut
off, which the next run removes. Results of other options are never mixed.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rhumbline.errors import InputError

NEEDED = ("instance", "options", "cost")


@dataclass
class ResultsFile:
    """An open results file and the keys of the instances in it."""

    path: Path
    options: str
    file: BinaryIO
    done: set[str] = field(default_factory=set[str])

    @classmethod
    def open(cls, path: Path, options: str) -> "ResultsFile":
        """Open a file to go on with, or begin one; refuse results of other options.

        A second run on the same file is refused as long as the first one runs.
        """
        try:
            file = path.open("a+b")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            message = "is in use by another run; wait for it, or choose another file"
            raise InputError(f"{path}: {message}") from error
        results = cls(path, options, file)
        try:
            results.read()
        except BaseException:
            file.close()
            raise
        return results

    def read(self) -> None:
        """Take in what is there, and cut off a last line that was not written whole."""
        self.file.seek(0)
        end = 0
        for number, line in enumerate(self.file, start=1):
            if not line.endswith(b"\n"):
                break
            facts = parse_line(self.path, number, line)
            if facts["options"] != self.options:
                other = "holds results of other options"
                advice = "choose another file, or repeat the options"
                raise InputError.at(self.path, number, f"{other}; {advice}")
            self.done.add(facts["instance"])
            end += len(line)
        self.file.truncate(end)

    def write(self, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Append results with their keys, each as a whole line, and hand them to the disk."""
        text = bytearray()
        keys: list[str] = []
        for key, facts in lines:
            if key in self.done:
                continue
            record = {"instance": key, "options": self.options, **facts}
            text += json.dumps(record).encode() + b"\n"
            keys.append(key)
        try:
            self.file.write(text)
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror})") from error
        self.done.update(keys)

    def close(self) -> None:
        """Close the file and release its lock."""
        self.file.close()


def parse_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return the facts of a line."""
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError) as error:
        message = "is no JSON; expected a file of `rhumb solve --results`"
        raise InputError.at(path, number, message) from error
    if not isinstance(facts, dict) or any(name not in facts for name in NEEDED[:2]):
        expected = "expected a result with the fields instance and options"
        raise InputError.at(path, number, f"is no result of `rhumb solve --results`; {expected}")
    return facts


def read_results(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the whole lines of a results file with their numbers."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield number, parse_line(path, number, line)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
