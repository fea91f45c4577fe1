"""The CPU kernel compiled ahead by another process, while this one imports torch. Standard library
only.

Otherwise the first solve on a machine waits for the compiler. Nothing but time depends on it: who
needs a kernel waits for the process that makes it, and compiles it himself if it is not stored
then, whatever the reason.
"""

import atexit
import os
import sys
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Thread

HERE = Path(__file__).parent
LOAD = Path("/proc/loadavg")  # its fourth field: how many run / how many there are
SOURCES = ("../../__init__.py", "simd.py", "kernel.py", "../../../philox.py")
PATIENCE = 20.0  # seconds: ten times what it takes on two free cores

_waiting: dict[str, Thread] = {}  # for the process that compiles a problem's kernel


@cache
def cache_name(problem: str) -> str:
    """The name of a problem's kernel as compiled from these sources."""
    return f"{problem}_{zlib.crc32(b''.join((HERE / name).read_bytes() for name in SOURCES)):08x}"


def start_compiling(problem: str) -> None:
    """Have a kernel compiled by another process, if it is not stored and a core is free for
    that.
    """
    if (
        problem in _waiting
        or find_spec("numba") is None
        or is_stored(problem)
        or not has_spare_core()
    ):
        return
    work = f"from rhumbline.kernels.numba.rollout.cache import made; made({problem == 'cvrp'}, cache=True)"
    # at once: taking numba down takes time
    code = f"import os, sys; sys.path[:] = {sys.path!r}; {work}; os._exit(0)"
    try:
        process = Popen([sys.executable, "-c", code], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:
        return
    _waiting[problem] = Thread(
        target=process.wait, daemon=True
    )  # so that it is no zombie, even if nobody needs it
    _waiting[problem].start()
    atexit.register(stop_compiling, process, _waiting[problem])


def has_spare_core() -> bool:
    """Whether fewer processes run at this moment than there are cores; this one alone where
    nobody counts them.
    """
    try:
        running = int(LOAD.read_text().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        running = 1
    return running < (os.cpu_count() or 1)  # else the two would only be in each other's way


def stop_compiling(process: "Popen[bytes]", waiting: Thread) -> None:
    """End a process: it must not outlive the command."""
    process.kill()
    waiting.join()


def wait_for_kernel(problem: str) -> None:
    """Wait until nobody is compiling a kernel ahead."""
    if problem in _waiting:
        _waiting[problem].join(PATIENCE)


def is_stored(problem: str) -> bool:
    """Whether a kernel is where numba stores it. One for another processor or numba counts too:
    a rare loss of time.
    """
    return any(any(folder.rglob(f"*{cache_name(problem)}*.nbi")) for folder in cache_folders())


def cache_folders() -> list[Path]:
    """Where numba stores what it has compiled: where it is told to, next to the source, or with
    the user's caches.
    """
    if told := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(told)]
    caches = (os.environ.get("XDG_CACHE_HOME") or "~/.cache", "~/Library/Caches")
    return [HERE / "__pycache__", *(Path(os.path.expanduser(place)) / "numba" for place in caches)]
