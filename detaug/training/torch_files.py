"""Read and write files of torch.save."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from detaug.converters.files.atomic import write_atomically
from detaug.errors import InputError


def write_torch_file(content: dict[str, Any], path: Path) -> None:
    """Write a dict of tensors and plain values, whole or not at all."""
    encoded = io.BytesIO()
    torch.save(content, encoded)
    write_atomically(path, [encoded.getbuffer()])


def read_torch_file(path: Path) -> dict[str, Any]:
    """Read a dict of tensors and plain values; no code in the file is run. Raises InputError for any other file."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise InputError(f"{path} is not a file of torch.save ({(str(error).splitlines() or ['?'])[0]})") from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must hold a dict of tensors, got {type(content).__name__}")
    return dict(content)
