"""Find the image that belongs to each label file, such as an XML, by their names (decision 3)."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, overload

from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.names_by_key import NamesByKey
from detaug.files.namesakes import Namesakes
from detaug.files.paths import folded, last_part, stem_of
from detaug.files.repeated import repeated_hashes

SAME_STEM, OTHER_CASE, OTHER_FOLDER, BY_FILENAME = range(4)
"""How the images of a pair were found, best first: by the stem; the stem in another case or Unicode form, or the whole
name of the image; the stem in another folder; <filename>."""


class Pair(NamedTuple):
    """A label file and the images that may belong to it, best first; names relative to their folders.

    An image without labels has label None.
    """

    label: str | None
    images: tuple[str, ...]
    rank: int = SAME_STEM


class ImageNames:
    """The image files of a dataset, found by stem or by file name; no path in a label file is ever opened.

    place: returns where an image is for its label file, if that has other folders.
    """

    def __init__(self, names: Iterable[str], place: Callable[[str], str] = str) -> None:
        self.names = sorted(names)
        self.place = place

    def __reduce__(self) -> tuple[type[ImageNames], tuple[Sequence[str], Callable[[str], str]]]:
        """Return the names alone: in another process texts have other hashes, by which they are found."""
        return ImageNames, (self.names, self.place)

    def __contains__(self, name: str) -> bool:
        index = bisect_left(self.names, name)
        return index < len(self.names) and self.names[index] == name

    def own_copy(self, name: str) -> str:
        """Return the name itself, as the one in memory; a name that is none of an image as it is."""
        index = bisect_left(self.names, name)
        return self.names[index] if name in self.names[index : index + 1] else name

    @cached_property
    def by_stem(self) -> NamesByKey:
        """By the path without its extension."""
        return NamesByKey(self.names, lambda name: stem_of(self.place(name)))

    @cached_property
    def _by_folded_stem(self) -> NamesByKey:
        return NamesByKey(self.names, lambda name: folded(stem_of(self.place(name))))

    @cached_property
    def namesakes(self) -> Namesakes:
        """By the stem without its folder."""
        return Namesakes(self.names, self.place)

    def with_stem(self, stem: str) -> tuple[tuple[str, ...], int]:
        """Return the images of a stem (a relative path without extension), best first, and the Pair's rank."""
        images, rank = self._in_place(stem)
        return (images, rank) if images else (tuple(self.namesakes.nearest(stem.replace("\\", "/"))), OTHER_FOLDER)

    def _in_place(self, stem: str) -> tuple[tuple[str, ...], int]:
        """Return the images of a stem in its own folder, and the Pair's rank."""
        if images := self.by_stem.get(stem):
            return images, SAME_STEM
        if images := self._by_folded_stem.get(folded(stem)):
            return images, OTHER_CASE
        if not stem.lower().endswith(IMAGE_EXTENSIONS):
            return (), OTHER_CASE
        images = self._by_folded_stem.get(folded(stem_of(stem)))  # a.jpg.txt
        return tuple(image for image in images if folded(self.place(image)) == folded(stem)), OTHER_CASE

    def with_filename(self, filename: str, folder: str) -> tuple[str, ...]:
        """Return the images that an XML in this folder may mean by <filename>, of which only the last part counts."""
        name = re.split(r"[\\/]", filename.strip())[-1]
        has_extension = name.lower().endswith(IMAGE_EXTENSIONS)
        stem = f"{folder}/{stem_of(name) if has_extension else name}".lstrip("/")
        images = (self._in_place(stem)[0] or self.namesakes.nearest(f"{folder}/{name}".lstrip("/"))) if name else ()
        exact = tuple(image for image in images if folded(image.rpartition("/")[2]) == folded(name))
        return exact or tuple(images)


class PairsByStem(Sequence[Pair]):
    """Each label file with the images of its stem, which may be none: found when asked for, to save memory."""

    def __init__(self, labels: Sequence[str], images: ImageNames) -> None:
        self._labels, self._images = labels, images

    def __len__(self) -> int:
        return len(self._labels)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        """Return a pair, or the pairs of a slice."""
        return self._pair(self._labels[index]) if isinstance(index, int) else [*map(self._pair, self._labels[index])]

    def _pair(self, label: str) -> Pair:
        return Pair(label, *self._images.with_stem(stem_of(label)))


def settle_claims(claims: Callable[[], Iterable[Pair]]) -> set[str]:
    """Return the label files whose image belongs to a label file that found it in a better way.

    claims: returns the pairs, of which the first image counts; called twice, since most images are in one pair only.
    """
    several = repeated_hashes(pair.images[0] for pair in claims() if pair.images)
    owner: dict[str, str] = {}
    losers = set()
    pairs = (pair for pair in claims() if pair.images and hash(pair.images[0]) in several)
    for pair in sorted(pairs, key=lambda pair: (pair.rank, pair.label or "")):
        if pair.label and owner.setdefault(pair.images[0], pair.label) != pair.label:
            losers.add(pair.label)
    return losers


def similar_names(labels: Iterable[str], images: Iterable[str]) -> dict[str, str]:
    """Return image -> label file for those that have no partner, where the names are the same but for signs and zeros.

    Such as IMG_1.jpg and IMG-001.txt, in one folder or in two. A name that several have is left out: it tells nothing.
    """
    by_key = _unique(labels)
    return {image: by_key[key] for key, image in _unique(images).items() if key in by_key}


def _unique(names: Iterable[str]) -> dict[str, str]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_loose(stem_of(last_part(name))), []).append(name)
    return {key: group[0] for key, group in groups.items() if key and len(group) == 1}


def _loose(stem: str) -> str:
    """Return the letters and the numbers of a name, without case, signs, and zeros in front of numbers."""
    runs = re.findall(r"\d+|[^\W\d_]+", unicodedata.normalize("NFKC", stem).casefold())
    return "-".join(run.lstrip("0") or "0" if run.isdigit() else run for run in runs)
