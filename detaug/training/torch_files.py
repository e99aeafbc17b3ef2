"""Read and write files of torch.save."""

from __future__ import annotations

import errno
import io
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from detaug import __version__
from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.findings.finding import shown


def versions() -> dict[str, str]:
    """Return the versions that stand in a file: those that can read it again when others cannot."""
    return {"detaug": __version__, "torch": str(torch.__version__)}


def write_torch_file(content: dict[str, Any], path: Path) -> None:
    """Write a dict of tensors and plain values, whole or not at all."""
    encoded = io.BytesIO()
    torch.save(content, encoded)
    with encoded.getbuffer() as view:  # CPython 3.12.0 and 3.12.1 crash where an error keeps the view (gh-111049)
        write_atomically(path, [view])


_TORCHS_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, pickle.UnpicklingError, RuntimeError,
    TypeError, ValueError, struct.error,
)  # fmt: skip


def read_torch_file(path: Path) -> dict[str, Any]:
    """Read a dict of tensors and plain values; no code in the file is run. Raises InputError for any other file.

    Namespaces of plain values, as in RF-DETR's weights, are read too: they run nothing.
    torch's own messages are not passed on: they advise to read the file in the way that runs its code.
    """
    _check_sums(path)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([Namespace, SimpleNamespace]):
            warnings.simplefilter("ignore")  # torch's, about files that are refused here
            content = torch.load(path, map_location="cpu", weights_only=True)
    except _TORCHS_ERRORS as error:
        raise InputError(f"{path} {_reason(str(error))}") from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must hold a dict of tensors, got {type(content).__name__}")
    return dict(content)


_ZIP = b"PK\x03\x04"

_ZIPS_ERRORS = (*_TORCHS_ERRORS, zipfile.BadZipFile, zlib.error)


def _check_sums(path: Path) -> None:
    """Raise InputError for a file whose bytes are not those that torch.save wrote: torch.load reads no checksum."""
    with open(path, "rb") as file:
        if file.read(len(_ZIP)) != _ZIP:  # torch's form before 1.6 has no checksums
            return
        try:
            with zipfile.ZipFile(file) as records:
                damaged = records.testzip()
        except _ZIPS_ERRORS:
            damaged = "its list of records"
        except OSError as error:
            if error.errno != errno.EINVAL:  # of a position before the start
                raise
            damaged = "its list of records"
    if damaged:
        raise InputError(
            f"{path} is damaged or cut off, {shown(damaged)} does not fit its checksum; copy or download it again, or "
            "write it again where torch.serialization.set_crc32_options(True) holds"
        )


def _reason(message: str) -> str:
    name = re.search(r"(?:GLOBAL|class|type) ([\w.]+) was not an allowed", message)
    if not name and "TorchScript" not in message:
        return "is not a file of torch.save, or is damaged"
    what = f"Python objects ({name[1]}) beside tensors" if name else "a TorchScript program"
    remedy = "write the weights alone where the model was made: torch.save(model.state_dict(), path)"
    return f"holds {what}, and reading it could run code; {remedy}"
