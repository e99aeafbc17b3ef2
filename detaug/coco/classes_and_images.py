"""Read class names; find names that are nearly equal, and faults of image files: the same for every format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from detaug.errors import ConversionError, InputError
from detaug.files.image_headers import DECODED_FORMATS, ImageHeader
from detaug.files.namesakes import splits_of
from detaug.files.paths import regular_status
from detaug.files.text import name_key, read_text
from detaug.findings.finding import Finding

_LABEL_MAP_TEXT = re.compile(r"""\b(display_name|name)\s*:\s*(?:"([^"\n]*)"|'([^'\n]*)')""")


def read_class_names(text: str) -> list[str]:
    """Return class names from "a,b,c", from a text file with one name on each line, or from a label map (.pbtxt).

    A label map of TensorFlow has an id, from 1, for each name; an id that it leaves out becomes "class 4".

    Args:
        text: Names with commas between them, or the path of a file.

    >>> from detaug.converters import read_class_names
    >>> read_class_names("cat, dog, zebra")
    ['cat', 'dog', 'zebra']
    """
    path = Path(text)
    if path.suffix.lower() == ".pbtxt":
        return _label_map(path)
    if path.suffix.lower() == ".json":  # also: no output, a JSON file, can be this input
        raise ConversionError(f"classes file {text} is a JSON file; give a text file with one name on each line")
    if path.is_file():
        lines = _lines(path)
    elif path.suffix == ".txt" or "/" in text:
        raise ConversionError(f"classes file {text} does not exist; give a file or names with commas between them")
    else:
        lines = text.split(",")
    return [line.strip() for line in lines if line.strip()]


def _label_map(path: Path) -> list[str]:
    """Return the names of a label map in the order of their ids: of display_name, or else of name."""
    if not path.is_file():
        raise ConversionError(f"classes file {path} does not exist; give a file or names with commas between them")
    names = {}
    for item in re.findall(r"\bitem\s*(?::\s*)?\{([^{}]*)", "\n".join(_lines(path))):
        texts = {key: double or single for key, double, single in _LABEL_MAP_TEXT.findall(item)}
        number, name = re.search(r"\bid\s*:\s*(\d{1,6})\b", item), texts.get("display_name") or texts.get("name")
        if number and name and int(number[1]):  # 0 is the background
            names[int(number[1])] = name
    if not names:
        raise ConversionError(f"classes file {path} has no item with an id from 1 and a name; give names, one a line")
    return [names.get(number, f"class {number}") for number in range(1, max(names) + 1)]


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path).splitlines()
    except InputError as error:
        raise ConversionError(f"classes file {path} {error}") from None


def unused_classes(listed: Iterable[str], left_out: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each listed name, which no object has; `after` is the most similar name left out, if any."""
    names = {name_key(name): name for name in left_out}
    for name in listed:
        close = get_close_matches(name_key(name), names, 1)
        similar = names[close[0]] if close else None
        question = f"; did you mean {similar}?" if similar else ""
        yield Finding(
            "", "class-unused", before=name, after=similar, note=f"{name} is listed and has no object{question}"
        )


def alike_classes(names: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each name that differs from an earlier one at most in case, spaces or Unicode form."""
    earlier: dict[str, str] = {}
    for name in names:
        other = earlier.setdefault(name_key(name), name)
        if other != name:
            yield Finding("", "class-alike", before=name, after=other)


def joined_splits(names: Iterable[str], source: object) -> Iterator[Finding]:
    """Yield a finding if the folders of images are those of several splits, such as train and test."""
    splits = sorted({split for name in names for split in splits_of(name)})
    if len(splits) > 1:
        yield Finding("", "splits-joined", before=splits, note=f"{source} has images of {' and '.join(splits)}")


def missing_images(names: Mapping[int, str], images: Path | None) -> Iterator[tuple[int, Finding]]:
    """Yield (position, finding) for each image that is not in the folder; nothing without a folder. Raises OSError."""
    for position, name in names.items() if images else ():
        if regular_status(os.path.join(images or "", name)) is None:
            yield position, Finding(name, "image-missing", note=f"is not in {images}")


def header_findings(image: str, file: str, header: ImageHeader) -> Iterator[Finding]:
    """Yield findings about an image's header. file: the image's name in the findings."""
    extension = os.path.splitext(image)[1].lower()
    if extension not in DECODED_FORMATS[header.format]:
        yield Finding(file, "image-extension", before=extension, after=header.format)
    if not 1 <= header.orientation <= 8:
        yield Finding(file, "orientation-invalid", before=header.orientation, after=1)
    if header.has_more:
        yield Finding(file, "image-several", before=header.format)
