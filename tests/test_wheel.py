"""Wheels and the sdist: built, installed into an empty environment, and used far from the clone."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rhumbline
from rhumbline.checkpoint.shipped import shipped_checkpoints

pytest.importorskip("hatchling", reason="builds the wheel; it is in the extra dev")

ROOT = Path(__file__).parents[1]
RESEARCH = ROOT / "packages" / "research-weights"
MAX_BYTES = 15_000_000  # of a wheel or an sdist, most of them weights

pytestmark = pytest.mark.slow


def run(*words: object, place: Path) -> str:
    """Run a command without this process's paths; return what it prints."""
    command = [str(word) for word in words]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(target: str, project: Path, folder: Path) -> Path:
    """Build a wheel or an sdist of a project; return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target]
    subprocess.run(
        [*command, "--directory", str(folder)], cwd=project, check=True, capture_output=True
    )
    (found,) = folder.iterdir()
    return found


def install(wheel: Path, environment: Path) -> None:
    """Install a wheel into an environment, with no index at hand."""
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    run(*pip, "--quiet", "--no-deps", "--no-index", wheel, place=environment)


def solve_example(environment: Path, place: Path, *options: str) -> dict[str, Any]:
    """Solve an example with the command of an environment; return its object of JSON."""
    shutil.copy(ROOT / "examples" / "harbour100.tsp", place)
    fixed = ("--attempts", "8", "--device", "cpu", "--json", "--quiet")
    rhumb = environment / "bin" / "rhumb"
    return json.loads(run(rhumb, "solve", "harbour100.tsp", *fixed, *options, place=place))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it without its dependencies; those of this environment are put behind it."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, place=folder.parent)
    install(wheel, folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = [place for place in sys.path if place.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n")
    return folder


def test_the_wheel_is_whole(wheel: Path) -> None:
    """It holds the weights, the page of the service and the mark for type checkers, and no more
    than it should.
    """
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("weights/*.safetensors", "serve/page/*"):
        for path in (ROOT / "rhumbline").glob(folder):
            assert path.relative_to(ROOT).as_posix() in names
    assert "rhumbline/py.typed" in names
    assert all(name.startswith("rhumbline") for name in names)
    assert wheel.stat().st_size < MAX_BYTES


def test_it_solves_outside_the_repository(environment: Path, tmp_path: Path) -> None:
    """The command is installed, is the one of the wheel, and returns a verified plan."""
    rhumb = environment / "bin" / "rhumb"
    assert run(rhumb, "--version", place=tmp_path) == f"rhumbline {rhumbline.__version__}\n"
    python = environment / "bin" / "python"
    home = run(python, "-c", "import rhumbline; print(rhumbline.__file__)", place=tmp_path)
    assert home.startswith(str(environment))
    result = solve_example(environment, tmp_path, "--output", "plans")
    assert result["verified"]
    assert (tmp_path / "plans" / "harbour100.tour").is_file()


def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """A wheel that is built from the sdist has the same files; the sdist is as small."""
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    assert sdist.stat().st_size < MAX_BYTES
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    rebuilt = build("wheel", source, tmp_path / "rebuilt")
    assert rebuilt.name == wheel.name
    contents = [
        {member.filename: member.CRC for member in zipfile.ZipFile(path).infolist()}
        for path in (wheel, rebuilt)
    ]
    assert contents[0] == contents[1]


def test_research_weights_are_a_wheel_of_their_own(environment: Path, tmp_path: Path) -> None:
    """Without it, the message names the extra; with it, its policies solve."""
    options = ("--policy", "tsp100-single", "--engine", "torch", "--then", "none")
    with pytest.raises(AssertionError, match=r"pip install 'rhumbline\[research\]'"):
        solve_example(environment, tmp_path, *options)
    added = build("wheel", RESEARCH, tmp_path / "dist")
    assert added.stat().st_size < MAX_BYTES
    install(added, environment)
    result = solve_example(environment, tmp_path, *options)
    assert result["verified"]
    listed = json.loads(run(environment / "bin" / "rhumb", "info", "--json", place=tmp_path))
    names = [checkpoint["name"] for checkpoint in listed["checkpoints"]]
    assert names == list(shipped_checkpoints())
