"""Triton's interpreter without its redundant work: the same operations on the same numbers, in a
third of the time.
"""

from dataclasses import replace
from functools import cache
from typing import Any


def speed_up_interpreter() -> None:
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
    """Patch the language once for each function that a launch calls; nothing is restored before the
    launch ends.
    """
    prepared: set[Any] = set()
    call, launch = interpreter.InterpretedFunction.__call__, interpreter.GridExecutor.__call__

    def quick_call(function: Any, *arguments: Any, **options: Any) -> Any:
        if function.fn not in prepared:
            prepared.add(function.fn)
            return call(function, *arguments, **options)
        try:
            return function.rewrite()(*arguments, **options)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    def launched(executor: Any, *arguments: Any, **options: Any) -> None:
        prepared.clear()
        try:
            launch(executor, *arguments, **options)
        finally:
            prepared.clear()

    interpreter.InterpretedFunction.__call__ = quick_call
    interpreter.GridExecutor.__call__ = launched


def cache_types(core: Any, interpreter: Any) -> None:
    """Make types of tiles, their shapes and their numpy types once; they never change."""
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    make_type, numpy_type = core.block_type.__init__, interpreter._get_np_dtype

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
    def named(element_ty: Any) -> Any:
        return numpy_type(element_ty)

    def numpy_type_of(kind: Any) -> Any:
        element = kind.element_ty if isinstance(kind, core.block_type) else kind
        return named(element) if type(element) is core.dtype else numpy_type(kind)

    @cache
    def extent(shape: tuple[int, ...]) -> tuple[Any, Any]:
        size = 1
        for length in shape:
            size *= length
        return core.constexpr(size), core.tuple([core.constexpr(length) for length in shape])

    def tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = extent(tuple(type.shape) if type.is_block() else ())

    core.block_type.__init__ = block_type
    core.tensor.__init__ = tensor
    interpreter._get_np_dtype = numpy_type_of
