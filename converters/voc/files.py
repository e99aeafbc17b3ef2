"""The files of a Pascal VOC data set: its folders, its splits, and which image belongs to which XML."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import folded, stem_of
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding

_PREFERENCE = {extension: rank for rank, extension in enumerate(IMAGE_EXTENSIONS)}
_MARKED_ENTRY = re.compile(r"(.*\S)\s+(-1|0|1)")


@dataclass(frozen=True)
class Folders:
    """Where a data set keeps its files: the devkit's layout, or images beside their XML below root."""

    root: Path
    annotations: Path
    images: Path

    @cached_property
    def xml_prefix(self) -> str:
        """What to put before an XML's name to call it in findings: its path relative to root, if below it."""
        return _prefix(self.root, self.annotations)

    @cached_property
    def image_prefix(self) -> str:
        """The same for an image."""
        return _prefix(self.root, self.images)


def _prefix(root: Path, folder: Path) -> str:
    path = (folder.relative_to(root) if folder.is_relative_to(root) else folder).as_posix()
    return "" if path == "." else f"{path}/"


class Pair(NamedTuple):
    """An XML and the images that may be its own, best first; names relative to their folders.

    rank: how they were found: 0 the stem, 1 the stem in another case, 2 the stem in another folder,
    3 <filename>. An image without XML has xml None.
    """

    xml: str | None
    images: tuple[str, ...]
    rank: int = 0


def find_folders(root: Path, images: Path | None = None, annotations: Path | None = None) -> Folders:
    """ROOT/Annotations with ROOT/JPEGImages (or ROOT/images) where they are there, else ROOT for both."""
    for folder in filter(None, (root, images, annotations)):
        if not folder.is_dir():
            raise ConversionError(f"{folder} is not a folder; give the folder that holds the VOC data set")
    children = {path.name.lower(): path for path in sorted(root.iterdir(), reverse=True) if path.is_dir()}
    if annotations is None:
        annotations = children.get("annotations", root)
    if images is None:
        beside = children.get("images", root) if annotations != root else root
        images = children.get("jpegimages", beside)
    if annotations == images == root:
        _refuse_devkit_parent(root)
    return Folders(root, annotations, images)


def _refuse_devkit_parent(root: Path) -> None:
    parts = sorted(path.parent.name for path in root.glob("*/Annotations") if (path.parent / "JPEGImages").is_dir())
    if parts:
        raise ConversionError(f"{root} holds the data sets {', '.join(parts)}; convert each: {root / parts[0]}")


class ImageNames:
    """The image files of one folder, found by stem or by file name, never opened by a path out of an XML."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self.by_stem = _grouped(self.names, stem_of)

    @cached_property
    def _by_folded_stem(self) -> dict[str, tuple[str, ...]]:
        return _grouped(self.names, lambda name: folded(stem_of(name)))

    @cached_property
    def _by_bare_stem(self) -> dict[str, tuple[str, ...]]:
        return _grouped(self.names, lambda name: folded(stem_of(name.rpartition("/")[2])))

    def with_stem(self, stem: str) -> tuple[tuple[str, ...], int]:
        """Images that have this stem (a relative path without extension), best first, and Pair's rank."""
        if found := self.by_stem.get(stem):
            return found, 0
        if found := self._by_folded_stem.get(folded(stem)):
            return found, 1
        return self._by_bare_stem.get(folded(stem.rpartition("/")[2]), ()), 2

    def with_filename(self, filename: str, folder: str) -> tuple[str, ...]:
        """Images that an XML in this folder may mean by <filename>, of which only the last part counts."""
        name = re.split(r"[\\/]", filename.strip())[-1]
        has_extension = name.lower().endswith(IMAGE_EXTENSIONS)
        stem = f"{folder}/{stem_of(name) if has_extension else name}".lstrip("/")
        found, _ = self.with_stem(stem) if name else ((), 0)
        exact = tuple(image for image in found if folded(image.rpartition("/")[2]) == folded(name))
        return exact or found


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        groups[key(name)] = (*groups.get(key(name), ()), name)
    return {stem: found if len(found) == 1 else tuple(sorted(found, key=_preference)) for stem, found in groups.items()}


def _preference(name: str) -> tuple[int, str]:
    return _PREFERENCE.get(os.path.splitext(name)[1].lower(), len(_PREFERENCE)), name


def pair_by_stem(xmls: Iterable[str], images: ImageNames) -> list[Pair]:
    """Each XML with the images of its stem; none where none has it."""
    return [Pair(xml, *images.with_stem(stem_of(xml))) for xml in xmls]


def settle_claims(pairs: Iterable[Pair]) -> set[str]:
    """The XML files that must give up their image, since another has the better claim to it."""
    owner: dict[str, str] = {}
    losers = set()
    for pair in sorted(pairs, key=lambda pair: (pair.rank, pair.xml or "")):
        if pair.xml and pair.images and owner.setdefault(pair.images[0], pair.xml) != pair.xml:
            losers.add(pair.xml)
    return losers


class SplitEntry(NamedTuple):
    """One line of a split file: the name it holds, and the line's number from 1."""

    name: str
    line: int


@dataclass(frozen=True)
class Split:
    """A split file's entries in its order, and how many it marks -1 (images that do not hold the class)."""

    file: Path
    entries: tuple[SplitEntry, ...]
    negatives: int = 0


def find_split(folders: Folders, name: str) -> Path:
    """The split's file, ROOT/ImageSets/Main/NAME.txt; of a name that is not there, says which are."""
    main = folders.root / "ImageSets" / "Main"
    path = main / f"{name}.txt"
    if PurePosixPath(name).name == name and path.is_file():
        return path
    there = sorted(path.stem for path in main.glob("*.txt"))
    if not there:
        remedy = f"convert {folders.root / name}" if (folders.root / name).is_dir() else "leave the split out"
        raise ConversionError(f"split {name!r}: there are no split files in {main}; {remedy}")
    more = f" and {len(there) - 20} more" if len(there) > 20 else ""
    plain = sorted(there, key=lambda stem: "_" in stem)[:20]
    raise ConversionError(f"split {name!r} is not in {main}; there are {', '.join(plain)}{more}")


def read_split(path: Path, is_known: Callable[[str], bool]) -> Split:
    """Read a split file of the devkit: one name a line, blank lines and lines that begin with # passed over.

    The files of one class, as ImageSets/Main/cat_train.txt, have a further column: 1 an image that holds the
    class, 0 one that holds it only as difficult objects, -1 one that does not. Images marked 1 and 0 make up
    the split, with their objects of every class; those marked -1 are left out. is_known(name) says whether
    there is an XML or image of that name: it tells the name "photo 1" from the name "photo" marked 1.
    """
    entries, negatives = [], 0
    for number, line in enumerate(_split_lines(path), 1):
        name = line.strip()
        marked = _MARKED_ENTRY.fullmatch(name)
        if not name or (name.startswith("#") and not is_known(name)):
            continue
        if marked and not is_known(name):
            name = marked[1]
            if marked[2] == "-1":
                negatives += 1
                continue
        entries.append(SplitEntry(name, number))
    if not entries:
        raise ConversionError(f"{path} names no image ({negatives} marked -1): the split is empty")
    return Split(path, tuple(entries), negatives)


def _split_lines(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ConversionError(f"{path} must be UTF-8 text, got byte {error.object[error.start]:#x}") from error


class SplitPairs(NamedTuple):
    """The pairs of a split in its order, and what was found wrong with its entries."""

    pairs: list[Pair]
    findings: list[Finding]


def pair_split(split: Split, label: str, xmls: dict[str, str], images: ImageNames) -> SplitPairs:
    """The pairs that a split names. xmls: stem -> XML."""
    pairs, findings, seen = [], [], set()
    for entry in split.entries:
        stem = known_stem(entry.name, xmls, images)
        if stem is None:
            note = f"{entry.name} has neither an XML nor an image"
            findings.append(Finding(label, "split-entry-missing", line=entry.line, before=entry.name, note=note))
        elif stem in seen:
            findings.append(Finding(label, "split-entry-repeated", line=entry.line, before=entry.name))
        else:
            seen.add(stem)
            xml = xmls.get(stem)
            pairs.append(Pair(xml, *images.with_stem(stem)) if xml else Pair(None, images.by_stem[stem][:1]))
    if split.negatives:
        findings.append(Finding(label, "split-negative", before=split.negatives))
    return SplitPairs(pairs, findings)


def known_stem(name: str, xmls: dict[str, str], images: ImageNames) -> str | None:
    """The stem that a split's entry means: itself, or itself without an extension; None if nothing has it."""
    has_extension = name.lower().endswith((*IMAGE_EXTENSIONS, ".xml"))
    for stem in (name, stem_of(name)) if has_extension else (name,):
        if stem in xmls or stem in images.by_stem:
            return stem
    return None
