"""Options that several conversions have."""

from __future__ import annotations

from typing import Literal, get_args

from detaug.errors import InputError

WithImages = Literal["none", "copy", "link"]
OnError = Literal["stop", "skip"]


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise InputError for a value that is not one of the choices, a Literal."""
    if value not in get_args(choices):
        raise InputError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
