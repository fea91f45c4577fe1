"""Whole files in and out: a write leaves the whole new file or the old one; failures are
`InputError`s.
"""

import os
import secrets
from pathlib import Path

from rhumbline.errors import InputError


def read_bytes(path: Path) -> bytes:
    """All bytes of a file that has some."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError.at(
            path, None, "there is no such file; check the name and the folder"
        ) from error
    except IsADirectoryError as error:
        raise InputError.at(
            path, None, "is a directory, expected a file; name a file in it"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise InputError.at(path, None, f"cannot be read: {error_reason(error)}") from error
    if not content or content.isspace():
        raise InputError.at(path, None, "the file is empty, expected an instance or a plan")
    return content


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text in one step, as UTF-8."""
    write_bytes(
        path, text.encode("utf-8", errors="replace")
    )  # names of odd files may hold lone surrogates


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file by these bytes in one step; whatever fails, nothing half-written stays."""
    try:
        target = Path(os.path.realpath(path))  # a link stays a link
        check_overwritable(target)
        temporary = target.with_name(
            f".{secrets.token_hex(8)}.tmp"
        )  # same folder, so that renaming cannot copy
        try:
            temporary.write_bytes(content)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise InputError.at(
            path, None, f"cannot be written: {error_reason(error)}; choose another place"
        ) from error


def check_overwritable(target: Path) -> None:
    """Raise `OSError` where renaming would succeed but should not: folders, devices, files
    marked read-only.
    """
    if not target.exists():
        return
    if not target.is_file():
        raise OSError("it is not a regular file")
    if not os.access(target, os.W_OK):
        raise PermissionError("it is marked read-only")


def error_reason(error: Exception) -> str:
    """The system's words for what went wrong, without the path, which our message names already."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
