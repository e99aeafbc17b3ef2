"""Find images and their classes: in sub-folders, one for each class, or in a list (Caffe's, DALI's `file_list`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.paths import is_below
from detaug.storage.folder import Status, file_status

_REMEDY = "put the images into a sub-folder for each class, root/cat/1.jpg, or give list_file="


def find_classes(root: Path) -> tuple[list[str], list[str], Ints, Ints]:
    """Return the images' paths below `root`, the class names, the class of each image, and (N, 2) their `Status`.

    Sorted by class, then folder, then name. Raises InputError for images in no class, and classes without images.
    """
    entries = [entry for entry in _entries(str(root)) if not entry.name.startswith(".")]
    loose = sorted(entry.name for entry in entries if _is_image(entry))
    if loose:
        raise InputError(f"{root}: {len(loose)} images are in no class folder, the first is {loose[0]!r}; {_REMEDY}")
    class_names = sorted(entry.name for entry in entries if entry.is_dir())
    if not class_names:
        raise InputError(f"{root}: has no class folders; {_REMEDY}")
    by_class = [[*_images_below(root, name)] for name in class_names]
    empty = [name for name, images in zip(class_names, by_class, strict=True) if not images]
    if empty:
        raise InputError(
            f"{root}: {len(empty)} of {len(class_names)} class folders have no images, the first is {empty[0]!r}; "
            f"remove it, or put images into it ({', '.join(IMAGE_EXTENSIONS)})"
        )
    classes = np.repeat(np.arange(len(by_class)), [len(images) for images in by_class])
    names = [name for images in by_class for name, _ in images]
    return names, class_names, classes, np.array([status for images in by_class for _, status in images], np.int64)


def _images_below(root: Path, class_name: str) -> Iterator[tuple[str, Status]]:
    """Yield the path below `root` and the status of each image, sorted by folder, then name, as torchvision does."""
    prefix = os.path.join(root, "")
    for folder, images in sorted(_folders(os.path.join(root, class_name), frozenset())):
        yield from ((os.path.join(folder, name).removeprefix(prefix), status) for name, status in sorted(images))


def _folders(folder: str, above: frozenset[Status]) -> Iterator[tuple[str, list[tuple[str, Status]]]]:
    """Yield a folder with its images, and those below it. Links are followed, but not to a folder `above`."""
    own = os.stat(folder)
    identity = (own.st_dev, own.st_ino)
    if identity in above:
        return
    images: list[tuple[str, Status]] = []
    for entry in _entries(folder):
        if entry.name.startswith("."):
            continue
        if _is_image(entry):
            images.append((entry.name, file_status(entry.path)))
        elif entry.is_dir():
            yield from _folders(entry.path, above | {identity})
    yield folder, images


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}; every folder of images must be") from error


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Return whether it is named as an image and is a file, or a link to nothing, which is then named as unreadable."""
    return entry.name.lower().endswith(IMAGE_EXTENSIONS) and (entry.is_file() or not os.path.exists(entry.path))


MOST_CLASSES = 1_000_000
"""A larger number is not a class's."""


def read_class_list(path: Path) -> tuple[list[str], list[str], Ints]:
    """Return the paths of the images, the class names, and (N,) the class of each image, 0..K-1.

    Each line is `path class`; a path may have spaces. The classes are numbers from 0, whose names are these numbers, or
    names, which are sorted. Raises InputError for another line, for both kinds in one list, and for a path that leads
    out of the folder.
    """
    rows = [_parse(path, number, line) for number, line in enumerate(_lines(path), 1) if line.strip()]
    if not rows:
        raise InputError(f"{path}: has no lines; each is the path of an image and its class, such as cats/1.jpg 0")
    images, classes = [image for _, image, _ in rows], [class_ for _, _, class_ in rows]
    numeric = [_is_number(class_) for class_ in classes]
    if all(numeric):
        numbers = np.array([int(class_) for class_ in classes])
        return images, [str(number) for number in range(int(numbers.max()) + 1)], numbers
    if any(numeric):
        other = rows[numeric.index(not numeric[0])]
        raise InputError(
            f"{path}: line {other[0]} has the class {other[2]!r}, line {rows[0][0]} has {classes[0]!r}; "
            "give all lines numbers from 0, or all lines names"
        )
    names, positions = np.unique(np.array(classes, object), return_inverse=True)
    return images, names.tolist(), positions.reshape(-1)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; list_file has a line for each image") from error


def _parse(path: Path, number: int, line: str) -> tuple[int, str, str]:
    words = line.strip().rsplit(maxsplit=1)
    if len(words) < 2:
        raise InputError(f"{path}: line {number} is {line.strip()!r}; it must be a path and a class: cats/1.jpg 0")
    image, class_ = words[0].rstrip(), words[1]
    if not is_below(image):
        raise InputError(f"{path}: line {number} has the path {image!r}; it must be relative to root, and below it")
    if _is_number(class_.removeprefix("-")) and not 0 <= int(class_) < MOST_CLASSES:
        raise InputError(f"{path}: line {number} has the class {class_}; numbers of classes are 0 to K - 1")
    return number, image, class_


def _is_number(class_: str) -> bool:
    return class_.isascii() and class_.isdigit()
