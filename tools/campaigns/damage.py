"""Damage to valid files: bytes, numbers, lines, sections, depth and size."""

import json
import math
import random
import re
import struct
from collections.abc import Callable

Damage = Callable[[bytes, random.Random], bytes]

NUMBER = re.compile(rb"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

EXTREME_NUMBERS = (
    b"0 -0 -1 1e-320 5e-324 1e-13 1e12 1e13 1e308 1e309 -1e308 nan inf -inf 0x10 1_000 "
    b"2147483647 2147483648 4294967296 9007199254740993 9223372036854775807 "
    b"9223372036854775808 18446744073709551616 1000000000000 999999999999999 "
    b"1000000000000000000000000000000 0.1 1e400 00000000000000000001 +1 1. .5"
).split()

EXTREME_FLOATS = (0.0, -0.0, -1.0, 5e-324, 1e12, 1e13, 1e308, math.nan, math.inf, -math.inf)
EXTREME_INTEGERS = (0, -1, 1, 2, 99, 100, 2**31 - 1, 2**31, 10**15, 2**53, 2**63 - 1, -(2**63))

ODD_BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1b[31m",
    b"\x07",
    b"\r",
    b"\n\n",
    b"\t",
    b"\x85",
    b"\xe2\x80\xa8",  # a line separator
    b"\xe2\x80\xae",  # from here on from right to left
    b"\xed\xb3\xbf",  # half of a surrogate pair
    "٣".encode(),  # a digit for Python
    b"\\ud800",
    b"-1",
    b":",
    b"#",
    b"=",
    b",",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"EOF\n",
    b"null",
    b"true",
    b'{"a": 1}',
    b"[1]",
)


def flip_bytes(content: bytes, rng: random.Random) -> bytes:
    """Replace one to eight bytes."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def truncate(content: bytes, rng: random.Random) -> bytes:
    """Keep the beginning only."""
    return content[: rng.randrange(len(content))]


def cut_out(content: bytes, rng: random.Random) -> bytes:
    """Remove a part."""
    start, end = random_part(content, rng)
    return content[:start] + content[end:]


def duplicate(content: bytes, rng: random.Random) -> bytes:
    """Put a copy of a part somewhere."""
    start, end = random_part(content, rng)
    place = rng.randrange(len(content))
    return content[:place] + content[start:end] + content[place:]


def random_part(content: bytes, rng: random.Random) -> tuple[int, int]:
    """Return the ends of a part of at most 200 bytes."""
    start = rng.randrange(len(content))
    return start, min(len(content), start + rng.randint(1, 200))


def replace_numbers(content: bytes, rng: random.Random) -> bytes:
    """Replace one to three numbers by extreme ones."""
    for _ in range(rng.randint(1, 3)):
        found = list(NUMBER.finditer(content))
        if not found:
            return content
        chosen = rng.choice(found)
        number = rng.choice(EXTREME_NUMBERS)
        if rng.random() < 0.1:
            number = b"9" * rng.choice((20, 400, 4_299, 4_301, 5_000))
        content = content[: chosen.start()] + number + content[chosen.end() :]
    return content


def damage_lines(content: bytes, rng: random.Random) -> bytes:
    """Swap, repeat, remove, join or shorten lines."""
    lines = content.split(b"\n")
    here = rng.randrange(len(lines))
    there = rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        lines[here], lines[there] = lines[there], lines[here]
    elif kind == 1:
        lines.insert(there, lines[here])
    elif kind == 2:
        del lines[min(here, there) : max(here, there) + 1]  # a whole section
    elif kind == 3:
        words = lines[here].split()
        rng.shuffle(words)
        lines[here] = b" ".join(words)
    elif kind == 4:
        lines[here] = b" ".join(lines[here].split()[:-1])
    else:
        lines[here] += lines[there]
    return b"\n".join(lines)


def nest(content: bytes, rng: random.Random) -> bytes:
    """Insert deep brackets."""
    place = rng.randrange(len(content))
    opening = rng.choice((b"[", b"{", b'{"a":', b"[[", b"(", b"a."))
    depth = rng.choice((10, 90, 400, 990, 3_000, 30_000))
    closing = b""
    if rng.random() < 0.5:
        closing = rng.choice((b"]", b"}", b")")) * depth
    return content[:place] + opening * depth + closing + content[place:]


def insert_bulk(content: bytes, rng: random.Random) -> bytes:
    """Insert a huge word, or a long row of one character."""
    place = rng.randrange(len(content))
    unit = rng.choice((b"1", b"9", b"a", b" ", b'"', b"\x1b", b"\xff", b"\n", b"-", b"1 ", b"\\"))
    return content[:place] + unit * rng.choice((70, 600, 5_000, 50_000)) + content[place:]


def insert_odd_bytes(content: bytes, rng: random.Random) -> bytes:
    """Insert bytes that readers trip over."""
    place = rng.randrange(len(content))
    return content[:place] + rng.choice(ODD_BYTES) + content[place:]


def damage_header_length(content: bytes, rng: random.Random) -> bytes:
    """Let a safetensors header claim another length, up to 2^64 bytes."""
    length = rng.choice((0, 1, 10**6, 10**8, 10**9, 10**18, 2**63, 2**64 - 1, len(content)))
    return length.to_bytes(8, "little") + content[8:]


def damage_header(content: bytes, rng: random.Random) -> bytes:
    """Damage the header of a safetensors file and state its right length."""
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    damaged = rng.choice((replace_numbers, damage_shapes, insert_odd_bytes, nest, insert_bulk))(
        header, rng
    )
    return len(damaged).to_bytes(8, "little") + damaged + content[8 + length :]


def damage_shapes(header: bytes, rng: random.Random) -> bytes:
    """Give a tensor of a safetensors header another shape or type."""
    facts = json.loads(header)
    names = [name for name in facts if name != "__metadata__"]
    tensor = facts[rng.choice(names)]
    if rng.random() < 0.5:
        tensor["dtype"] = rng.choice(
            ("F64", "F32", "F16", "BF16", "I64", "U64", "I8", "BOOL", "F8_E4M3", "C64", "X")
        )
    else:
        shape = tensor["shape"]
        rng.shuffle(shape)
        change = rng.randrange(4)
        if change == 0:
            shape.append(1)
        elif change == 1:
            shape[rng.randrange(len(shape))] = rng.choice((0, 1, 10**9, 2**62, 2**64))
        elif change == 2:
            shape[:] = [10**18, 0, 2]
            tensor["data_offsets"] = [0, 0]
    return json.dumps(facts).encode()


def damage_numbers(content: bytes, rng: random.Random) -> bytes:
    """Replace a few of the numbers of a safetensors file; its form stays right."""
    begins = 8 + int.from_bytes(content[:8], "little")
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place = begins + 8 * rng.randrange((len(content) - begins) // 8)
        if rng.random() < 0.5:
            damaged[place : place + 8] = struct.pack("<d", rng.choice(EXTREME_FLOATS))
        else:
            damaged[place : place + 8] = struct.pack("<q", rng.choice(EXTREME_INTEGERS))
    return bytes(damaged)


TEXT_DAMAGE: tuple[Damage, ...] = (
    flip_bytes,
    truncate,
    cut_out,
    duplicate,
    replace_numbers,
    replace_numbers,
    damage_lines,
    damage_lines,
    nest,
    insert_bulk,
    insert_odd_bytes,
)
BINARY_DAMAGE: tuple[Damage, ...] = (
    flip_bytes,
    truncate,
    cut_out,
    duplicate,
    damage_header_length,
    damage_header,
    damage_header,
    damage_numbers,
    damage_numbers,
    damage_numbers,
    insert_bulk,
)


def damage_file(content: bytes, kinds: tuple[Damage, ...], rng: random.Random) -> bytes:
    """Return a file with one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not content:
            return content
        kind = rng.choice(kinds)
        try:
            content = kind(content, rng)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            continue  # what was damaged before has no header or no numbers any more
    return content
