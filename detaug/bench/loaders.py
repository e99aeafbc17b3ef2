"""The loaders that are compared: detaug's, decoding alone, DALI by hand, and torchvision's transforms."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, cycle
from typing import Any

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types
from nvidia.dali import math as dali_math
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from detaug.arrays import Ints
from detaug.bench.measure import BenchJob, MadeBatch, new_images
from detaug.loading.devices import keep_freed_memory, resolve_device
from detaug.loading.loader import Loader
from detaug.loading.plans import Grouping
from detaug.loading.settings import Settings, grouping_of, settings_for
from detaug.loading.view_recipes import ViewRecipe
from detaug.machine.cores import available_cores
from detaug.pipelines.decoding import decoded, inputs
from detaug.pipelines.graph import Node
from detaug.pipelines.worker import PipelineWorker
from detaug.recipes.kernel_chain import chain_for
from detaug.recipes.recipe import make_recipe
from detaug.sources.coco_reader import CocoReader
from detaug.sources.source import Source


def loader(job: BenchJob) -> Iterator[MadeBatch]:
    """Make batches with `da.Loader`."""
    return _epochs(make_loader(job), job)


def cached(job: BenchJob) -> Iterator[MadeBatch]:
    """Make batches with `da.Loader(cache="device")`; the time to the first batch includes the epoch that fills it."""
    loader = make_loader(job, cache="device")
    deque(loader, maxlen=0)
    return _epochs(loader, job)


def make_loader(job: BenchJob, **options: Any) -> Loader:
    reader = CocoReader(job.images, job.annotations)
    return Loader(reader, job.recipe(), job.batch_size, device=job.device, settings=job.settings, **options)


def _epochs(loader: Loader, job: BenchJob) -> Iterator[MadeBatch]:
    if loader.device.type == "cpu":
        keep_freed_memory()
    images = len(loader.reader)
    for _ in count():
        for step, batch in enumerate(loader):
            yield MadeBatch(batch.images, batch.boxes, batch.labels, new_images(images, step, job.batch_size))


def decoding_workers(source: Source, batch_size: int, device: torch.device, settings: Settings) -> list[PipelineWorker]:
    """Return pipelines that only decode, fed with `inputs`."""

    def graph() -> list[Node]:
        return [decoded(source, device.type, settings.hw_decoder_load)]

    threads, depth = settings.threads, settings.depth
    return [PipelineWorker(graph, batch_size, threads, device, depth) for _ in range(settings.pipelines)]


def decode(job: BenchJob) -> Iterator[MadeBatch]:
    """Decode only, with the loader's pipelines, threads and way of feeding them: no loader can be faster."""
    reader, device = CocoReader(job.images, job.annotations), resolve_device(job.device)
    recipe = make_recipe(job.recipe())
    view = ViewRecipe(None, recipe, chain_for(recipe, device))
    settings = settings_for(reader, [view], device, job.batch_size, job.settings)
    for new in decoded_batches(reader, settings, grouping_of(settings, [recipe]), job.batch_size, device):
        yield MadeBatch(None, None, None, new)


def decoded_batches(
    reader: Source, settings: Settings, grouping: Grouping, batch_size: int, device: torch.device
) -> Iterator[int]:
    """Decode the images of a source again and again. Yields the new images of each batch that is decoded."""
    workers = decoding_workers(reader, grouping.most_images(batch_size), device, settings)
    running: deque[tuple[PipelineWorker, list[int]]] = deque()
    for worker, (indices, new) in zip(cycle(workers), _decoding_jobs(len(reader), batch_size, grouping)):
        if len(running) == settings.pipelines * settings.depth:
            first, counts = running.popleft()
            first.finish()
            yield from counts
        worker.start(inputs(reader, indices))
        running.append((worker, new))


def _decoding_jobs(images: int, batch_size: int, grouping: Grouping) -> Iterator[tuple[Ints, list[int]]]:
    """Yield the images that a pipeline gets at once, and the new images of each batch that is complete with them."""
    order = np.random.default_rng(0).permutation(images)
    batches = cycle(enumerate(np.resize(order, (-(-images // batch_size), batch_size))))
    while True:
        group = [next(batches) for _ in range(grouping.batches)]
        *parts, last = grouping.parts_of(grouping.batches * batch_size)
        indices = np.concatenate([rows for _, rows in group])
        yield from ((indices[part], []) for part in parts)
        yield indices[last], [new_images(images, step, batch_size) for step, _ in group]


def by_hand(job: BenchJob) -> Iterator[MadeBatch]:
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
        pipe.set_outputs(outputs[0], *(output.gpu() if on_gpu else output for output in outputs[1:]))
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
    boxes = dali_math.clamp(boxes, 0.0, 1.0) * fn.stack(shape[1], shape[0], shape[1], shape[0])
    image = fn.crop_mirror_normalize(image, mean=[0.0] * 3, std=[255.0] * 3, dtype=types.FLOAT, output_layout="CHW")
    return fn.pad(image, axes=[1, 2], align=[32, 32]), *_padded(boxes, labels)


RECIPES = {"ssd300": _ssd300, "retinanet": _retinanet}


def _padded(boxes: Any, labels: Any) -> tuple[Any, Any]:
    return fn.pad(boxes, axes=[0], fill_value=0), fn.pad(labels, axes=[0], fill_value=-1)


def torchvision(job: BenchJob) -> Iterator[MadeBatch]:
    """Run torchvision's transforms (v2) on its JPEG decoder, in a DataLoader with `workers` processes."""
    return data_loader(job, _torchvision_sample(job.preset))


SampleReader = Callable[[str, Any, Any], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Takes a path, boxes (M, 4) XYXY pixels and labels (M,); returns an image (3, H, W) float32 in 0..1, boxes, labels."""


def data_loader(job: BenchJob, sample: SampleReader) -> Iterator[MadeBatch]:
    """Run `sample` in a PyTorch DataLoader; images of different sizes are padded to the largest."""
    reader, device = CocoReader(job.images, job.annotations), torch.device(job.device)
    loader = torch.utils.data.DataLoader(
        FileDataset(reader, sample), job.batch_size, shuffle=True, num_workers=job.workers, collate_fn=collate,
        persistent_workers=job.workers > 0, pin_memory=device.type == "cuda",
    )  # fmt: skip
    for _ in count():
        for images, boxes, labels in loader:
            here = images.to(device, non_blocking=True)
            boxes, labels = ([own.to(device, non_blocking=True) for own in column] for column in (boxes, labels))
            yield MadeBatch(here, boxes, labels, len(images))


class FileDataset(torch.utils.data.Dataset[Any]):
    """The images of a reader, each read and augmented by `sample`."""

    def __init__(self, reader: CocoReader, sample: SampleReader) -> None:
        self.reader, self.sample = reader, sample

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, row: int) -> Any:
        views = self.reader.views(np.array([row]))
        return self.sample(str(self.reader.path(row)), views.pixel_boxes()[0], views.labels[0])


def collate(samples: list[Any]) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Stack images, padded to the largest one and a multiple of 32 if they differ; list boxes and labels."""
    images, boxes, labels = (list(column) for column in zip(*samples, strict=True))
    if len({image.shape for image in images}) > 1:
        height, width = (-(-max(image.shape[axis] for image in images) // 32) * 32 for axis in (1, 2))
        pads = [(0, width - image.shape[2], 0, height - image.shape[1]) for image in images]
        images = [torch.nn.functional.pad(image, pad) for image, pad in zip(images, pads, strict=True)]
    return torch.stack(images), boxes, labels


def _torchvision_sample(preset: str) -> SampleReader:
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
        xyxy = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=image.shape[1:])
        after = transform({"image": image, "boxes": xyxy, "labels": torch.from_numpy(labels)})
        return after["image"].as_subclass(torch.Tensor), after["boxes"].as_subclass(torch.Tensor), after["labels"]

    return sample
