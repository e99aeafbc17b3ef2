"""The scripts of docs/trainers: they train, the loss falls, and their pages quote them."""

from __future__ import annotations

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
from reference import import_torchvision

import detaug as da

TRAINERS = Path(__file__).parents[1] / "docs/trainers"


def load(name: str) -> ModuleType:
    spec = util.spec_from_file_location(f"trainer_{name}", TRAINERS / f"{name}.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(TRAINERS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_quotes_its_script(page: Path) -> None:
    script = without_indents(page.with_suffix(".py").read_text())
    quotes = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert quotes
    assert [quote for quote in quotes if without_indents(quote) not in script] == []


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
@pytest.mark.filterwarnings("default")  # of Hugging Face's and of torch's
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


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "workplace")
@pytest.mark.filterwarnings("default")  # of Hugging Face's and of torch's
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


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "workplace")
@pytest.mark.filterwarnings("default")  # of Lightning's
@pytest.mark.parametrize("fabric", [False, True])
def test_lightning(fabric: bool) -> None:
    import_torchvision()
    lightning = pytest.importorskip("lightning")
    script, reader = load("lightning_fit"), da.CocoReader("demo/VOC/JPEGImages", "train.json")
    torch.manual_seed(0)
    model = script.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=7)
    recipe = [da.RandomHorizontalFlip(), da.Resize((320, 320)), da.Normalize()]
    loader = da.Loader(reader, recipe, 4, device="cpu")
    if fabric:
        losses = script.train_with_fabric(lightning.Fabric(accelerator="cpu", devices=1), model, loader, 30)
    else:
        options = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
        detector = script.Detector(model, lambda: loader)
        losses = script.train(detector, 30, accelerator="cpu", devices=1, **options)
    assert len(losses) == 30
    assert_falling(losses)


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
    model = script.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=7)
    assert_falling(script.train(model, script.make_loader(images, annotations, script.TRAINING, 4), 12))
