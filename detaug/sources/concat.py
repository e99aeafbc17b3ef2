"""`ConcatReader`: several sources as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arguments import checks_names
from detaug.arrays import Floats, Ints
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.shapes import Shapes, corners_of_boxes
from detaug.coco.outlines import OutlineColumns, join_outlines, read_outlines
from detaug.coco.values import Column
from detaug.errors import InputError
from detaug.sources.columns import join
from detaug.sources.derived import DerivedSource
from detaug.sources.source import Source, check_sources


class ConcatReader(DerivedSource):
    """Several sources one after another, whose classes are joined by name.

    Raises InputError for no source, for clips, and for sources of which only some have a class for each image, or
    decode their images themselves.

    Args:
        sources: Of any kinds; files may stand beside shards. A class has one label, in the order in which the names
            come first. Image ids stay if no two images have the same one; otherwise images are numbered 1..n.
            `source_of` leads back. A column that only some sources have is -1, NaN or None in the others. The columns
            `image_id` and `category_id` are those of the joined images and classes, and `id` stays, or is 1..n, by the
            rule of image ids; a JSON file that is read twice keeps its ids.

    >>> demo = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> reader = da.ConcatReader([demo, demo])
    >>> print(len(reader), reader.source_of(50))
    96 (1, 2)
    """

    @checks_names
    def __init__(self, sources: Sequence[Source]) -> None:
        check_sources(
            sources, "ConcatReader joins no clips: join their JSON files with detaug merge, for one ClipReader"
        )
        names = list(dict.fromkeys(name for source in sources for name in source.class_names[1:]))
        objects = [source.objects() for source in sources]
        image_ids = np.concatenate([source.image_ids for source in sources])
        counts = np.concatenate([counts for _, counts, _ in objects])
        labels = np.concatenate(
            [_renamed(source, names)[labels] for source, (_, _, labels) in zip(sources, objects, strict=True)]
        )
        joined = {
            "sizes": np.concatenate([source.sizes for source in sources]),
            "class_names": names,
            "boxes": np.concatenate([boxes for boxes, _, _ in objects]),
            "counts": counts,
            "labels": labels,
            "classes": _classes(sources, names),
            "image_ids": image_ids if len(np.unique(image_ids)) == len(image_ids) else None,
            "category_ids": _category_ids(sources, names),
            "relative": True,
            "shapes": join_shapes(sources, names),
            "columns": join([source.columns for source in sources], [len(boxes) for boxes, _, _ in objects]),
            "origin": " + ".join(source.origin for source in sources),
        }
        super().__init__(sources, np.arange(len(image_ids)), joined)
        origins = [source.origin for source in sources]
        origin_of = np.repeat([origins.index(origin) for origin in origins], [len(boxes) for boxes, _, _ in objects])
        _renumber(self.columns, origin_of, np.repeat(self.image_ids, counts), np.array(self.category_ids)[labels])

    def source_of(self, index: int) -> tuple[int, int]:
        """Return the position of an image's source in `sources`, and the position of the image in it."""
        return self._place(index)

    def _choice(self) -> bytes:
        return b"\0"  # the fingerprints of the sources say all


def _renumber(columns: dict[str, Column], origin_of: Ints, image_ids: Ints, category_ids: Ints) -> None:
    """Let the columns of ids, in place, be those of all sources; -1, where a source has none, stays.

    `origin_of`, `image_ids`, `category_ids`: (A,) of the annotations. One JSON file that is read twice has the same
    ids.
    """
    for name, new in (("image_id", image_ids), ("category_id", category_ids)):
        if name in columns and columns[name].dtype.kind == "i":
            columns[name] = np.where(columns[name] < 0, -1, new)
    ids = columns.get("id")
    if ids is not None and ids.dtype.kind == "i":
        with_origins = np.unique(np.stack([origin_of, ids])[:, ids >= 0], axis=1)
        if len(np.unique(with_origins[1])) < with_origins.shape[1]:
            columns["id"] = np.where(ids < 0, -1, np.arange(1, len(ids) + 1))


def _renamed(source: Source, names: list[str]) -> Ints:
    """Return (K + 1,) the new label of each label of a source; 0 stays."""
    return np.array([0, *(names.index(name) + 1 for name in source.class_names[1:])], np.int64)


def _classes(sources: Sequence[Source], names: list[str]) -> Ints | None:
    known = [source.classes for source in sources if source.classes is not None]
    if not known:
        return None
    if len(known) < len(sources):
        without = next(source.origin for source in sources if source.classes is None)
        raise InputError(f"sources must all have a class for each image, or none; {without} has none")
    return np.concatenate(
        [_renamed(source, names)[1:][classes] - 1 for source, classes in zip(sources, known, strict=True)]
    )


def join_shapes(sources: Sequence[Source], names: list[str]) -> Shapes:
    """Return the shapes of concatenated annotations. `names`: of the classes, in their order.

    Annotations of a source without keypoints have none that are labeled, those without corners those of their boxes.
    Raises InputError for sources whose keypoints of a class have other names, or of which only some are tight or have
    masks.
    """
    shapes = [source.shapes for source in sources]
    masks, tight = {shape.has_masks for shape in shapes}, {shape.tight for shape in shapes}
    for name, values in (("masks", masks), ("tight", tight)):
        if len(values) > 1:
            raise InputError(f"sources must all be made with {name}=True, or none")
    corners = None
    if any(shape.corners is not None for shape in shapes):
        corners = np.concatenate([_corners(source) for source in sources])
    outlines = None
    if any(shape.outlines is not None for shape in shapes):
        outlines = join_outlines([shape.outlines or _nothing(len(shape.classes)) for shape in shapes])
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
            for index, name in enumerate(source.class_names[1:]):
                of_class = own.of_class(index, count)
                known = of_classes.setdefault(name, of_class)
                if known[0] != of_class[0]:
                    raise InputError(
                        f"the keypoints of {name!r} differ: {known[0]} and {of_class[0]}, of {source.origin}"
                    )
                if not np.array_equal(known[2], of_class[2]):
                    raise InputError(
                        f"the keypoints of {name!r} swap in other ways when an image is flipped, in {source.origin}: "
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
    numbers = [ids[name] for name in names]
    return numbers if len({*numbers}) == len(numbers) else None
