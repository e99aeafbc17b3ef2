"""`detaug.trainers.rf_detr`: RF-DETR's own `train()` with batches of a `Loader`, on tiny models with random weights."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from places import REPOSITORY
from reference import import_torchvision

import detaug as da
from detaug.converters import voc_to_coco

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of RF-DETR's and of Lightning's

TINY = {
    "num_queries": 30, "num_select": 30, "group_detr": 1, "dec_layers": 1, "resolution": 64,
    "positional_encoding_size": 4, "pretrain_weights": None, "device": "cpu",
}  # fmt: skip
CONFIG = {"num_workers": 0, "tensorboard": False, "batch_size": 2}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def rf_detr(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import_torchvision()
    pytest.importorskip("rfdetr.training", reason="RF-DETR is not installed: pip install 'rfdetr[train]'")
    from detaug.trainers import rf_detr

    return rf_detr


@pytest.fixture
def dataset(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight images of the demo with masks, in the layout of Roboflow's exports, and this process beside it.

    The categories have gaps, and one in the middle is an unused parent.
    """
    voc_to_coco("demo/VOC", "masks.json", split="train", masks=True)
    document = json.loads(Path("masks.json").read_bytes())
    images = document["images"][:8]
    ids = {image["id"] for image in images}
    rows = [row for row in document["annotations"] if row["image_id"] in ids]
    for category in document["categories"]:
        category["id"] = new = category["id"] * 10
        category["supercategory"] = "toy" if new > 30 else "none"
    for row in rows:
        row["category_id"] *= 10
    document["categories"].insert(3, {"id": 35, "name": "toy", "supercategory": "none"})
    document |= {"images": images, "annotations": rows}
    for split in ("train", "valid"):
        (tmp_path / "dataset" / split).mkdir(parents=True)
        (tmp_path / "dataset" / split / "_annotations.coco.json").write_text(json.dumps(document))
        for image in images:
            shutil.copy(Path("demo/VOC/JPEGImages", image["file_name"]), tmp_path / "dataset" / split)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "dataset"


def configs(masks: bool = False, **options: Any) -> tuple[Any, Any]:
    from rfdetr import config

    model, train = (
        (config.RFDETRSegNanoConfig, config.SegmentationTrainConfig)
        if masks
        else (config.RFDETRNanoConfig, config.TrainConfig)
    )
    size = {"resolution": 96, "positional_encoding_size": 8} if masks else {}
    options = CONFIG | {"dataset_dir": "dataset", "output_dir": "out", "multi_scale": False} | options
    return model(num_classes=6, **TINY | size), train(**options)


def own_data(model: Any, train: Any) -> Any:
    from rfdetr.training import RFDETRDataModule

    data = RFDETRDataModule(model, train)
    data.setup("fit")
    return data


def our_batches(data: Any) -> list[Any]:
    data.setup("fit")
    with data.train_dataloader() as loader:
        return list(loader)


UNCHANGED = [da.Resize((64, 64)), da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)]


def test_train_and_resume_in_the_middle_of_an_epoch(
    rf_detr: Any, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, their average, the optimizer and the loader's position are equal, bit for bit, after both."""
    from pytorch_lightning import Callback
    from rfdetr import RFDETRNano, training

    class Save(Callback):
        def __init__(self, folder: Path) -> None:
            self.folder, self.batches = folder, []

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            ids = [int(target["image_id"]) for target in batch[1]]
            self.batches.append((batch[0].tensors.shape[-1], ids, float(outputs["loss"])))
            if trainer.global_step == 2 and self.folder.name == "whole":
                trainer.save_checkpoint(self.folder / "middle.ckpt")

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.end = trainer._checkpoint_connector.dump_checkpoint()  # a file has 380 MB

    own, build_trainer, found = training.RFDETRDataModule, training.build_trainer, []
    for name, resume in (("whole", None), ("resumed", str(tmp_path / "whole" / "middle.ckpt"))):
        (tmp_path / name).mkdir()
        save = Save(tmp_path / name)

        def build(*args: Any, save: Callback = save, **options: Any) -> Any:
            trainer = without_files(build_trainer(*args, **options))
            trainer.callbacks.append(save)
            return trainer

        monkeypatch.setattr(training, "build_trainer", build)
        torch.manual_seed(0)
        model = RFDETRNano(**TINY)
        rf_detr.train(
            model, dataset_dir=str(dataset), output_dir=str(tmp_path / name), epochs=1, batch_size=2, num_workers=0,
            grad_accum_steps=1, tensorboard=False, device="cpu", progress_bar=None, resume=resume,
        )  # fmt: skip
        assert model.class_names == ["ball", "car", "fish", "house", "mug", "tree"]
        assert training.RFDETRDataModule is own
        end = save.end
        found.append((save.batches, end["state_dict"], end["optimizer_states"], end["lr_schedulers"], averages(end)))
        loader = end["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]
        assert (loader["epoch"], loader["step"], loader["global_batch"]) == (0, 5, 2)
    (whole, *before), (resumed, *after) = found
    assert len(whole) == 5
    assert resumed == whole[2:]
    assert len({side for side, _, _ in whole}) > 1  # its own scales
    assert {side for side, _, _ in whole} <= set(range(64, 225, 32))
    assert np.isfinite([loss for _, _, loss in whole]).all()
    assert len(flat(before)) > 100
    for one, two in zip(flat(before), flat(after), strict=True):
        assert torch.equal(one, two) if torch.is_tensor(one) else one == two


def without_files(trainer: Any) -> Any:
    """Leave RF-DETR's own checkpoints away: a training of a tiny model writes a gigabyte."""
    from pytorch_lightning.callbacks import Checkpoint

    trainer.callbacks = [callback for callback in trainer.callbacks if not isinstance(callback, Checkpoint)]
    return trainer


def averages(checkpoint: Any) -> list[Any]:
    """The state of RF-DETR's callback of the average of weights."""
    found = [state for name, state in checkpoint["callbacks"].items() if "EMA" in name]
    assert flat(found)
    return found


def flat(value: Any) -> list[Any]:
    """The leaves of nested dicts and lists."""
    if isinstance(value, dict):
        value = [each for _, each in sorted(value.items(), key=lambda item: str(item[0]))]
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("masks", [False, True])
def test_targets_and_losses_are_those_of_its_own_dataset(rf_detr: Any, dataset: Path, masks: bool) -> None:
    from rfdetr.training import RFDETRModelModule

    model, train = configs(masks, aug_config={}, scale_jitter=False, augmentation_backend="torchvision")
    own = own_data(model, train)
    own._dataset_train._draft_size = None  # without masks it decodes JPEG files at a fraction of their size
    examples = {
        int(target["image_id"]): (image, target) for image, target in map(own._dataset_train.__getitem__, range(8))
    }
    data = rf_detr.LoaderDataModule(model, train, device="cpu", threads=1, pipelines=1)
    assert data.class_names is None
    for images, targets in our_batches(data):
        assert images.no_padding
        assert not images.mask.any()
        for image, target in zip(images.tensors, targets, strict=True):
            pixels, expected = examples[int(target["image_id"])]
            assert target.keys() == expected.keys()
            assert (image - pixels).abs().mean() * 0.225 <= 1 / 255
            assert torch.allclose(target["boxes"], expected["boxes"], atol=1e-6, rtol=0)
            for name in ("labels", "iscrowd", "orig_size", "size"):
                assert torch.equal(target[name], expected[name]), name
                assert target[name].dtype == expected[name].dtype
            if masks:
                assert target["masks"].dtype == torch.bool
                assert (target["masks"] ^ expected["masks"]).sum() <= 0.15 * expected["masks"].sum()
    assert data.class_names == own.class_names
    assert data.on_after_batch_transfer((images, targets), 0) == (images, targets)
    chosen = [examples[int(target["image_id"])] for target in targets]
    samples, expected = own._collate_fn_train([(image, dict(target)) for image, target in chosen])
    module = RFDETRModelModule(model, train)
    rounded = [ours | {"boxes": own["boxes"]} for own, ours in zip(expected, targets, strict=True)]
    own_loss, loss, loss_of_rounded = (loss_of(module, samples, each) for each in (list(expected), targets, rounded))
    assert loss == pytest.approx(own_loss, rel=0.02 if masks else 1e-6)
    assert masks or loss_of_rounded == own_loss  # bit for bit, but for the last bits of the boxes


def loss_of(module: Any, images: Any, targets: list[Any]) -> float:
    module.train()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(1)
    with torch.no_grad():
        losses = module.criterion(module.model(images, targets), targets)
    weights = module.criterion.weight_dict
    return sum(float(losses[name]) * weights[name] for name in losses if name in weights)


def test_what_its_arguments_decide(rf_detr: Any, dataset: Path) -> None:
    """The size, the recipe, the rows of targets, the length of an epoch, the seed and the part of a process."""
    model, train = configs(multi_scale=True, pad_targets_to=40, grad_accum_steps=3, seed=7)
    assert rf_detr.largest_size(model, train) == 224
    data = rf_detr.LoaderDataModule(model, train, on_error="skip")
    data.setup("fit")
    with data.train_dataloader() as loader:
        assert len(loader) == 15
        assert {name: loader.state_dict()[name] for name in ("seed", "accumulate", "max_boxes")} == {
            "seed": 7, "accumulate": 3, "max_boxes": 40
        }  # fmt: skip
        assert loader.state_dict()["recipe"] == list(map(repr, da.presets.rf_detr(224)))
        images, targets = next(iter(loader))
    assert images.tensors.shape == (2, 3, 224, 224)
    own = next(iter(own_data(model, train).train_dataloader()))[1].to_list("cpu")
    assert {name: (value.shape, value.dtype) for name, value in targets[0].items()} == {
        name: (value.shape, value.dtype) for name, value in own[0].items()
    }
    for target in targets:
        assert target["valid"].any()
        assert not target["labels"][~target["valid"]].any()
        assert not target["boxes"][~target["valid"]].any()
    assert set(torch.cat([target["labels"][target["valid"]] for target in targets]).tolist()) <= set(range(6))

    model, train = configs(aug_config={}, scale_jitter=False)
    again = pickle.loads(pickle.dumps(rf_detr.LoaderDataModule(model, train, seed=3)))
    again.trainer = SimpleNamespace(
        global_rank=1,
        world_size=2,
        accumulate_grad_batches=2,
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
    )
    again.setup("fit")
    loader = again.train_dataloader()
    assert (loader.shard, len(loader), loader.device.type) == ((1, 2), 10, "cpu")
    assert loader.state_dict()["seed"] == 3
    assert loader.state_dict()["recipe"] == list(map(repr, UNCHANGED))
    again.teardown("fit")
    assert again.loader is None

    config = {"VerticalFlip": {"p": 0.4}, "Rotate": {"limit": 5}}
    model, train = configs(aug_config=config)
    data = rf_detr.LoaderDataModule(model, train)
    data.setup("fit")
    with pytest.warns(UserWarning, match="some ops of aug_config differ.*\n(.*\n)*differs   Rotate -> RandomRotation"):
        loader = data.train_dataloader()
    crop, _, _, normalize = da.presets.rf_detr(64)
    ops = [crop, *da.import_recipe(config, size=(64, 64)).ops, normalize]
    assert loader.state_dict()["recipe"] == list(map(repr, ops))
    data.teardown("fit")
    data.train_config.aug_config = {"GlassBlur": {}}
    with pytest.raises(da.InputError, match="aug_config must have ops that detaug has, got GlassBlur"):
        data.train_dataloader()

    train.dataset_dir = str(dataset)
    ours = rf_detr.LoaderDataModule(*configs(), lambda size: [da.Resize((size + 2, size)), da.Normalize()])
    with pytest.raises(da.InputError, match=r"multiples of 32 pixels, got 66 x 64; .*da.Resize\(\(64, 64\)\)"):
        our_batches(ours)


def test_raw_category_ids(rf_detr: Any, dataset: Path) -> None:
    """dataset_file="coco": RF-DETR's labels are the category ids of the file."""
    coco = dataset.parent / "coco"
    (coco / "annotations").mkdir(parents=True)
    for split, name in (("train", "train2017"), ("valid", "val2017")):
        shutil.copytree(dataset / split, coco / name)
        shutil.move(coco / name / "_annotations.coco.json", coco / "annotations" / f"instances_{name}.json")
    data = rf_detr.LoaderDataModule(*configs(dataset_dir="coco", dataset_file="coco", pad_targets_to=20), UNCHANGED)
    own = own_data(*configs(dataset_dir="coco", dataset_file="coco", aug_config={}, scale_jitter=False))
    expected = {int(target["image_id"]): target["labels"] for _, target in own._dataset_train}
    for _, targets in our_batches(data):
        for target in targets:
            assert torch.equal(target["labels"][target["valid"]], expected[int(target["image_id"])])
            assert not target["labels"][~target["valid"]].any()
            assert (target["labels"] % 10 == 0).all()


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"dataset_file": "yolo"}, None, "dataset_file must be 'roboflow' or 'coco', got 'yolo'; detaug convert writes"),
    ({"dataset_file": "webdataset"}, None, "dataset_file must be 'roboflow' or 'coco', got 'webdataset'"),
    ({"aug_config": {}}, UNCHANGED, "aug_config must be left out with a recipe"),
    ({"multi_scale": "per-sample"}, None, "multi_scale must be True or False .* got 'per-sample'; give True"),
    ({"square_resize_div_64": False}, None, "square_resize_div_64 must be True .* got False; give a recipe"),
    ({}, 640, "recipe must be a list of ops, da.Stages, a function of the size that returns one, or None, got 640"),
]


@pytest.mark.parametrize(("options", "recipe", "message"), REFUSED, ids=str)
def test_what_is_refused(rf_detr: Any, options: dict[str, Any], recipe: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        rf_detr.LoaderDataModule(*configs(**options), recipe)


def test_arguments_that_are_refused(rf_detr: Any, dataset: Path) -> None:
    from rfdetr import training
    from rfdetr.config import RFDETRKeypointPreviewConfig

    own = training.RFDETRDataModule
    with pytest.raises(da.InputError, match="batch_size must be left out, got 8; give batch_size to train"):
        rf_detr.loader(batch_size=8).__enter__()
    with pytest.raises(TypeError, match="loader has no argument 'workers'; it has aspect_ratio_grouping, cache"):
        rf_detr.loader(workers=8).__enter__()
    with pytest.raises(da.InputError, match="model must be a model of rfdetr, such as RFDETRNano"):
        rf_detr.train(torch.nn.Linear(1, 1))
    model, train = configs()
    with pytest.raises(da.InputError, match="model must be one of boxes or masks, got 'RFDETRKeypointPreview'"):
        rf_detr.LoaderDataModule(RFDETRKeypointPreviewConfig(pretrain_weights=None, device="cpu"), train)
    (dataset / "train" / "_annotations.coco.json").unlink()
    data = rf_detr.LoaderDataModule(model, train)
    data._dataset_train = [0]
    with pytest.raises(
        da.InputError, match=r"dataset_dir must have COCO JSON files, got .*dataset, which RF-DETR reads as a list"
    ):
        data.train_dataloader()
    assert training.RFDETRDataModule is own


def test_a_version_that_does_not_take_the_loader_is_named(rf_detr: Any, dataset: Path) -> None:
    """As if train() had its data module from elsewhere: the training stops before a step."""
    from importlib.metadata import version

    from rfdetr.training import RFDETRDataModule, RFDETRModelModule, build_trainer

    model, train = configs(use_ema=False)
    trainer, module = build_trainer(train, model, accelerator="cpu"), RFDETRModelModule(model, train)
    with (
        rf_detr.loader(),
        pytest.raises(da.InputError, match=rf"got {version('rfdetr')}, which trains with RFDETRData"),
    ):
        trainer.fit(module, RFDETRDataModule(model, train))
    assert trainer.global_step == 0


PAGE = REPOSITORY / "docs/trainers/rf_detr.md"


def test_the_page_as_written(rf_detr: Any, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks, of two steps each, and its diff, on a machine where RF-DETR's back end is Kornia."""
    import rfdetr

    def again(*_: Any) -> None:
        raise AssertionError("RF-DETR augments a batch of detaug again")

    def setup(self: Any, stage: str) -> None:
        own_setup(self, stage)
        self._kornia_pipeline = self._kornia_normalize = SimpleNamespace(to=again)

    def build(*args: Any, **options: Any) -> Any:
        trainers.append(without_files(build_trainer(*args, **options, max_steps=2, limit_val_batches=0)))
        return trainers[-1]

    own_setup, build_trainer = rfdetr.training.RFDETRDataModule.setup, rfdetr.training.build_trainer
    trainers: list[Any] = []
    monkeypatch.setattr(rfdetr.training.RFDETRDataModule, "setup", setup)
    monkeypatch.setattr(rfdetr.training, "build_trainer", build)
    monkeypatch.setattr(rfdetr, "RFDETRNano", partial(rfdetr.RFDETRNano, **TINY))
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        exec(block, names)
    assert [trainer.global_step for trainer in trainers] == [2, 2]
    names |= zip(("model_config", "train_config"), configs(), strict=True)
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    exec("".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] != "-"), names)
    assert [trainer.global_step for trainer in trainers] == [2, 2, 2]
    assert all(isinstance(trainer.datamodule, rf_detr.LoaderDataModule) for trainer in trainers)
    nano = rfdetr.config.RFDETRNanoConfig(pretrain_weights=None)
    train = rfdetr.config.TrainConfig(dataset_dir=".", output_dir="out")
    assert f"the largest scale, {rf_detr.largest_size(nano, train)} for Nano" in PAGE.read_text()


def test_the_patch_of_rf_detr(rf_detr: Any, tmp_path: Path) -> None:
    """It applies to the release that is installed, and its test passes there."""
    import rfdetr

    shutil.copytree(Path(rfdetr.__file__).parent, tmp_path / "src" / "rfdetr")
    patch = PAGE.with_name("rf_detr_train_dataloader.patch")
    subprocess.run(["git", "apply", patch], cwd=tmp_path, check=True)
    test = "tests/training/test_custom_train_dataloader.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    command += ["--basetemp", str(tmp_path / "temporary")]  # it writes checkpoints of 480 MB
    paths = {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout
