"""Writing whole files."""

import os
import stat
from pathlib import Path

import pytest

from rhumbline.errors import InputError
from rhumbline.formats.safe_io import write_text


def test_a_new_text_replaces_the_old(tmp_path: Path) -> None:
    """The file holds the new text alone, as UTF-8, and nothing else is left in the folder."""
    path = tmp_path / "a.txt"
    write_text(path, "a much longer first text\n")
    write_text(path, "Städte\n")
    assert path.read_bytes() == b"St\xc3\xa4dte\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_written_file_has_usual_permissions(tmp_path: Path) -> None:
    """The permissions follow the user's umask, as for a file opened directly."""
    write_text(tmp_path / "a.txt", "")
    (tmp_path / "b.txt").touch()
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "b.txt").stat().st_mode
    )


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """Pipes and devices (such as /dev/stdout) are refused and stay what they are."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        InputError, match=r"pipe: cannot be written: it is not a regular file; choose another place"
    ):
        write_text(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


def test_a_read_only_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that its owner protects is refused, though renaming would not ask."""
    (tmp_path / "a.txt").write_text("old")
    monkeypatch.setattr(
        os, "access", lambda path, mode: False
    )  # the tests may run as root, who may write anything
    with pytest.raises(InputError, match=r"a\.txt: cannot be written: it is marked read-only"):
        write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C passes through and the temporary file goes."""

    def interrupt(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "a.txt", "new")
    assert not list(tmp_path.iterdir())


def test_odd_characters_do_not_stop_a_write(tmp_path: Path) -> None:
    """Lone surrogates, which names of undecodable files contain, are replaced."""
    write_text(tmp_path / "a.txt", "name \udcff")
    assert (tmp_path / "a.txt").read_text() == "name ?"
