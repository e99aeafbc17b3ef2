"""Run Python functions in a DALI pipeline, remember their errors, and end pipelines without a wait for ever."""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from threading import Event, Thread, _DummyThread, current_thread, main_thread
from typing import Any
from weakref import ReferenceType, ref

from nvidia.dali import Pipeline

_calls: SimpleQueue[Callable[[], object]] = SimpleQueue()


def current_pipeline() -> ReferenceType[Pipeline]:
    """Return a reference to the pipeline that is being defined, and see to it that its own threads do not end it.

    The garbage collector may run in a thread of DALI, in a Python function or around it, and find that nothing else
    refers to the pipeline. DALI would wait for that very thread, and end the process. Another thread ends it then.
    """
    _start_ending()
    pipeline = Pipeline.current()
    kind: Any = type(pipeline)
    pipeline.__class__ = _ended_by_another_thread(kind)
    return ref(pipeline)


@cache
def _ended_by_another_thread(kind: type[Pipeline]) -> type[Pipeline]:
    """Return a subclass whose pipelines are not ended in threads of DALI."""
    if hasattr(kind, "_detaug_shutdown"):
        return kind

    def shutdown(pipeline: Any) -> None:  # what Pipeline.__del__ calls
        if pipeline._pipe and isinstance(current_thread(), _DummyThread):  # not started by Python
            _calls.put(pipeline._pipe.Shutdown)
            pipeline._pipe = None
        kind._shutdown(pipeline)

    return type(kind.__name__, (kind,), {"_shutdown": shutdown, "_detaug_shutdown": shutdown})


@cache
def _start_ending() -> None:
    Thread(target=_call_all, args=(_calls,), daemon=True).start()


def _call_all(calls: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        with suppress(RuntimeError):  # of a pipeline that nobody has any more
            calls.get()()


@atexit.register  # it runs before DALI's own function, which then finds none
def _end_all() -> None:
    """End all pipelines, and wait for those that another thread ends: the interpreter must not leave them behind."""
    _exits.set()
    last = time.monotonic() + LONGEST_WAIT
    while _inside and time.monotonic() < last:
        time.sleep(0.001)
    for reference in list(Pipeline._pipes):
        if pipeline := reference():
            pipeline._shutdown()
    if _start_ending.cache_info().currsize:
        ended = Event()
        _calls.put(ended.set)
        ended.wait()


_exits = Event()


_inside: set[object] = set()
"""One for each `no_errors_at_exit` that a thread is in."""

LONGEST_WAIT = 10.0
"""Seconds that the exit waits for a thread that is making a batch."""


@contextmanager
def no_errors_at_exit() -> Iterator[None]:
    """Stop a daemon thread here when the interpreter exits, before it fails or ends the process.

    The exit ends the thread's pipelines. And up to Python 3.13 a thread that asks for Python's lock during the exit is
    ended where it is: in a destructor of torch, which C++ answers by ending the process with SIGABRT.
    """
    if current_thread() is main_thread():
        yield
        return
    here = object()
    _inside.add(here)
    try:
        if not _exits.is_set():
            yield
    except Exception:
        if not _exits.is_set():
            raise
    finally:
        _inside.discard(here)
        if _exits.is_set():
            Event().wait()  # until the process ends


def _forget_pipelines() -> None:
    """Give up all pipelines in a forked process, which has none of their threads: to end one would wait for ever."""
    global _calls
    for reference in list(Pipeline._pipes):
        pipeline = reference()
        if pipeline and pipeline._built and pipeline._pipe:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipeline._pipe))  # C++ must not destroy it either
            pipeline._pipe = None
            Pipeline._pipes.discard(reference)
    _calls = SimpleQueue()
    _start_ending.cache_clear()


os.register_at_fork(after_in_child=_forget_pipelines)


@contextmanager
def running_in(pipeline: ReferenceType[Pipeline]) -> Iterator[None]:
    """Hold a pipeline while a function runs in its threads, and record the function's error in `errors_of`."""
    held = [pipeline()]
    try:
        yield
    except Exception as error:
        if held[0]:
            errors_of(held[0]).append(error)
        raise
    finally:
        _calls.put(held.clear)  # another thread drops the last reference to the pipeline


def errors_of(pipeline: Pipeline) -> list[Exception]:
    """Return the errors of a pipeline's Python functions, of which DALI's own error has the text only.

    They are an attribute of the pipeline. In a table, an error would keep it alive for ever: its traceback leads to it.
    """
    errors: list[Exception] = vars(pipeline).setdefault("_detaug_errors", [])
    return errors
