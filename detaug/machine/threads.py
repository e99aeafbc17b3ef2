"""A pool of threads that works until the interpreter exits."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import Any, TypeAlias, TypeVar
from weakref import ref

T = TypeVar("T")
R = TypeVar("R")

_Task: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]
_Tasks: TypeAlias = SimpleQueue[Any]
"""Of tasks; anything else in it ends a thread."""


class Threads:
    """A pool of up to `count` threads, like `ThreadPoolExecutor`, for callers in any thread.

    Python's own takes no more work once the main thread has ended, although the interpreter waits for other threads.
    This one works until the interpreter exits, or until nothing refers to it.
    """

    def __init__(self, count: int, name: str = "detaug") -> None:
        self._count, self._name = count, name
        self._tasks: _Tasks = SimpleQueue()
        self._threads: list[Thread] = []
        self._closed = False

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """Call a function in a thread. Raises RuntimeError after `close`."""
        future = Future[R]()
        if not self._closed:
            owner = _open.setdefault(self._tasks, ref(self, self._tasks.put))
            self._tasks.put((future, function, arguments))
        if self._closed and future.cancel():  # asked again: no thread may be left that takes it
            _open.pop(self._tasks, None)
            raise RuntimeError("these threads have ended")
        if len(self._threads) < self._count:
            thread = Thread(target=_work, args=(self._tasks, owner), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def map(self, function: Callable[..., R], *items: Iterable[Any]) -> list[R]:
        """Return the function's results for the items. Raises the error of the first item that has one."""
        futures = list[Future[R]]()
        try:
            futures.extend(self.submit(function, *arguments) for arguments in zip(*items, strict=True))
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self, *, wait: bool = True) -> None:
        """Cancel what has not begun, end the threads, and wait for them."""
        self._closed = True
        _end(self._tasks)
        for thread in self._threads if wait else ():
            with suppress(RuntimeError):  # of one that did not start
                thread.join()

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_open: dict[_Tasks, ref[Threads]] = {}
"""Of pools that have not ended, a reference that is put into the tasks when nothing else refers to the pool.

The reference calls the queue's own method, in C: a Ctrl-C may keep a function in Python from being called then.
"""

_running: set[Thread] = set()


def _work(tasks: _Tasks, owner: ref[Threads]) -> None:
    _running.add(current_thread())
    while isinstance(task := tasks.get(), tuple):
        future, function, arguments = task
        if owner() is None:
            future.cancel()
        elif future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)
        del task, future, function, arguments  # the result may be large
    tasks.put(None)  # for the next thread
    _open.pop(tasks, None)
    _running.discard(current_thread())


def _end(tasks: _Tasks) -> None:
    """Cancel what has not begun, and end the threads, each of which ends the next one."""
    try:
        with suppress(Empty):
            while isinstance(task := tasks.get_nowait(), tuple):
                task[0].cancel()
    finally:
        tasks.put(None)


LAST_WAIT = 60.0
"""Seconds that the exit of the interpreter waits for a thread."""


@atexit.register
def _end_all() -> None:
    """Wait for all threads: one that comes back from C++ while the interpreter is torn down ends the process.

    But not for ever: a Ctrl-C in `future.cancel()` may leave the lock taken for which a thread of the pool waits.
    """
    # A copy makes no tuples, whose allocation may collect garbage and so end other pools meanwhile.
    for tasks, owner in _open.copy().items():
        if pool := owner():
            pool.close(wait=False)
        else:
            _end(tasks)
    for thread in [*_running]:
        thread.join(LAST_WAIT)
