"""The folder of a run: one process at a time writes there, and what it needs to go on is found.

Standard library only, so that a folder is refused before torch is imported.
"""

import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rhumbline.errors import CheckpointError, InputError, note_once


@dataclass(frozen=True)
class RunFiles:
    """The names of the files in the folder of a run."""

    policy: str = "policy.safetensors"  # the last averaged weights
    best_policy: str = "best.safetensors"  # the averaged weights with the best validation cost
    metrics: str = "metrics.jsonl"
    lock: str = "run.lock"
    state_parts: tuple[str, str] = ("weights", "moments")  # a file each, see `state_file`
    random_state: str = "rng"  # the tensor with the state of the generator, among the weights
    critic_prefix: str = "critic."  # how the names of a critic's weights and moments begin
    state_pattern: str = "resume-*.safetensors"  # of the files of all states
    # Temporary files of checkpoints: a dot, the name, the process that wrote it.
    temporary_form: str = r"\.(policy|best|resume-\d+-[a-z]+)\.safetensors\.\d+\.part"


RUN_FILES = RunFiles()


@contextmanager
def lock_folder(folder: Path) -> Generator[None, None, None]:
    """Create a folder if it is missing, and keep other runs out while the context lasts.

    The kernel releases the lock when the process ends, however that happens; the file stays and
    does no harm. What killed runs left half written is removed.
    """
    path = folder / RUN_FILES.lock
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        words = f"nothing can be written there: {reason}; choose another folder"
        raise InputError(f"{folder}: {words}") from error
    with file:
        if take_lock(file, folder):
            write_owner(file)
            remove_parts(folder)
        yield


def take_lock(file: TextIO, folder: Path) -> bool:
    """Lock an open file; return False, after a note, where the file system has no locks."""
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = read_owner(file)
        remedy = "wait until it ends, stop it, or choose another --out"
        raise InputError(f"{folder}: {owner} trains there; {remedy}") from error
    except (ImportError, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no fcntl"
        danger = "make sure that no other run writes there, or one of them loses its state"
        note_once(f"{folder}: cannot be locked on this system ({reason}); {danger}")
        return False
    return True


def read_owner(file: TextIO) -> str:
    """Return who holds a lock, in words."""
    with suppress(OSError):
        file.seek(0)
        match = re.fullmatch(r"(\d{1,20}) (\S{1,255})\n", file.read(300))
        if match:
            return f"process {match[1]} on {match[2]}"
    return "another process"


def write_owner(file: TextIO) -> None:
    """Write into a lock file which process holds it; a full disk is no reason to stop here."""
    text = f"{os.getpid()} {socket.gethostname()}\n"
    with suppress(OSError):
        file.truncate(0)
        # Past the buffer of the file, which would fail again when the file is closed.
        os.pwrite(file.fileno(), text.encode(), 0)


def remove_parts(folder: Path) -> None:
    """Remove the temporary files of runs that are dead, as all others are under the lock."""
    for path in folder.glob(".*.part"):
        if re.fullmatch(RUN_FILES.temporary_form, path.name):
            path.unlink(missing_ok=True)


def state_file(folder: Path, update: int, part: str) -> Path:
    """Return the path of a part of the state after some update."""
    return folder / f"resume-{update:08d}-{part}.safetensors"


def complete_updates(folder: Path) -> list[int]:
    """Return the updates whose state is complete in a folder, oldest first."""
    updates = set[int]()
    for path in folder.glob(RUN_FILES.state_pattern):
        match = re.match(r"resume-(\d{1,18})-", path.name)
        if match:
            updates.add(int(match[1]))
    return [update for update in sorted(updates) if is_complete(folder, update)]


def newest_update(folder: Path) -> int:
    """Return the last update whose state is complete in a folder."""
    updates = complete_updates(folder)
    if not updates:
        raise CheckpointError(
            f"{folder}: no training to resume (no complete resume-*.safetensors pair)"
        )
    return updates[-1]


def is_complete(folder: Path, update: int) -> bool:
    """Return whether all parts of the state after some update exist."""
    files = [state_file(folder, update, part) for part in RUN_FILES.state_parts]
    return all(file.is_file() for file in files)


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds something that a new run would overwrite."""
    return (folder / RUN_FILES.policy).exists() or bool(complete_updates(folder))


def remedy_for_full_disk(folder: Path) -> str:
    """Say what a run that could not write its files left, and how to go on."""
    updates = complete_updates(folder)
    if not updates:
        return "nothing is saved yet: make room and start the training again"
    return f"the state of update {updates[-1]} is intact: make room, then --resume {folder}"


def keep_earlier_files(folder: Path) -> Path | None:
    """Move the files of a run that cannot be resumed to a subfolder, and return it.

    Returns None if there are none.
    """
    names = (RUN_FILES.policy, RUN_FILES.best_policy, RUN_FILES.metrics)
    files = [folder / name for name in names if (folder / name).exists()]
    files += sorted(folder.glob(RUN_FILES.state_pattern))
    if not files:
        return None
    number = 1
    while (folder / f"earlier-{number}").exists():
        number += 1
    place = folder / f"earlier-{number}"
    try:
        place.mkdir()
        for path in files:
            path.rename(place / path.name)
    except OSError as error:
        raise InputError(f"{place}: cannot be written ({error.strerror})") from error
    return place
