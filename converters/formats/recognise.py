"""Find out which format a file or a folder is in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from detaug.coco.file_names import VIDEO_EXTENSIONS
from detaug.errors import ConversionError, InputError
from detaug.files.formats import BY_NAME, FORMATS, Form, Format
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.known_files import form_of_file, what_table_is
from detaug.files.paths import PathLike, list_files
from detaug.findings.finding import counted
from detaug.named_options import option

_MOST_TRIED = 20
"""Files of one extension that are looked into."""


class Recognised(NamedTuple):
    """The files of a dataset, and their format."""

    format: Format
    path: Path
    folder: Path
    """The path, or the folder of the file."""
    files: Sequence[str]
    """Of the format, relative to the folder."""
    unused: Sequence[str] = ()
    """Files of the same extension: in folders without such files those in no known format, else those in another."""

    def __str__(self) -> str:
        if self.path.is_file():
            return f"{self.format.title}: {self.path}"
        return f"{self.format.title}: {counted(len(self.files), 'file')} in {self.path}"


def recognise(path: PathLike, name: str | None = None, images: PathLike | None = None) -> Recognised:
    """Return the format of a file or of the files of a folder. name: of the format, where several are possible. images:
    the folder of the images, if they are elsewhere: maps of classes are known by the images that they are of.

    Raises ConversionError for what has none, or several, with the nearest way.
    """
    path = Path(path)
    if name is not None and name not in BY_NAME:
        raise InputError(f"{_named()} must be one of {', '.join(BY_NAME)}, got {name!r}")
    if images is not None:
        check_images(images)
    if path.is_dir():
        return _recognise_folder(path, name, images)
    check_exists(path)
    form = form_of_file(path)
    if name and BY_NAME[name].folders:
        raise ConversionError(f"{path} is a file, and {BY_NAME[name].title} are folders; give the one above them")
    if name:
        return Recognised(BY_NAME[name], path, path.parent, [path.name])
    if form is None:
        if what := what_table_is(path):
            raise ConversionError(f"{path} {what}")
        named = _named("NAME")
        raise ConversionError(f"{path} is in no format that is known; detaug formats lists them, {named} names it")
    if not form.format:
        raise ConversionError(f"{path} is {form.name}; {form.remedy}")
    return Recognised(BY_NAME[form.format], path, path.parent, [path.name])


def check_exists(path: Path) -> None:
    """Raise ConversionError for a path that does not exist."""
    if not path.exists():
        raise ConversionError(f"{path} does not exist; give a file or a folder of annotations")


def check_images(folder: PathLike) -> None:
    """Raise ConversionError for a folder of images that does not exist."""
    if not os.path.isdir(folder):
        raise ConversionError(f"images {folder} is not a folder; give the folder of the images")


def _recognise_folder(folder: Path, name: str | None, images: PathLike | None) -> Recognised:
    if name is not None and BY_NAME[name].folders:
        if recognised := _of_folders(folder, [BY_NAME[name]], images):
            return recognised
        raise ConversionError(f"{folder} has no maps in the folders of {BY_NAME[name].title}; leave {_named()} out")
    groups: dict[tuple[str, str], list[str]] = {}
    for file in list_files(folder, ("",), regular=False):
        if not file.lower().endswith(IMAGE_EXTENSIONS):
            key = file.rpartition("/")[0], os.path.splitext(file)[1].lower()
            groups.setdefault(key, []).append(file)
    forms = {file: form_of_file(folder / file) for files in groups.values() for file in _some_of(files)}
    by_format: dict[str, list[str]] = {}
    for file, form in forms.items():
        if form and form.format and not (form.format == "coco" and _is_output(folder / file)):
            by_format.setdefault(form.format, []).append(file)
    if name is None and not by_format and (recognised := _of_folders(folder, FORMATS, images)):
        return recognised
    if name is None and len(by_format) != 1:
        raise ConversionError(_why_unclear(folder, by_format, forms))
    name = name or next(iter(by_format))
    others = {file for file, form in forms.items() if form and form.format != name and not form.is_broken}
    keys = {(file.rpartition("/")[0], os.path.splitext(file)[1].lower()) for file in by_format.get(name, ())}
    keys = keys or {key for key in groups if key[1] in BY_NAME[name].extensions}
    files = sorted(file for key in keys for file in groups[key] if file not in others)
    if not files:
        raise ConversionError(f"{folder} has no file that may be {BY_NAME[name].title}; leave {_named()} out")
    extensions = {key[1] for key in keys}
    unused = [file for key in groups if key not in keys and key[1] in extensions for file in groups[key]]
    unused = [file for file in unused if file not in others]
    unused += [file for key in keys for file in groups[key] if file in others and not _is_output(folder / file)]
    return Recognised(BY_NAME[name], folder, folder, files, sorted(unused))


MAPS_OF_CLASSES = ("cityscapes", "semantic")
"""Formats that have the classes of pixels, whatever else they have."""


def _of_folders(folder: Path, formats: Sequence[Format], images: PathLike | None = None) -> Recognised | None:
    """Return the first format whose folders of images and maps these are, the more special before others."""
    names = list_files(folder, ("",), regular=False)
    if images is not None:
        names = [*names, *(name.rpartition("/")[2] for name in list_files(Path(images), IMAGE_EXTENSIONS))]
    for format in sorted(formats, key=lambda row: row.name == "semantic"):
        if format.folders and (files := format.folders(names)):
            return Recognised(format, folder, folder, sorted(files))
    return None


def recognise_maps(path: PathLike, images: PathLike | None = None) -> Recognised | None:
    """Return the folders of images and of maps of classes in a folder, also beside annotations; None without such.

    images: as of `recognise`.
    """
    formats = [BY_NAME[name] for name in MAPS_OF_CLASSES]
    return _of_folders(Path(path), formats, images) if os.path.isdir(path) else None


def _some_of(files: Sequence[str]) -> Iterable[str]:
    """Return at most 20 of the files, evenly spaced."""
    step = max(1, len(files) / _MOST_TRIED)
    return (files[int(index * step)] for index in range(min(len(files), _MOST_TRIED)))


def _is_output(path: Path) -> bool:
    """Return whether a COCO JSON file is the output of an earlier conversion."""
    with path.open("rb") as file:
        return b"converted by detaug" in file.read(256)


def _named(name: str = "") -> str:
    return option("format", name, command="from")


def _why_unclear(folder: Path, by_format: dict[str, list[str]], forms: dict[str, Form | None]) -> str:
    if by_format:
        names = [row.name for row in FORMATS if row.name in by_format]
        parts = " and ".join(f"{BY_NAME[name].title} ({by_format[name][0]})" for name in names)
        choices = " or ".join(_named(name) for name in names)
        return f"{folder} has {parts}; choose one, {choices}, or give the file or folder of one"
    for file, form in forms.items():
        if form:
            return f"{folder} has {file}, which is {form.name}; {form.remedy}"
    for file in forms:
        if what := what_table_is(folder / file):
            return f"{folder} has {file}, which {what}"
    names = list_files(folder, ("",))
    counts = {
        noun: sum(name.lower().endswith(extensions) for name in names)
        for noun, extensions in (("image", IMAGE_EXTENSIONS), ("video", VIDEO_EXTENSIONS))
    }
    if there := " and ".join(counted(count, noun) for noun, count in counts.items() if count):
        return (
            f"{folder} has {there}, and no annotations in a format that is known; label some in a labeling tool and "
            "bring its files; detaug formats lists the formats"
        )
    return f"{folder} has no annotations in a format that is known; detaug formats lists them"
