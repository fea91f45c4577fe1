"""Compilation of a CPU kernel in another process while this one imports torch.

Otherwise the first solve on a machine waits for the compiler. Only time depends on it: a caller
that needs the kernel waits for the process, and compiles it itself if it is not stored by then.
This module imports nothing but the standard library.
"""

import atexit
import os
import sys
import time
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Thread

HERE = Path(__file__).parent


@dataclass(frozen=True)
class KernelFiles:
    """Where a kernel is defined, and the files of all that is compiled into it."""

    module: str  # has `define_kernel` and `SIGNATURE`
    sources: tuple[str, ...]
    needed_later: str | None = (
        None  # another kernel, which the same process compiles after this one
    )


# `kernels/__init__` has the numbers of heads.
ROUTING = KernelFiles(
    "rhumbline.kernels.numba.rollout.kernel",
    ("../../__init__.py", "simd.py", "kernel.py", "../../../philox.py"),
)
JOB_SHOP = KernelFiles(
    "rhumbline.kernels.numba.job_shop.kernel",
    (
        *ROUTING.sources,
        "../job_shop/simd.py",
        "../job_shop/network.py",
        "../job_shop/rules.py",
        "../job_shop/kernel.py",
    ),
    needed_later="schedule_scores",
)
SHOP_SCORES = KernelFiles(
    "rhumbline.kernels.numba.job_shop.scores",
    (*JOB_SHOP.sources, "../job_shop/gradients.py", "../job_shop/scores.py"),
)
KERNELS = {
    "tours": ROUTING,
    "routes": ROUTING,
    "schedules": JOB_SHOP,
    "schedule_scores": SHOP_SCORES,
}


@dataclass(frozen=True)
class PrecompileTuning:
    """Settings of precompilation."""

    load_file: Path = Path("/proc/loadavg")  # its fourth field: running processes / all processes
    max_wait_seconds: float = 20.0  # several times what it takes on two free cores
    seconds_between_looks: float = 0.05


TUNING = PrecompileTuning()

_waiting: dict[str, Thread] = {}  # for each kernel, the thread that waits for its compiler
_processes: list["Popen[bytes]"] = []


@cache
def cache_name(kernel: str) -> str:
    """Return the name of a kernel on disk, which changes with any of its sources."""
    checksum = 0
    for name in KERNELS[kernel].sources:
        source = (HERE / name).read_bytes()
        checksum = zlib.crc32(source, checksum)
    return f"{kernel}_{checksum:08x}"


def start_compiling(kernel: str) -> None:
    """Start a process that compiles a kernel, unless it is stored or no core is free for that."""
    if kernel in _waiting or find_spec("numba") is None:
        return
    if is_stored(kernel) or not has_spare_core():
        return
    module = "rhumbline.kernels.numba.rollout.cache"
    work = f"from {module} import compile_kernel; compile_kernel({kernel!r}, cache=True)"
    later = KERNELS[kernel].needed_later
    if later is not None:
        work += f"; compile_kernel({later!r}, cache=True)"
    # The process ends at once: an orderly end of numba takes time.
    code = f"import os, sys; sys.path[:] = {sys.path!r}; {work}; os._exit(0)"
    command = [sys.executable, "-c", code]
    try:
        process = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:
        return
    # The thread reaps the process, also if no caller ever waits for the kernel.
    _waiting[kernel] = Thread(target=process.wait, daemon=True)
    _waiting[kernel].start()
    if later is not None:
        _waiting[later] = _waiting[kernel]
    _processes.append(process)


def has_spare_core() -> bool:
    """Return whether fewer processes run at this moment than there are cores.

    On a full machine, compiler and solver would only slow each other down. If the load is unknown,
    this process counts alone.
    """
    try:
        fields = TUNING.load_file.read_text().split()
        running = int(fields[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        running = 1
    return running < (os.cpu_count() or 1)


@atexit.register
def stop_compiling() -> None:
    """End all compilers: they must not outlive the command."""
    for process in _processes:
        process.kill()
    for waiting in _waiting.values():
        waiting.join()


def wait_for_kernel(kernel: str) -> None:
    """Wait until no other process is compiling a kernel.

    A process that goes on to another kernel is not waited for.
    """
    if kernel not in _waiting:
        return
    end = time.monotonic() + TUNING.max_wait_seconds
    while _waiting[kernel].is_alive() and time.monotonic() < end:
        _waiting[kernel].join(TUNING.seconds_between_looks)
        if KERNELS[kernel].needed_later and is_stored(kernel):
            return


def is_stored(kernel: str) -> bool:
    """Return whether numba's cache has a kernel of this name.

    One for another processor or another numba counts too, which costs time in rare cases.
    """
    name = cache_name(kernel)
    pattern = f"*{name}*.nbi"
    found = [any(folder.rglob(pattern)) for folder in cache_folders()]
    return any(found)


def cache_folders() -> list[Path]:
    """Return where numba may store what it has compiled.

    That is where the environment says, or else next to the source or among the user's caches.
    """
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        return [Path(configured)]
    linux = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folders = [HERE / "__pycache__"]
    for user_cache in (linux, "~/Library/Caches"):
        place = os.path.expanduser(user_cache)
        folders.append(Path(place) / "numba")
    return folders
