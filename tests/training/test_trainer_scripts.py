"""The scripts of docs/trainers: they train, the loss falls, and their pages quote them.

The trainers' own warnings are ignored rather than shown: pytest-xdist imports a shown warning's module in its main
process, and ends where that import warns again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tiny_detectors
import torch
from PIL import Image
from places import REPOSITORY
from reference import import_torchvision

import detaug as da
from detaug.converters import voc_to_coco

TRAINERS = REPOSITORY / "docs/trainers"
SCRIPTS = sorted(TRAINERS.glob("*.py"))
STEPS = 15
"""Of four images each, more than one epoch."""
SIDE = 96


def load(name: str) -> ModuleType:
    spec = util.spec_from_file_location(f"trainer_{name}", TRAINERS / f"{name}.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [path.with_suffix(".md") for path in SCRIPTS], ids=lambda path: path.stem)
def test_a_page_quotes_its_script(page: Path) -> None:
    script = without_indents(page.with_suffix(".py").read_text())
    quotes = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert quotes
    assert [quote for quote in quotes if without_indents(quote) not in script] == []


CHANGES = {
    path.stem: "".join(found)
    for path in sorted(TRAINERS.glob("*.md"))
    if (found := re.findall(r"^```diff\n(.*?)^```$", path.read_text(), re.M | re.S))
}


@pytest.mark.parametrize("page", CHANGES)
def test_at_most_ten_lines_are_new(page: str) -> None:
    new = len(re.findall(r"^\+.*\S", CHANGES[page], re.M))
    assert 0 < new <= 10


def without_indents(code: str) -> str:
    return re.sub(r"^ +", "", code, flags=re.M)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch's threads wait for each other where other processes use the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_falling(losses: list[float]) -> None:
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore")  # of Hugging Face's and of torch's
@pytest.mark.parametrize("make", [tiny_detectors.detr, tiny_detectors.rt_detr_v2])
def test_hugging_faces_trainer(
    make: Callable[[int], Any], workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import_torchvision()
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    script, reader = load("huggingface"), da.CocoReader("demo/VOC/JPEGImages", "train.json")
    recipe = [*script.TRAINING[2:3], da.Resize((96, 96)), da.Normalize()]
    loader = da.Loader(reader, recipe, 8, device="cpu", collate=da.Batch.as_hf)
    model = tiny_detectors.made(make, 6)
    options = {"use_cpu": True, "learning_rate": 1e-3, "max_grad_norm": 0.1, "disable_tqdm": True}
    losses = script.train(model, loader, str(tmp_path), 30, **options)
    assert len(losses) == 30
    assert_falling(losses)
    if make is tiny_detectors.rt_detr_v2:
        found = script.evaluate(model, da.Loader(reader, da.presets.evaluation((96, 96)), 8, train=False, device="cpu"))
        assert 0 <= found.AP <= 1


@pytest.fixture
def with_masks(workplace: Path) -> da.CocoReader:
    """The demo with the masks that its PNG files have."""
    voc_to_coco("demo/VOC", "masks.json", split="train", masks=True)
    return da.CocoReader("demo/VOC/JPEGImages", "masks.json", masks=True)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore")  # of Hugging Face's and of torch's
def test_mask2former(with_masks: da.CocoReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import_torchvision()
    pytest.importorskip("transformers")
    script, recipe = load("huggingface"), [da.RandomHorizontalFlip(), da.Resize((96, 96)), da.Normalize()]
    loader = da.Loader(with_masks, recipe, 8, device="cpu", collate=da.Batch.as_mask2former)
    options = {"use_cpu": True, "learning_rate": 1e-3, "max_grad_norm": 0.1, "disable_tqdm": True}
    losses = script.train(tiny_detectors.made(tiny_detectors.mask2former, 6), loader, str(tmp_path), 20, **options)
    assert len(losses) == 20
    assert_falling(losses)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "workplace")
@pytest.mark.filterwarnings("ignore")  # of Hugging Face's and of torch's
def test_accelerate() -> None:
    import_torchvision()
    pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    script, reader = load("accelerate_loop"), da.CocoReader("demo/VOC/JPEGImages", "train.json")
    recipe = [da.RandomHorizontalFlip(), da.Resize((96, 96)), da.Normalize()]
    loader = da.Loader(reader, recipe, 8, device="cpu", collate=da.Batch.as_hf)
    model = tiny_detectors.made(tiny_detectors.rt_detr_v2, 6)
    losses = script.train(accelerate.Accelerator(cpu=True), model, loader, 30, lr=1e-3)
    assert len(losses) == 30
    assert_falling(losses)


def small_images(model: Any) -> Any:
    """Have torchvision's SSDlite take images of SIDE instead of 320 pixels, a tenth of the work."""
    model.transform.fixed_size = (SIDE, SIDE)
    return model


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "workplace")
@pytest.mark.filterwarnings("ignore")  # of Lightning's
def test_lightning() -> None:
    """Its Trainer and Fabric have the same losses, step by step."""
    import_torchvision()
    lightning = pytest.importorskip("lightning")
    script, reader = load("lightning_fit"), da.CocoReader("demo/VOC/JPEGImages", "train.json")
    recipe = [da.RandomHorizontalFlip(), da.Resize((SIDE, SIDE)), da.Normalize()]
    found = []
    for fabric in (False, True):
        torch.manual_seed(0)
        model = small_images(script.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=7))
        loader = da.Loader(reader, recipe, 4, device="cpu")
        if fabric:
            found.append(script.train_with_fabric(lightning.Fabric(accelerator="cpu", devices=1), model, loader, STEPS))
        else:
            options = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
            detector = script.Detector(model, lambda loader=loader: loader)
            found.append(script.train(detector, STEPS, accelerator="cpu", devices=1, **options))
    assert len(found[0]) == STEPS
    assert_falling(found[0])
    assert found[1] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "workplace")
def test_torchvisions_data_set() -> None:
    """The boxes reach the detector in step with the pixels: the batch is that of the Loader."""
    try:
        script = load("torchvision_datasets")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"no torchvision that fits this torch: {error}")
    torch.manual_seed(0)
    ops = [da.RandomHorizontalFlip(p=1), da.Resize((320, 320)), da.Normalize()]
    images, annotations = "demo/VOC/JPEGImages", "train.json"
    batches = {int(batch.image_id[0]): batch for batch in da.Loader(da.CocoReader(images, annotations), ops, 1)}
    for pixels, targets in script.make_loader(images, annotations, ops, 4):
        for image, target in zip(pixels, targets, strict=True):
            batch = batches[target["image_id"]]
            assert torch.allclose(image, batch.images[0].cpu(), atol=0.02)
            assert torch.allclose(target["boxes"].as_subclass(torch.Tensor), batch.boxes[0].cpu(), atol=1e-3)
            assert torch.equal(target["labels"], batch.labels[0].cpu())
    model = small_images(script.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=7))
    assert_falling(script.train(model, script.make_loader(images, annotations, script.TRAINING, 4), 12))


@pytest.fixture
def references(workplace: Path) -> Any:
    try:
        return load("torchvision_references")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"no torchvision that fits this torch: {error}")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_torchvisions_references(references: Any) -> None:
    torch.manual_seed(0)
    reader, size = da.CocoReader("demo/VOC/JPEGImages", "train.json"), (SIDE, SIDE)
    name = "ssdlite320_mobilenet_v3_large"
    model = small_images(references.get_model(name, weights=None, weights_backbone=None, num_classes=7))
    recipe = [da.RandomHorizontalFlip(), da.Resize(size), da.Normalize()]
    loader = da.Loader(reader, recipe, 4, device="cpu", collate=references.as_pairs)
    losses = references.train(model, loader, STEPS, lr=0.005)
    assert len(losses) == STEPS
    assert_falling(losses)
    found = references.evaluate(model, da.Loader(reader, da.presets.evaluation(size), 8, train=False, device="cpu"))
    assert 0 <= found.AP <= 1


@pytest.mark.slow
def test_torchvisions_models_see_what_their_own_transform_makes(references: Any) -> None:
    """Of the same file: pixels to a mean of 1 of 255, boxes to 1e-3 pixel."""
    model = references.get_model("retinanet_resnet50_fpn", weights=None, weights_backbone=None, num_classes=7)
    reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    recipe = da.presets.evaluation(800, max_size=1333)
    loader = da.Loader(reader, recipe, 4, train=False, device="cpu", collate=references.as_pairs)
    at = 0
    for images, targets in loader:
        seen, seen_targets = model.transform(images, targets)
        for image, target, size in zip(seen.tensors, seen_targets, seen.image_sizes, strict=True):
            pixels, boxes = (torch.from_numpy(each) for each in decoded(reader, at))
            own, (own_target,) = model.transform([pixels], [{"boxes": boxes, "labels": target["labels"]}])
            assert own.image_sizes == [size]
            inside = slice(None), slice(size[0]), slice(size[1])
            assert (image[inside] - own.tensors[0][inside]).abs().mean() * 0.225 <= 1 / 255
            assert torch.allclose(target["boxes"], own_target["boxes"], atol=1e-3, rtol=0)
            at += 1
    assert at == len(reader)


def decoded(reader: da.CocoReader, index: int) -> tuple[Any, Any]:
    """Return an image (3, H, W) in 0..1 and its boxes, as the references' dataset has them."""
    with Image.open(reader.path(index)) as image:
        pixels = np.array(image.convert("RGB"), np.float32).transpose(2, 0, 1) / 255
    rows = json.loads(reader.annotations.read_text())["annotations"]
    boxes = [row["bbox"] for row in rows if row["image_id"] == int(reader.image_ids[index]) and not row.get("iscrowd")]
    found = np.array(boxes, np.float32).reshape(-1, 4)
    return pixels, np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], 1)


@pytest.fixture
def rf_detr(workplace: Path) -> Any:
    import_torchvision()
    pytest.importorskip("rfdetr.training", reason="RF-DETR is not installed: pip install 'rfdetr[train]'")
    return load("rf_detr")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore")  # of RF-DETR's and of Lightning's
def test_rf_detr(rf_detr: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    queries = {"num_queries": 30, "num_select": 30, "group_detr": 1, "dec_layers": 1}
    size = {"resolution": 96, "positional_encoding_size": 6}
    config = rf_detr.RFDETRNanoConfig(num_classes=6, pretrain_weights=None, **queries, **size)
    options = {"batch_size": 4, "lr": 1e-3, "lr_encoder": 1e-3, "use_ema": False}
    model = rf_detr.make_model(config, str(tmp_path), **options)
    reader, recipe = da.CocoReader("demo/VOC/JPEGImages", "train.json"), rf_detr.unchanged(96)
    loader = da.Loader(reader, recipe, 4, device="cpu", collate=rf_detr.as_nested)
    losses = rf_detr.train(model, loader, 30, accelerator="cpu", devices=1, enable_progress_bar=False)
    assert len(losses) == 30
    assert_falling(losses)
    found = rf_detr.evaluate(model, da.Loader(reader, recipe, 8, train=False, device="cpu"))
    assert 0 <= found.AP <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore")  # of RF-DETR's and of Lightning's
def test_rf_detr_seg(rf_detr: Any, with_masks: da.CocoReader, tmp_path: Path) -> None:
    """It trains on masks: their loss moves the head that makes them."""
    torch.manual_seed(0)
    queries = {"num_queries": 20, "num_select": 20, "group_detr": 1, "dec_layers": 1}
    size = {"resolution": 96, "positional_encoding_size": 8}
    config = rf_detr.RFDETRSegNanoConfig(num_classes=6, pretrain_weights=None, **queries, **size)
    model = rf_detr.make_model(config, str(tmp_path), batch_size=2, lr=1e-3, lr_encoder=1e-3, use_ema=False)
    head = [each for name, each in model.model.named_parameters() if "segmentation_head" in name]
    before = [each.detach().clone() for each in head]
    collate = rf_detr.as_nested_with_masks
    loader = da.Loader(with_masks, rf_detr.unchanged(96), 2, device="cpu", collate=collate)
    images, targets = next(iter(loader))
    assert [each["masks"].shape for each in targets] == [(len(each["boxes"]), 96, 96) for each in targets]
    losses = rf_detr.train(model, loader, 3, accelerator="cpu", devices=1, enable_progress_bar=False)
    assert np.isfinite(losses).all()
    assert images.tensors.shape == (2, 3, 96, 96)
    assert sum(not torch.equal(one, two) for one, two in zip(before, head, strict=True)) > len(head) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rf_detr_sees_what_its_own_data_set_makes(rf_detr: Any) -> None:
    """Of the same files, at its own size: pixels to a mean of 1 of 255, boxes to 1e-3, the same labels."""
    coco = pytest.importorskip("rfdetr.datasets.coco")
    size = rf_detr.RFDETRNanoConfig(pretrain_weights=None).resolution
    transforms = coco.make_coco_transforms_square_div_64("val", size)
    own = coco.CocoDetection("demo/VOC/JPEGImages", "train.json", transforms, remap_category_ids=True)
    reader, recipe = da.CocoReader("demo/VOC/JPEGImages", "train.json"), rf_detr.unchanged(size)
    for first, batch in enumerate(da.Loader(reader, recipe, 4, train=False, device="cpu", collate=rf_detr.as_nested)):
        images, targets = batch
        assert not images.mask.any()
        for at, (image, target) in enumerate(zip(images.tensors, targets, strict=True), first * 4):
            pixels, expected = own[at]
            assert (image - pixels).abs().mean() * 0.225 <= 1 / 255
            assert torch.allclose(target["boxes"], expected["boxes"], atol=1e-3, rtol=0)
            assert torch.equal(target["labels"], expected["labels"])
            assert int(target["image_id"]) == int(expected["image_id"])
