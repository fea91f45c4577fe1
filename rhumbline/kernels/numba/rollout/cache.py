"""The CPU kernel as numba makes it, or finds it stored. Without torch: another process may
compile it ahead.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
from numba import cfunc, config
from numba.core.compiler_lock import global_compiler_lock

from rhumbline.errors import MissingExtra
from rhumbline.kernels import pause_garbage_collection
from rhumbline.kernels.numba.rollout import precompile
from rhumbline.kernels.numba.rollout.kernel import SIGNATURE, tiles

OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "_nrt": False,
}  # no objects, so no reference counts


@cache
def load_rollout_kernel(vehicles: bool) -> Any:
    """The compiled kernel: from the cache on disk, or made now and stored there if that is
    possible.
    """
    precompile.wait_for_kernel("cvrp" if vehicles else "tsp")
    try:
        return compile_kernel(vehicles, cache=True)
    # no folder can be written, the disk is full, a stored file is damaged: for this process only
    except Exception:
        return compile_without_cache(vehicles)


def compile_without_cache(vehicles: bool) -> Any:
    """The kernel compiled without the cache."""
    try:
        return compile_kernel(vehicles, cache=False)
    except Exception as error:  # a numba that has changed what this module builds on
        words = (str(error) or type(error).__name__).splitlines()[0]
        raise MissingExtra(
            f"numba {numba.__version__} cannot compile the fused engine ({words}). Use engine torch"
        ) from error


def compile_kernel(vehicles: bool, cache: bool) -> Any:
    """What numba makes of the source, or finds in the cache."""
    with global_compiler_lock, disable_loop_vectoriser(), pause_garbage_collection():
        return cfunc(SIGNATURE, cache=cache, **OPTIONS)(tiles(vehicles))


@contextmanager
def disable_loop_vectoriser() -> Generator[None]:
    """LLVM's finds nothing in loops over vectors, at length."""
    tuning: Any = config
    usual = tuning.LOOP_VECTORIZE
    tuning.LOOP_VECTORIZE = 0
    try:
        yield
    finally:
        tuning.LOOP_VECTORIZE = usual
