"""Find the sequences of a data set in MOTChallenge's layout: seqinfo.ini, the frames, and gt/gt.txt of each."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from pathlib import Path
from typing import NamedTuple

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import is_below, stem_of
from detaug.converters.files.text import read_text
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding

INFO, GROUND_TRUTH, LABELS = "seqinfo.ini", "gt/gt.txt", "gt/labels.txt"


class SequenceInfo(NamedTuple):
    """What a seqinfo.ini says; None for what it does not."""

    image_folder: str = "img1"
    """Relative to the sequence's folder."""
    frame_rate: float | None = None
    frames: int | None = None
    size: tuple[int, int] | None = None
    """(width, height)."""


def find_sequences(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the folders of the sequences, relative to the root: "." if it is one itself; else those directly below.

    patterns: with wildcards, of which a name must match one; none for all. Raises ConversionError where none is left.
    """
    if not root.is_dir():
        raise ConversionError(f"{root} is not a folder; give the one that holds the sequences")
    found = ["."] if _is_sequence(root) else sorted(each.name for each in root.iterdir() if _is_sequence(each))
    if not found:
        raise ConversionError(f"{root} has no sequences: folders with {INFO} or {GROUND_TRUTH}; give their folder")
    left = [name for name in found if not patterns or any(fnmatch.fnmatchcase(name, each) for each in patterns)]
    if not left:
        raise ConversionError(f"{root} has no sequence like {', '.join(patterns)}; there are {', '.join(found[:8])}")
    return left


def _is_sequence(folder: Path) -> bool:
    return not folder.name.startswith(".") and any((folder / name).is_file() for name in (INFO, GROUND_TRUTH))


def read_info(root: Path, name: str, findings: list[Finding]) -> SequenceInfo:
    """Read a seqinfo.ini; a missing or damaged one is a finding."""
    file = Path(name, INFO).as_posix()
    try:
        parser = ConfigParser(interpolation=None)
        parser.read_string(read_text(root / file))
        values = dict(parser["Sequence"])
    except FileNotFoundError:
        findings.append(Finding(file, "sequence-info-missing"))
        return SequenceInfo()
    except (OSError, ValueError, IniError, KeyError) as error:
        findings.append(Finding(file, "sequence-info", note=f"cannot be read: {' '.join(str(error).split())[:200]}"))
        return SequenceInfo()
    folder = values.get("imdir", SequenceInfo().image_folder).strip()
    if not is_below(folder):
        findings.append(Finding(file, "sequence-info", note=f"imDir must be a folder below the sequence's: {folder!r}"))
    width, height = (_number(values, key) for key in ("imwidth", "imheight"))
    frames = _number(values, "seqlength")
    size = (int(width), int(height)) if width and height else None
    return SequenceInfo(folder, _number(values, "framerate"), int(frames) if frames else None, size)


def _number(values: dict[str, str], key: str) -> float | None:
    """Return a number over 0, else None."""
    try:
        number = float(values.get(key, ""))
    except ValueError:
        return None
    return number if 0 < number < 1e9 else None


def find_frames(root: Path, folder: str) -> dict[int, str]:
    """Return the images whose name is a number, by that number: paths relative to the root, in the order of numbers.

    Of two images with one number, such as 1.jpg and 000001.jpg, the first by name is taken.
    """
    found: dict[int, str] = {}
    for name in sorted(_names(root / folder)):
        stem = stem_of(name)
        if name.lower().endswith(tuple(IMAGE_EXTENSIONS)) and stem.isascii() and stem.isdigit():
            found.setdefault(int(stem), Path(folder, name).as_posix())
    return dict(sorted(found.items()))


def _names(folder: Path) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def missing_numbers(frames: Mapping[int, str], expected: int | None) -> Iterator[int]:
    """Yield the numbers from 1 to the expected one, or to the last frame, that no frame has."""
    last = max(expected or 0, max(frames, default=0))
    return (number for number in range(1, last + 1) if number not in frames)
