"""Run Python functions in a DALI pipeline: keep the pipeline alive meanwhile, and remember their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, Thread
from weakref import ReferenceType

from nvidia.dali import Pipeline

_to_drop: SimpleQueue[list[Pipeline | None]] = SimpleQueue()
_lock = Lock()
_dropping: list[Thread] = []


@contextmanager
def running_in(pipeline: ReferenceType[Pipeline]) -> Iterator[None]:
    """Hold a pipeline while a function runs in its threads, and record the function's error in `errors_of`.

    Otherwise the garbage collector may run in this function and find that nothing else refers to the pipeline, which
    then waits for the very thread that it is ended in: DALI ends the process. Another thread drops the pipeline.
    """
    held = [pipeline()]
    try:
        yield
    except Exception as error:
        if held[0]:
            errors_of(held[0]).append(error)
        raise
    finally:
        _start_dropping()
        _to_drop.put(held)  # the list: this thread must not have the last reference to the pipeline


def errors_of(pipeline: Pipeline) -> list[Exception]:
    """Return the errors of a pipeline's Python functions, of which DALI's own error has the text only.

    They are an attribute of the pipeline. In a table, an error would keep it alive for ever: its traceback leads to it.
    """
    errors: list[Exception] = vars(pipeline).setdefault("_detaug_errors", [])
    return errors


def _start_dropping() -> None:
    with _lock:
        if not _dropping:
            _dropping.append(Thread(target=_drop, daemon=True))
            _dropping[0].start()


def _drop() -> None:
    while True:
        _to_drop.get().clear()
