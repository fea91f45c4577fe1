"""The path "-": an instance, or a plan, from standard input.

Its bytes go to a temporary file, so that every reader of files can read them. The content decides
on the format, and messages say "standard input" in place of the name of that file.
"""

import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rhumbline.errors import InputError, RhumbError
from rhumbline.files import DATASET_SUFFIX
from rhumbline.formats.safe_io import LIMITS, read_stream


def is_standard_input(path: object) -> bool:
    """Return whether a path stands for standard input."""
    return isinstance(path, str | Path) and str(path) == "-"


@contextmanager
def standard_input_file() -> Generator[Path, None, None]:
    """Yield a temporary file with the bytes of standard input, named "stdin" and by its content."""
    content = read_standard_input()
    with tempfile.TemporaryDirectory(prefix="rhumb-") as folder:
        path = Path(folder) / f"stdin{suffix_of_content(content)}"
        path.write_bytes(content)
        try:
            yield path
        except RhumbError as error:
            message = str(error).replace(str(path), "standard input")
            raise type(error)(message) from error


def read_standard_input() -> bytes:
    """Return all bytes of standard input, up to a limit."""
    try:
        stream = sys.stdin.buffer
    except AttributeError:  # there is no stdin: the caller has closed it
        raise InputError("standard input: is closed, expected an instance") from None
    try:
        if sys.stdin.isatty():
            waiting = "note: reading an instance from standard input; end it with Ctrl-D"
            print(waiting, file=sys.stderr, flush=True)
            content = b"".join(iter(stream.readline, b""))  # in one piece: Ctrl-D ends it once
        else:
            content = read_stream(stream, "standard input", LIMITS.max_text_bytes)
    except (OSError, ValueError) as error:
        raise InputError(f"standard input: cannot be read: {error}") from error
    if not content.strip():
        raise InputError(
            "standard input: is empty, expected an instance (it can be read only once)"
        )
    return content


def suffix_of_content(content: bytes) -> str:
    """Return a suffix for formats that only a suffix selects, or nothing: the content decides."""
    length = content[:8]  # a safetensors file begins with the length of its JSON header
    header = content[8:9]
    is_dataset = header == b"{" and b"\0" in length
    if is_dataset:
        return DATASET_SUFFIX
    text = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_json = text.startswith((b"{", b"["))
    return ".json" if is_json else ""
