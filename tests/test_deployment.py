"""Dockerfiles and workflows, without running them: what they copy, call and install exists."""

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from rhumbline.cli.app import app

yaml = pytest.importorskip("yaml", reason="reads workflows; it is in the extra dev")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INSTRUCTIONS = {
    *("FROM", "ARG", "ENV", "RUN", "COPY"),
    *("USER", "WORKDIR", "EXPOSE", "ENTRYPOINT", "CMD"),
}


def name_of(path: Path) -> str:
    return path.name


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = text.replace("\\\n", " ").splitlines()
    words = [row.split(maxsplit=1) for row in rows if row.strip()]
    return [(first, rest) for first, rest in words]


def arguments(path: Path, name: str) -> list[str]:
    return [rest for first, rest in instructions(path) if first == name]


# --- Dockerfiles


def test_there_is_one_for_a_cpu_and_one_for_a_gpu() -> None:
    """So that the tests below have something to read."""
    assert [path.name for path in DOCKERFILES] == ["cpu.Dockerfile", "cuda.Dockerfile"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_instructions_are_known_and_begin_with_an_image(path: Path) -> None:
    """Each line is an instruction; the first names an image with a version."""
    found = instructions(path)
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert re.fullmatch(r"FROM [\w/.-]+:[\w.-]+", " ".join(found[0]))


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_what_is_copied_exists_and_is_sent(path: Path) -> None:
    """Sources lie in the repository, and `.dockerignore` lets them through."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {row[1:] for row in ignored if row.startswith("!")}
    sources = {word for copy in arguments(path, "COPY") for word in copy.split()[:-1]}
    assert sources == sent
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_what_the_build_reads_is_copied(path: Path) -> None:
    """The files that pyproject.toml names, and the pins that pip is given."""
    copied = {word for copy in arguments(path, "COPY") for word in copy.split()[:-1]}
    assert {PROJECT["readme"], *PROJECT["license-files"], "rhumbline", "constraints.txt"} <= copied


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_extras_and_entry_point_are_ours(path: Path) -> None:
    """pip is given extras that there are, and the container starts a script of the project."""
    extras = re.findall(r"'\.\[([\w,]+)\]'", " ".join(arguments(path, "RUN")))
    assert len(extras) == 1
    assert set(extras[0].split(",")) <= PROJECT["optional-dependencies"].keys()
    (entry,) = arguments(path, "ENTRYPOINT")
    assert entry in [f'["{script}"]' for script in PROJECT["scripts"]]


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_commands_for_users_parse(path: Path) -> None:
    """`docker run` in the comments, and the default command, are commands of `rhumb`."""
    text = path.read_text(encoding="utf-8")
    runs = re.findall(r"docker run .* (?:rhumbline|rhumbline-cuda) (.+)", text)
    (default,) = arguments(path, "CMD")
    group = get_command(app)
    assert len(runs) >= 2
    for words in [run.split() for run in runs] + [yaml.safe_load(default)]:
        command = group.commands[words[0]]
        command.make_context(words[0], words[1:])
    assert f"docker build -f docker/{path.name} " in text


# --- workflows


def read_workflow(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in read_workflow(path)["jobs"].values():
        yield from job["steps"]


def test_there_are_three() -> None:
    """Tests, the site, and releases."""
    assert [path.stem for path in WORKFLOWS] == ["docs", "publish", "tests"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_actions_are_pinned_by_major_version(path: Path) -> None:
    """A step uses an action at `v5` or `release/v1`, or runs something; never both."""
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_what_they_run_exists(path: Path) -> None:
    """Targets of make are in the Makefile, programs and tests in the repository."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    runs = [step["run"] for step in steps(path) if "run" in step]
    assert runs
    for run in runs:
        words = run.split()
        if words[0] == "make":
            called = [word for word in words[1:] if "=" not in word]
            assert set(called) <= targets
        for word in words:
            if word.startswith((".ci/", "tests/")):
                assert (ROOT / word).is_file()


def test_each_python_is_tested() -> None:
    """The matrix has the versions that the package says it runs on."""
    (matrix,) = (
        job["strategy"]["matrix"]["python"]
        for job in read_workflow(ROOT / ".github" / "workflows" / "tests.yml")["jobs"].values()
        if "strategy" in job
    )
    prefix = "Programming Language :: Python :: 3."
    promised = [text for text in PROJECT["classifiers"] if fnmatch(text, prefix + "*")]
    assert [f"3.{text.removeprefix(prefix)}" for text in promised] == matrix
    assert PROJECT["requires-python"] == f">={matrix[0]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_rights_are_given_to_single_jobs(path: Path) -> None:
    """A workflow may read the code. Only jobs that deploy may ask for a token, and they run no
    code of the repository.
    """
    workflow = read_workflow(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        if "permissions" in job:
            assert "environment" in job
            assert not any("run" in step for step in job["steps"])


def test_releases_need_no_password() -> None:
    """Publishing is trusted by the index: a token of the job, no secret, and only after tests."""
    path = ROOT / ".github" / "workflows" / "publish.yml"
    publish = read_workflow(path)["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert "secrets." not in path.read_text(encoding="utf-8")
