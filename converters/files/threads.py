"""A pool of threads that works until the interpreter exits."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import Any, TypeAlias, TypeVar
from weakref import finalize

T = TypeVar("T")
R = TypeVar("R")

_Task: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]
_Tasks: TypeAlias = SimpleQueue[_Task | None]


class Threads:
    """A pool of up to `count` threads, like `ThreadPoolExecutor`, for callers in any thread.

    Python's own takes no more work once the main thread has ended, although the interpreter waits for other threads.
    This one works until the interpreter exits, or until nothing refers to it.
    """

    def __init__(self, count: int, name: str = "detaug") -> None:
        self._count, self._name = count, name
        self._tasks: _Tasks = SimpleQueue()
        self._threads: list[Thread] = []
        self._end = finalize(self, _end, self._tasks)
        self._end.atexit = False
        _open[id(self._tasks)] = self._tasks

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """Call a function in a thread. Raises RuntimeError after `close`."""
        if not self._end.alive:
            raise RuntimeError("these threads have ended")
        future = Future[R]()
        self._tasks.put((future, function, arguments))
        if len(self._threads) < self._count:
            thread = Thread(target=_work, args=(self._tasks,), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def map(self, function: Callable[..., R], *items: Iterable[Any]) -> list[R]:
        """Return the function's results for the items. Raises the error of the first item that has one."""
        futures = [self.submit(function, *arguments) for arguments in zip(*items, strict=True)]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self, *, wait: bool = True) -> None:
        """Cancel what has not begun, end the threads, and wait for them."""
        threads = [*self._threads]
        if self._end.detach():
            _end(self._tasks)
        for thread in threads if wait else ():
            with suppress(RuntimeError):  # of one that did not start
                thread.join()

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_open: dict[int, _Tasks] = {}
"""Of pools that have not ended. `finalize` does nothing for them once it has run its own function at exit."""

_running: set[Thread] = set()


def _work(tasks: _Tasks) -> None:
    _running.add(current_thread())
    while task := tasks.get():
        future, function, arguments = task
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)
        del task, future, function, arguments  # the result may be large
    tasks.put(None)  # for the next thread
    _running.discard(current_thread())


def _end(tasks: _Tasks) -> None:
    """Cancel what has not begun, and end the threads, each of which ends the next one.

    Python ignores a Ctrl-C that meets this in a finalizer: the threads end all the same, here or at exit.
    """
    try:
        with suppress(Empty):
            while task := tasks.get_nowait():
                task[0].cancel()
    finally:
        tasks.put(None)
    _open.pop(id(tasks), None)


@atexit.register
def _end_all() -> None:
    """Wait for all threads: one that comes back from C++ while the interpreter is torn down ends the process."""
    for tasks in [*_open.values()]:
        _end(tasks)
    for thread in [*_running]:
        thread.join()
