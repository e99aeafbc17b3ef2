"""The recipe as DALI's own examples write it: one pipeline at its default settings, with DALI's PyTorch iterator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from nvidia.dali import Pipeline, fn, types
from nvidia.dali import math as dali_math
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from detaug.bench.jobs import Job, MadeBatch, new_images
from detaug.converters.machine import available_cores


def by_hand(job: Job) -> Iterator[MadeBatch]:
    """Run the pipeline of `job.preset`, one of `RECIPES`."""
    on_gpu = torch.device(job.device).type == "cuda"
    threads = 8 if on_gpu else available_cores()
    pipe = Pipeline(job.batch_size, threads, (torch.device(job.device).index or 0) if on_gpu else None, seed=1)
    with pipe:
        encoded, boxes, labels = fn.readers.coco(  # type: ignore[misc]
            file_root=job.images, annotations_file=job.annotations, ltrb=True, ratio=True,
            shuffle_after_epoch=True, pad_last_batch=True, avoid_class_remapping=True, name="reader",
        )  # fmt: skip
        image = fn.decoders.image(encoded, device="mixed" if on_gpu else "cpu", output_type=types.RGB)
        outputs = RECIPES[job.preset](image, boxes, labels)
        pipe.set_outputs(outputs[0], *(each.gpu() if on_gpu else each for each in outputs[1:]))
    policy = {"last_batch_policy": LastBatchPolicy.FILL, "auto_reset": True, "reader_name": "reader"}
    iterator = DALIGenericIterator(pipe, ["images", "boxes", "labels"], **policy)
    images = pipe.epoch_size("reader")
    for _ in count():
        for step, (batch,) in enumerate(iterator):
            new = new_images(images, step, job.batch_size)
            yield MadeBatch(batch["images"], batch["boxes"], batch["labels"], new)


def _ssd300(image: Any, boxes: Any, labels: Any) -> tuple[Any, Any, Any]:
    ratio = 1 + fn.random.coin_flip(probability=0.5) * fn.random.uniform(range=[0.0, 3.0])
    x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
    image = fn.paste(image, ratio=ratio, paste_x=x, paste_y=y, fill_value=[123, 117, 104])
    boxes = dali_math.clamp(fn.bbox_paste(boxes, ltrb=True, ratio=ratio, paste_x=x, paste_y=y), 0.0, 1.0)
    anchor, shape, boxes, labels = fn.random_bbox_crop(  # type: ignore[misc]
        boxes, labels, bbox_layout="xyXY", thresholds=[0.0, 0.1, 0.3, 0.5, 0.7, 0.9], scaling=[0.3, 1.0],
        aspect_ratio=[0.5, 2.0], num_attempts=40, total_num_attempts=320, quiet=True,
        all_boxes_above_threshold=False,
    )  # fmt: skip
    image = fn.slice(image, anchor, shape)
    flip = fn.random.coin_flip()
    image, boxes = fn.flip(image, horizontal=flip), fn.bb_flip(boxes, ltrb=True, horizontal=flip)
    image = fn.resize(image, size=[300, 300])
    image = fn.color_twist(
        image,
        brightness=fn.random.uniform(range=[0.875, 1.125]), contrast=fn.random.uniform(range=[0.5, 1.5]),
        saturation=fn.random.uniform(range=[0.5, 1.5]), hue=fn.random.uniform(range=[-18.0, 18.0]),
    )  # fmt: skip
    image = fn.crop_mirror_normalize(image, mean=[0.0] * 3, std=[255.0] * 3, dtype=types.FLOAT, output_layout="CHW")
    return image, *_padded(boxes * 300, labels)


def _retinanet(image: Any, boxes: Any, labels: Any) -> tuple[Any, Any, Any]:
    flip = fn.random.coin_flip()
    image, boxes = fn.flip(image, horizontal=flip), fn.bb_flip(boxes, ltrb=True, horizontal=flip)
    image = fn.resize(image, resize_shorter=800, max_size=1333)
    shape = fn.cast(image.shape(device="cpu"), dtype=types.FLOAT)
    boxes = boxes * fn.stack(shape[1], shape[0], shape[1], shape[0])
    image = fn.crop_mirror_normalize(image, mean=[0.0] * 3, std=[255.0] * 3, dtype=types.FLOAT, output_layout="CHW")
    return fn.pad(image, axes=[1, 2], align=[32, 32]), *_padded(boxes, labels)


RECIPES = {"ssd300": _ssd300, "retinanet": _retinanet}


def _padded(boxes: Any, labels: Any) -> tuple[Any, Any]:
    return fn.pad(boxes, axes=[0], fill_value=0), fn.pad(labels, axes=[0], fill_value=-1)
