"""`ConcatReader`: several sources as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import tee
from math import lcm
from pathlib import Path
from threading import Lock

import numpy as np

from detaug.arguments import checks_names
from detaug.arrays import Bools, Bytes, Floats, Ints
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.shapes import Shapes, corners_of_boxes
from detaug.coco.outlines import OutlineColumns, join_outlines, read_outlines
from detaug.coco.values import Column
from detaug.errors import InputError
from detaug.files.image_file import short_digest
from detaug.pixel_format import PixelFormat
from detaug.sources.columns import join
from detaug.sources.source import Source, check_sources
from detaug.storage.storage import Upcoming


class ConcatReader(Source):
    """Several sources one after another, whose classes are joined by name.

    `sources`: of any kinds; files may stand beside shards. A class has one label, in the order in which the names come
    first. Image ids stay if no two images have the same one; otherwise images are numbered 1..n. `source_of` leads
    back. A column that only some sources have is -1, NaN or None in the others. The columns `image_id` and
    `category_id` are those of the joined images and classes, and `id` stays, or is 1..n, by the rule of image ids; a
    json that is read twice keeps its ids.

    Raises InputError for no source, for clips, and for sources of which only some have a class for each image, or
    decode their images themselves.

    >>> demo = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> reader = da.ConcatReader([demo, demo])
    >>> print(len(reader), reader.source_of(50))
    96 (1, 2)
    """

    @checks_names
    def __init__(self, sources: Sequence[Source]) -> None:
        check_sources(sources)
        if any(source.frames is not None for source in sources):
            raise InputError("ConcatReader joins no clips: join their jsons with detaug merge, for one ClipReader")
        if len({source.decodes for source in sources}) > 1:
            raise InputError(
                "sources must all decode their images themselves, as da.TileReader does, or none: cut files with "
                "detaug tile, and join those"
            )
        self.sources = tuple(sources)
        self._first: Ints = np.concatenate([[0], np.cumsum([len(source) for source in self.sources])])
        names = list(dict.fromkeys(name for source in self.sources for name in source.class_names[1:]))
        objects = [source.objects() for source in self.sources]
        image_ids = np.concatenate([source.image_ids for source in self.sources])
        counts = np.concatenate([counts for _, counts, _ in objects])
        labels = np.concatenate(
            [_renamed(source, names)[labels] for source, (_, _, labels) in zip(self.sources, objects, strict=True)]
        )
        columns = join([source.columns for source in self.sources], [len(boxes) for boxes, _, _ in objects])
        super().__init__(
            np.concatenate([source.sizes for source in self.sources]),
            names,
            boxes=np.concatenate([boxes for boxes, _, _ in objects]),
            counts=counts,
            labels=labels,
            classes=_classes(self.sources, names),
            image_ids=image_ids if len(np.unique(image_ids)) == len(image_ids) else None,
            category_ids=_category_ids(self.sources, names),
            relative=True,
            shapes=join_shapes(self.sources, names),
            columns=columns,
            origin=" + ".join(source.origin for source in self.sources),
        )
        origins = [source.origin for source in self.sources]
        origin_of = np.repeat([origins.index(each) for each in origins], [len(boxes) for boxes, _, _ in objects])
        _renumber(self.columns, origin_of, np.repeat(self.image_ids, counts), np.array(self.category_ids)[labels])
        self.decodes = self.sources[0].decodes
        self.pixel_format = _pixel_format(self.sources)
        self.files = all(source.files for source in self.sources)
        self.has_heif = any(source.has_heif for source in self.sources)
        self.rounds = _rounds(self.sources)
        self.missing = np.concatenate([each.missing + at for each, at in zip(self.sources, self._first, strict=False)])
        self.remedy = "; ".join(dict.fromkeys(source.remedy for source in self.sources))

    def source_of(self, index: int) -> tuple[int, int]:
        """Return the position of an image's source in `sources`, and the position of the image in it."""
        at = int(np.searchsorted(self._first, index, side="right")) - 1
        return at, index - int(self._first[at])

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        source, at = self._at(index)
        return source.path(at)

    def read(self, index: int) -> bytes:
        """Return the encoded image. Raises OSError if it cannot be read."""
        source, at = self._at(index)
        return source.read(at)

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return the encoded images at these positions: each source is asked once."""
        source_of = np.searchsorted(self._first, indices, side="right") - 1
        parts = {
            at: iter(self.sources[at].contents(indices[source_of == at] - self._first[at]))
            for at in np.unique(source_of).tolist()
        }
        return [next(parts[at]) for at in source_of.tolist()]

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Tell each source which of its images will be read."""
        lock = Lock()
        for at, (source, copy) in enumerate(zip(self.sources, tee(upcoming, len(self.sources)), strict=True)):
            source.prefetch(self._of_source(at, copy, lock))

    def _of_source(self, at: int, upcoming: Iterator[Upcoming], lock: Lock) -> Iterator[Upcoming]:
        """Yield the images of one source. Threads of several sources ask; `tee` allows one at a time."""
        first, end = self._first[at : at + 2]
        while True:
            with lock:
                each = next(upcoming, None)
            if each is None:
                return
            part = each.part((each.indices >= first) & (each.indices < end))
            yield part._replace(indices=part.indices - first)

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used."""
        source, at = self._at(index)
        return source.why_missing(at)

    def explain_size(self, index: int, size: tuple[int, int]) -> str:
        """Return why an image of this size cannot be used."""
        source, at = self._at(index)
        return source.explain_size(at, size)

    def check_files(self) -> None:
        """Raise InputError if an image was missing when its source was made."""
        for source in self.sources:
            source.check_files()

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash that changes with the files of any source."""
        return short_digest(*(source.files_fingerprint.encode() for source in self.sources))

    def _names(self) -> bytes:
        return b"\0".join([*(source.fingerprint.encode() for source in self.sources), super()._names()])

    @cached_property
    def _path_table(self) -> Bytes:
        tables = [source.paths(np.arange(len(source))) for source in self.sources]
        width = max(table.shape[1] for table in tables)
        return np.concatenate([np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in tables])

    def _at(self, index: int) -> tuple[Source, int]:
        source, at = self.source_of(index)
        return self.sources[source], at


def _renumber(columns: dict[str, Column], origin_of: Ints, image_ids: Ints, category_ids: Ints) -> None:
    """Let the columns of ids, in place, be those of all sources; -1, where a source has none, stays.

    `origin_of`, `image_ids`, `category_ids`: (A,) of the annotations. One json that is read twice has the same ids.
    """
    for name, new in (("image_id", image_ids), ("category_id", category_ids)):
        if name in columns and columns[name].dtype.kind == "i":
            columns[name] = np.where(columns[name] < 0, -1, new)
    ids = columns.get("id")
    if ids is not None and ids.dtype.kind == "i":
        with_origins = np.unique(np.stack([origin_of, ids])[:, ids >= 0], axis=1)
        if len(np.unique(with_origins[1])) < with_origins.shape[1]:
            columns["id"] = np.where(ids < 0, -1, np.arange(1, len(ids) + 1))


def _pixel_format(sources: Sequence[Source]) -> PixelFormat:
    first = sources[0]
    for source in sources:
        if source.pixel_format != first.pixel_format:
            raise InputError(
                f"sources must all have the same channels, dtype and bands: {first.origin} has {first.pixel_format}, "
                f"{source.origin} has {source.pixel_format}"
            )
    return first.pixel_format


def _rounds(sources: Sequence[Source]) -> Bools | None:
    """Return the images of each epoch: those that each source takes, whose turns may have other lengths."""
    rounds = [np.ones((1, len(each)), bool) if each.rounds is None else each.rounds for each in sources]
    turns = lcm(*(len(each) for each in rounds))
    return None if turns == 1 else np.concatenate([np.tile(each, (turns // len(each), 1)) for each in rounds], axis=1)


def _renamed(source: Source, names: list[str]) -> Ints:
    """Return (K + 1,) the new label of each label of a source; 0 stays."""
    return np.array([0, *(names.index(name) + 1 for name in source.class_names[1:])], np.int64)


def _classes(sources: Sequence[Source], names: list[str]) -> Ints | None:
    given = [source.classes for source in sources if source.classes is not None]
    if not given:
        return None
    if len(given) < len(sources):
        without = next(source.origin for source in sources if source.classes is None)
        raise InputError(f"sources must all have a class for each image, or none; {without} has none")
    return np.concatenate([_renamed(source, names)[1:][each] - 1 for source, each in zip(sources, given, strict=True)])


def join_shapes(sources: Sequence[Source], names: list[str]) -> Shapes:
    """Return the shapes of concatenated annotations. `names`: of the classes, in their order.

    Annotations of a source without key points have none that are labelled, those without corners those of their boxes.
    Raises InputError for sources whose key points of a class have other names, or of which only some are tight or have
    masks.
    """
    shapes = [source.shapes for source in sources]
    masks, tight = {each.has_masks for each in shapes}, {each.tight for each in shapes}
    for name, values in (("masks", masks), ("tight", tight)):
        if len(values) > 1:
            raise InputError(f"sources must all be made with {name}=True, or none")
    corners = None
    if any(each.corners is not None for each in shapes):
        corners = np.concatenate([_corners(source) for source in sources])
    outlines = None
    if any(each.outlines is not None for each in shapes):
        outlines = join_outlines([each.outlines or _nothing(len(each.classes)) for each in shapes])
    return Shapes(_join_key_points(sources, names), corners, outlines, masks.pop(), tight.pop())


def _corners(source: Source) -> Floats:
    if source.shapes.corners is not None:
        return source.shapes.corners
    boxes, counts, _ = source.objects()
    return corners_of_boxes(boxes * np.tile(np.repeat(source.sizes[:, ::-1], counts, 0), 2))


def _nothing(annotations: int) -> OutlineColumns:
    return read_outlines([None] * annotations, [None] * annotations, *np.zeros((2, annotations), np.int64))[0]


def _join_key_points(sources: Sequence[Source], names: list[str]) -> KeyPoints | None:
    with_points = [source for source in sources if source.shapes.keypoints is not None]
    if not with_points:
        return None
    count = max(source.shapes.keypoints.count for source in with_points if source.shapes.keypoints)
    points = np.zeros((sum(len(source.shapes.classes) for source in sources), count, 3))
    of_classes: dict[str, tuple[list[str], list[tuple[int, int]], Ints]] = {}
    first, unknown = 0, ""
    for source in sources:
        own = source.shapes.keypoints
        if own is not None:
            points[first : first + len(own.points), : own.count] = own.points
            unknown = unknown or own.flips_unknown
            for at, name in enumerate(source.class_names[1:]):
                each = own.of_class(at, count)
                known = of_classes.setdefault(name, each)
                if known[0] != each[0]:
                    raise InputError(f"the key points of {name!r} differ: {known[0]} and {each[0]}, of {source.origin}")
                if not np.array_equal(known[2], each[2]):
                    raise InputError(
                        f"the key points of {name!r} swap in other ways when an image is flipped, in {source.origin}: "
                        "give all readers the same flip_pairs"
                    )
        first += len(source.shapes.classes)
    of_classes = {name: of_classes.get(name, ([], [], np.arange(count))) for name in names}
    class_names, skeletons, swapped = zip(*of_classes.values(), strict=True)
    return KeyPoints(points, class_names, skeletons, np.stack(swapped), unknown)


def _category_ids(sources: Sequence[Source], names: Sequence[str]) -> list[int] | None:
    """Return the ids of the classes, if the sources agree in them and none is used twice; else None, 1..K."""
    ids: dict[str, int] = {}
    for source in sources:
        for name, number in zip(source.class_names[1:], source.category_ids[1:], strict=True):
            if ids.setdefault(name, number) != number:
                return None
    found = [ids[name] for name in names]
    return found if len({*found}) == len(found) else None
