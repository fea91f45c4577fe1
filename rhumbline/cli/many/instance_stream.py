"""Instances of files one after the other, for inputs that are larger than memory."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rhumbline.cli.process import print_note
from rhumbline.cli.solve_request import FileOptions
from rhumbline.errors import InputError
from rhumbline.files import count_instances
from rhumbline.files.discovery import discover_files, skipped_text
from rhumbline.inputs import stream_instances


class InstanceStream:
    """The instances of files and folders, each file read when its turn comes."""

    def __init__(self, paths: Sequence[Path], options: FileOptions):
        self.options = options
        self.files: list[Path] = []
        self.skipped: list[Path] = []  # files of folders that are no instances
        self.bad_files = 0
        # The files that were begun and the place of the first instance of each.
        self.begun: list[Path] = []
        self.first_places: list[int] = []
        for path in paths:
            self.add(path)

    def add(self, path: Path) -> None:
        """Find the files of a path."""
        try:
            found = discover_files(path)
        except InputError as error:
            self.refuse(error)
            return
        self.files += found.files
        self.skipped += found.skipped

    @property
    def skipped_note(self) -> str | None:
        """A note on the files of folders that are no instances, if there are any."""
        if not self.skipped:
            return None
        return skipped_text(self.skipped)

    def count(self) -> int | None:
        """Return the number of all instances, or None if a file does not tell it."""
        total = 0
        for file in self.files:
            count = count_instances(file)
            if count is None:
                return None
            total += count
        return total

    def instances(self) -> Iterator[Any]:
        """Yield the instances of all files. One that cannot be used ends this, or is skipped."""
        place = 0
        for file in self.files:
            self.begun.append(file)
            self.first_places.append(place)
            try:
                for instance in stream_instances(
                    file, self.options.vehicles, self.options.capacity
                ):
                    yield instance
                    place += 1
            except InputError as error:
                self.refuse(error)

    def refuse(self, error: InputError) -> None:
        """Report the error of a file that cannot be used with --skip-bad; raise it without."""
        if not self.options.skip_bad:
            raise error
        self.bad_files += 1
        print_note(f"error: {error}")

    def file_of(self, place: int) -> Path:
        """Return the file of an instance that was read."""
        following = bisect_right(self.first_places, place)
        number = following - 1
        return self.begun[number]
