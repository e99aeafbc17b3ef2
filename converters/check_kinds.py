"""What can be wrong with a COCO json and its images: every kind in one table, and one record for what was found."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Severity = Literal["error", "warning"]
Where = Literal["images", "annotations", "categories", "files", "json"]


@dataclass(frozen=True)
class CheckKind:
    """How bad a kind of finding is, and its meaning in one sentence."""

    severity: Severity
    meaning: str


# error: training stops there, or learns something else than the json says. `CocoReader` raises on those that
# can be seen without opening images, which are those up to "box-outside".
# warning: training runs; a person should look.
CHECK_KINDS: dict[str, CheckKind] = {
    "images-empty": CheckKind("error", "the json has no images"),
    "categories-empty": CheckKind("error", "the json has no categories, so every object would be background"),
    "row-not-object": CheckKind("error", "an entry is not a json object"),
    "image-id": CheckKind("error", "an image's id is not a whole number from 0 to 2^63 - 1"),
    "image-id-repeated": CheckKind("error", "several images have one id, so nobody knows whose its boxes are"),
    "file-name": CheckKind("error", "an image's file_name is not a name that a file can have"),
    "file-name-outside": CheckKind("error", "a file_name is absolute or leads up with '..'"),
    "file-name-repeated": CheckKind("error", "several images are one file, each with a part of its boxes"),
    "image-size": CheckKind("error", "an image's width or height is missing or not a whole number of at least 1"),
    "image-format": CheckKind("error", "an image is in a format that DALI does not decode, or crashes on"),
    "category-id": CheckKind("error", "a category's id is not a whole number from 0 to 2^63 - 1"),
    "category-id-repeated": CheckKind("error", "several categories have one id"),
    "annotation-id": CheckKind("error", "an annotation's id is not a whole number from 0 to 2^63 - 1"),
    "annotation-id-repeated": CheckKind("error", "several annotations have one id; pycocotools keeps the last of them"),
    "image-id-unknown": CheckKind("error", "an annotation's image_id is not the id of an image"),
    "category-unknown": CheckKind("error", "an annotation's category_id is not the id of a category"),
    "crowd-invalid": CheckKind("error", "an annotation's iscrowd is neither 0 nor 1"),
    "box-invalid": CheckKind("error", "a bbox is not four finite numbers [x, y, width, height]"),
    "box-empty": CheckKind("error", "a box has no area: a side is shorter than 0.01 pixel"),
    "box-outside": CheckKind("error", "a box reaches more than 1 pixel past its image"),
    "image-missing": CheckKind("error", "an image is not in the image folder"),
    "image-unreadable": CheckKind("error", "an image's header cannot be read"),
    "size-wrong": CheckKind("error", "an image's width and height are not the file's, so its boxes are misplaced"),
    "size-unrotated": CheckKind("error", "an image's width and height are the file's before its EXIF rotation"),
    "image-broken": CheckKind("error", "an image does not decode whole"),
    "image-leaked": CheckKind("error", "an image is in the other json too, so its scores would mean nothing"),
    "categories-differ": CheckKind("error", "the other json has other categories, so labels mean other classes there"),
    "size-not-integer": CheckKind("warning", "an image's width or height is written like 640.0"),
    "annotation-id-zero": CheckKind("warning", "an annotation has the id 0, which pycocotools takes for 'no match'"),
    "category-name": CheckKind("warning", "a category's name is missing, empty or not text"),
    "category-alike": CheckKind("warning", "two categories' names differ at most in case, spaces or Unicode form"),
    "not-json": CheckKind("warning", "the json says NaN or Infinity, which other readers refuse"),
    "box-clipped": CheckKind("warning", "a box reaches past its image by up to 1 pixel and is cut in training"),
    "box-tiny": CheckKind("warning", "a box has a side shorter than 1 pixel after resizing"),
    "box-repeated": CheckKind("warning", "a box has the place and class of an earlier one in its image"),
    "box-nearly-repeated": CheckKind("warning", "a box overlaps an earlier one of its class with IoU 0.9 or more"),
    "box-two-classes": CheckKind("warning", "a box overlaps one of another class with IoU 0.9 or more"),
    "box-unusual": CheckKind("warning", "a box's area or shape is far from what is usual in its class"),
    "objects-none": CheckKind("warning", "no image has an object"),
    "class-empty": CheckKind("warning", "a class has no object to train on"),
    "class-imbalance": CheckKind("warning", "the largest class has over 100 times the objects of the smallest"),
    "orientation-unclear": CheckKind(
        "warning", "an image has an EXIF rotation that its size does not show: look whether its boxes have it too"
    ),
    "palette-small": CheckKind(
        "warning", "a PNG has a palette of fewer than 8 bits per pixel, which DALI decodes to wrong pixels on a GPU"
    ),
    "image-unreferenced": CheckKind(
        "warning", "a file in the image folder is not in the json; it may be of another split"
    ),
    "image-identical": CheckKind("warning", "an image has the same bytes as an earlier one"),
}


@dataclass(frozen=True)
class Findings:
    """All findings of one kind in one list: `rows` are positions in it, `describe` says what is wrong with one."""

    kind: str
    where: Where
    rows: NDArray[np.int64]
    describe: Callable[[int], str]

    @property
    def severity(self) -> Severity:
        return CHECK_KINDS[self.kind].severity

    def __len__(self) -> int:
        return len(self.rows)


def about_json(kind: str, text: str) -> Findings:
    """A finding about the json as a whole."""
    return Findings(kind, "json", np.zeros(1, np.int64), lambda _: text)


def from_messages(kind: str, where: Where, messages: Mapping[int, str]) -> Findings:
    """Findings from what is wrong, by row."""
    rows = np.array(sorted(messages), np.int64)
    return Findings(kind, where, rows, lambda row: messages[int(row)])


def count_findings(found: Iterable[Findings]) -> dict[str, int]:
    """How many findings of each kind, in the order of CHECK_KINDS."""
    counts = dict.fromkeys(CHECK_KINDS, 0)
    for each in found:
        counts[each.kind] += len(each)
    return {kind: count for kind, count in counts.items() if count}


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 160
_repr.maxlist = 8


def shown(value: object) -> str:
    """Any json value on one line of bounded length, with control characters escaped."""
    return _repr.repr(value)
