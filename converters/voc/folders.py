"""Find the folders of a Pascal VOC dataset, and read its splits, ImageSets/Main/NAME.txt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from detaug.errors import ConversionError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.matching import ImageNames
from detaug.files.paths import stem_of
from detaug.files.text import lines_of
from detaug.findings.finding import Finding


@dataclass(frozen=True)
class Folders:
    """The folders of a dataset: the devkit's layout, or images beside their XML below root."""

    root: Path
    annotations: Path
    images: Path

    @cached_property
    def xml_prefix(self) -> str:
        """Return the start of an XML's name in findings: the folder's path, relative to root if below it."""
        return _prefix(self.root, self.annotations)

    @cached_property
    def image_prefix(self) -> str:
        """Return the start of an image's name in findings."""
        return _prefix(self.root, self.images)


def _prefix(root: Path, folder: Path) -> str:
    path = (folder.relative_to(root) if folder.is_relative_to(root) else folder).as_posix()
    return "" if path == "." else f"{path}/"


def find_folders(root: Path, images: Path | None = None, annotations: Path | None = None) -> Folders:
    """Return ROOT/Annotations with ROOT/JPEGImages (or ROOT/images) where they exist, else ROOT for both."""
    for folder in filter(None, (root, images, annotations)):
        if not folder.is_dir():
            raise ConversionError(f"{folder} is not a folder; give the folder of the VOC dataset")
    if images is None and annotations is None:
        _refuse_folder_of_a_data_set(root)
    # backwards, so that of names that differ in case the first one stays
    children = {path.name.lower(): path for path in sorted(root.iterdir(), reverse=True) if path.is_dir()}
    if annotations is None:
        annotations = children.get("annotations", root)
    if images is None:
        beside = children.get("images", root) if annotations != root else root
        images = children.get("jpegimages", beside)
    if annotations == images == root:
        _refuse_devkit_parent(root)
    return Folders(root, annotations, images)


def _refuse_folder_of_a_data_set(root: Path) -> None:
    """Raise ConversionError for the Annotations or JPEGImages of a dataset, unless it has the other one's files."""
    partners, extensions = _PARTNERS.get(root.resolve().name.lower(), ((), ()))
    above = root.resolve().parent if root.name in ("", "..") else root.parent
    has_partner = partners and any(path.name.lower() in partners for path in above.iterdir())
    if has_partner and not any(path.suffix.lower() in extensions for path in root.iterdir()):
        raise ConversionError(f"{root} is one folder of a VOC dataset; give the folder above it: convert {above}")


_PARTNERS = {
    "annotations": (("jpegimages", "images"), IMAGE_EXTENSIONS),
    "jpegimages": (("annotations",), (".xml",)),
}


def _refuse_devkit_parent(root: Path) -> None:
    parts = sorted(path.parent.name for path in root.glob("*/Annotations") if (path.parent / "JPEGImages").is_dir())
    if parts:
        raise ConversionError(f"{root} contains the datasets {', '.join(parts)}; convert each: {root / parts[0]}")


_MARKED_ENTRY = re.compile(r"(.*\S)\s+(-1|0|1)")
_MOST_SHOWN = 20


class SplitEntry(NamedTuple):
    """One line of a split file: its name, and the line's number from 1."""

    name: str
    line: int


@dataclass(frozen=True)
class Split:
    """The entries of a split file in its order."""

    file: Path
    entries: tuple[SplitEntry, ...]
    negatives: int = 0
    """Entries marked -1: images without the split's class."""
    contradictions: tuple[SplitEntry, ...] = ()
    """Entries marked -1 of images that are also marked 1 or 0."""


def find_split(folders: Folders, name: str) -> Path:
    """Return the split's file, ROOT/ImageSets/Main/NAME.txt. Raises ConversionError that lists the existing ones."""
    main = folders.root / "ImageSets" / "Main"
    path = main / f"{name}.txt"
    if PurePosixPath(name).name == name and path.is_file():
        return path
    existing = sorted(path.stem for path in main.glob("*.txt"))
    if not existing:
        remedy = f"convert {folders.root / name}" if (folders.root / name).is_dir() else "leave the split out"
        raise ConversionError(f"split {name!r}: there are no split files in {main}; {remedy}")
    more = f" and {len(existing) - _MOST_SHOWN} more" if len(existing) > _MOST_SHOWN else ""
    plain = sorted(existing, key=lambda stem: "_" in stem)[:_MOST_SHOWN]
    raise ConversionError(f"split {name!r} is not in {main}; there are {', '.join(plain)}{more}")


def read_split(path: Path, is_known: Callable[[str], bool]) -> Split:
    """Read a split file of the devkit: one name on each line; blank lines and lines that begin with # do not count.

    The files of one class, such as ImageSets/Main/cat_train.txt, have a second column: 1 for an image with the class,
    0 for one with difficult objects of it only, -1 for one without it. The split is the images marked 1 and 0, with
    their objects of every class. is_known(name): whether an XML or image has that name, which tells the name "photo 1"
    from the name "photo" marked 1.
    """
    entries, negatives = [], dict[str, int]()
    for number, line in enumerate(_lines(path), 1):
        name = line.strip()
        marked = _MARKED_ENTRY.fullmatch(name)
        if not name or (name.startswith("#") and not is_known(name)):
            continue
        if marked and not is_known(name):
            name = marked[1]
            if marked[2] == "-1":
                negatives[name] = number
                continue
        entries.append(SplitEntry(name, number))
    if not entries:
        raise ConversionError(f"{path} names no image ({len(negatives)} marked -1): the split is empty")
    both = [SplitEntry(entry.name, negatives.pop(entry.name)) for entry in entries if entry.name in negatives]
    return Split(path, tuple(entries), len(negatives), tuple(both))


def _lines(path: Path) -> list[str]:
    try:
        return lines_of(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConversionError(f"{path} must be UTF-8 text, got byte {error.object[error.start]:#x}") from error


def stems_of_split(
    split: Split, label: str, xmls: Mapping[str, str], images: ImageNames
) -> tuple[list[str], list[Finding]]:
    """Return the stems that a split names, in its order, and findings about its entries. xmls: stem -> XML."""
    stems, findings = dict[str, None](), []
    for entry in split.entries:
        stem = known_stem(entry.name, xmls, images)
        if stem is None:
            note = f"{entry.name} has neither an XML nor an image"
            findings.append(Finding(label, "split-entry-missing", line=entry.line, before=entry.name, note=note))
        elif stem in stems:
            findings.append(Finding(label, "split-entry-repeated", line=entry.line, before=entry.name))
        else:
            stems[stem] = None
    for entry in split.contradictions:
        findings.append(Finding(label, "split-contradiction", line=entry.line, before=entry.name))
    if split.negatives:
        findings.append(Finding(label, "split-negative", before=split.negatives, count=split.negatives))
    return [*stems], findings


def known_stem(name: str, xmls: Mapping[str, str], images: ImageNames) -> str | None:
    """Return the stem that a split's entry means: itself, or itself without an extension; None where neither exists."""
    has_extension = name.lower().endswith((*IMAGE_EXTENSIONS, ".xml"))
    for stem in (name, stem_of(name)) if has_extension else (name,):
        if stem in xmls or images.by_stem.get(stem):
            return stem
    return None
