"""Read and write whole files: a write leaves the whole new file or the old one, never a part.

Failures of the system become `InputError`s that name the path.
"""

import os
import secrets
from contextlib import suppress
from itertools import islice
from pathlib import Path

from rhumbline.errors import InputError
from rhumbline.registry import did_you_mean


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, which must not be empty or blank."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        message = f"there is no such file{suggest_file(path)}; check the name and the folder"
        raise InputError.at(path, None, message) from error
    except IsADirectoryError as error:
        message = "is a directory, expected a file; name a file in it"
        raise InputError.at(path, None, message) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise InputError.at(path, None, f"cannot be read: {error_reason(error)}") from error
    if not content or content.isspace():
        raise InputError.at(path, None, "the file is empty, expected an instance or a plan")
    return content


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text in one step, encoded as UTF-8."""
    # Names taken from badly encoded files may hold lone surrogates, hence errors="replace".
    write_bytes(path, text.encode("utf-8", errors="replace"))


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
