"""Make a `Batch`, or of clips a `ClipBatch`, of pixels and targets."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from detaug.boxes.views import Ints
from detaug.loading.batch import Batch
from detaug.loading.batch_targets import BatchTargets
from detaug.loading.clip_batch import ClipBatch
from detaug.ops.op import Arrays
from detaug.sources.clips import FrameColumns
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
    if reader.frames is not None:
        return _clip_batch(reader, reader.frames, indices, images, targets, params, flow)
    return Batch(
        images=images,
        boxes=targets.boxes,
        labels=targets.labels,
        mask=targets.mask,
        image_id=torch.from_numpy(reader.image_ids[indices]),
        size=torch.from_numpy(reader.sizes[indices]),
        image_size=targets.size,
        matrix=targets.matrix,
        counts=targets.counts,
        params=params,
        classes=targets.classes,
    )


def _clip_batch(
    reader: Source,
    columns: FrameColumns,
    indices: Ints,
    images: Tensor,
    targets: BatchTargets,
    params: tuple[Arrays, ...] | None,
    flow: Tensor | None,
) -> ClipBatch:
    assert targets.tracks is not None
    clips = indices.reshape(-1, reader.clips.shape[1])
    first, frames = clips[:, 0], clips.shape[1]
    by_clip = partial(Tensor.unflatten, dim=0, sizes=clips.shape)
    return ClipBatch(
        images=by_clip(images),
        boxes=by_clip(targets.boxes),
        labels=by_clip(targets.labels),
        mask=by_clip(targets.mask),
        track_id=by_clip(targets.tracks),
        video_id=torch.from_numpy(columns.video_ids[first]),
        frame=torch.from_numpy(columns.frame_ids[clips]),
        time=torch.from_numpy(columns.times[clips]),
        image_id=torch.from_numpy(reader.image_ids[clips]),
        size=torch.from_numpy(reader.sizes[first]),
        image_size=targets.size[::frames],
        matrix=targets.matrix[::frames],
        params=params,
        classes=None if targets.classes is None else targets.classes[::frames],
        flow=flow,
    )
