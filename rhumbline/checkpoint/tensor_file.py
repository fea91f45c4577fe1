"""Safetensors files with a JSON header: written whole or not at all, read within limits."""

import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rhumbline.errors import (
    CheckpointError,
    InputError,
    cut_middle,
    escape_controls,
    explain_parse_error,
    shorten_path,
)
from rhumbline.kernels.background import run_in_thread

METADATA_KEY = "rhumbline"  # the entry of the safetensors metadata that holds our header


@dataclass(frozen=True)
class TensorFileTuning:
    """Limits of what is read, and of what a message repeats."""

    # Of the table at the beginning of a file, with our header. A population of 100 decoders and
    # the names of 10,000 instance files need about 1 MiB; parsing takes up to 20 times as much.
    max_table_bytes: int = 16 << 20
    max_words: int = 300  # characters of an explanation in a message


TUNING = TensorFileTuning()


class StagedFiles:
    """Tensor files that are all on disk before the first of them gets its name.

    A full disk therefore leaves the old files as they are. The files get their names in the order
    in which they were added. `durable` files survive a power failure, which takes milliseconds.
    """

    def __init__(self, *, durable: bool = False):
        self.durable = durable
        self.staged: list[tuple[Path, Path]] = []  # temporary file, final path

    def add(self, path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
        """Write tensors and a header to a temporary file beside `path`."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        self.staged.append((temporary, path))
        header_text = json.dumps(header)
        metadata = {METADATA_KEY: header_text}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(dict(tensors), temporary, metadata=metadata)
            temporary.chmod(0o644)  # safetensors makes files that only their owner can read
            if self.durable:
                flush_to_disk(temporary)
        except (OSError, SafetensorError) as error:
            raise write_error(path, error) from error

    def __enter__(self) -> "StagedFiles":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the files their names, or remove them all after an error."""
        try:
            if error is None:
                self.rename_all()
        finally:
            for temporary, _ in self.staged:
                # It is gone after the renaming, and absent if there is no folder.
                with suppress(OSError):
                    temporary.unlink()

    def rename_all(self) -> None:
        """Give each file its name."""
        for temporary, path in self.staged:
            try:
                os.replace(temporary, path)
            except OSError as error:
                raise write_error(path, error) from error
        if self.durable and self.staged:
            with suppress(OSError):  # some file systems do not flush folders
                flush_to_disk(self.staged[0][1].parent)


def flush_to_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(path: Path, error: Exception) -> InputError:
    """Return the error of a file that the system did not let us write."""
    return InputError(f"{path}: cannot be written ({error})")


def write_tensor_file(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header to a temporary file, then rename it to `path`."""
    with StagedFiles() as files:
        files.add(path, tensors, header)


def read_tensor_file(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the header of a file that `write_tensor_file` wrote.

    On a CPU, tensors are read from the disk when they are first used.
    """
    if not (path_exists(path) and path.is_file()):
        listed = "`rhumb info` lists those that come with the package"
        raise CheckpointError(f"{shorten_path(path)}: no such checkpoint; {listed}")
    try:
        check_table_size(path)
        # safetensors turns a Ctrl-C that reaches it into an error of its own.
        header, tensors = run_in_thread(partial(read_header_and_tensors, path, device))
    except (OSError, SafetensorError, ValueError, RecursionError, MemoryError) as error:
        reason = shorten_words(explain_parse_error(error) or type(error).__name__)
        message = f"{path}: not a readable checkpoint ({reason}); it may be truncated"
        raise CheckpointError(f"{message} or damaged: copy or train it again") from error
    if not isinstance(header, dict):
        foreign = "a safetensors file, but no checkpoint of rhumbline"
        raise CheckpointError(f"{path}: {foreign} (no '{METADATA_KEY}' header)")
    return tensors, header


def read_header_and_tensors(
    path: Path, device: torch.device | str
) -> tuple[Any, dict[str, Tensor]]:
    """Return what a tensor file holds, without any check."""
    with safe_open(path, framework="pt", device=str(device)) as file:
        metadata = file.metadata() or {}
        header = json.loads(metadata.get(METADATA_KEY, "null"))
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    return header, tensors


def path_exists(path: Path) -> bool:
    """Return whether a path exists; one that the system refuses does not."""
    try:
        return path.exists()
    except (OSError, ValueError):  # the name is too long, or holds a NUL character
        return False


def check_table_size(path: Path) -> None:
    """Refuse a file whose table of tensors and header would take a lot of memory."""
    with path.open("rb") as file:
        prefix = file.read(8)
    if len(prefix) < 8:
        return  # safetensors says so
    (size,) = struct.unpack("<Q", prefix)
    max_bytes = TUNING.max_table_bytes
    if size > max_bytes:
        found = f"its table of tensors has {size:,} bytes"
        raise ValueError(f"{found}, expected at most {max_bytes:,}")


def shorten_words(words: str) -> str:
    """Return an explanation in one line of limited length, with control characters escaped."""
    line = " ".join(words.split())
    visible = escape_controls(line)
    return cut_middle(visible, TUNING.max_words)
