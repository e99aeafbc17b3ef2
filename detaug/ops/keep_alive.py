"""Keep a pipeline alive while a Python function of it runs."""

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
def kept_alive(pipeline: ReferenceType[Pipeline]) -> Iterator[None]:
    """Hold a pipeline in a function that runs in its threads, and let another thread drop it afterwards.

    Otherwise the garbage collector may run in this function and find that nothing else refers to the pipeline, which
    then waits for the very thread that it is ended in: DALI ends the process.
    """
    held = [pipeline()]
    try:
        yield
    finally:
        _start_dropping()
        _to_drop.put(held)  # the list: this thread must not have the last reference to the pipeline


def _start_dropping() -> None:
    with _lock:
        if not _dropping:
            _dropping.append(Thread(target=_drop, daemon=True))
            _dropping[0].start()


def _drop() -> None:
    while True:
        _to_drop.get().clear()
