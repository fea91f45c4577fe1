"""The compiled CPU kernels, from numba's cache or from its compiler.

This module does not import torch, as another process may compile a kernel in advance.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import numba
from numba import cfunc, config
from numba.core.compiler_lock import global_compiler_lock

from rhumbline.errors import MissingExtra
from rhumbline.kernels import pause_garbage_collection
from rhumbline.kernels.background import COMPILATION_TIME, run_in_background
from rhumbline.kernels.numba.rollout import precompile

OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}  # no objects to count


@cache
def load_rollout_kernel(kernel: str) -> Any:
    """Return a compiled kernel of `precompile.KERNELS`.

    It comes from the cache on disk, or is compiled now and stored there if possible.
    """
    with COMPILATION_TIME.measure():
        precompile.wait_for_kernel(kernel)
    return run_in_background(partial(load_or_compile, kernel))


def load_or_compile(kernel: str) -> Any:
    """Compile the kernel, or load it, with numba's cache if that works."""
    try:
        return compile_kernel(kernel, cache=True)
    except Exception:  # no writable folder, a full disk, a damaged file: for this process only
        return compile_without_cache(kernel)


def compile_without_cache(kernel: str) -> Any:
    """Compile the kernel for this process alone."""
    try:
        return compile_kernel(kernel, cache=False)
    except Exception as error:  # a numba that has changed what this module builds on
        words = (str(error) or type(error).__name__).splitlines()[0]
        raise MissingExtra(
            f"numba {numba.__version__} cannot compile the fused engine ({words}). Use engine torch"
        ) from error


def compile_kernel(kernel: str, cache: bool) -> Any:
    """Compile the kernel, or load it if numba may use its cache and has it there."""
    module = import_module(precompile.KERNELS[kernel].module)
    with global_compiler_lock, disable_loop_vectoriser(), pause_garbage_collection():
        compiler = cfunc(module.SIGNATURE, cache=cache, **OPTIONS)
        return compiler(module.define_kernel(kernel))


@contextmanager
def disable_loop_vectoriser() -> Generator[None]:
    """Switch off LLVM's loop vectoriser, which takes long and finds nothing in vector code."""
    numba_config: Any = config
    before = numba_config.LOOP_VECTORIZE
    numba_config.LOOP_VECTORIZE = 0
    try:
        yield
    finally:
        numba_config.LOOP_VECTORIZE = before
