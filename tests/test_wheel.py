"""A wheel, built, installed into an empty environment, and used far from the repository."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rhumbline

pytest.importorskip("hatchling", reason="builds the wheel; it is in the extra dev")

ROOT = Path(__file__).parents[1]
MAX_BYTES = 40_000_000  # of the wheel, most of them weights

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it without its dependencies; those of this environment are put behind it."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, place=folder.parent)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    run(*pip, "--quiet", "--no-deps", "--no-index", wheel, place=folder.parent)
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
    shutil.copy(ROOT / "examples" / "harbour100.tsp", tmp_path)
    options = ("--attempts", 8, "--device", "cpu", "--json", "--quiet", "--output", "plans")
    result = json.loads(run(rhumb, "solve", "harbour100.tsp", *options, place=tmp_path))
    assert result["verified"]
    assert (tmp_path / "plans" / "harbour100.tour").is_file()
