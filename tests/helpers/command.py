"""Run the detaug command in this process."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from detaug.cli.main import main

_USUAL_SIGNALS = """
import os, signal, sys
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
PYTHON_WITH_USUAL_SIGNALS = (sys.executable, "-c", _USUAL_SIGNALS)
"""Start of a command: a Python in which no signal is ignored, as a job in the background, or nohup, would have it.

A function that runs between fork and exec could do so too, but hang: the process has threads.
"""


class Result(NamedTuple):
    code: int
    out: str
    err: str


def detaug(*arguments: object) -> Result:
    """Run a command line; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return Result(code, out.getvalue(), err.getvalue())


def usage_error(*arguments: object) -> str:
    """Run a command line that must end with exit code 2 and one line on stderr; return the line."""
    result = detaug(*arguments)
    assert result.out == ""
    return error_line(result)


def error_line(result: Result) -> str:
    """Return the one line on stderr of a command that must have ended with exit code 2."""
    assert result.code == 2
    assert result.err.startswith("detaug: ")
    assert result.err.count("\n") == 1
    return result.err
