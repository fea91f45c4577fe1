"""Results as lines of JSON in a file that survives crashes: `rhumb solve --results`.

Lines are written and synced to disk when their chunk is done. A killed run leaves at most one
incomplete line, which the next run removes. Results of different options are never mixed.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rhumbline.errors import InputError, OutputFailed
from rhumbline.formats.safe_io import error_reason


@dataclass
class ResultsFile:
    """An open results file and the keys of the instances in it."""

    path: Path
    options: str
    file: BinaryIO  # unbuffered: a failed write leaves nothing that `close` would write again
    end: int = 0  # of the last whole line, in bytes
    done: set[str] = field(default_factory=set[str])

    @classmethod
    def open(cls, path: Path, options: str) -> "ResultsFile":
        """Open a file to continue, or create one; refuse results of other options.

        A second run on the same file is refused while the first one is running.
        """
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no regular file; choose another one")
        try:
            file = path.open("ab", buffering=0)
        except OSError as error:
            reason = error_reason(error)
            raise InputError(f"{path}: cannot be written: {reason}; choose another file") from error
        results = cls(path, options, file)
        try:
            results.lock()
            results.read()
        except BaseException:
            file.close()
            raise
        return results

    def lock(self) -> None:
        """Keep other runs out until the file is closed or this process ends."""
        try:
            import fcntl  # not on every system
        except ImportError:
            return
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = "is in use by another run; wait for it, or choose another file"
            raise InputError(f"{self.path}: {message}") from error
        except OSError:  # a file system without locks
            return

    def read(self) -> None:
        """Read the keys of the results, and remove a last line that is incomplete."""
        for line in read_result_lines(self.path):
            facts = line.facts
            if facts["options"] != self.options:
                other = "holds results of other options"
                advice = "choose another file, or repeat the options"
                raise InputError.at(self.path, line.number, f"{other}; {advice}")
            self.done.add(facts["instance"])
        self.end = whole_lines_end(self.path)
        self.check_rest()
        self.file.truncate(self.end)

    def check_rest(self) -> None:
        """Refuse to remove a last line that does not begin like a result."""
        line_start = b'{"instance": "'  # of every result
        with self.path.open("rb") as file:
            file.seek(self.end)
            rest = file.read(len(line_start))
        if not line_start.startswith(rest):
            message = "does not end with a result; expected a file of `rhumb solve --results`"
            raise InputError(f"{self.path}: {message}")

    def write(self, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Append results with their keys, each as a whole line, and hand them to the disk.

        If they cannot be written, the file is left as it was.
        """
        text = bytearray()
        keys: list[str] = []
        for key, facts in lines:
            if key not in self.done:
                record = {"instance": key, "options": self.options, **facts}
                text += json.dumps(record).encode() + b"\n"
                keys.append(key)
        try:
            self.append(text)
        except OSError as error:
            with suppress(OSError):
                self.file.truncate(self.end)
            raise OutputFailed(
                f"{self.path}: cannot be written: {error_reason(error)}; make room, and repeat"
                " the command, which goes on from there"
            ) from error
        self.end += len(text)
        self.done.update(keys)

    def append(self, text: bytearray) -> None:
        """Write all of a text, and wait until it is on the disk."""
        rest = memoryview(text)
        while rest:
            written = self.file.write(rest)
            rest = rest[written:]
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file and release its lock."""
        self.file.close()


def whole_lines_end(path: Path) -> int:
    """Return where the last whole line of a file ends, in bytes."""
    piece_bytes = 1 << 16
    size = path.stat().st_size
    with path.open("rb") as file:
        end = size
        while end > 0:
            start = max(0, end - piece_bytes)
            file.seek(start)
            piece = file.read(end - start)
            last_break = piece.rfind(b"\n")
            if last_break >= 0:
                return start + last_break + 1
            end = start
    return 0


def parse_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return the facts of a line."""
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError) as error:
        message = "is no JSON; expected a file of `rhumb solve --results`"
        raise InputError.at(path, number, message) from error
    if not isinstance(facts, dict) or not {"instance", "options"} <= set(facts):
        expected = "expected a result with the fields instance and options"
        raise InputError.at(path, number, f"is no result of `rhumb solve --results`; {expected}")
    return facts


@dataclass(frozen=True)
class ResultLine:
    """A line of a results file."""

    number: int
    facts: dict[str, Any]
    first_byte: int
    length: int


def read_result_lines(path: Path) -> Iterator[ResultLine]:
    """Yield the whole lines of a results file."""
    first_byte = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    facts = parse_line(path, number, line)
                    yield ResultLine(number, facts, first_byte, len(line))
                first_byte += len(line)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error_reason(error)}") from error
