"""Triton's interpreter without its redundant work: the same operations on the same numbers, in a
third of the time.
"""

from dataclasses import replace
from functools import cache
from typing import Any


def hasten() -> None:
    """Remove redundant work of Triton 3.6; any other version stays as it is, and slow.

    At every call of a function inside a kernel, Triton patches its language again, by looking at
    every name in it. After every sum and product of whole numbers it computes whether they
    overflow, and drops the result, as asserts are off. And it builds the description of a tile's
    type, in words too, for every tile.
    """
    try:
        import triton
        from triton.language import core
        from triton.runtime import interpreter
    except ImportError:  # it is for Linux on x86 only
        return
    if not triton.__version__.startswith("3.6."):
        return
    patch_once(interpreter)
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    cache_types(core, interpreter)


def patch_once(interpreter: Any) -> None:
    """Patch the language once for each function that a launch calls.

    Nothing is restored before the launch ends.
    """
    patched: set[Any] = set()
    call = interpreter.InterpretedFunction.__call__
    launch = interpreter.GridExecutor.__call__

    def quick_call(function: Any, *arguments: Any, **options: Any) -> Any:
        if function.fn not in patched:
            patched.add(function.fn)
            return call(function, *arguments, **options)
        try:
            return function.rewrite()(*arguments, **options)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    def clear_and_launch(executor: Any, *arguments: Any, **options: Any) -> None:
        patched.clear()
        try:
            launch(executor, *arguments, **options)
        finally:
            patched.clear()

    interpreter.InterpretedFunction.__call__ = quick_call
    interpreter.GridExecutor.__call__ = clear_and_launch


def cache_types(core: Any, interpreter: Any) -> None:
    """Make types of tiles, their shapes and their numpy types once; they never change."""
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    make_type = core.block_type.__init__
    numpy_type = interpreter._get_np_dtype

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        if type(element_ty) is not core.dtype:  # pointers differ in more than their names
            make_type(self, element_ty, shape)
            return
        key = (element_ty.name, *map(core._unwrap_if_constexpr, shape))
        if key not in made:
            make_type(self, element_ty, shape)
            made[key] = dict(vars(self))
        vars(self).update(made[key])

    @cache
    def cached_numpy_type(element_ty: Any) -> Any:
        return numpy_type(element_ty)

    def numpy_type_of(kind: Any) -> Any:
        element = kind.element_ty if isinstance(kind, core.block_type) else kind
        if type(element) is core.dtype:
            return cached_numpy_type(element)
        return numpy_type(kind)

    @cache
    def extent(shape: tuple[int, ...]) -> tuple[Any, Any]:
        size = 1
        for length in shape:
            size *= length
        lengths = [core.constexpr(length) for length in shape]
        return core.constexpr(size), core.tuple(lengths)

    def tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle = handle
        self.type = type
        self.dtype = type.scalar
        shape = tuple(type.shape) if type.is_block() else ()
        self.numel, self.shape = extent(shape)

    core.block_type.__init__ = block_type
    core.tensor.__init__ = tensor
    interpreter._get_np_dtype = numpy_type_of
