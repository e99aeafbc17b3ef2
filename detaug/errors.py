"""The public errors, for input that cannot be used. Any other error is a bug of detaug, or of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detaug.findings.finding import Finding


_LONGEST = 4000, 3000, 900
"""Letters of a line, and those that stay at its start and its end, where the remedy is, of a longer one."""


def printable(text: str, kept: str = "\n") -> str:
    """Return text with control characters, line breaks beside `kept`, and bytes that are not UTF-8 escaped.

    Names in files may hold what a terminal obeys.
    """
    if text.isprintable():
        return text
    chars = (char if char in kept or char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return "".join(chars)


def _bounded(line: str) -> str:
    longest, start, end = _LONGEST
    return line if len(line) <= longest else f"{line[:start]} ... {line[-end:]}"


class InputError(ValueError):
    """An argument, a file or a folder that cannot be used. The message says what is wrong, the rule, and what to do.

    The commands print it as one line and end with exit code 2.

    >>> try:
    ...     da.RandomZoomOut(max_ratio=0.5)
    ... except da.InputError as error:
    ...     print(error)
    max_ratio must be at least 1 (1 leaves the image as it is), got 0.5
    """

    __module__ = "detaug"  # tracebacks show the public name

    def __init__(self, message: str = "") -> None:
        super().__init__("\n".join(map(_bounded, printable(str(message)).split("\n"))))

    ag_pass_through = True  # DALI with conditionals replaces an error without this attribute by one of its own


class MissingPackageError(InputError, ModuleNotFoundError):
    """A package that is not installed. The message names it and the command that installs it."""


class ConversionError(InputError):
    """Input that cannot be converted. str() has one line for each problem and the remedy; nothing was written.

    >>> from detaug.converters import ConversionError, voc_to_coco
    >>> try:
    ...     voc_to_coco("demo/VOC", "test.json", split="test")
    ... except ConversionError as error:
    ...     print(error)
    split 'test' is not in demo/VOC/ImageSets/Main; there are train, trainval, val
    """

    __module__ = "detaug.converters"

    def __init__(self, message: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class AnnotationError(InputError):
    """A COCO JSON file that training would stop at or learn wrongly from. The message names file, entry and remedy.

    >>> try:
    ...     da.CocoReader("demo/VOC/JPEGImages", "no.json")
    ... except da.AnnotationError as error:
    ...     print(error)
    no.json: no such file; detaug convert-voc makes one from Pascal VOC
    """

    __module__ = "detaug"


class DataError(InputError):
    """An image that cannot be used, or not be read, in the middle of an epoch. The message names it and the remedy.

    >>> import shutil
    >>> from pathlib import Path
    >>> folder = Path(shutil.copytree("demo/VOC/JPEGImages", "broken"))
    >>> _ = (folder / "000001.jpg").write_bytes(b"no JPEG")
    >>> loader = da.Loader(da.CocoReader(folder, "train.json"), da.presets.evaluation((300, 300)), 8, train=False)
    >>> next(iter(loader))
    Traceback (most recent call last):
        ...
    detaug.DataError: .../broken/000001.jpg: does not decode (cannot identify ...); detaug check ...
    """

    __module__ = "detaug"  # tracebacks show the public name


class OpError(RuntimeError):
    """An op that failed. The message names the op, its place in the recipe and the method; the cause is its error.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Broken(da.GeometricOp):
    ...     def move(self, views, drawn):
    ...         return views.no_such_method()
    >>> samples = Broken()(da.batch([np.zeros((4, 4, 3), np.uint8)]))
    >>> try:
    ...     samples.boxes
    ... except da.OpError as error:
    ...     print(error)
    Broken (1st op of the recipe) failed in move: AttributeError: 'Views' object has no attribute 'no_such_method'
    """

    __module__ = "detaug"  # tracebacks show the public name
