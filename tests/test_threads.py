"""A pool of threads ends with the interpreter, whatever was made before it."""

from __future__ import annotations

import subprocess
import sys

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
