"""Name an argument as the user gave it: an option of a command, or an argument in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_is_command = False


@contextmanager
def on_command_line() -> Iterator[None]:
    """Let messages name arguments as options of a command, during the block."""
    global _is_command
    before, _is_command = _is_command, True
    try:
        yield
    finally:
        _is_command = before


def option(name: str, value: str = "", *, python: str = "", command: str = "") -> str:
    """Return how the user gives an argument: on the command line --on-error skip, in Python on_error="skip".

    Args:
        name: that of the argument in Python.
        value: as a command takes it, such as 640x640; "" for the name alone.
        python: the value in Python; by default `value` as a text.
        command: the name of the option, if it is another than `name`.
    """
    if _is_command:
        return f"--{(command or name).replace('_', '-')}{f' {value}' if value else ''}"
    python = python or (f'"{value}"' if value else "")
    return f"{name}={python}" if python else name
