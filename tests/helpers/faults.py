"""Inject a fault at any call that detaug makes to the system, DALI or the allocator.

`Faults` wraps the functions at these borders. In a first run it numbers the calls that come from detaug's code; in a
later one it raises a fault at one of them.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock, Thread, current_thread, main_thread
from typing import Any, NamedTuple

import numpy as np
import torch
from nvidia.dali import Pipeline

import detaug

CODE = tuple(f"{Path(folder).resolve()}{os.sep}" for folder in (*detaug.__path__, f"{detaug.__path__[0]}/converters"))


EXPECTED = (OSError, MemoryError, RuntimeError, KeyboardInterrupt, detaug.InputError)
"""What comes out of detaug after a fault."""


class Border(NamedTuple):
    """A function that can fail, and how."""

    owner: Any
    name: str
    kinds: tuple[str, ...]


READ, WRITE, ALLOCATE = ("EIO", "short", "memory"), ("EIO", "ENOSPC", "memory"), ("memory",)
BORDERS = [
    *(
        Border(os, name, ("EIO",))
        for name in ("stat", "lstat", "scandir", "listdir", "mkdir", "replace", "unlink", "open")
    ),
    Border(os, "fsync", ("EIO", "ENOSPC")),
    Border(os, "read", READ),
    Border(builtins, "open", ("EIO", "memory")),
    Border(io, "open", ("EIO", "memory")),
    Border(Thread, "start", ("thread",)),
    *(Border(Pipeline, name, ("memory",)) for name in ("build", "feed_input", "schedule_run", "outputs")),
    Border(torch, "from_file", ("EIO", "memory")),
    *(Border(torch, name, ALLOCATE) for name in ("empty", "from_numpy", "zeros")),
    *(Border(np, name, ALLOCATE) for name in ("empty", "zeros", "full", "concatenate", "stack")),
]


class Call(NamedTuple):
    """A call of a border from detaug's code."""

    point: str
    """The function, and the line of detaug that led to it."""
    kinds: tuple[str, ...]


class Faults:
    """Numbers the calls of the borders, and raises one fault, at the first call from `at` on that can have it.

    at: -1 raises none. kind: "" is one of the call's kinds. Threads may make the calls in another order each time.
    """

    def __init__(self, at: int = -1, kind: str = "") -> None:
        self.at, self.kind = at, kind
        self.calls: list[Call] = []
        self._raised = False
        self._lock = RLock()  # the garbage collector may end a pipeline, which is a call, while this thread counts one

    @contextmanager
    def active(self) -> Iterator[Faults]:
        """Wrap all borders while the block runs."""
        real = [(border, getattr(border.owner, border.name)) for border in BORDERS]
        for border, function in real:
            setattr(border.owner, border.name, self._wrapped(border, function))
        try:
            yield self
        finally:
            for border, function in real:
                setattr(border.owner, border.name, function)

    def _wrapped(self, border: Border, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **others: Any) -> Any:
            short = self._meet(f"{border.name}", border.kinds)
            if short:
                arguments = (arguments[0], max(1, arguments[1] // 2))
            result = function(*arguments, **others)
            return File(result, self) if border.name == "open" and border.owner is not os and line_of() else result

        return call

    def _meet(self, name: str, kinds: tuple[str, ...]) -> bool:
        """Count a call, and raise its fault; return whether it must be a short one."""
        if not (line := line_of()):
            return False
        if current_thread() is main_thread():
            kinds = (*kinds, "Ctrl-C")
        with self._lock:
            self.calls.append(Call(f"{name} at {line}", kinds))
            kind = self.kind or kinds[self.at % len(kinds)]
            if self._raised or not 0 <= self.at < len(self.calls) or kind not in kinds:
                return False
            self._raised = True
        return fail(kind)


def fail(kind: str) -> bool:
    """Raise the fault of a kind; return True for a short read."""
    if kind in ("EIO", "ENOSPC"):
        code = getattr(errno, kind)
        raise OSError(code, os.strerror(code))
    if kind == "memory":
        raise MemoryError
    if kind == "thread":
        raise RuntimeError("can't start new thread")
    if kind == "Ctrl-C":
        raise KeyboardInterrupt
    return True


class File:
    """An open file whose reads and writes are calls of a border."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def read(self, size: int = -1) -> Any:
        raw = isinstance(self._file, io.RawIOBase)  # only these may return less than asked for before the end
        short = self._faults._meet("read", READ if raw and size > 1 else ("EIO", "memory"))
        return self._file.read(size // 2 if short else size)

    def write(self, data: Any) -> int:
        self._faults._meet("write", WRITE)
        return int(self._file.write(data))


def line_of() -> str:
    """Return the innermost line of detaug that is calling, as file:line; "" if there is none, or while it imports."""
    frame, line = sys._getframe(2), ""
    while frame:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return ""
        if not line and name.startswith(CODE):
            line = f"{Path(name).parent.name}/{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return line
