"""The commit of a result is that of the code that ran."""

import os
from pathlib import Path

import pytest

from rhumbline import __version__
from rhumbline.bench import provenance


def test_without_a_checkout_the_sources_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package has no commit, but different code has a different digest."""
    monkeypatch.setattr(provenance, "run_git", lambda *words: None)
    assert (
        provenance.current_commit()
        == f"version {__version__}, sources {provenance.source_digest(provenance.PACKAGE)}"
    )


def test_a_repository_around_an_installed_package_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If a user's project contains an environment with this package, its commit is not ours."""
    monkeypatch.setattr(
        provenance,
        "run_git",
        lambda *words: str(tmp_path) if "--show-toplevel" in words else "c0ffee",
    )
    assert provenance.current_commit().startswith("version")


@pytest.mark.parametrize(("status", "marked"), [("", False), (" M rhumbline/x.py", True)])
def test_changes_to_a_checkout_are_marked(
    monkeypatch: pytest.MonkeyPatch, status: str, marked: bool
) -> None:
    """A clean checkout is its commit. A changed one has a digest as well."""
    answers = {
        "--show-toplevel": str(provenance.PACKAGE.parent),
        "HEAD": "c0ffee",
        "--porcelain": status,
    }
    monkeypatch.setattr(
        provenance,
        "run_git",
        lambda *words: next(a for word, a in answers.items() if word in words),
    )
    assert (
        provenance.current_commit()
        == "c0ffee" + f", changed sources {provenance.source_digest(provenance.PACKAGE)}" * marked
    )


def test_every_file_counts(tmp_path: Path) -> None:
    """The digest changes with the text and with the name of any file."""
    (tmp_path / "a.py").write_text("1")
    marks = {provenance.source_digest(tmp_path)}
    (tmp_path / "a.py").write_text("2")
    marks.add(provenance.source_digest(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    marks.add(provenance.source_digest(tmp_path))
    assert len(marks) == 3


def test_a_status_leaves_the_index_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Git would refresh it, and leave a lock behind if it is killed meanwhile."""
    file = tmp_path / "a.py"
    file.write_text("1")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    assert provenance.run_git("init") is not None
    assert provenance.run_git("add", "a.py") is not None
    os.utime(file, (0, 0))  # the index has another time
    index = tmp_path / ".git" / "index"
    before = index.read_bytes()
    assert provenance.run_git("status", "--porcelain") == "A  a.py"
    assert index.read_bytes() == before
