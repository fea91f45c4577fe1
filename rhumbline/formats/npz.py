"""Read arrays from npz archives, whose headers may claim anything."""

import io
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from rhumbline.errors import InputError, shorten
from rhumbline.formats.safe_io import LIMITS, read_bytes, too_large

BAD_ARCHIVE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    OverflowError,
    MemoryError,  # a header that claims 10^18 numbers
    RuntimeError,  # encrypted, nested too deep, or packed in a way that Python does not know
    SystemError,  # texts with characters that do not exist
    SyntaxError,  # headers are dictionaries in the words of Python
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(path: Path, complaint: str) -> dict[str, np.ndarray]:
    """Return all arrays of an archive. `complaint` begins the message for what is none.

    Only as much is unpacked as `safe_io.LIMITS` allows.
    """
    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LIMITS.max_unpacked_bytes:
            raise too_large(path, LIMITS.max_unpacked_bytes)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            found = dict(arrays)
        for array in found.values():
            check_texts(array)
    except BAD_ARCHIVE as error:
        reason = shorten(str(error), limit=120)
        raise InputError.at(path, None, f"{complaint} ({reason})") from error
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}


def check_texts(array: object) -> None:
    """Raise one of `BAD_ARCHIVE` if an array holds texts that Python cannot represent."""
    if isinstance(array, np.ndarray) and array.dtype.kind == "U":
        array.tolist()
