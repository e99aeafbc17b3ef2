"""Find the sequences of a dataset in MOTChallenge's layout: seqinfo.ini, the frames, and gt/gt.txt of each."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from detaug.coco.file_names import is_video
from detaug.errors import ConversionError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.known_files import what_folder_has
from detaug.files.paths import in_any_case, is_below, last_part, stem_of
from detaug.files.text import read_text
from detaug.findings.finding import Finding, counted, shown

INFO, GROUND_TRUTH, LABELS = "seqinfo.ini", "gt/gt.txt", "labels.txt"


_FLAT = "gt.txt"
"""The ground truth beside a video, without the folder."""


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
    sequences = ["."] if _is_sequence(root) else sorted(path.name for path in root.iterdir() if _is_sequence(path))
    if not sequences:
        what = what_folder_has(root)
        raise ConversionError(
            f"{root} has no sequences: folders with {INFO} or {GROUND_TRUTH}; give their folder{what}"
        )
    left = [
        name for name in sequences if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
    if not left:
        raise ConversionError(
            f"{root} has no sequence like {', '.join(patterns)}; there are {', '.join(sequences[:8])}"
        )
    return left


def _is_sequence(folder: Path) -> bool:
    """Return whether a folder is a sequence. A gt.txt outside of a folder gt is one's if a video is beside it."""
    if folder.name.startswith("."):
        return False
    usual = any(in_any_case(folder / name).is_file() for name in (INFO, GROUND_TRUTH))
    return usual or (in_any_case(folder / _FLAT).is_file() and any(map(is_video, _names(folder))))


def truth_of(root: Path, name: str) -> str:
    """Return the gt.txt of a sequence relative to the root: in its folder gt, or beside its video."""
    beside, usual = file_of(root, name, _FLAT), file_of(root, name, GROUND_TRUTH)
    return beside if (root / beside).is_file() and not (root / usual).is_file() else usual


def find_video(folder: Path, name: str, video: str, images: str, findings: list[Finding]) -> str | None:
    """Return the video file of a sequence without images, relative to the folder; None if there is not one.

    folder: of the sequences' images. name: of the sequence, "." for the folder itself. video: its name. images: the
    folder of its frames. Several files are a finding, unless one has the video's name.
    """
    inside = [Path(images), Path(name), Path(name, "gt")]
    places = inside if name == "." else [*inside, Path()]
    files = [
        (place / file).as_posix()
        for place in places
        for file in sorted(_names(folder / place))
        if is_video(file) and not file.startswith(".") and (place != Path() or name == "." or stem_of(file) == video)
    ]
    same = [file for file in files if stem_of(last_part(file)) == video]
    if len(files) > 1 and not same:
        note = f"several video files, {files[0]} and {files[1]}: leave one, or name it {video}{Path(files[0]).suffix}"
        findings.append(Finding(name, "frames-missing", note=note))
        return None
    return next(iter([*same, *files]), None)


def file_of(root: Path, name: str, file: str) -> str:
    """Return a file or folder of a sequence relative to the root, in the case in which it is there."""
    return in_any_case(root / name / file).relative_to(root).as_posix()


def read_info(root: Path, name: str, findings: list[Finding]) -> SequenceInfo:
    """Read a seqinfo.ini; a missing or damaged one is a finding."""
    file = file_of(root, name, INFO)
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
        findings.append(
            Finding(file, "sequence-info", note=f"imDir must be a folder below the sequence's: {shown(folder)}")
        )
        folder = SequenceInfo().image_folder
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


def find_frames(root: Path, folder: str, findings: list[Finding]) -> dict[int, str]:
    """Return the images of a sequence by the number of their frame: paths relative to the root, in their order.

    The number is the name. Where names are not numbers or count from 0, as CVAT's frame_000000.PNG, it is the position
    in the order of names, from 1. Images that are left out are findings: other names, and a second image of a frame.
    """
    files = _by_stem(root, folder, findings)
    numbers = {stem for stem in files if _is_number(stem)}
    others = sorted(files.keys() - numbers, key=_by_value)
    if numbers and others:
        note = f"{counted(len(others), 'image')} left out, such as {files[others[0]]}: the name is not a frame number"
        findings.append(Finding(folder, "frame-unnumbered", note=note, count=len(others)))
    stems = sorted(numbers or others, key=_by_value)
    if numbers and "0" not in numbers:
        return {int(stem): files[stem] for stem in stems}
    if _has_gaps(stems):
        note = f"names of frames must be numbers from 1, or without gaps; they are {stems[0]} to {stems[-1]}"
        findings.append(Finding(folder, "frames-missing", note=f"{note}: name the first frame 000001 and so on"))
        return {}
    if stems:
        findings.append(Finding(folder, "frames-by-order", before=files[stems[0]], after=1))
    return {number: files[stem] for number, stem in enumerate(stems, 1)}


def _by_stem(root: Path, folder: str, findings: list[Finding]) -> dict[str, str]:
    """Return the images in a folder by the name without extension, or by the number that it is: "1" for 000001."""
    files: dict[str, list[str]] = {}
    for name in sorted(_names(root / folder)):
        if name.lower().endswith(IMAGE_EXTENSIONS) and not name.startswith("."):
            stem = stem_of(name)
            files.setdefault(str(int(stem)) if _is_number(stem) else stem, []).append(Path(folder, name).as_posix())
    findings += [
        Finding(paths[0], "image-ambiguous", None, None, paths, paths[0]) for paths in files.values() if paths[1:]
    ]
    return {stem: names[0] for stem, names in files.items()}


def _is_number(stem: str) -> bool:
    return stem.isascii() and stem.isdigit()


def _by_value(stem: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by their value."""
    return [(int(part), "") if _is_number(part) else (-1, part) for part in re.split(r"([0-9]+)", stem)]


def _has_gaps(stems: Sequence[str]) -> bool:
    """Return whether names that differ in the number at their end only have numbers without an equal step."""
    matches = [re.fullmatch(r"(.*?)([0-9]+)", stem, re.DOTALL) for stem in stems]
    if not all(matches) or len({match[1] for match in matches if match}) > 1:
        return False
    numbers = [int(match[2]) for match in matches if match]
    return len({after - before for before, after in pairwise(numbers)}) > 1


def _names(folder: Path) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def missing_numbers(frames: Mapping[int, str], expected: int | None) -> Iterator[int]:
    """Yield the numbers from 1 to the expected one, or to the last frame, that no frame has."""
    last = max(expected or 0, max(frames, default=0))
    return (number for number in range(1, last + 1) if number not in frames)
