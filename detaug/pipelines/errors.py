"""Errors of pipelines: which op failed, and whether the device did; DALI's own errors have the text only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from nvidia.dali import Pipeline

from detaug.errors import InputError, OpError
from detaug.pipelines.python_functions import errors_of

DALI_ERRORS = (RuntimeError, IndexError, TypeError, ValueError, MemoryError)
"""The exceptions that DALI raises for errors in C++."""


@contextmanager
def name_op_in_errors(label: str, method: str) -> Iterator[None]:
    """Raise OpError for an error of an op's method. `label`: see `label_op`. InputError and MemoryError stay."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except OpError as error:  # of an op in this one
        raise OpError(f"{label}: {error}") from error.__cause__
    except Exception as error:
        raise OpError(f"{label} failed in {method}: {type(error).__name__}: {error}") from error


def failed_op(pipeline: Pipeline, error: Exception) -> Exception | None:
    """Return the error of the op, or of the Python function, that made a pipeline fail with DALI's `error`.

    None where DALI's own operators failed, and for errors of memory and of the device, whatever op they met.
    """
    ours = [candidate for candidate in errors_of(pipeline) if isinstance(candidate, InputError | RuntimeError)]
    if recorded := next((candidate for candidate in ours if str(candidate) in str(error)), None):
        return recorded
    labels = re.findall(r", in (\w+ \(\d+\w\w op .+\))$", str(error), re.MULTILINE)
    if not labels or is_of_device(error):
        return None
    operator = re.search(r"operator `nvidia\.dali\.([\w.]+)`", str(error))
    method = f"dali_graph, in {operator[1]}" if operator else "dali_graph"
    failed = OpError(f"{': '.join(labels)} failed in {method}: {reason_of(error)}")
    failed.__cause__ = error
    return failed


def is_of_device(error: Exception) -> bool:
    """Return whether DALI failed for want of memory, or by a fault of the device."""
    return isinstance(error, MemoryError) or bool(_OF_DEVICE.search(reason_of(error)))


_OF_DEVICE = re.compile("cuda|alloc|out of memory", re.IGNORECASE)


def reason_of(error: Exception) -> str:
    """Return the line of DALI's long message that says what happened."""
    lines = [line.strip() for line in str(error).partition("encountered:")[2].splitlines() or str(error).splitlines()]
    return next((line for line in lines if line), "no reason given")
