"""Make a `Batch`, or of clips a `ClipBatch`, of pixels and targets."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from detaug.arrays import Ints
from detaug.converters.coco.values import Column
from detaug.gpu.streams import to_device
from detaug.loading.batch import Batch, as_tensors
from detaug.loading.batch_targets import BatchTargets
from detaug.loading.clip_batch import ClipBatch
from detaug.ops.op import Arrays
from detaug.sources.clips import FrameColumns
from detaug.sources.columns import gather
from detaug.sources.source import Source


def make_batch(
    reader: Source,
    indices: Ints,
    images: Tensor,
    targets: BatchTargets,
    params: tuple[Arrays, ...] | None,
    flow: Tensor | None = None,
) -> Batch | ClipBatch:
    """Return the batch of these images (N, 3, H, W) of a source; of clips, the batch of N / F clips."""
    columns = gather(reader.columns, targets.rows)
    if reader.frames is not None:
        return _clip_batch(reader, reader.frames, indices, images, targets, columns, params, flow)
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
        rows=torch.from_numpy(targets.rows),
        image_id_of_box=torch.from_numpy(reader.image_ids_of_rows(targets.rows)),
        columns=as_tensors(columns),
        drawing=targets.drawing,
        layer_of_box=None if targets.layer_of_box is None else torch.from_numpy(targets.layer_of_box),
        params=params,
        classes=targets.classes,
    )


def _clip_batch(
    reader: Source,
    of_frames: FrameColumns,
    indices: Ints,
    images: Tensor,
    targets: BatchTargets,
    columns: dict[str, Column],
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
        rows=by_clip(torch.from_numpy(targets.rows)),
        columns=as_tensors({name: each.reshape(*clips.shape, *each.shape[1:]) for name, each in columns.items()}),
        params=params,
        classes=None if targets.classes is None else targets.classes[::frames],
        flow=flow,
    )
