"""What `detaug bench` compares: ways to make the same batches of the same files, each as an endless iterator.

All give (N, 3, H, W) float32 in 0..1 on the device, boxes in pixels of it, padded with zeros or as lists, and labels
from 1, in the order that a training loop would take them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count, cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types
from nvidia.dali import math as dali_math
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from detaug import presets
from detaug.gpu.fused_kernel import kernel_of
from detaug.loading.image_cache import decoding_lanes
from detaug.loading.loader import Loader, settings_for
from detaug.loading.pipeline import Lane, resolve_device
from detaug.ops.op import Op
from detaug.ops.recipe import make_recipe
from detaug.sources.coco_reader import CocoReader


@dataclass(frozen=True)
class Job:
    """What is measured. `workers`: processes of the PyTorch DataLoaders."""

    annotations: str
    images: str
    preset: str = "ssd300"
    batch_size: int = 32
    device: str = "cpu"
    seconds: float = 10.0
    workers: int = 1
    settings: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Made(NamedTuple):
    """One batch. `real`: how many of its images are not there twice in this epoch."""

    images: torch.Tensor | None
    boxes: Any
    labels: Any
    real: int


Contestant = Callable[[Job], Iterator[Made]]


def _recipe(job: Job) -> list[Op]:
    return list(getattr(presets, job.preset)())


def make_loader(job: Job, **options: Any) -> Loader:
    reader = CocoReader(job.images, job.annotations)
    return Loader(reader, _recipe(job), job.batch_size, device=job.device, settings=job.settings, **options)


def loader(job: Job) -> Iterator[Made]:
    """`da.Loader`."""
    return _epochs(make_loader(job), job)


def cached(job: Job) -> Iterator[Made]:
    """`da.Loader(cache="device")`; that all images are decoded once is in the time to the first batch."""
    return _epochs(make_loader(job, cache="device"), job)


def _epochs(ours: Loader, job: Job) -> Iterator[Made]:
    for _ in count():
        for step, batch in enumerate(ours):
            yield Made(batch.images, batch.boxes, batch.labels, _real(len(ours.reader), step, job.batch_size))


def decode(job: Job) -> Iterator[Made]:
    """Decoding alone, fed as the loader feeds, with its pipelines and threads: no loader can be faster."""
    reader, device = CocoReader(job.images, job.annotations), resolve_device(job.device)
    recipe = make_recipe(_recipe(job))
    how = settings_for(reader, recipe, kernel_of(recipe, device), device, job.batch_size, job.settings)
    running: deque[tuple[Lane, list[int]]] = deque()
    order = np.random.default_rng(0).permutation(len(reader))
    steps = -(-len(order) // job.batch_size)
    batches = cycle(enumerate(np.resize(order, (steps, job.batch_size))))
    for lane in cycle(decoding_lanes(job.batch_size * how.together, device, how)):
        if len(running) == how.pipelines * how.depth:
            first, counts = running.popleft()
            first.finish()
            yield from (Made(None, None, None, real) for real in counts)
        taken = [next(batches) for _ in range(how.together)]
        lane.start(reader.inputs(np.concatenate([rows for _, rows in taken]), device.type))
        running.append((lane, [_real(len(order), step, job.batch_size) for step, _ in taken]))


def _real(images: int, step: int, batch_size: int) -> int:
    return min(batch_size, images - step * batch_size)


# --------------------------------------------------------------------------------------------- by hand


def by_hand(job: Job) -> Iterator[Made]:
    """The recipe as DALI's own examples write it, one pipeline at its default settings, DALI's PyTorch iterator."""
    on_gpu = torch.device(job.device).type == "cuda"
    threads = 8 if on_gpu else len(os.sched_getaffinity(0))
    pipe = Pipeline(job.batch_size, threads, (torch.device(job.device).index or 0) if on_gpu else None, seed=1)
    with pipe:
        encoded, boxes, labels = fn.readers.coco(  # type: ignore[misc]
            file_root=job.images, annotations_file=job.annotations, ltrb=True, ratio=True,
            shuffle_after_epoch=True, pad_last_batch=True, avoid_class_remapping=True, name="reader",
        )  # fmt: skip
        image = fn.decoders.image(encoded, device="mixed" if on_gpu else "cpu", output_type=types.RGB)
        outputs = _BY_HAND[job.preset](image, boxes, labels)
        pipe.set_outputs(outputs[0], *(each.gpu() if on_gpu else each for each in outputs[1:]))
    policy = {"last_batch_policy": LastBatchPolicy.FILL, "auto_reset": True, "reader_name": "reader"}
    iterator = DALIGenericIterator(pipe, ["images", "boxes", "labels"], **policy)
    images = pipe.epoch_size("reader")
    for _ in count():
        for step, (batch,) in enumerate(iterator):
            yield Made(batch["images"], batch["boxes"], batch["labels"], _real(images, step, job.batch_size))


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


_BY_HAND = {"ssd300": _ssd300, "retinanet": _retinanet}


def _padded(boxes: Any, labels: Any) -> tuple[Any, Any]:
    return fn.pad(boxes, axes=[0], fill_value=0), fn.pad(labels, axes=[0], fill_value=-1)


# ------------------------------------------------------------------------------------- a PyTorch DataLoader


def torchvision(job: Job) -> Iterator[Made]:
    """torchvision's own transforms (v2) on its own JPEG decoder, in a DataLoader with `workers` processes."""
    return data_loader(job, _torchvision_sample(job.preset))


Sample = Callable[[str, Any, Any], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""From a path, boxes (M, 4) XYXY pixels and labels (M,): image (3, H, W) float32 in 0..1, boxes and labels after."""


def data_loader(job: Job, sample: Sample) -> Iterator[Made]:
    """What a PyTorch DataLoader makes of `sample`; images of one size are stacked, others padded."""
    reader, device = CocoReader(job.images, job.annotations), torch.device(job.device)
    loader = torch.utils.data.DataLoader(
        _Files(reader, sample), job.batch_size, shuffle=True, num_workers=job.workers, collate_fn=_collate,
        persistent_workers=job.workers > 0, pin_memory=device.type == "cuda",
    )  # fmt: skip
    for _ in count():
        for images, boxes, labels in loader:
            here = images.to(device, non_blocking=True)
            boxes, labels = ([each.to(device, non_blocking=True) for each in column] for column in (boxes, labels))
            yield Made(here, boxes, labels, len(images))


class _Files(torch.utils.data.Dataset[Any]):
    def __init__(self, reader: CocoReader, sample: Sample) -> None:
        self.reader, self.sample = reader, sample

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, row: int) -> Any:
        views = self.reader.views(np.array([row]))
        return self.sample(str(self.reader.path(row)), views.pixel_boxes()[0], views.labels[0])


def _collate(samples: list[Any]) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    images, boxes, labels = (list(column) for column in zip(*samples, strict=True))
    if len({image.shape for image in images}) > 1:
        height, width = (-(-max(image.shape[axis] for image in images) // 32) * 32 for axis in (1, 2))
        pads = [(0, width - image.shape[2], 0, height - image.shape[1]) for image in images]
        images = [torch.nn.functional.pad(image, pad) for image, pad in zip(images, pads, strict=True)]
    return torch.stack(images), boxes, labels


def _torchvision_sample(preset: str) -> Sample:
    from torchvision import io, tv_tensors  # type: ignore[import-untyped, unused-ignore]
    from torchvision.transforms import v2  # type: ignore[import-untyped, unused-ignore]

    torch.set_num_threads(1)
    geometry = {
        "ssd300": [
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill={tv_tensors.Image: (123, 117, 104), "others": 0}),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
            v2.Resize((300, 300), antialias=True),
        ],
        "retinanet": [v2.RandomHorizontalFlip(), v2.Resize(800, max_size=1333, antialias=True)],
    }[preset]
    transform = v2.Compose([*geometry, v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()])

    def sample(path: str, boxes: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image = tv_tensors.Image(io.decode_image(path, io.ImageReadMode.RGB))
        given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=image.shape[1:])
        after = transform({"image": image, "boxes": given, "labels": torch.from_numpy(labels)})
        return after["image"].as_subclass(torch.Tensor), after["boxes"].as_subclass(torch.Tensor), after["labels"]

    return sample
