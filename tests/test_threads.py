"""A pool of threads ends with the interpreter, whatever was made before it."""

from __future__ import annotations

import subprocess
import sys
from threading import Barrier

from detaug.converters.files.threads import Threads

PROGRAM = """
from detaug.converters.files.threads import Threads
from weakref import finalize

class Something: ...
something = Something()
finalize(something, print, "finalized")  # its function at exit runs before that of the pools
pool = Threads(2)
print([pool.submit(abs, each).result() for each in (-1, -2, -3)])
"""


def test_a_process_with_a_pool_ends() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2, 3]\nfinalized\n", "")


def test_one_call_ends_all_threads_whatever_interrupts_the_rest() -> None:
    """Python ignores a Ctrl-C in a finalizer: the calls after it are never made."""
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
