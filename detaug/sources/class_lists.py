"""Read a list of images with their classes: Caffe's, and DALI's `file_list`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from detaug.arrays import Ints
from detaug.converters.files.paths import is_below
from detaug.errors import InputError

MOST_CLASSES = 1_000_000
"""A larger number is no class's."""


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
    numeric = [_is_number(each) for each in classes]
    if all(numeric):
        numbers = np.array([int(each) for each in classes])
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
