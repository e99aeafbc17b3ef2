"""Images of one name in several folders: find those whose paths are most like a path that an annotation gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.names_by_key import NamesByKey, preference
from detaug.files.paths import folded, last_part, stem_of


class Namesakes:
    """The images of a dataset by their stems, and by the last and the first parts of their paths.

    A dataset of scenes may have a `frame.jpg` in each of thousands of folders: comparing all of them would take hours.
    place: see `ImageNames`.
    """

    def __init__(self, names: Sequence[str], place: Callable[[str], str] = str) -> None:
        self._names, self._place = names, place
        self._deepest = max((place(name).count("/") for name in names), default=0) + 1
        self._with_end = lru_cache(None)(self._by_end)
        self._with_beginning = lru_cache(None)(self._by_beginning)
        self._all_of = lru_cache(4)(lambda stem: self._by_stem.get(stem))

    def nearest(self, path: str) -> list[str]:
        """Return the images with the stem of a path whose paths have most parts in common with it, best first.

        Parts count at the end and at the beginning. Images with the whole name come before those with its stem only.
        """
        last, parts = folded(last_part(path)), parts_of(path)
        if len(candidates := self._by_stem.some(parts[-1], most=2)) < 2:
            return candidates
        exact = bool(self._by_name.some(last, most=1))

        def fitting(images: Sequence[str]) -> list[str]:
            return [image for image in images if not exact or folded(last_part(image)) == last]

        def ending(count: int) -> list[str]:
            return fitting(self._with_end(count).get(_end(parts, count)))

        def beginning(count: int) -> list[str]:
            return fitting(self._with_beginning(count).get(_beginning(parts, count)))

        depths = range(min(len(parts), self._deepest), 0, -1)
        end, candidates = next(((count, candidates) for count in depths[:-1] if (candidates := ending(count))), (1, []))
        if not candidates:  # all have the stem only in common at their ends
            return next(filter(None, map(beginning, depths)), []) or fitting(self._all_of(parts[-1]))
        scores = {image: in_common(self._parts(image), parts) for image in candidates}
        more = max(scores.values()) - end + 1  # what the beginnings of others, whose ends are shorter, must have
        if more <= depths[0]:
            scores |= {image: in_common(self._parts(image), parts) for image in beginning(more)}
        best = max(scores.values())
        return sorted((image for image, score in scores.items() if score == best), key=preference)

    def _parts(self, name: str) -> Sequence[str]:
        return parts_of(self._place(name))

    @cached_property
    def _by_stem(self) -> NamesByKey:
        return NamesByKey(self._names, lambda name: self._parts(name)[-1])

    @cached_property
    def _by_name(self) -> NamesByKey:
        return NamesByKey(self._names, lambda name: folded(last_part(name)))

    def _by_end(self, count: int) -> NamesByKey:
        return NamesByKey(self._names, lambda name: _end(self._parts(name), count))

    def _by_beginning(self, count: int) -> NamesByKey:
        return NamesByKey(self._names, lambda name: _beginning(self._parts(name), count))


SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of folders, and the split that they are of."""


def are_of_different_splits(path: str, other: str) -> bool:
    """Return whether the folders of two paths are those of different splits, such as training and testing."""
    one, another = map(splits_of, (path, other))
    return bool(one and another and one.isdisjoint(another))


def splits_of(path: str) -> frozenset[str]:
    """Return the splits, train, val and test, that folders of a path are named after."""
    return _splits_of_folder(folded(path).rpartition("/")[0])


@lru_cache(1024)  # thousands of images are in few folders
def _splits_of_folder(folder: str) -> frozenset[str]:
    return frozenset(SPLITS[part] for part in folder.split("/") if part in SPLITS)


@lru_cache(8)  # to find an image compares its path and another one several times
def parts_of(path: str) -> Sequence[str]:
    """Return the parts of a path, `folded`: folders, and the file name without the extension of an image."""
    return folded(stem_of(path) if path.lower().endswith(IMAGE_EXTENSIONS) else path).split("/")


def _end(parts: Sequence[str], count: int) -> str:
    """Return the last parts of a path; "" if it has fewer."""
    return "/".join(parts[-count:]) if len(parts) >= count else ""


def _beginning(parts: Sequence[str], count: int) -> str:
    """Return the first parts of a path, and its stem; "" if it has fewer."""
    return "/".join([*parts[:count], "", parts[-1]]) if len(parts) >= count else ""


def in_common(parts: Sequence[str], others: Sequence[str]) -> int:
    """Return how many parts two paths share at their ends and their beginnings."""
    count = 0
    for pairs in (zip(parts, others, strict=False), zip(parts[::-1], others[::-1], strict=False)):
        for part, another in pairs:
            if part != another:
                break
            count += 1
    return count
