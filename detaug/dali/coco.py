"""`da.fn.coco`: DALI's COCO reader on the annotations as `CocoReader` reads and checks them.

DALI's reader parses a JSON file in a way of its own: at `"iscrowd": null` or a category id above 2**31 - 1 it loses
what follows without an error, and it has no output for the size of an image. So it gets another JSON file, in memory,
with what `CocoReader` made of the user's. `docs/dali-pipelines.md` lists the differences.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn, types
from nvidia.dali.pipeline import do_not_convert

from detaug.arguments import check, checks_names, is_whole, is_wholes
from detaug.arrays import Bools, Ints
from detaug.boxes.masks import placed_outlines
from detaug.boxes.placement import Placement
from detaug.boxes.views import Views
from detaug.coco.rings import join_rings
from detaug.errors import InputError
from detaug.pipelines.decoding import of_size
from detaug.pipelines.graph import Node
from detaug.sources.coco_reader import CocoReader

_BLOCK = 2048  # images whose boxes are padded to one length at a time
_ANNOTATION = '{"image_id":%d,"category_id":%d,"bbox":[%.9g,%.9g,%.9g,%.9g]%s}'  # 9 digits decide a float32
_INT32 = np.iinfo(np.int32)


@do_not_convert  # type: ignore[untyped-decorator]
@checks_names
def coco(
    images: str | os.PathLike[str],
    annotations: str | os.PathLike[str],
    *,
    shard: tuple[int, int] = (0, 1),
    shuffle: bool = True,
    seed: int = 0,
    polygons: bool = False,
    name: str = "reader",
) -> tuple[Node, ...]:
    """Read a COCO JSON file with its image folder inside a DALI pipeline; return encoded, boxes, labels, image_ids.

    It is `fn.readers.coco`, with what `CocoReader` makes of the JSON file: its checks, images in the JSON file's order,
    no crowds. encoded: the bytes of the image file, for `fn.decoders.image`. boxes: (M, 4) float32 XYXY, relative to
    the image, 0..1. labels: (M,) int32, 1..K in the order of the category ids. image_ids: (1,) int32, the JSON file's.

    Raises AnnotationError for what `CocoReader` refuses and for missing files, and InputError for image ids that int32
    cannot hold. An image of another size than the JSON file says is an error of the pipeline.

    Args:
        images: The folder of the images.
        annotations: The COCO JSON file.
        shard: (rank, world size).
        shuffle: All images in another order in each epoch, before they are divided into shards, from `seed`, which must
            be equal on all ranks. In each epoch every image comes once, in one of the shards; shards that are shorter
            repeat their last image, and so does the last batch. `DaliIterator(reader_name=...)` leaves these out.
        seed: Of the shuffling, equal on all ranks.
        polygons: Also return the outlines, rings (P, 3) int32 and vertices (V, 2) float32, relative to the image, for
            `da.fn.augment(polygons=...)`; those of RLE go along the edges of pixels.
        name: The reader's.

    >>> from nvidia.dali import pipeline_def
    >>> @pipeline_def(batch_size=4, num_threads=2, device_id=None)
    ... def first_images():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     return boxes, labels, image_ids
    >>> boxes, labels, image_ids = first_images().run()
    >>> print(boxes.shape(), labels.at(0), image_ids.at(0))
    [(4, 4), (2, 4), (5, 4), (6, 4)] [4 1 1 6] [1]
    """
    check("shard", shard, is_wholes(shard, 2, 0) and shard[0] < shard[1], "(rank, world size), rank < world size")
    check("seed", seed, is_whole(seed, 0, 2**63 - 1), "a whole number of at least 0")
    reader = CocoReader(images=images, annotations=annotations, masks=polygons)
    reader.check_files()
    _check_for_dali(reader, shard[1])
    outputs: Node = fn.readers.coco(
        file_root=os.path.abspath(reader.images),
        annotations_file=_file_in_memory("".join(_document(reader))),
        name=name,
        size_threshold=0.0,
        avoid_class_remapping=True,
        shuffle_after_epoch=shuffle,
        shuffle_after_epoch_seed=seed if shuffle else None,
        stick_to_shard=not shuffle,
        shard_id=shard[0],
        num_shards=shard[1],
        pad_last_batch=True,
        dont_use_mmap=True,
        polygon_masks=polygons,
    )
    encoded, rows, numbers, *outlines = outputs  # the first row and number of an image are its size and its id
    size = fn.cast(rows[0, :2], dtype=types.INT32)
    if outlines:  # rings count the annotations from that row on
        outlines[0] = outlines[0] - types.Constant(np.array([[1, 0, 0]], np.int32))
    return of_size(encoded, size), rows[1:], numbers[1:], numbers[:1], *outlines


def _check_for_dali(reader: CocoReader, shards: int) -> None:
    if Pipeline.current() is None:
        raise InputError("da.fn.coco must be called inside a pipeline_def or a with block of a Pipeline")
    if len(reader) < shards:
        raise InputError(f"{reader.annotations} must have an image for each of {shards} shards, got {len(reader)}")
    beyond = reader.image_ids[(reader.image_ids < _INT32.min) | (reader.image_ids > _INT32.max)]
    if len(beyond):
        rule = f"DALI's reader holds image ids up to {_INT32.max}"
        raise InputError(f"{reader.annotations}: {rule}, got {beyond[0]}; renumber the images, or use da.Loader")


def _file_in_memory(text: str) -> str:
    """Return the path of a file that lives as long as the pipeline that is being defined."""
    number = os.memfd_create("annotations.json")
    finalize(Pipeline.current(), os.close, number)
    with os.fdopen(number, "wb", closefd=False) as file:
        file.write(os.fsencode(text))
    return f"/proc/self/fd/{number}"


def _document(reader: CocoReader) -> Iterator[str]:
    """Yield a COCO JSON file in pieces. Its ids are positions, since DALI reads images in the order of their ids.

    The first box of each image is (height, width, 0, 0), with the image id in place of the category.
    """
    names = (json.dumps(name, ensure_ascii=False) for name in reader.file_names)
    images = (f'{{"id":{index},"file_name":{name},"width":1,"height":1}}' for index, name in enumerate(names))
    yield f'{{"categories":[],"images":[{",".join(images)}],"annotations":['
    for start in range(0, len(reader), _BLOCK):
        yield ("," if start else "") + _annotations(reader, np.arange(len(reader))[start : start + _BLOCK])
    yield "]}"


def _annotations(reader: CocoReader, indices: Ints) -> str:
    """Return the annotations of images, with boxes as XYXY and already relative: DALI passes them on as they are."""
    views = reader.views(indices)
    numbers = np.concatenate([reader.image_ids[indices, None], views.labels], 1)
    sizes = np.concatenate([reader.sizes[indices], np.zeros((len(indices), 2))], 1)
    boxes = np.concatenate([sizes[:, None], views.boxes], 1).astype(np.float32)
    used = np.concatenate([np.ones((len(indices), 1), bool), views.labels >= 0], 1)
    rows = np.column_stack([indices[np.nonzero(used)[0]], numbers[used], boxes[used]]).astype(object)
    rows = np.column_stack([rows, _segmentations(reader, views, used)])
    return ",".join([_ANNOTATION] * len(rows)) % tuple(rows.ravel().tolist())  # one call: many are slow


def _segmentations(reader: CocoReader, views: Views, used: Bools) -> NDArray[Any]:
    """Return (R,) the outlines of the rows as text, relative to their images; of the first row of an image none."""
    texts = np.full(used.shape, "", object)
    if reader.shapes.has_masks:
        texts[:, :1] = ',"segmentation":[]'
        table, placement = views.shapes.mask_table, Placement.of_views(views.at_size(np.ones((len(views), 2))))
        points, first_point, first_ring = placed_outlines(table, placement)
        rings = np.split(points.astype(np.float64), first_point[1:-1])
        has_runs = table.has_runs[placement.rows]  # which may have holes
        whole = [
            [join_rings(rings[start:end])] if runs else rings[start:end]
            for (start, end), runs in zip(pairwise(first_ring), has_runs, strict=True)
        ]
        texts[:, 1:][views.labels >= 0] = [
            f',"segmentation":{json.dumps([ring.ravel().tolist() for ring in own])}' for own in whole
        ]
    return texts[used]
