"""The folder of a run: one run at a time, only states that belong together, and `resume="auto"`."""

import errno
import fcntl
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from small import small_config

from rhumbline.checkpoint import load_with_facts, read_tensor_file, tensor_file, write_tensor_file
from rhumbline.errors import CheckpointError, InputError, note_once
from rhumbline.training.config import TrainConfig
from rhumbline.training.loop import train
from rhumbline.training.run_folder import RUN_FILES, lock_folder, state_file

CPU = torch.device("cpu")
CONFIG = small_config("pomo", updates=2)


@pytest.fixture(autouse=True)
def forget_notes() -> None:
    note_once.cache_clear()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two updates once; tests work on copies."""
    folder = tmp_path_factory.mktemp("run")
    list(train(CONFIG, device=CPU, out=folder))
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """Return a folder with a run of two updates, for the test alone."""
    folder = tmp_path / "run"
    folder.mkdir()
    for path in finished.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def updates(out: Path, resume: Any = None, config: TrainConfig | None = None) -> list[int]:
    """Train to three updates and return those that were reported."""
    config = config or small_config("pomo", updates=3)
    return [report.update for report in train(config, device=CPU, out=out, resume=resume)]


# --- one run at a time


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    """The error names the process that trains there, and the first run is not disturbed."""
    first = train(CONFIG, device=CPU, out=tmp_path)
    next(first)
    words = rf"{tmp_path}: process {os.getpid()} on \S+ trains there; wait until it ends, stop it,"
    for resume in (None, tmp_path, "auto"):
        with pytest.raises(InputError, match=words):
            next(train(CONFIG, device=CPU, out=tmp_path, resume=resume))
    assert [report.update for report in first] == [2]
    assert updates(tmp_path, tmp_path) == [3]


@pytest.mark.parametrize("owner", [b"", b"4194304999 gone\n", b"\xff" * 9999, b"x"])
def test_a_lock_file_that_was_left_over_is_no_lock(tmp_path: Path, owner: bytes) -> None:
    """Only the kernel's lock counts; whatever a killed run left in the file is replaced."""
    (tmp_path / RUN_FILES.lock).write_bytes(owner)
    with lock_folder(tmp_path):
        assert (tmp_path / RUN_FILES.lock).read_text().startswith(f"{os.getpid()} ")


def test_an_odd_lock_file_is_not_repeated(tmp_path: Path) -> None:
    """Its text is repeated only if it has the form that we write."""
    with lock_folder(tmp_path):
        (tmp_path / RUN_FILES.lock).write_bytes(b"\x1b[31m" * 1000)
        expected = re.escape(f"{tmp_path}: another process trains there")
        with pytest.raises(InputError, match=expected), lock_folder(tmp_path):
            pass


def test_a_disk_without_room_for_the_owner_locks_all_the_same(tmp_path: Path) -> None:
    """A disk that is full costs the note of the owner only, also when the lock is released."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        with lock_folder(tmp_path), pytest.raises(InputError, match="another process trains"):
            lock_folder(tmp_path).__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some network file systems have none: a note says so, and temporary files stay."""
    part = tmp_path / ".policy.safetensors.7.part"
    part.touch()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_folder(tmp_path):
        pass
    said = capsys.readouterr().err
    assert f"{tmp_path}: cannot be locked on this system (No locks available)" in said
    assert part.exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The reason of the system is in the message."""
    (tmp_path / "file").touch()
    words = "nothing can be written there: .*; choose another folder"
    with pytest.raises(InputError, match=words), lock_folder(tmp_path / "file"):
        pass


def test_temporary_files_of_killed_runs_are_removed(run: Path) -> None:
    """Other files stay, whatever they are called."""
    parts = [
        f".{name}.safetensors.41.part" for name in ("policy", "best", "resume-00000002-moments")
    ]
    others = [".mine.part", ".other.safetensors.41.part", "policy.safetensors.41.part"]
    for name in (*parts, *others):
        (run / name).touch()
    updates(run, run)
    assert not any((run / name).exists() for name in parts)
    assert all((run / name).exists() for name in others)


# --- states that do not belong together


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Write a file again after a change of its tensors and header."""
    tensors, header = read_tensor_file(path)
    tensors = {name: x.clone() for name, x in tensors.items()}
    change(tensors, header)
    write_tensor_file(path, tensors, header)


def test_moments_of_another_run_are_refused(run: Path, tmp_path: Path) -> None:
    """The same recipe and seed, the same update, but another run."""
    other = tmp_path / "other"
    list(train(CONFIG, device=CPU, out=other))
    state_file(other, 2, "moments").replace(state_file(run, 2, "moments"))
    words = r"resume-00000002-moments\.safetensors does not belong to resume-00000002-weights"
    with pytest.raises(CheckpointError, match=words):
        updates(run, run)


DAMAGE = {
    "rng": ("weights", lambda t, h: t.pop("rng"), "'rng' with the random state is missing"),
    "rng-short": ("weights", lambda t, h: t.update(rng=t["rng"][:9]), "does not fit"),
    "rng-type": ("weights", lambda t, h: t.update(rng=torch.zeros(3)), "does not fit"),
    "nan": ("weights", lambda t, h: t["raw.decoder.key"].fill_(torch.nan), "raw.decoder.key"),
    "inf": ("moments", lambda t, h: t["decoder.key.exp_avg"].fill_(torch.inf), "decoder.key.exp"),
    "weight": ("weights", lambda t, h: t.pop("average.decoder.key"), "'decoder.key' is missing"),
    "moment": ("moments", lambda t, h: t.pop("decoder.key.step"), "decoder.key.step' is missing"),
    "shape": ("moments", lambda t, h: t.update({"decoder.key.exp_avg": torch.zeros(3)}), "shape"),
    "unknown": ("moments", lambda t, h: t.update(x=torch.zeros(3)), "belong to none"),
    "update": ("both", lambda t, h: h.update(update="2"), "says that its update is '2'"),
    "other-update": ("both", lambda t, h: h.update(update=7), "says that its update is 7"),
    "best": ("both", lambda t, h: h.update(best=[]), r"says that its best cost is \[\]"),
    "config": ("both", lambda t, h: h.update(config=[]), "has no recipe"),
    "setting": ("both", lambda t, h: h["config"].update(batch="x"), "batch is 'x'"),
    "key": ("both", lambda t, h: h["config"].update({"y" * 9999: 1}), "unknown key"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_states_are_checkpoint_errors(run: Path, name: str) -> None:
    """The error names the folder or the file and the fault; `auto` does not hide a wrong recipe."""
    part, change, words = DAMAGE[name]
    for each in ("weights", "moments") if part == "both" else (part,):
        rewrite(state_file(run, 2, each), change)
    with pytest.raises(CheckpointError, match=words) as caught:
        updates(run, run)
    assert str(caught.value).startswith(str(run))
    assert len(str(caught.value)) < 700


def test_states_of_earlier_versions_are_resumed(run: Path) -> None:
    """They have no identity and no validation costs; the policies are left as they are."""
    for part in ("weights", "moments"):
        rewrite(state_file(run, 2, part), forget_new_entries)
    (run / "policy.safetensors").unlink()
    resumed = train(small_config("pomo", updates=3), device=CPU, out=run, resume=run)
    assert next(resumed).update == 3


def forget_new_entries(tensors: dict[str, Any], header: dict[str, Any]) -> None:
    for name in ("save", "validation", "best_update"):
        del header[name]


# --- resume="auto"


def test_auto_begins_where_there_is_nothing(tmp_path: Path) -> None:
    """The folder need not exist."""
    assert updates(tmp_path / "new", "auto") == [1, 2, 3]


def test_auto_resumes_what_is_sound(run: Path, tmp_path: Path) -> None:
    """The weights are those of a run that was not interrupted, bit for bit."""
    assert updates(run, "auto") == [3]
    whole = tmp_path / "whole"
    updates(whole)
    for part in ("weights", "moments"):
        one, two = (read_tensor_file(state_file(folder, 3, part))[0] for folder in (run, whole))
        assert one.keys() == two.keys()
        assert all(torch.equal(x, two[name]) for name, x in one.items())
    assert updates(run, "auto") == []


def test_auto_begins_again_without_a_sound_state(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the earlier run are kept, and notes say why and where."""
    before = {path.name: path.read_bytes() for path in run.glob("*.safetensors")}
    damaged = state_file(run, 2, "moments")
    damaged.write_bytes(damaged.read_bytes()[:-5])
    assert updates(run, "auto") == [1, 2, 3]
    said = capsys.readouterr().err
    assert f"{damaged}: not a readable checkpoint" in said
    assert f"no sound state to resume; its files are kept in {run / 'earlier-1'}" in said
    for name in ("policy.safetensors", "best.safetensors"):
        assert (run / "earlier-1" / name).read_bytes() == before[name]


def test_auto_takes_the_newest_sound_state(run: Path, finished: Path) -> None:
    """An older pair counts if the newest cannot be read."""
    updates(run, run)
    for part in ("weights", "moments"):
        path = state_file(finished, 2, part)
        (run / path.name).write_bytes(path.read_bytes())
    state_file(run, 3, "weights").write_bytes(b"")
    assert updates(run, "auto") == [3]


def test_auto_refuses_another_recipe(run: Path) -> None:
    """A state of other settings is no reason to begin again."""
    with pytest.raises(CheckpointError, match="was trained with other settings of batch"):
        updates(run, "auto", small_config("pomo", updates=3, batch=8))


# --- full disks


@pytest.mark.parametrize("full", range(4))
def test_a_full_disk_at_the_first_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    """Nothing is left that would keep the run from starting, plainly or with `auto`."""
    fill_disk(monkeypatch, full)
    words = "No space left.*nothing is saved yet: make room and start the training again"
    with pytest.raises(InputError, match=words) as caught:
        updates(tmp_path)
    assert caught.value.exit_code == 3
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == [RUN_FILES.lock]
    assert updates(tmp_path, "auto") == [1, 2, 3]


@pytest.mark.parametrize("full", range(3))
def test_a_full_disk_later(run: Path, monkeypatch: pytest.MonkeyPatch, full: int) -> None:
    """The last good state stays, all of it, and is resumed."""
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    fill_disk(monkeypatch, full)
    words = rf"the state of update 2 is intact: make room, then --resume {run}"
    with pytest.raises(InputError, match=words):
        updates(run, run)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert load_with_facts(run / "policy.safetensors")[1].updates == 2
    assert updates(run, run) == [3]


def fill_disk(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let `count` files be written, and fail on the next as safetensors does."""
    written: list[object] = []
    real = tensor_file.save_file

    def write(tensors: dict[str, Any], path: Path, metadata: dict[str, str]) -> None:
        if len(written) == count:
            path.write_bytes(b"a part")
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        written.append(path)
        real(tensors, path, metadata=metadata)

    monkeypatch.setattr(tensor_file, "save_file", write)
