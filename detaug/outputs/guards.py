"""Check the arguments of a conversion before the work begins: choices, inputs, and the one guard of all outputs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from detaug.errors import AnnotationError, ConversionError, InputError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.known_files import what_folder_has
from detaug.files.paths import PathLike, identity

WithImages = Literal["none", "copy", "link"]
OnError = Literal["stop", "skip"]


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise InputError for a value that is not one of the choices, a Literal."""
    if value not in get_args(choices):
        raise InputError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")


def check_classes(classes: Sequence[str] | None) -> None:
    """Raise InputError for names of classes that are not a list of different ones; None is all classes."""
    if isinstance(classes, str):
        raise InputError(f"classes must be a list of names, got the text {classes!r}; use [{classes!r}]")
    if classes is not None and not classes:
        raise InputError("classes must name at least one class, got none; leave it out to take all of them")
    for name, count in Counter(classes or ()).items():
        if not name or count > 1:
            raise InputError(f"classes must be different names that are not empty, got {name!r} {count} times")


IMAGES_ORDER = "a command takes FILE.json IMAGES, Python da.CocoReader(images=IMAGES, annotations=FILE)"
OUTPUT_ORDER = "a command takes FILE.json OUT_FOLDER, Python (annotations=FILE, output=OUT_FOLDER)"


def check_json_and_folder(annotations: PathLike, folder: PathLike, order: str) -> None:
    """Raise AnnotationError, with `order`, if the JSON file is a folder or the folder is a file."""
    if os.path.isdir(annotations):
        what = what_folder_has(Path(annotations))
        raise AnnotationError(f"{os.fspath(annotations)} is a folder in the place of the JSON file; {order}{what}")
    if os.path.isfile(folder):
        raise AnnotationError(f"{os.fspath(folder)} is a file in the place of the folder; {order}")


JSON = (".json",)
PAGE = (".html", ".htm")

MARK = "written by detaug"
"""A text in images and pages that detaug writes, by which it knows them again."""

_NEVER_FOREIGN = (*PAGE, *IMAGE_EXTENSIONS)
"""Extensions of files that are replaced only if detaug wrote them, wherever they are: they may be images."""

_OWN_JSON = re.compile(rb'(\{\n "|\[\n \{|\{"[^"\n]*":\S[^\n]*[,\[]\n)')
"""The start of what `write_json`, `write_coco` and `document_text` write: one space, or a line for many rows."""

_HEAD, _TAIL = 4 << 20, 4096  # bytes; WebP has its metadata at the end


def output_files(
    outputs: Mapping[str, PathLike | None], *inputs: PathLike | None, extensions: Sequence[str] = JSON
) -> dict[str, Path]:
    """Return the files to write by their names in messages, without those that are None.

    inputs: every file and folder that is read. extensions: those that the outputs may have. Raises ConversionError now
    for what would fail after minutes of work, or would overwrite an input. An existing JSON file in an input folder,
    and an existing image or page anywhere, is replaced only if detaug wrote it.
    """
    real_paths = {os.path.realpath(path) for path in inputs if path is not None}
    input_ids = {path: identity(path) for path in real_paths}
    paths = {name: Path(path) for name, path in outputs.items() if path is not None}
    seen: dict[tuple[int, int] | str, str] = {}
    for name, path in paths.items():
        other = seen.setdefault(identity(path), name)
        if other != name:
            got = f"{path} for both" if path == paths[other] else f"{path}, another name of {paths[other]}"
            raise ConversionError(f"{name} must be another file than {other}, got {got}")
        _check_output(path, name, input_ids, extensions)
    return paths


def _check_output(
    path: Path, name: str, input_ids: Mapping[str, tuple[int, int] | str], extensions: Sequence[str]
) -> None:
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise ConversionError(f"{name} {path} is not a file; give the name of a file that ends in {extensions[0]}")
    if identity(path) in input_ids.values():
        raise ConversionError(f"{name} must be another file than {path}, which is an input; give a new name")
    if path.suffix.lower() not in extensions:
        raise ConversionError(
            f"{name} {path} must end in {', '.join(extensions)}, got {path.suffix or 'no extension'!r}"
        )
    if not path.parent.is_dir():
        raise ConversionError(f"{name} folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise ConversionError(f"{name} folder {path.parent} is not writable; choose another folder")
    if path.exists() and _is_precious(path, input_ids) and not _is_ours(path):
        raise ConversionError(f"{name} {path} exists and was not written by detaug; give a new name, or move it away")


def _is_precious(path: Path, input_paths: Iterable[str]) -> bool:
    if path.suffix.lower() not in JSON:
        return path.suffix.lower() in _NEVER_FOREIGN
    places = [os.path.realpath(path), os.path.join(os.path.realpath(path.parent), path.name)]  # of a link, both
    folders = filter(os.path.isdir, input_paths)
    return any(os.path.commonpath([place, folder]) == folder for folder in folders for place in places)


def _is_ours(path: Path) -> bool:
    """Return whether detaug wrote the file, or it is empty."""
    with path.open("rb") as file:
        head, size = file.read(_HEAD), os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _TAIL))
        return not size or MARK.encode() in head + file.read() or _OWN_JSON.match(head) is not None
