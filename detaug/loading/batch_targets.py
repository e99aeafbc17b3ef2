"""Build target tensors before decoding, whole blocks of batches at once, and batches of them and of the pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Floats, Ints, consecutive_slices, in_rooms
from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing
from detaug.boxes.placement import Placement
from detaug.boxes.shape_group import PartOfGroup, ShapeGroup
from detaug.boxes.views import Views
from detaug.coco.values import Column
from detaug.gpu.streams import StreamGuard, to_device
from detaug.loading.batch import Batch, as_tensors
from detaug.loading.clip_batch import ClipBatch
from detaug.ops.op import Arrays
from detaug.sources.clips import FrameColumns
from detaug.sources.columns import gather
from detaug.sources.source import Source


@dataclass(frozen=True, eq=False)
class BatchTargets:
    """The targets of one batch of N images, as fields of `Batch`. What `guard` does not guard is on the CPU."""

    boxes: Tensor
    labels: Tensor
    valid: Tensor
    counts: tuple[int, ...]
    image_size: Tensor
    matrix: Tensor
    rows: Tensor
    """(N, M): the row of each box in the columns of its source; -1 where padded."""
    image_id_of_box: Tensor
    drawing: Drawing | None
    """Where images lie in the output, if an op mixed them or covered parts."""
    layer_of_box: Tensor | None
    field: Field | None
    """What bends the outputs, once their layers are drawn."""
    moved: PartOfGroup | None
    """The shapes of the boxes, if the source has any."""
    classes: Tensor | None
    guard: StreamGuard
    """Guards what is on the device: `boxes`, `labels`, `valid`, `classes` and key points."""

    def wait(self) -> None:
        """Let the current stream wait for what is on the device."""
        each = (self.boxes, self.labels, self.valid, self.classes, self.moved and self.moved.keypoints)
        self.guard.wait(*(tensor for tensor in each if tensor is not None))

    def __getitem__(self, images: Ints) -> BatchTargets:
        """Select some of the images, padded to their own largest number of boxes."""
        counts = tuple(self.counts[image] for image in images.tolist())
        on_cpu, most = torch.from_numpy(images), max(counts, default=0)
        on_device = on_cpu.to(self.boxes.device)
        boxes, labels, valid = (each[on_device, :most] for each in (self.boxes, self.labels, self.valid))
        rows, image_ids = self.rows[on_cpu, :most], self.image_id_of_box[on_cpu, :most]
        layer_of_box = None if self.layer_of_box is None else self.layer_of_box[on_cpu, :most]
        return BatchTargets(
            boxes=boxes,
            labels=labels,
            valid=valid,
            counts=counts,
            image_size=self.image_size[on_cpu],
            matrix=self.matrix[on_cpu],
            rows=rows,
            image_id_of_box=image_ids,
            drawing=None if self.drawing is None else self.drawing[images],
            layer_of_box=layer_of_box,
            field=None if self.field is None else self.field[images],
            moved=None if self.moved is None else _of_images(self.moved, self.counts, images),
            classes=None if self.classes is None else self.classes[on_device],
            guard=self.guard,
        )


@dataclass(frozen=True, eq=False)
class PackedTargets:
    """The targets of batches that were planned together, in main memory: N images, R rows with the padding."""

    sides: list[tuple[int, int]]
    """For each batch its number of images and the largest number of boxes of one."""
    boxes: NDArray[np.float32]
    """(R, 4) XYXY in output pixels."""
    labels: Ints
    """(R,); -1 where padded."""
    rows: Ints
    """(R,); -1 where padded."""
    image_id_of_box: Ints
    """(R,); -1 where padded."""
    counts: list[tuple[int, ...]]
    """For each batch the number of boxes of each image."""
    image_size: Ints
    """(N, 2)."""
    matrix: NDArray[np.float32]
    """(N, 3, 3)."""
    drawing: Drawing | None
    layer_of_box: Ints | None
    """(R,)."""
    field: Field | None
    moved: list[PartOfGroup]
    """For each batch; empty without shapes."""
    keypoints: NDArray[np.float32] | None
    """(R, K, 3)."""
    classes: Ints | None
    """(N,)."""

    def batches(self, device: torch.device) -> list[BatchTargets]:
        """Return the targets of each batch. All boxes are copied at once: a copy costs more than its bytes."""
        sides = self.sides
        labels, nothing = to_device(self.labels, device), [None] * len(sides)
        boxes = _split(to_device(self.boxes, device), [(*side, 4) for side in sides])
        split_labels, valid = _split(labels, sides), _split(labels >= 0, sides)
        rows, image_ids = (_split(torch.from_numpy(each), sides) for each in (self.rows, self.image_id_of_box))
        layers = nothing if self.layer_of_box is None else _split(torch.from_numpy(self.layer_of_box), sides)
        lengths = [images for images, _ in sides]
        image_size, matrix = (
            torch.unsafe_split_with_sizes(torch.from_numpy(each), lengths) for each in (self.image_size, self.matrix)
        )
        classes = nothing if self.classes is None else _split(to_device(self.classes, device), [*zip(lengths)])
        moved: Sequence[PartOfGroup | None] = self.moved or nothing
        if self.keypoints is not None:
            shapes = [(*side, *self.keypoints.shape[1:]) for side in sides]
            points = _split(to_device(self.keypoints, device), shapes)
            moved = [part._replace(keypoints=each) for part, each in zip(self.moved, points, strict=True)]
        guard = StreamGuard(device)
        return [
            BatchTargets(
                boxes=boxes[at],
                labels=split_labels[at],
                valid=valid[at],
                counts=self.counts[at],
                image_size=image_size[at],
                matrix=matrix[at],
                rows=rows[at],
                image_id_of_box=image_ids[at],
                drawing=None if self.drawing is None else self.drawing[images],
                layer_of_box=layers[at],
                field=None if self.field is None else self.field[images],
                moved=moved[at],
                classes=classes[at],
                guard=guard,
            )
            for at, images in enumerate(consecutive_slices(lengths))
        ]


def pack_targets(views: Views, images: Ints, batches: list[slice], reader: Source) -> PackedTargets:
    """Return the targets of batches that were planned together, each a slice of the views.

    `images`: (N,) the position of each view in the source.
    """
    boxes, labels, rows, layer_of_box, counts = _boxes(views)
    lengths = [batch.stop - batch.start for batch in batches]
    most = np.maximum.reduceat(counts, [batch.start for batch in batches])
    room = np.repeat(most, lengths)
    padded_boxes, padded_labels = pad_boxes(boxes, labels, counts, room)
    padded_rows = in_rooms(rows, counts, room, -1)
    moved = _grouped(views, batches, counts) if views.shapes else []
    keypoints = None
    if views.shapes.keypoints is not None and views.frames == 1:
        placed = [part.group.keypoints[part.boxes] for part in moved]
        keypoints = in_rooms(np.concatenate(placed).astype(np.float32), counts, room, 0)
    return PackedTargets(
        sides=list(zip(lengths, most.tolist(), strict=True)),
        boxes=padded_boxes,
        labels=padded_labels,
        rows=padded_rows,
        image_id_of_box=reader.image_ids_of_rows(padded_rows),
        counts=[tuple(counts[batch].tolist()) for batch in batches],
        image_size=np.ascontiguousarray(views.size, np.int64),
        matrix=np.ascontiguousarray(views.to_output(), np.float32),
        drawing=None if views.drawing is None else views.drawing.of_source(images),
        layer_of_box=None if layer_of_box is None else in_rooms(layer_of_box, counts, room, 0),
        field=views.field,
        moved=moved,
        keypoints=keypoints,
        classes=None if reader.classes is None else reader.classes[images],
    )


GROUP_IMAGES = 512
"""Images whose shapes are moved together, about: few enough that the batch that asks first does not wait for long."""


def _grouped(views: Views, batches: list[slice], counts: Ints) -> list[PartOfGroup]:
    """Return the shapes of each batch."""
    size = max(1, GROUP_IMAGES // (batches[0].stop - batches[0].start))
    first = np.concatenate([[0], np.cumsum(counts if views.frames == 1 else (views.labels >= 0).sum(1))])
    parts = []
    for at in range(0, len(batches), size):
        together = batches[at : at + size]
        images = slice(together[0].start, together[-1].stop)
        group = ShapeGroup(views.shapes, partial(Placement.of_views, views[images]))
        group.prepare()
        starts = first[images.start]
        parts += [PartOfGroup(group, slice(*(first[[each.start, each.stop]] - starts).tolist())) for each in together]
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
    targets: BatchTargets,
    epoch: int,
    params: tuple[Arrays, ...] | None,
    flow: Tensor | None = None,
) -> Batch | ClipBatch:
    """Return the batch of these images (N, 3, H, W) of a source; of clips, the batch of N / F clips."""
    columns = gather(reader.columns, targets.rows.numpy())
    if reader.frames is not None:
        return _clip_batch(reader, reader.frames, indices, images, targets, columns, epoch, params, flow)
    return Batch(
        images=images,
        boxes=targets.boxes,
        labels=targets.labels,
        valid=targets.valid,
        image_id=torch.from_numpy(reader.image_ids[indices]),
        source_size=torch.from_numpy(reader.sizes[indices]),
        image_size=targets.image_size,
        matrix=targets.matrix,
        counts=targets.counts,
        rows=targets.rows,
        image_id_of_box=targets.image_id_of_box,
        columns=as_tensors(columns),
        moved=targets.moved,
        drawing=targets.drawing,
        layer_of_box=targets.layer_of_box,
        field=targets.field,
        params=params,
        epoch=epoch,
        classes=targets.classes,
    )


def _clip_batch(
    reader: Source,
    of_frames: FrameColumns,
    indices: Ints,
    images: Tensor,
    targets: BatchTargets,
    columns: dict[str, Column],
    epoch: int,
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
        columns=as_tensors({name: each.reshape(*clips.shape, *each.shape[1:]) for name, each in columns.items()}),
        params=params,
        epoch=epoch,
        classes=None if targets.classes is None else targets.classes[::frames],
        flow=flow,
        field=targets.field,
    )
