"""Let Triton's interpreter take less time: for tests of kernels on a machine without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def interpret_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the interpreter does again and again, for each operation of a kernel.

    It replaces the functions of Triton's language whenever a kernel calls a function. Our functions use the module
    in which they have been replaced when the kernel was called, Triton's own another one, where they stay replaced.

    It makes a table of all types for the type of one array. And it computes each sum, difference and product of
    integers a second time, in 64 bits, to see whether 32 are enough: a GPU does not, and what would not fit shows in
    the pixels.
    """
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    patch_and_call, type_of = interpreter.InterpretedFunction.__call__, interpreter._get_np_dtype
    types: dict[str, Any] = {}
    patched = False

    def call(function: Any, *args: Any, **options: Any) -> Any:
        nonlocal patched
        if patched or function.fn.__module__.startswith("detaug."):
            return function.rewrite()(*args, **options)
        patched = True
        return patch_and_call(function, *args, **options)

    def known_type_of(dtype: Any) -> Any:
        element = dtype.scalar
        if element.is_ptr():
            return np.dtype(np.uint64)
        if element.name not in types:
            types[element.name] = type_of(element)
        return types[element.name]

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)
    monkeypatch.setattr(interpreter, "_get_np_dtype", known_type_of)
    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)
