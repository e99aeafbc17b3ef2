"""A pool of threads ends with the interpreter, whatever was made before it."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import CancelledError
from threading import Barrier
from types import FrameType

import pytest

from detaug.machine.threads import Threads

PROGRAM = """
from detaug.machine.threads import Threads
from weakref import finalize

class Something: ...
something = Something()
finalize(something, print, "finalized")  # its function at exit runs before that of the pools
pool = Threads(2)
print([pool.submit(abs, each).result() for each in (-1, -2, -3)])
"""


def test_a_process_with_a_pool_ends() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2, 3]\nfinalized\n", "")


def test_no_ctrl_c_keeps_the_threads_of_a_dropped_pool() -> None:
    """It is raised in Python's functions alone, and none is called; what has not begun is cancelled."""
    pool, gate, called = Threads(2), Barrier(3), list[str]()
    for _ in range(2):
        pool.submit(gate.wait)
    waiting, workers = pool.submit(print, "too late"), [*pool._threads]

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    gc.disable()
    sys.setprofile(note)
    del pool
    sys.setprofile(None)
    gc.enable()
    gate.wait()
    assert not called
    with pytest.raises(CancelledError):
        waiting.result(30)
    for worker in workers:
        worker.join(30)
    assert not any(worker.is_alive() for worker in workers)


class ClosedOnceAsked:
    """The flag of a pool that another thread closes as soon as it was asked."""

    closed = False

    def __bool__(self) -> bool:
        was, self.closed = self.closed, True
        return was


def test_a_pool_that_is_closed_meanwhile_refuses_a_call() -> None:
    """Its last thread may have ended, and nobody would ever do what is put into its queue."""
    pool = Threads(1)
    pool._closed = ClosedOnceAsked()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="these threads have ended"):
        pool.submit(abs, -1)


def test_one_call_ends_all_threads_whatever_interrupts_the_rest() -> None:
    """A Ctrl-C may come before the calls that would end the others."""
    pool = Threads(4)
    gate = Barrier(5)
    for _ in range(4):
        pool.submit(gate.wait)
    gate.wait()
    workers = [*pool._threads]
    assert len(workers) == 4
    pool._tasks.put(None)  # all that was done before the Ctrl-C
    for worker in workers:
        worker.join(30)
    assert not any(worker.is_alive() for worker in workers)
    pool.close()


def test_the_interpreter_exits_if_ctrl_c_left_a_lock_taken() -> None:
    """The main thread has the lock of a future, for which the thread of the pool waits."""
    code = """
import time
from detaug.machine import threads

threads.LAST_WAIT = 1.0
pool = threads.Threads(1)
first, second = pool.submit(time.sleep, 0.2), pool.submit(time.sleep, 0)
second._condition.acquire()
first.result()
time.sleep(0.2)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
