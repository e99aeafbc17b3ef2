"""Targets of whole batches against an encoder for single images, and against torchvision's own."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import import_torchvision
from torch import Tensor

import detaug as da

SIDE = 300


def make_batch(boxes: list[list[list[float]]], device: str = "cpu", size: tuple[int, int] = (SIDE, SIDE)) -> da.Batch:
    """Make a batch with the labels 1, 2, ... in each image."""
    counts = tuple(map(len, boxes))
    n, m = len(boxes), max(counts, default=0)
    padded, labels = torch.zeros(n, m, 4), torch.full((n, m), -1)
    for at, each in enumerate(boxes):
        padded[at, : len(each)] = torch.tensor(each, dtype=torch.float32).reshape(-1, 4)
        labels[at, : len(each)] = torch.arange(1, len(each) + 1)
    return da.Batch(
        images=torch.zeros(n, 3, *size),
        boxes=padded,
        labels=labels,
        valid=labels > 0,
        image_id=torch.arange(n),
        source_size=torch.tensor([size] * n),
        image_size=torch.tensor([size] * n),
        matrix=torch.eye(3)[:2].repeat(n, 1, 1),
        counts=counts,
    ).to(device)


def random_boxes(count: int, seed: int, side: int = SIDE) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    size = np.exp(rng.uniform(np.log(4), np.log(side - 2), (count, 2)))
    start = rng.uniform(0, side - size)
    return np.concatenate([start, start + size], 1).round(3).tolist()


BATCH = [random_boxes(count, count) for count in (3, 0, 7, 1, 25)]

edges = st.lists(st.sampled_from([0, 16, 40, 64, 100, 150, 151.5, 299]), min_size=2, max_size=2, unique=True).map(
    sorted
)
box_strategy = st.tuples(edges, edges).map(lambda each: [each[0][0], each[1][0], each[0][1], each[1][1]])
batch_strategy = st.lists(st.lists(box_strategy, max_size=4), min_size=1, max_size=4)


def iou(one: Tensor, other: Tensor) -> Tensor:
    """Return (G, A)."""
    low, high = torch.maximum(one[:, None, :2], other[:, :2]), torch.minimum(one[:, None, 2:], other[:, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (one, other)]
    return shared / (areas[0][:, None] + areas[1] - shared)


def encoded(box: list[float], default: list[float], weights: tuple[float, ...]) -> list[float]:
    """Encode by the formula of the paper (SSD, equation 2), in double precision."""
    (cx, cy, w, h), (dx, dy, dw, dh) = (
        ((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0) for x0, y0, x1, y1 in (box, default)
    )
    return [v * o for v, o in zip(weights, ((cx - dx) / dw, (cy - dy) / dh, log(w / dw), log(h / dh)), strict=True)]


def one_image(target: dict[str, Tensor], default_boxes: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Return labels (A,) and offsets (A, 4) of one image, object by object, as in the papers."""
    weights = (10, 10, 5, 5) if rule == "ssd" else (1, 1, 1, 1)
    labels, offsets = torch.zeros(len(default_boxes), dtype=torch.int64), torch.zeros(len(default_boxes), 4)
    boxes = target["boxes"]
    if not len(boxes):
        return labels, offsets
    overlaps = iou(boxes, default_boxes)
    matches = overlaps.max(0).indices
    largest = overlaps.max(0).values
    positive, ignored = largest >= 0.5, torch.zeros(len(default_boxes), dtype=torch.bool)
    if rule == "ssd":
        for j in range(len(boxes)):
            best = int(overlaps[j].argmax())
            matches[best], positive[best] = j, True
    else:
        ignored = (largest >= 0.4) & (largest < 0.5)
        for j in range(len(boxes)):
            positive |= overlaps[j] == overlaps[j].max()
    labels[ignored & ~positive] = -1
    for at in positive.nonzero()[:, 0].tolist():
        labels[at] = target["labels"][matches[at]]
        offsets[at] = torch.tensor(encoded(boxes[matches[at]].tolist(), default_boxes[at].tolist(), weights))
    return labels, offsets


def assert_as_one_by_one(batch: da.Batch, result: Any, default_boxes: Tensor, rule: str) -> None:
    assert result.labels.device == result.offsets.device == result.rows.device == batch.boxes.device
    for at, target in enumerate(batch.to("cpu").targets()):
        labels, offsets = one_image(target, default_boxes, rule)
        assert torch.equal(result.labels[at].cpu(), labels)
        assert (result.offsets[at].cpu() - offsets).abs().max() < 1e-4
        rows = result.rows[at].cpu()
        assert torch.equal(rows >= 0, labels > 0)
        assert torch.equal(target["labels"][rows[rows >= 0]], labels[labels > 0])


# -------------------------------------------------------------------------------------------- SSD, RetinaNet


def anchors(device: str = "cpu") -> Tensor:
    """Return (A, 4): nine anchors for each position of three maps, as in RetinaNet."""
    shapes = [(32 * scale * ratio**0.5, 32 * scale / ratio**0.5) for scale in (1, 1.26, 1.59) for ratio in (0.5, 1, 2)]
    half = torch.tensor(shapes) / 2
    every = []
    for level in range(3):
        at = (torch.arange(0, SIDE, 16 << level) + 0.0) + (8 << level)
        y, x = torch.meshgrid(at, at, indexing="ij")
        centers = torch.stack([x, y], -1).reshape(-1, 1, 2)
        every.append(torch.cat([centers - half * 2**level, centers + half * 2**level], 2).flatten(0, 1))
    return torch.cat(every).to(device)


def test_ssd_equals_images_one_by_one(device: str) -> None:
    batch, default_boxes = make_batch(BATCH, device), da.targets.ssd300_default_boxes()
    result = da.targets.ssd(batch, default_boxes)
    assert_as_one_by_one(batch, result, default_boxes, "ssd")
    assert result.labels.shape == (5, 8732)
    assert not result.labels[1].any()
    assert result.labels[4].unique().numel() > 20


def test_retinanet_equals_images_one_by_one(device: str) -> None:
    batch = make_batch(BATCH, device)
    result = da.targets.retinanet(batch, anchors())
    assert_as_one_by_one(batch, result, anchors(), "retinanet")
    assert (result.labels == -1).any()


@settings(max_examples=30, deadline=None)
@given(batch_strategy)
def test_any_batch_equals_its_images_one_by_one(boxes: list[list[list[float]]]) -> None:
    """Boxes with few coordinates: the same box twice, one best default box for two, IoU of exactly a half."""
    batch = make_batch(boxes)
    few = torch.cat([da.targets.ssd300_default_boxes()[::53], torch.tensor(boxes[0]).reshape(-1, 4), anchors()[::31]])
    assert_as_one_by_one(batch, da.targets.ssd(batch, few), few, "ssd")
    assert_as_one_by_one(batch, da.targets.retinanet(batch, few), few, "retinanet")


def test_a_batch_without_any_box_is_all_background(device: str) -> None:
    batch = make_batch([[], []], device)
    for result in (da.targets.ssd(batch, anchors()), da.targets.retinanet(batch, anchors())):
        assert result.labels.shape == (2, len(anchors()))
        assert not result.labels.any()
        assert not result.offsets.any()
        assert (result.rows == -1).all()


def test_more_padding_changes_nothing() -> None:
    """Padding also covers default boxes without an object, with which its IoU is no smaller than the objects'."""
    batch = make_batch([[[100, 100, 140, 150]], random_boxes(40, 0)])
    alone = make_batch([[[100, 100, 140, 150]]])
    for make in (da.targets.ssd, da.targets.retinanet):
        for padded, plain in zip(make(batch, anchors()), make(alone, anchors()), strict=True):
            assert torch.equal(padded[0], plain[0])


def test_wrong_arguments_are_named() -> None:
    batch = make_batch(BATCH)
    with pytest.raises(ValueError, match=r"default boxes must be of shape \(A, 4\), XYXY pixels, got \(8732, 5\)"):
        da.targets.ssd(batch, torch.zeros(8732, 5))
    with pytest.raises(ValueError, match=r"low must be within 0\.\.high \(0\.5\), got 0\.6"):
        da.targets.retinanet(batch, anchors(), low=0.6)


# ------------------------------------------------------------------------------------------- torchvision's own


@pytest.fixture(scope="module")
def torchvision() -> dict[str, Any]:
    try:
        import_torchvision()
        from torchvision.models.detection import _utils, anchor_utils
        from torchvision.models.detection.image_list import ImageList
        from torchvision.ops import box_iou
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision, the reference, cannot be imported: {error}")
    return {"utils": _utils, "anchors": anchor_utils, "ImageList": ImageList, "box_iou": box_iou}


def torchvisions(torchvision: dict[str, Any], batch: da.Batch, default_boxes: Tensor, rule: str) -> list[Any]:
    """Return the results of torchvision's heads: matches (A,), and the offsets of matched anchors."""
    utils = torchvision["utils"]
    ssd = rule == "ssd"
    matcher = utils.SSDMatcher(0.5) if ssd else utils.Matcher(0.5, 0.4, allow_low_quality_matches=True)
    coder = utils.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0) if ssd else (1.0, 1.0, 1.0, 1.0))
    results = []
    for target in batch.targets():
        matches = torch.full((len(default_boxes),), -1)
        if len(target["boxes"]):
            matches = matcher(torchvision["box_iou"](target["boxes"], default_boxes))
        positive = matches >= 0
        results.append((matches, coder.encode_single(target["boxes"][matches[positive]], default_boxes[positive])))
    return results


@pytest.mark.parametrize("rule", ["ssd", "retinanet"])
def test_matches_and_offsets_are_torchvisions(torchvision: dict[str, Any], rule: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(batch_strategy)
    def compare(boxes: list[list[list[float]]]) -> None:
        batch = make_batch(boxes)
        default_boxes = torch.cat([da.targets.ssd300_default_boxes()[::7], anchors()[::7]])
        result = getattr(da.targets, rule)(batch, default_boxes)
        for at, (matches, offsets) in enumerate(torchvisions(torchvision, batch, default_boxes, rule)):
            assert torch.equal(result.rows[at], matches.clamp(min=-1))
            assert torch.equal(result.labels[at] == -1, matches == -2)
            assert torch.allclose(result.offsets[at][matches >= 0], offsets, atol=1e-4, rtol=1e-5)

    compare()
    compare.hypothesis.inner_test(BATCH)


def test_the_default_boxes_are_torchvisions(torchvision: dict[str, Any]) -> None:
    generator = torchvision["anchors"].DefaultBoxGenerator(
        [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
        scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
        steps=[8, 16, 32, 64, 100, 300],
    )
    maps = [torch.zeros(1, 1, side, side) for side in (38, 19, 10, 5, 3, 1)]
    (expected,) = generator(torchvision["ImageList"](torch.zeros(1, 3, SIDE, SIDE), [(SIDE, SIDE)]), maps)
    ours = da.targets.ssd300_default_boxes()
    assert ours.shape == expected.shape == (8732, 4)
    assert ours.dtype == torch.float32
    assert (ours - expected).abs().max() < 1e-3  # pixels
