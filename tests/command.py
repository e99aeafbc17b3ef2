"""Run the detaug command in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from detaug.cli.main import main


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
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("detaug: ")
    assert result.err.count("\n") == 1
    return result.err
