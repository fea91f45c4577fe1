"""Recipes, suites, results and archives that are damaged on purpose."""

import gzip
import json
import lzma
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rhumbline.bench import results as results_module
from rhumbline.bench.figures.landscape import read_landscapes
from rhumbline.bench.reference.file import read_references
from rhumbline.bench.results import read_results
from rhumbline.bench.suite import read_suite
from rhumbline.errors import InputError
from rhumbline.formats import npz
from rhumbline.formats.safe_io import ReadLimits
from rhumbline.toml_config import parse_value
from rhumbline.training.config import read_recipe

GOLDEN = Path(__file__).parent / "golden" / "results.jsonl"
SUITE = """name = "s"
[[set]]
name = "a"
problem = "tsp"
recipe = "uniform"
count = 1
[[method]]
name = "b"
attempts = 1
"""
RECIPE = 'problem = "tsp"\nsize = 20\n'


def refusal(reader: Any, path: Path, content: str | bytes) -> str:
    """Return the message that refuses a file, which is short and printable."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        reader(path)
    message = str(caught.value).replace(str(path.parent), "")
    assert len(message) < 500
    assert message.isprintable()
    return message


def read_lines(path: Path) -> Any:
    """Read results without warnings."""
    return read_results(path, lambda _: None)


@pytest.mark.parametrize("reader", [read_recipe, read_suite])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"x = 1{'0' * 5_000}", "a number has more than 4,300 digits"),
        (f"x = {'[' * 3_000}{']' * 3_000}", "nested too deep"),
        (f"x = {'{a=' * 3_000}", "nested too deep"),
        (f"{'a.' * 30_000}a = 1", "a key has more than 100 parts"),
        (f"""{"'b' . " * 30_000}a = 1""", "a key has more than 100 parts"),
        (f"x = {'[' * 90}{']' * 90}", "unknown key 'x'"),
        (f"{'k' * 5_000} = 1", "unknown key 'kkk"),
        ("\xff", "not a readable TOML"),
    ],
)
def test_toml_of_hostile_shape(tmp_path: Path, reader: Any, content: str, words: str) -> None:
    """Depth, length and width of a table are input errors, found in a moment."""
    begins = time.perf_counter()
    encoded = content.encode("latin-1")
    assert words in refusal(reader, tmp_path / "a.toml", encoded)
    assert time.perf_counter() - begins < 2


@pytest.mark.parametrize(
    "change",
    [
        f"lr = 1{'0' * 4_000}",
        f"warmup = 1{'0' * 4_000}.5e9",
        f'kind = "{"x" * 5_000}"',
        f"betas = {'[' * 90}{']' * 90}",
        f"betas = [{'1, ' * 9_000}]",
    ],
)
def test_values_of_recipes_are_shortened(tmp_path: Path, change: str) -> None:
    """A value of the wrong type or size is shown in part."""
    refusal(read_recipe, tmp_path / "a.toml", f"{RECIPE}[optimiser]\n{change}\n")


def test_sums_of_recipes_are_shortened(tmp_path: Path) -> None:
    """A number that only another setting contradicts is shown in part, too."""
    content = f"{RECIPE}sizes = [20, 30]\n[objective]\nstarts = 1{'0' * 3_000}\n"
    assert "objective.starts is 1000" in refusal(read_recipe, tmp_path / "a.toml", content)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "b"', f'name = "{"b" * 5_000}"\npaper = {{a = 1{"0" * 400}}}'),
        ('name = "b"', f'name = "{"b" * 5_000}"\nsets = "{"c" * 5_000}"'),
        ('name = "b"', f'name = "b"\nsets = "{"[" * 50_000}"'),
        ('name = "a"', f'name = "{"/" * 5_000}"'),
        ('name = "s"', f'seeds = [{"9" * 4_000}, "x"]'),
        ("attempts = 1", f"attempts = 1\naugment = -1{'0' * 4_000}"),
    ],
)
def test_values_of_suites_are_shortened(tmp_path: Path, old: str, new: str) -> None:
    """Names and numbers of a suite are shown in part."""
    assert old in SUITE
    refusal(read_suite, tmp_path / "a.toml", SUITE.replace(old, new))


def test_typed_values_of_hostile_shape_are_words() -> None:
    """`--set name=[[[[...` is a bare word, as everything that is no TOML."""
    for text in ("[" * 3_000, "1" + "0" * 5_000, "{a=" * 3_000):
        assert parse_value(text) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trace", "[" * 50_000 + "]" * 50_000),
        ("trace", "[" * 800 + "]" * 800),
        ("cost", "1" + "0" * 400),
        ("seed", "1" + "0" * 5_000),
        ("cost", "NaN"),
        ("suite", json.dumps(["x" * 5_000])),
        ("x" * 5_000, "1"),
    ],
)
def test_results_of_hostile_shape(tmp_path: Path, name: str, value: str) -> None:
    """Depth and size of a value are input errors with the number of the line."""
    first = GOLDEN.read_text().splitlines()[0]
    facts = {key: each for key, each in json.loads(first).items() if key != name}
    line = f'{json.dumps(facts)[:-1]}, "{name}": {value}}}'
    message = refusal(read_lines, tmp_path / "a.jsonl", f"{first}\n{line}\n{first}\n")
    assert message.startswith("/a.jsonl:2: is not a result line")


def test_names_in_results_are_shortened(tmp_path: Path) -> None:
    """Contradictions between lines are shown in part."""
    first = read_lines(GOLDEN)[0]
    for name in ("suite_hash", "commit", "machine", "set_hash"):
        rows = [asdict(first), asdict(first) | {name: "x\x1b" * 5_000}]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        refusal(read_lines, tmp_path / "a.jsonl", content)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let archives unpack to a megabyte at most."""
    limits = ReadLimits(max_unpacked_bytes=2**20)
    monkeypatch.setattr(results_module, "LIMITS", limits)
    monkeypatch.setattr(npz, "LIMITS", limits)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_packed_bombs(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    """An archive is unpacked up to a limit, also if it has several streams."""
    zeros = pack(bytes(700_000))
    path = tmp_path / f"a.jsonl.{suffix}"
    for content in (pack(bytes(5_000_000)), zeros + zeros):
        message = refusal(read_lines, path, content)
        assert "is larger than 1 MiB, the limit" in message
    assert "its end is missing" in refusal(read_lines, path, zeros[:-9])
    packed = pack(GOLDEN.read_bytes())
    path.write_bytes(packed + bytes(4) + pack(b""))
    assert read_lines(path) == read_lines(GOLDEN)


@pytest.mark.usefixtures("small_limits")
def test_bombs_of_arrays(tmp_path: Path) -> None:
    """Landscapes and references are unpacked up to the same limit."""
    for reader in (read_landscapes, read_references):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("cost.npy", bytes(5_000_000))
        bomb = (tmp_path / "a.npz").read_bytes()
        assert "is larger than 1 MiB" in refusal(reader, tmp_path / "a.npz", bomb)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (((((((((((((",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }",
        "(" * 5_000,
    ],
)
@pytest.mark.parametrize("reader", [read_landscapes, read_references])
def test_arrays_that_claim_anything(tmp_path: Path, reader: Any, header: str) -> None:
    """Shapes beyond memory, Python objects, texts that do not exist and torn headers."""
    text = header.encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\xff" * 64
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("cost.npy", content)
        archive.writestr("axis.npy", content)
        archive.writestr("names", b"no array")
    refusal(reader, tmp_path / "a.npz", (tmp_path / "a.npz").read_bytes())


def test_good_archives_are_read(tmp_path: Path) -> None:
    """A reference file with the columns of any maker is read as before."""
    made_by = np.array(["x", "y"])
    np.savez(tmp_path / "a.npz", cost=np.array([1.0, 2.0]), made_by=made_by)
    assert read_references(tmp_path / "a.npz").cost.tolist() == [1.0, 2.0]
