"""RandomApply, RandomChoice, RandomOrder: which ops run, and that the others cost and change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from nvidia.dali import fn
from seeds import SLOW_ON_GPU, slow

import detaug as da
from detaug.boxes.views import Views
from detaug.pipelines.graph import Node, Nodes
from detaug.testing import assert_boxes_follow_pixels

BLACK = (0.0, 0.0, 0.0)
TURN = da.RandomRotation(30, fill=BLACK)
GEOMETRY = [da.RandomHorizontalFlip(p=1), TURN, da.RandomZoomOut(2.0, p=1, fill=BLACK), da.RandomIoUCrop()]


@dataclass(frozen=True)
class Add(da.PixelOp):
    """Multiplies each pixel, then adds."""

    value: int
    factor: int = 1

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return fn.cast_like(image * self.factor + self.value, image)


@dataclass(frozen=True)
class Counted(da.PixelOp):
    """Records the images on which it runs."""

    seen: ClassVar[list[np.ndarray]] = []

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return fn.python_function(image, function=self.record, output_layouts="HWC")

    def record(self, image: np.ndarray) -> np.ndarray:
        self.seen.append(image)
        return image


def values(op: da.Op, n: int = 64, seed: int = 0) -> list[int]:
    images = da.batch([np.ones((3, 4, 3), np.uint8)] * n, seed=seed).then(da.Resize((3, 4)), op).images
    assert all(image.min() == image.max() for image in images)
    return [int(image.min()) for image in images]


@pytest.mark.parametrize("container", [
    da.RandomApply(GEOMETRY, p=0.5), da.RandomChoice(GEOMETRY), da.RandomOrder(GEOMETRY),
    da.RandomChoice([da.RandomApply([TURN, da.RandomBoxSafeCrop()]), da.RandomOrder([TURN, da.RandomRotate90()])]),
], ids=lambda op: type(op).__name__)  # fmt: skip
@pytest.mark.parametrize("pipeline", [True, *slow(False)])
@SLOW_ON_GPU
def test_boxes_follow_pixels(container: da.Op, pipeline: bool, device: str) -> None:
    ops = [container, da.RandomVerticalFlip(), container, da.Resize((200, 220))]
    assert assert_boxes_follow_pixels(ops, images=16, pipeline=pipeline, device=device) > 16


NOISE = np.random.default_rng(0).integers(0, 256, (8, 24, 20, 3), np.uint8)
PIXEL_OPS = [
    da.ColorJitter(0.3, 0.3, 0.3, 0.1), da.GaussianNoise(p=1), da.SaltAndPepperNoise(p=1), da.JPEG(p=1),
    da.GaussianBlur(p=1), da.RandomAdjustSharpness(2.0, p=1), da.RandomGrayscale(p=1), da.CLAHE(p=1),
]  # fmt: skip


@pytest.mark.parametrize("op", PIXEL_OPS, ids=lambda op: type(op).__name__)
def test_a_pixel_op_in_a_container_does_the_same_as_alone(op: da.Op, device: str) -> None:
    """Some of the ops return float32, some need constants; in one container and in two nested ones."""
    source = da.batch(NOISE, seed=2, device=device).then(da.Resize((24, 20)))
    for container, prefix in ((da.RandomApply([op]), "0."), (da.RandomOrder([da.RandomApply([op])]), "0.0.")):
        samples = source.then(container)
        _, drawn = samples.params
        chosen = drawn[f"{prefix.removesuffix('0.')}chosen"][:, 0]
        own = {name.removeprefix(prefix): each for name, each in drawn.items() if name.startswith(prefix)}
        alone = source.then(op).replay([{}, own])
        assert set(chosen) == {False, True}
        for image, changed, before, was in zip(samples.images, alone.images, source.images, chosen, strict=True):
            assert image.dtype == np.uint8
            assert np.abs(image - (changed if was else before).astype(float)).max() <= 0.501


def test_a_container_may_have_pixel_ops_of_different_types(device: str) -> None:
    for container in (da.RandomChoice(PIXEL_OPS), da.RandomOrder(PIXEL_OPS[:3])):
        images = da.batch(NOISE, device=device).then(da.Resize((24, 20)), container).images
        assert all((image != source).any() for image, source in zip(images, NOISE, strict=True))


def test_apply_runs_all_or_none(device: str) -> None:
    found = values(da.RandomApply([Add(1), Add(0, 5)], p=0.3), n=2000)
    assert set(found) == {1, 10}
    assert np.mean(np.array(found) == 10) == pytest.approx(0.3, abs=0.05)
    assert set(values(da.RandomApply([Add(1)], p=0.0))) == {1}
    assert set(values(da.RandomApply([Add(1)], p=1.0))) == {2}


@pytest.mark.slow
def test_choice_runs_one_by_its_weight() -> None:
    found = np.array(values(da.RandomChoice([Add(10), Add(20), Add(30)], probabilities=[1, 0, 3]), n=4000))
    assert set(found) == {11, 31}
    assert np.mean(found == 31) == pytest.approx(0.75, abs=0.03)


@pytest.mark.slow
def test_order_runs_all_in_each_order() -> None:
    found = np.array(values(da.RandomOrder([Add(1), Add(0, 5), Add(3)]), n=3000))
    orders = {(1 + 1) * 5 + 3, (1 + 1 + 3) * 5, 1 * 5 + 1 + 3, (1 + 3) * 5 + 1, (1 + 3 + 1) * 5}
    assert set(found) == orders
    assert all(0.1 < np.mean(found == each) < 0.4 for each in orders)


def test_geometry_that_was_not_drawn_leaves_the_image_bit_for_bit() -> None:
    image = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    container = da.RandomApply([da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)], p=0.5)
    images = container(da.batch([image] * 50)).images
    same = [np.array_equal(each, image) for each in images]
    turned = [np.array_equal(each, image[::-1, ::-1]) for each in images]
    assert sum(same) + sum(turned) == 50
    assert 10 < sum(same) < 40


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_an_op_runs_only_on_images_that_drew_it(p: float) -> None:
    Counted.seen.clear()
    samples = da.batch([np.zeros((9, 9, 3), np.uint8)] * 20).then(da.Resize((9, 9)), da.RandomApply([Counted()], p=p))
    assert len(samples.images) == 20
    assert len(Counted.seen) == samples.params[1]["chosen"].sum()
    assert (len(Counted.seen) == 0, len(Counted.seen) == 20) == (p == 0, p == 1)


def test_an_image_that_drew_nothing_between_turned_ones_keeps_its_boxes() -> None:
    boxes = [[[10, 10, 30, 20]]] * 20
    samples = da.RandomApply([TURN], p=0.5)(da.batch([np.zeros((60, 80, 3), np.uint8)] * 20, boxes))
    kept = [np.allclose(each, boxes[0]) for each in samples.boxes]
    assert 3 < sum(kept) < 17


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.RandomApply([]), "ops must be one or more ops"),
        (lambda: da.RandomApply([TURN], p=2), "p must be a probability"),
        (lambda: da.RandomChoice([TURN, Add(1)]), "all geometric ops or all pixel ops"),
        (lambda: da.RandomOrder([da.Resize(8)]), "all geometric ops or all pixel ops"),
        (lambda: da.RandomChoice([TURN, TURN], probabilities=[1]), "probabilities must be 2 weights"),
        (lambda: da.RandomChoice([TURN, TURN], probabilities=[0, 0]), "probabilities must be 2 weights"),
        (lambda: da.Resize(8)(da.RandomApply([Add(1)])(da.batch([np.zeros((9, 9, 3), np.uint8)]))), "after Resize"),
    ],
)
def test_what_cannot_work_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
