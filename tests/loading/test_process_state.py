"""Geometry and pixels do not depend on the state of the process: autocast, TF32, default dtype and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from dali_pipelines import make
from nvidia.dali import fn
from painted_files import Folder, paint_files
from torch import Tensor

import detaug as da
from detaug.boxes.views import invert

TURNING = [da.RandomPerspective(p=1), da.RandomIoUCrop(), da.Resize((65, 83)), da.ColorJitter(0.4, 0.4, 0.4, 0.1)]
RECIPES: dict[str, list[da.Op]] = {
    "ssd": da.presets.ssd300(),
    "turning": [*TURNING, da.Normalize()],
    "padded": [da.RandomRotation(30), da.Resize(60, max_size=90), da.Normalize(dtype="float16")],
    "mosaic": [da.Resize((64, 64)), da.Mosaic(p=1), da.RandomGrayscale(p=1), da.RandomErasing(p=1)],
}


@contextmanager
def changed(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Iterator[None]:
    """Change a setting of the process, and change it back."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def default_dtype(dtype: torch.dtype) -> Any:
    return changed(torch.get_default_dtype, torch.set_default_dtype, dtype)


STATES: dict[str, Callable[[str], Any]] = {
    "autocast bfloat16": lambda device: torch.autocast(device, torch.bfloat16),
    "autocast float16": lambda device: torch.autocast(device, torch.float16),
    "float16 by default": lambda _: default_dtype(torch.float16),
    "float64 by default": lambda _: default_dtype(torch.float64),
    "a device by default": lambda _: torch.device("meta"),  # which has no values: whoever takes it fails
    "low precision": lambda _: changed(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "deterministic": lambda _: changed(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "inference mode": lambda _: torch.inference_mode(),
}


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return paint_files(tmp_path_factory.mktemp("painted"))


def tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors and arrays in a value, and numbers, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from tensors(each)
    elif value is not None:
        yield value


def of_batch(batch: da.Batch) -> list[Any]:
    """Return all that a batch gives."""
    boxes = torch.from_numpy(np.array([[[3.0, 4, 40, 50], [-2, 0.25, 60, 10]]] * len(batch), np.float32))
    boxes = boxes.to(batch.boxes.device)
    default_boxes = da.targets.ssd300_default_boxes()
    return [
        batch.images, batch.boxes, batch.labels, batch.matrix, batch.image_size, batch.targets(), batch.as_hf(),
        batch.as_yolo(), [list(batch.as_detr()[0]), batch.as_detr()[1]], batch.boxes_in_source(), batch.columns,
        [] if batch.drawing else [batch.to_source(boxes.half()), batch.to_source([*boxes])], default_boxes,
        list(da.targets.ssd(batch, default_boxes)), list(da.targets.retinanet(batch, default_boxes)),
    ]  # fmt: skip


def loaded(data: Folder, device: str) -> list[Any]:
    reader = da.CocoReader(*data)
    return [of_batch(next(iter(da.Loader(reader, recipe, 8, device=device, seed=3)))) for recipe in RECIPES.values()]


def eager(data: Folder, device: str) -> list[Any]:
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    samples = [da.batch([image], [[[10, 5, 30, 45]]], seed=5, device=device).then(*RECIPES["turning"])]
    target = {"boxes": np.array([[10.0, 5, 30, 45]]), "labels": [1]}
    recipes = (RECIPES["turning"], [da.Resize((40, 40)), *TURNING[-1:]])  # the second one runs on torch alone
    composed = [list(da.Compose(recipe, seed=5)(image, target)) for recipe in recipes]
    return [[each.images, each.boxes, each.matrix] for each in samples] + composed


def in_a_pipeline(data: Folder, device: str) -> list[Any]:
    def nodes() -> Any:
        encoded, boxes, labels, image_id = da.fn.coco(*data)
        images = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
        images, boxes, labels, matrix = da.fn.augment(images, boxes, labels, TURNING, seed=2, return_matrix=True)
        return images, boxes, labels, image_id, matrix

    names = ("images", "boxes", "labels", "image_id", "matrix")
    batch = next(iter(da.DaliIterator(make(nodes, 4, device), names, reader_name="reader")))
    return [batch.images, batch.boxes, batch.to_source(batch.boxes)]


def evaluated(data: Folder, device: str) -> list[Any]:
    reader = da.CocoReader(*data)
    evaluator = da.CocoEvaluator(reader)
    for batch in da.Loader(reader, da.presets.evaluation((97, 89)), 8, device=device, train=False):
        evaluator.update(batch, [{**each, "scores": each["boxes"][:, 0] * 0 + 1} for each in batch.targets()])
    metrics = evaluator.compute()
    assert metrics.AP == 1
    return [metrics.AP, metrics.APs, metrics.VOC_AP50]


@cache
def results_in_no_state(results: Callable[[Folder, str], list[Any]], data: Folder, device: str) -> list[Any]:
    return list(tensors(results(data, device)))


@pytest.mark.parametrize("results", [loaded, eager, in_a_pipeline, evaluated])
@pytest.mark.parametrize("state", STATES)
def test_results_are_equal_in_every_state(
    state: str, results: Callable[[Folder, str], list[Any]], painted: Folder, device: str
) -> None:
    expected = results_in_no_state(results, painted, device)
    with STATES[state](device):
        found = list(tensors(results(painted, device)))
    assert len(expected) == len(found) > 0
    for one, other in zip(expected, found, strict=True):
        assert type(one) is type(other)
        if isinstance(one, Tensor):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        else:
            np.testing.assert_array_equal(one, other)


def test_boxes_go_back_to_the_source_within_a_thousandth(painted: Folder, device: str) -> None:
    """Numbers of 16 bits, as a model under autocast predicts them, are exact to begin with here: whole pixels."""
    reader = da.CocoReader(*painted)
    batch = next(iter(da.Loader(reader, [*TURNING[:1], da.Resize((512, 512))], 8, device=device)))
    boxes = torch.tensor([[[16.0, 32, 128, 240]]] * len(batch), device=device)
    with torch.autocast(device, torch.bfloat16):
        back = batch.to_source(boxes.bfloat16())
    assert back.dtype == torch.float32
    to_source = invert(batch.matrix.double().numpy())
    for at, matrix in enumerate(to_source):
        points = np.array([[x, y, 1] for x in (16, 128) for y in (32, 240)]) @ matrix.T
        points = points[:, :2] / points[:, 2:]
        assert np.abs(np.r_[points.min(0), points.max(0)] - back[at, 0].cpu().numpy()).max() < 1e-3
