"""Check output files before the work begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import PathLike
from detaug.converters.findings.errors import ConversionError

_INPUT_EXTENSIONS = (".xml", ".txt", ".yaml", ".yml", *IMAGE_EXTENSIONS)


def output_files(outputs: Mapping[str, PathLike | None], *inputs: PathLike) -> dict[str, Path]:
    """Return the json files to write by their names in messages, without those that are None.

    Raises ConversionError now for what would fail, or overwrite an input, after minutes of work.
    """
    paths = {name: _output_file(Path(path), name, inputs) for name, path in outputs.items() if path is not None}
    seen: dict[str, str] = {}
    for name, path in paths.items():
        other = seen.setdefault(os.path.realpath(path), name)
        if other != name:
            raise ConversionError(f"{name} must be another file than {other}, got {path} for both")
    return paths


def _output_file(path: Path, name: str, inputs: tuple[PathLike, ...]) -> Path:
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise ConversionError(f"{name} {path} is not a file; give the name of a json file")
    if path.suffix.lower() in _INPUT_EXTENSIONS:
        raise ConversionError(f"{name} {path} has the extension of an input file; give the name of a json file")
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise ConversionError(f"{name} must be another file than {path}, which is an input; give a new name")
    if not path.parent.is_dir():
        raise ConversionError(f"{name} folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise ConversionError(f"{name} folder {path.parent} is not writable; choose another folder")
    return path
