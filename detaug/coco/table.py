"""A COCO JSON file as parsed, and as columns."""

from __future__ import annotations

import json
import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.coco.writer import ANNOTATION_FILE, TOOL_ID
from detaug.errors import AnnotationError
from detaug.files.addresses import check_on_disk
from detaug.files.formats import COCO_JSON, is_panoptic
from detaug.files.image_file import ImageFile
from detaug.files.known_files import what_file_is, what_is
from detaug.files.sample import Sample
from detaug.files.text import unique_keys
from detaug.findings.entries import Findings, Where
from detaug.findings.finding import shown

MIN_SIDE = 0.01
"""Pixels; a thinner box has no area that a detector could use."""

THIN = MIN_SIDE - 1e-6
"""A shorter side is below MIN_SIDE by more than rounding: as numbers, 50.01 - 50 is a little less than 0.01."""


_LISTS = ("images", "annotations", "categories")

OWN_KEYS = frozenset({"info", "licenses", "images", "annotations", "categories", "videos", "type"})
"""Keys of a COCO JSON file; "type" is in the oldest. Others are of the tool that wrote it."""
ID_OF_ENTRY = re.compile(r"(?:^|_)(image|annotation|category)_ids?$")
"""Keys of entries whose values are ids of other entries."""


@dataclass(frozen=True)
class Coco:
    """A parsed COCO JSON file. It has the three lists; their entries are not checked yet."""

    path: Path
    document: dict[str, Any]
    constants: tuple[str, ...] = ()
    """Every NaN, Infinity and -Infinity in the file."""

    @property
    def has_videos(self) -> bool:
        """Return whether this is a CocoVID JSON file, whose images are frames of the entries of `videos`."""
        videos = self.document.get("videos")
        return isinstance(videos, list) and bool(videos)


def load_coco(path: str | Path) -> Coco:
    """Parse a COCO JSON file. Raises AnnotationError if it is not a JSON file or lacks one of the three lists.

    Raises InputError for one in a bucket.
    """
    check_on_disk(path)
    path = Path(path)
    constants: list[str] = []

    def number(constant: str) -> float:
        constants.append(constant)
        return float(constant)

    try:
        data = path.read_bytes()
        text = data.decode(json.detect_encoding(data), "surrogatepass")  # as json.loads decodes it
        document = json.loads(text, parse_constant=number, object_pairs_hook=unique_keys)  # 2 % slower
    except FileNotFoundError:
        raise AnnotationError(f"{path}: no such file; detaug convert-voc makes one from Pascal VOC") from None
    except (OSError, ValueError, RecursionError) as error:
        if what := what_file_is(path, but=(COCO_JSON,)):
            raise AnnotationError(f"{path} {what}") from None
        reason = getattr(error, "strerror", None) or error
        raise AnnotationError(f"{path}: not readable as JSON ({reason})") from None
    lists = [document.get(key) for key in _LISTS] if isinstance(document, dict) else [None]
    if not all(isinstance(value, list) for value in lists) and (what := what_is(path.name, b"", document)):
        raise AnnotationError(f"{path} {what}")
    if isinstance(document, dict) and is_panoptic(Sample(path.name, b"", document)):
        raise AnnotationError(f"{path} {what_is(path.name, b'', document)}")
    if not isinstance(document, dict):
        raise AnnotationError(f"{path}: a COCO JSON file is an object with images, annotations and categories")
    for key in _LISTS:
        if not isinstance(document.get(key), list):
            raise AnnotationError(f'{path}: "{key}" must be a list of objects; is this a COCO instances file?')
    return Coco(path, document, tuple(constants))


class VideoColumns(NamedTuple):
    """What the rows of a JSON file say of videos; placeholders where it has none."""

    video_ids: Ints
    """(N,): the id of each image's video; -1 without one."""
    frame_ids: Ints
    """(N,): the number of each image in its video; -1 without one."""
    frame_rates: Floats
    """(N,): frames per second of each image's video; nan where it is not known."""
    track_ids: Ints
    """(A,): the number that an object has in all frames of its video; -1 without one."""
    files: dict[int, str]
    """The file of each video that is one, below the image folder, by the video's id."""

    @property
    def in_files(self) -> Bools:
        """Return (N,): whether an image is a frame of a video file, and no file of its own."""
        return np.isin(self.video_ids, list(self.files))


@dataclass(frozen=True)
class Table:
    """A COCO JSON file as columns in the file's order, N images and A annotations, and what is wrong with it.

    Columns have placeholders where a value cannot be used: see the masks.
    """

    coco: Coco
    image_ids: Ints
    """(N,)"""
    file_names: list[str]
    """N; "" where the name cannot be used."""
    sizes: Ints
    """(N, 2): (height, width) in pixels; 1 where it cannot be used."""
    has_size: Bools
    """(N,): whether `sizes` is the JSON file's."""
    shards: list[str]
    """The shards' paths below the image folder; none where the images are files."""
    places: Ints
    """(N, 3): position in `shards`, offset and length of each image in bytes; -1, 0, 0 for a file."""
    checksums: Ints
    """(N,): CRC-32C of each image in a shard; -1 for a file, and where the JSON file has none."""
    image_categories: Ints
    """(N,): the category id of each image as a whole; -1 where it has none."""
    image_index: Ints
    """(A,): position of the annotation's image, -1 where there is none."""
    boxes: Floats
    """(A, 4) XYXY pixels, cut at the image's edges."""
    has_box: Bools
    """(A,): whether `boxes` is a usable box in a known image."""
    shape_boxes: dict[int, list[float]]
    """The [x, y, width, height] around the shapes of annotations without bbox, by row."""
    category_ids: Ints
    """(A,)"""
    has_category: Bools
    """(A,): whether `category_ids` is the id of a category."""
    crowd: Bools
    """(A,)"""
    videos: VideoColumns
    categories: dict[int, str]
    """id -> name, in the order of the ids."""
    findings: list[Findings] = field(repr=False)

    @property
    def path(self) -> Path:
        """Return the JSON file's path."""
        return self.coco.path

    def row(self, where: Where, index: int) -> dict[str, Any]:
        """Return an entry of one of the lists; {} where it is not an object."""
        entry = self.coco.document[where][index]
        return entry if isinstance(entry, dict) else {}

    def file_name(self, where: Where, index: int) -> str:
        """Return the name of the image that an entry is, or belongs to; "" where there is none."""
        if where == "annotations":
            where, index = "images", int(self.image_index[index])
        return self.file_names[index] if where == "images" and index >= 0 else ""

    def image_file(self, folder: Path, index: int) -> ImageFile:
        """Return where the bytes of an image are."""
        shard, offset, length = self.places[index].tolist()
        if shard < 0:
            return ImageFile(os.path.join(folder, self.file_names[index]))
        crc32c = int(self.checksums[index])
        path = os.path.join(folder, self.shards[shard])
        return ImageFile(path, offset, length, crc32c if crc32c >= 0 else None)

    def path_of(self, index: int) -> str:
        """Return the path of an image below the image folder; of an image in a shard, the shard's path and its name."""
        shard = int(self.places[index, 0])
        return posixpath.normpath(posixpath.join(self.shards[shard] if shard >= 0 else "", self.file_names[index]))

    def entry(self, where: Where, index: int) -> str:
        """Return the start of a message about an entry: "annotations[5] (id 6, a.jpg): "."""
        if where not in ("images", "annotations", "categories", "videos"):
            return ""
        name, origin = shown(self.file_name(where, index))[1:-1], self.origin(where, index)
        number = shown(self.row(where, index).get("id"))
        return f"{where}[{index}] (id {number}{name and ', '}{name}{origin and '; '}{origin}): "

    def origin(self, where: Where, index: int) -> str:
        """Return where an entry comes from, such as "tasks.json, image 7, object x1"; "" where the file does not tell.

        The annotation file, if there were several, and the ids in the labeling tool: keys that converters write.
        """
        if where not in ("images", "annotations"):
            return ""
        image = index if where == "images" else int(self.image_index[index])
        of_image = self.row("images", image) if image >= 0 else {}
        ids = [("", of_image.get(ANNOTATION_FILE)), ("image ", of_image.get(TOOL_ID))]
        ids += [("object ", self.row(where, index).get(TOOL_ID))] if where == "annotations" else []
        return ", ".join(f"{what}{shown(str(value))[1:-1]}" for what, value in ids if type(value) in (int, str))
