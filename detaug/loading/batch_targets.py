"""Build target tensors before decoding, whole blocks of batches at once, and batches of them and of the pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Arrays, Floats, Ints, consecutive_slices, in_rooms
from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing
from detaug.boxes.placement import Placement
from detaug.boxes.shape_group import PartOfGroup, ShapeGroup
from detaug.boxes.views import Views
from detaug.coco.values import Column
from detaug.gpu.maps import map_table
from detaug.gpu.streams import StreamGuard, to_device
from detaug.loading.batch import Batch, as_tensors
from detaug.loading.batch_maps import MapsOfBatch
from detaug.loading.clip_batch import ClipBatch
from detaug.loading.fixed_rows import FixedRows
from detaug.loading.map_feed import MapsOfImages
from detaug.sources.clips import FrameColumns
from detaug.sources.columns import gather
from detaug.sources.source import Source

_PER_BOX = {"axes": 2, "on_device": False}
"""A field with a row for each box: (R, ...) of a block, padding included; (N, M, ...) of a batch."""

_PER_IMAGE = {"axes": 1, "on_device": False}
"""A field with a row for each image, (N, ...)."""

_ON_DEVICE = {"on_device": True}


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of N images: of a block of batches as arrays in main memory, of one batch as tensors.

    The tensors of a batch are on the loader's device where the field says so, else on the CPU. A field that the source
    or the recipe does not have is None. `pack_targets` fills it, and `make_batch` gives those of `Batch` to it by name:
    a new field of batches is a line here, one in `pack_targets`, and one in `Batch`.
    """

    counts: Any
    """The number of boxes of each image, a tuple; of a block, the tuples of its batches."""
    rows_of_image: int | None = None
    """The rows that each image has, if that is the loader's `max_boxes`, and not the largest of the counts."""
    boxes: Any = field(default=None, metadata=_PER_BOX | _ON_DEVICE)
    """XYXY in output pixels, float32."""
    labels: Any = field(default=None, metadata=_PER_BOX | _ON_DEVICE)
    """-1 where padded."""
    valid: Any = field(default=None, metadata=_PER_BOX | _ON_DEVICE)
    """False where padded."""
    keypoints: Any = field(default=None, metadata=_PER_BOX | _ON_DEVICE)
    rows: Any = field(default=None, metadata=_PER_BOX)
    """The row of each box in the columns of its source; -1 where padded."""
    image_id_of_box: Any = field(default=None, metadata=_PER_BOX)
    """-1 where padded."""
    layer_of_box: Any = field(default=None, metadata=_PER_BOX)
    image_size: Any = field(default=None, metadata=_PER_IMAGE)
    matrix: Any = field(default=None, metadata=_PER_IMAGE)
    classes: Any = field(default=None, metadata=_PER_IMAGE | _ON_DEVICE)
    boxes_left_out: Any = field(default=None, metadata=_PER_IMAGE)
    drawing: Drawing | None = field(default=None, metadata=_PER_IMAGE)
    """Where images lie in the output, if an op mixed them or covered parts."""
    distortion: Field | None = field(default=None, metadata=_PER_IMAGE)
    """What bends the outputs, once their layers are drawn."""
    moved: Any = None
    """The shapes of the boxes, if the source has any; of a block, those of its batches."""
    guard: StreamGuard | None = None
    """Guards what is on the device; None for a block."""

    def wait(self) -> None:
        """Let the current stream wait for what is on the device."""
        assert self.guard is not None
        on_device = (getattr(self, column.name) for column in _COLUMNS if column.metadata["on_device"])
        self.guard.wait(*(tensor for tensor in on_device if tensor is not None))

    def __getitem__(self, images: Ints) -> Targets:
        """Select some of the images of a batch, padded to their own largest number of boxes."""
        counts = tuple(self.counts[image] for image in images.tolist())
        most, on_cpu = self.rows_of_image or max(counts, default=0), torch.from_numpy(images)
        places = {False: on_cpu, True: on_cpu.to(self.boxes.device)}  # one copy for all columns

        def selected(values: Any, axes: int, *, on_device: bool) -> Any:
            if not isinstance(values, Tensor):
                return None if values is None else values[images]
            return values[places[on_device], :most] if axes == 2 else values[places[on_device]]

        columns = {column.name: selected(getattr(self, column.name), **column.metadata) for column in _COLUMNS}
        moved = None if self.moved is None else _of_images(self.moved, self.counts, images)
        moved = _with_keypoints(moved, columns["keypoints"])
        return Targets(counts, self.rows_of_image, **columns, moved=moved, guard=self.guard)

    def batches(self, device: torch.device) -> list[Targets]:
        """Return the targets of each batch of a block. A column is copied at once: a copy costs more than its bytes."""
        sides = [(len(counts), self.rows_of_image or max(counts)) for counts in self.counts]
        slices = consecutive_slices([images for images, _ in sides])

        def split(values: Any, axes: int, *, on_device: bool) -> Sequence[Any]:
            if not isinstance(values, np.ndarray):
                return [None if values is None else values[images] for images in slices]
            joined = to_device(values, device) if on_device else torch.from_numpy(values)
            row = values.shape[1:]
            return _split(joined, [(*side[:axes], *row) for side in sides])

        columns = {column.name: split(getattr(self, column.name), **column.metadata) for column in _COLUMNS}
        moved = [None] * len(sides) if self.moved is None else self.moved
        guard = StreamGuard(device)
        batches = []
        for number, counts in enumerate(self.counts):
            own = {name: values[number] for name, values in columns.items()}
            shapes = _with_keypoints(moved[number], own["keypoints"])
            batches.append(Targets(counts, self.rows_of_image, **own, moved=shapes, guard=guard))
        return batches


_COLUMNS = [column for column in fields(Targets) if column.metadata]


def _with_keypoints(moved: PartOfGroup | None, keypoints: Tensor | None) -> PartOfGroup | None:
    """Return the shapes of a batch with its keypoints, which are copied to the device with the boxes."""
    return moved if moved is None or keypoints is None else moved._replace(keypoints=keypoints)


def pack_targets(
    views: Views, images: Ints, batches: list[slice], reader: Source, fixed: FixedRows | None = None
) -> Targets:
    """Return the targets of batches that were planned together, each a slice of the views.

    `images`: (N,) the position of each view in the source. `fixed`: the rows that each image has.
    """
    views, left_out = (views, None) if fixed is None else fixed.keep_largest(views)
    boxes, labels, rows, layer_of_box, counts = _boxes(views)
    drawing = views.drawing_or_whole() if reader.maps else views.drawing
    lengths = [batch.stop - batch.start for batch in batches]
    most = np.maximum.reduceat(counts, [batch.start for batch in batches])
    room = np.repeat(most, lengths) if fixed is None else np.full(len(views), fixed.rows)
    padded_boxes, padded_labels = pad_boxes(boxes, labels, counts, room)
    padded_rows = in_rooms(rows, counts, room, -1)
    moved = _grouped(views, batches, counts) if views.shapes else None
    keypoints = None
    if views.shapes.keypoints is not None and views.frames == 1:
        placed = [part.group.keypoints[part.boxes] for part in moved or ()]
        keypoints = in_rooms(np.concatenate(placed).astype(np.float32), counts, room, 0)
    return Targets(
        boxes=padded_boxes,
        labels=padded_labels,
        valid=padded_labels >= 0,
        rows=padded_rows,
        image_id_of_box=reader.image_ids_of_rows(padded_rows),
        counts=[tuple(counts[batch].tolist()) for batch in batches],
        image_size=np.ascontiguousarray(views.size, np.int64),
        matrix=np.ascontiguousarray(views.to_output(), np.float32),
        # maps are looked up through the layers, also where there is one alone
        drawing=None if drawing is None else drawing.of_source(images),
        layer_of_box=None if layer_of_box is None else in_rooms(layer_of_box, counts, room, 0),
        distortion=views.field,
        moved=moved,
        keypoints=keypoints,
        classes=None if reader.classes is None else reader.classes[images],
        rows_of_image=None if fixed is None else fixed.rows,
        boxes_left_out=left_out,
    )


GROUP_IMAGES = 512
"""Images whose shapes are moved together, about: few enough that the batch that asks first does not wait for long."""


def _grouped(views: Views, batches: list[slice], counts: Ints) -> list[PartOfGroup]:
    """Return the shapes of each batch."""
    size = max(1, GROUP_IMAGES // (batches[0].stop - batches[0].start))
    first = np.concatenate([[0], np.cumsum(counts if views.frames == 1 else (views.labels >= 0).sum(1))])
    parts = []
    for start in range(0, len(batches), size):
        together = batches[start : start + size]
        images = slice(together[0].start, together[-1].stop)
        group = ShapeGroup(views.shapes, partial(Placement.of_views, views[images]))
        group.prepare()
        starts = first[images.start]
        parts += [
            PartOfGroup(group, slice(*(first[[batch.start, batch.stop]] - starts).tolist())) for batch in together
        ]
    return parts


def _of_images(part: PartOfGroup, counts: Sequence[int], images: Ints) -> PartOfGroup:
    """Return the shapes of some images of a batch with `counts` boxes each."""
    placement = part.group.placement
    first = part.boxes.start + np.concatenate([[0], np.cumsum(counts)])
    boxes = np.concatenate([np.arange(first[image], first[image + 1]) for image in images.tolist()])
    return PartOfGroup(ShapeGroup(part.shapes, lambda: placement.some(boxes)), slice(0, len(boxes)))


def pad_boxes(boxes: Floats, labels: Ints, counts: Ints, room: Ints) -> tuple[NDArray[np.float32], Ints]:
    """Return boxes (R, 4) float32 and labels (R,), concatenated, with `room` (N,) rows for each image.

    `boxes` (B, 4) and `labels` (B,) hold `counts` (N,) rows of each image. Padding is 0 in boxes, -1 in labels.
    """
    return in_rooms(boxes.astype(np.float32), counts, room, 0), in_rooms(labels, counts, room, -1)


def _boxes(views: Views) -> tuple[Floats, Ints, Ints, Ints | None, Ints]:
    """Return boxes (B, 4) in pixels, labels, rows and layers (B,), and the counts (N,) of each image.

    All frames of a clip have the same boxes: those of the objects that are left in one of them.
    """
    if views.frames == 1:
        boxes, labels, counts = views.unpadded()
        layers = None if views.layer_of_box is None else views.layer_of_box[views.labels >= 0]
        return boxes, labels, views.rows[views.labels >= 0], layers, counts
    seen = views.labels >= 0
    by_clip = seen.reshape(len(seen) // views.frames, views.frames, seen.shape[1])
    left = np.repeat(by_clip.any(1), views.frames, axis=0)
    boxes = np.where(seen[..., None], views.pixel_boxes(), 0)
    return boxes[left], views.labels[left], np.where(seen, views.rows, -1)[left], None, left.sum(1)


def _split(joined: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Split a tensor into consecutive tensors of these shapes.

    Autograd treats each as a tensor of its own ("unsafe"), so one can be changed in place without invalidating the
    others.
    """
    pieces = torch.unsafe_split_with_sizes(joined.view(-1), [prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def make_batch(
    reader: Source,
    indices: Ints,
    images: Tensor,
    targets: Targets,
    position: tuple[int, int],
    params: tuple[Arrays, ...] | None,
    flow: Tensor | None = None,
    maps: MapsOfImages | None = None,
) -> Batch | ClipBatch:
    """Return the batch of these images (N, 3, H, W) of a source; of clips, the batch of N / F clips.

    `position`: its epoch and step.
    """
    columns = gather(reader.columns, targets.rows.numpy())
    if reader.frames is not None:
        return _clip_batch(reader, reader.frames, indices, images, targets, columns, position, params, flow)
    return Batch(
        images=images,
        image_id=torch.from_numpy(reader.image_ids[indices]),
        source_size=torch.from_numpy(reader.sizes[indices]),
        columns=as_tensors(columns),
        counts=targets.counts,
        moved=targets.moved,
        params=params,
        epoch=position[0],
        step=position[1],
        maps_of_images=_maps_of_batch(reader, maps or {}, images.device),
        **{column.name: getattr(targets, column.name) for column in _COLUMNS if column.name != "keypoints"},
    )


def _maps_of_batch(reader: Source, maps: MapsOfImages, device: torch.device) -> MapsOfBatch:
    kinds = {name: own.kind for name, own in reader.maps.items()}
    offsets = reader._box_offsets
    return MapsOfBatch(kinds, maps, offsets, int(offsets[-1]), map_table(reader, device), reader.maps)


def _clip_batch(
    reader: Source,
    of_frames: FrameColumns,
    indices: Ints,
    images: Tensor,
    targets: Targets,
    columns: dict[str, Column],
    position: tuple[int, int],
    params: tuple[Arrays, ...] | None,
    flow: Tensor | None,
) -> ClipBatch:
    tracks = to_device(columns["track_id"], images.device)
    clips = indices.reshape(-1, reader.clips.shape[1])
    first, frames = clips[:, 0], clips.shape[1]
    by_clip = partial(Tensor.unflatten, dim=0, sizes=clips.shape)
    return ClipBatch(
        images=by_clip(images),
        boxes=by_clip(targets.boxes),
        labels=by_clip(targets.labels),
        valid=by_clip(targets.valid),
        track_id=by_clip(tracks),
        video_id=torch.from_numpy(of_frames.video_ids[first]),
        frame=torch.from_numpy(of_frames.frame_ids[clips]),
        time=torch.from_numpy(of_frames.times[clips]),
        image_id=torch.from_numpy(reader.image_ids[clips]),
        source_size=torch.from_numpy(reader.sizes[first]),
        image_size=targets.image_size[::frames],
        matrix=targets.matrix[::frames],
        rows=by_clip(targets.rows),
        moved=targets.moved,
        columns=as_tensors({name: column.reshape(*clips.shape, *column.shape[1:]) for name, column in columns.items()}),
        params=params,
        epoch=position[0],
        step=position[1],
        classes=None if targets.classes is None else targets.classes[::frames],
        flow=flow,
        distortion=targets.distortion,
    )
