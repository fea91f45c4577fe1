"""Read and write whole files: a write leaves the whole new file or the old one, never a part.

Failures of the system become `InputError`s that name the path.
"""

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from rhumbline.errors import InputError
from rhumbline.registry import did_you_mean


@dataclass(frozen=True)
class ReadLimits:
    """How much is read, so that damaged and hostile files cannot take all memory."""

    max_bytes: int = 4 * 2**30  # of any file: datasets and results
    max_text_bytes: int = 64 * 2**20  # of a text: a matrix of 1000 cities in full has 20 MB
    max_unpacked_bytes: int = 2**30  # of an archive: packed zeros shrink a thousandfold
    max_unpacker_bytes: int = 2**29  # of memory; `xz -9` needs 64 MiB
    piece_bytes: int = 2**20
    max_number_characters: int = 100  # of a number that may have a decimal point


LIMITS = ReadLimits()


def read_bytes(path: Path, max_bytes: int = LIMITS.max_bytes) -> bytes:
    """Return the bytes of a regular file, which must not be empty or blank."""
    content = read_any_bytes(path, max_bytes)
    if not content or content.isspace():
        raise InputError.at(path, None, "the file is empty, expected an instance or a plan")
    return content


def read_any_bytes(path: Path, max_bytes: int = LIMITS.max_bytes) -> bytes:
    """Return the bytes of a regular file, perhaps none.

    Pipes and devices are refused before they are opened: a pipe that nothing is written to would
    block for ever, and /dev/zero never ends.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError.at(path, None, explain_special_file(mode))
        with path.open("rb") as file:
            return read_sized(file, path, max_bytes)
    except FileNotFoundError as error:
        message = f"there is no such file{suggest_file(path)}; check the name and the folder"
        raise InputError.at(path, None, message) from error
    except IsADirectoryError as error:
        message = "is a directory, expected a file; name a file in it"
        raise InputError.at(path, None, message) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        reason = error_reason(error)
        raise InputError.at(path, None, f"cannot be read: {reason}") from error


def read_sized(file: BinaryIO, path: Path, max_bytes: int) -> bytes:
    """Return the bytes of an open file of a known size, or raise if there are too many."""
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise too_large(path, max_bytes)
    content = file.read(size + 1)  # in one piece: a dataset is never in memory twice
    if len(content) > size:  # it grows, or it is a file of /proc, which states no size
        room = max_bytes - len(content)
        content += read_stream(file, path, room)
    return content


def read_stream(stream: BinaryIO, name: object, max_bytes: int = LIMITS.max_text_bytes) -> bytes:
    """Return what is left of a stream, or raise if that is more than `max_bytes`.

    `name` stands for the stream in messages: a path, or "standard input".
    """
    content = bytearray()
    while piece := stream.read(LIMITS.piece_bytes):
        content += piece
        if len(content) > max_bytes:
            raise too_large(name, max_bytes)
    return bytes(content)


def too_large(name: object, max_bytes: int) -> InputError:
    """Return the error for a file or a stream with more bytes than are read."""
    megabytes = max_bytes / 2**20
    found = f"is larger than {megabytes:,.0f} MiB, the limit"
    return InputError.at(name, None, f"{found}; is it the right file?")


def explain_special_file(mode: int) -> str:
    """Return a message on what is no regular file."""
    kind = "a device or a socket"
    if stat.S_ISFIFO(mode):
        kind = "a pipe"
    advice = "save its content in a file and name that, or pipe it to - (standard input)"
    return f"is {kind}, expected a file; {advice}"


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text in one step, encoded as UTF-8."""
    # Names taken from badly encoded files may hold lone surrogates, hence errors="replace".
    content = text.encode("utf-8", errors="replace")
    write_bytes(path, content)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file by these bytes in one step; a failure leaves no partial file behind."""
    try:
        target = Path(os.path.realpath(path))  # a link stays a link
        check_overwritable(target)
        # A temporary file in the same folder: renaming within one file system never copies.
        temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(content)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        message = f"cannot be written: {error_reason(error)}; choose another place"
        raise InputError.at(path, None, message) from error


def check_overwritable(target: Path) -> None:
    """Raise `OSError` for targets that renaming would replace although it should not.

    These are folders, devices and files marked read-only.
    """
    if not target.exists():
        return
    if not target.is_file():
        raise OSError("it is not a regular file")
    if not os.access(target, os.W_OK):
        raise PermissionError("it is marked read-only")


def error_reason(error: Exception) -> str:
    """Return the system's words for an error without the path, which our message already names."""
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error)


def suggest_file(path: Path) -> str:
    """Return " (did you mean 'x'?)" if a file of nearly this name is in the folder, or ""."""
    max_names = 1000  # of a folder with more, the first ones
    with suppress(OSError):
        names = [file.name for file in islice(path.parent.iterdir(), max_names)]
        return did_you_mean(path.name, names)
    return ""
