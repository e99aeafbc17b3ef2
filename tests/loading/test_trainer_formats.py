"""Batches as trainers take them, against the annotations, DETR's own rules and Hugging Face's image processors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny_detectors
import torch
from painted_files import Folder
from PIL import Image
from reference import import_torchvision
from test_targets import BATCH, make_batch

import detaug as da

MEAN, STD = da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD


def read(painted: Folder, *resize: da.Op, **options: Any) -> da.Batch:
    """Return the last 12 of the painted files: of three sizes, the last one without boxes."""
    loader = da.Loader(da.CocoReader(*painted), [*resize, da.Normalize(MEAN, STD)], 12, train=False, **options)
    *_, batch = loader
    return batch


def annotations(painted: Folder, batch: da.Batch) -> list[dict[str, Any]]:
    """Return the file name, size and annotations of each image, with its categories' positions, from the JSON file."""
    document = json.loads(painted[1].read_text())
    images = {image["id"]: image for image in document["images"]}
    order = sorted(category["id"] for category in document["categories"])
    boxes = [{**each, "category_id": order.index(each["category_id"])} for each in document["annotations"]]
    return [
        {**images[number], "annotations": [each for each in boxes if each["image_id"] == number]}
        for number in batch.image_id.tolist()
    ]


def relative_box(bbox: list[float], height: float, width: float) -> list[float]:
    x, y, w, h = bbox
    return [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]


# ------------------------------------------------------------------------------------------------ DETR


def test_detr_takes_boxes_relative_to_the_image_without_padding(painted: Folder, device: str) -> None:
    batch = read(painted, da.Resize(60), device=device)
    (images, mask), targets = batch.as_detr()
    assert images is batch.images
    assert len(batch.image_size.unique(dim=0)) == 3
    for at, (target, expected) in enumerate(zip(targets, annotations(painted, batch), strict=True)):
        boxes = [relative_box(each["bbox"], expected["height"], expected["width"]) for each in expected["annotations"]]
        assert torch.allclose(target["boxes"].cpu(), torch.tensor(boxes).reshape(-1, 4), atol=1e-6)
        assert target["labels"].tolist() == [each["category_id"] + 1 for each in expected["annotations"]]
        assert target["image_id"].tolist() == [expected["id"]]
        assert target["orig_size"].tolist() == [expected["height"], expected["width"]]
        height, width = target["size"].tolist()
        assert sorted((height, width))[0] == 60
        seen = torch.ones_like(mask[at])
        seen[:height, :width] = False
        assert torch.equal(mask[at], seen)
        assert not images[at, :, seen].any()
        shrunk = height / expected["height"] * width / expected["width"]
        areas = [each["bbox"][2] * each["bbox"][3] * shrunk for each in expected["annotations"]]
        assert torch.allclose(target["area"].cpu(), torch.tensor(areas), rtol=1e-4)
        assert not target["iscrowd"].any()


def test_types_and_devices_are_those_of_detrs_own_loader(device: str) -> None:
    """Also where an image, or all of them, have no boxes: the losses concatenate the targets of a batch."""
    whole = dict.fromkeys(("labels", "iscrowd", "image_id", "orig_size", "size"), torch.int64)
    types = {"boxes": torch.float32, "area": torch.float32, **whole}
    for boxes in (BATCH, [[], []]):
        batch = make_batch(boxes, device)
        (_, mask), targets = batch.as_detr()
        assert (mask.dtype, mask.shape, mask.device.type) == (torch.bool, (len(boxes), 300, 300), device)
        assert [len(target["boxes"]) for target in targets] == list(map(len, boxes))
        for target in targets:
            assert {name: each.dtype for name, each in target.items()} == types
            assert {each.device.type for each in target.values()} == {device}
            assert target["boxes"].shape == (len(target["labels"]), 4)
            assert (target["image_id"].shape, target["size"].shape) == ((1,), (2,))


def test_detrs_labels_start_where_they_are_told_to() -> None:
    _, targets = make_batch(BATCH).as_detr(first_label=0)
    assert [target["labels"].tolist() for target in targets] == [list(range(len(each))) for each in BATCH]


def test_the_pair_is_detrs_nested_tensor(device: str) -> None:
    """What DETR's and RF-DETR's code does with it."""
    nested, _ = make_batch(BATCH).as_detr()
    moved = nested.to(device, non_blocking=True)
    images, mask = moved.decompose()
    assert moved.tensors is images
    assert moved.mask is mask
    assert images.device.type == mask.device.type == device
    nested.tensors = torch.zeros(5, 3, 8, 8)  # RF-DETR resizes the batch like this
    assert nested.decompose()[0].shape == (5, 3, 8, 8)


def test_a_dali_pipelines_batch_without_ids_and_sizes() -> None:
    batch = make_batch(BATCH)
    fields = {name: getattr(batch, name) for name in ("images", "boxes", "labels", "valid", "image_size", "counts")}
    _, targets = da.Batch(**fields, image_id=None, source_size=None, matrix=None).as_detr()  # type: ignore[arg-type]
    assert set(targets[0]) == {"boxes", "labels", "area", "iscrowd", "size"}


# ------------------------------------------------------------------------------------------------ YOLO


def test_yolo_takes_boxes_relative_to_the_padded_image(painted: Folder, device: str) -> None:
    batch = read(painted, da.Resize(60), device=device)
    rows = batch.as_yolo()
    height, width = batch.images.shape[-2:]
    expected = []
    for at, each in enumerate(annotations(painted, batch)):
        tall, wide = (batch.image_size[at] / torch.tensor([each["height"], each["width"]])).tolist()
        padded = height / tall, width / wide
        expected += [[at, box["category_id"], *relative_box(box["bbox"], *padded)] for box in each["annotations"]]
    joined = torch.cat([rows["batch_idx"][:, None], rows["cls"], rows["bboxes"]], 1)
    assert torch.allclose(joined.cpu(), torch.tensor(expected), atol=1e-6)
    assert {each.dtype for name, each in rows.items() if name != "img"} == {torch.float32}
    assert {each.device.type for each in rows.values()} == {device}
    assert rows["img"] is batch.images


def test_yolos_rows_of_a_batch_without_boxes() -> None:
    rows = make_batch([[], []]).as_yolo()
    assert {name: tuple(each.shape) for name, each in rows.items() if name != "img"} == {
        "cls": (0, 1),
        "bboxes": (0, 4),
        "batch_idx": (0,),
    }


# ------------------------------------------------------------------------------------------------ Hugging Face


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import_torchvision()
    return pytest.importorskip("transformers")


def processed(processor: Any, painted: Folder, batch: da.Batch) -> dict[str, Any]:
    """Return what an image processor makes of the files of a batch."""
    every = annotations(painted, batch)
    images = [Image.open(painted[0] / each["file_name"]).convert("RGB") for each in every]
    areas = [[{**box, "area": float(np.prod(box["bbox"][2:]))} for box in each["annotations"]] for each in every]
    targets = [{"image_id": each["id"], "annotations": boxes} for each, boxes in zip(every, areas, strict=True)]
    return dict(processor(images, annotations=targets, return_tensors="pt"))


def assert_alike(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    apart = (ours["pixel_values"] - theirs["pixel_values"]).abs() * torch.tensor(STD)[:, None, None]
    assert apart.mean((1, 2, 3)).max() < 1 / 255
    for target, expected in zip(ours["labels"], theirs["labels"], strict=True):
        assert set(target) == set(expected)
        for name, value in expected.items():
            assert (target[name].dtype, target[name].shape) == (value.dtype, value.shape), name
            tolerance = {"boxes": 1e-3, "area": 0.1}.get(name, 0)
            assert torch.allclose(target[name].double(), value.double(), atol=tolerance, rtol=0), name


@pytest.mark.slow
def test_padded_batches_are_those_of_the_processor_of_detr(painted: Folder, transformers: Any) -> None:
    batch = read(painted, da.Resize(60, max_size=75), pad_to_multiple=1, device="cpu")
    processor = transformers.DetrImageProcessor(size={"shortest_edge": 60, "longest_edge": 75})
    ours, theirs = batch.as_hf(), processed(processor, painted, batch)
    assert set(ours) == set(theirs)
    assert torch.equal(ours["pixel_mask"], theirs["pixel_mask"])
    assert ours["pixel_mask"].dtype == theirs["pixel_mask"].dtype
    assert not ours["pixel_mask"].all()
    assert_alike(ours, theirs)


@pytest.mark.slow
def test_stretched_batches_are_those_of_the_processor_of_rt_detr(painted: Folder, transformers: Any) -> None:
    batch = read(painted, da.Resize((64, 96)), device="cpu")
    size = {"height": 64, "width": 96}
    processor = transformers.RTDetrImageProcessor(size=size, do_normalize=True, image_mean=MEAN, image_std=STD)
    assert_alike(batch.as_hf(), processed(processor, painted, batch))


@pytest.mark.slow
@pytest.mark.parametrize("make", [tiny_detectors.detr, tiny_detectors.rt_detr_v2, tiny_detectors.d_fine])
def test_losses_are_those_of_the_processors_batch(
    painted: Folder, transformers: Any, make: Callable[[int], Any]
) -> None:
    batch = read(painted, da.Resize(64, max_size=96), device="cpu")
    size = {"shortest_edge": 64, "longest_edge": 96}
    pad = dict(zip(("height", "width"), batch.images.shape[-2:], strict=True))
    theirs = processed(transformers.DetrImageProcessor(size=size, pad_size=pad), painted, batch)
    losses = [loss(make, each) for each in (batch.as_hf(), theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert np.isfinite(loss(make, make_batch([[], []], size=(96, 96)).as_hf()))


def loss(make: Callable[[int], Any], inputs: dict[str, Any]) -> float:
    detector = tiny_detectors.made(make, 3)
    torch.manual_seed(1)  # for the denoising queries
    return float(detector(**inputs).loss.detach())
