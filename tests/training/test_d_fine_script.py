"""docs/trainers/d_fine.py in a package like D-FINE: labels, sizes, epochs, and what the trainer looks at."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from places import REPOSITORY

import detaug as da

SCRIPT = REPOSITORY / "docs/trainers/d_fine.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    files = {
        "data/detaug_loader.py": SCRIPT.read_text(),
        "core.py": "registered = []\ndef register():\n    return lambda kind: registered.append(kind) or kind\n",
        "data/dataset/coco_dataset.py": "mscoco_category2label = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5, 13: 11}\n",
    }
    for name, text in files.items():
        path = tmp_path / "like_d_fine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("like_d_fine.data.detaug_loader")
    for name in [name for name in sys.modules if name.startswith("like_d_fine")]:
        del sys.modules[name]


def made(package: Any, epochs: Any, remap: bool, scales: Any = None, json_file: str = "train.json") -> Any:
    policy = {"epoch": epochs, "ops": ["Mosaic", "RandomPhotometricDistort", "RandomZoomOut", "RandomIoUCrop"]}
    dataset = SimpleNamespace(
        img_folder="demo/VOC/JPEGImages",
        ann_file=json_file,
        remap_mscoco_category=remap,
        _transforms=SimpleNamespace(policy=policy),
    )
    collate = SimpleNamespace(base_size=64, scales=scales, stop_epoch=9, ema_restart_decay=0.9)
    return package.DetaugLoader(dataset, 8, collate)


def test_what_the_trainer_of_d_fine_looks_at(package: Any, workplace: Path) -> None:
    with made(package, 2, False, [32, 96, 96]) as loader:
        assert import_module("like_d_fine.core").registered == [package.DetaugLoader]
        assert package.DetaugLoader.__inject__ == ["dataset", "collate_fn"]
        assert loader.collate_fn.stop_epoch == 9
        assert loader.dataset.ann_file == "train.json"
        loader.shuffle = True
        loader.set_epoch(1)
        loader.sampler.set_epoch(1)
        assert len(loader) == 48 // 8
        sizes = set()
        reader = loader.reader
        rows = json.loads(Path("train.json").read_bytes())["annotations"]
        of_image = {
            number: {row["category_id"] for row in rows if row["image_id"] == number} for number in reader.image_ids
        }
        for images, targets in loader:
            assert images.dtype == torch.float32
            assert 0 <= images.min() <= images.max() <= 1
            sizes.add(tuple(images.shape[2:]))
            for target in targets:
                assert {"boxes", "labels", "area", "iscrowd", "orig_size", "image_id"} <= target.keys()
                assert {*target["labels"].tolist()} <= of_image[int(target["image_id"])]
                assert ((target["boxes"] > 0) & (target["boxes"] < 1)).all()
        assert sizes == {(32, 32), (96, 96)}
        assert [type(op) for op in loader.ops] == [type(op) for op in da.presets.d_fine(64)]
        loader.set_epoch(2)
        assert next(iter(loader))[0].shape == (8, 3, 64, 64)
        assert [type(op).__name__ for op in loader.ops] == [
            "RandomHorizontalFlip", "Resize", "SanitizeBoundingBoxes", "Normalize"
        ]  # fmt: skip


def test_labels_of_coco_and_epochs_of_deim(package: Any, workplace: Path) -> None:
    document = json.loads(Path("train.json").read_bytes())
    last = max(category["id"] for category in document["categories"])
    for each in [*document["categories"], *document["annotations"]]:
        name = "id" if "name" in each else "category_id"
        each[name] = 13 if each[name] == last else each[name]
    Path("coco.json").write_text(json.dumps(document))
    with made(package, [1, 2, 3], True, json_file="coco.json") as loader:
        assert loader.labels.tolist() == [0, 1, 2, 3, 4, 11]
        assert loader.ops == da.presets.deim(64, (1, 2, 3)).at(0)
        loader.set_epoch(1)
        assert any(isinstance(op, da.Mosaic) for op in loader.ops)
        labels = torch.cat([target["labels"] for _, targets in loader for target in targets])
    assert {*labels.tolist()} == {0, 1, 2, 3, 4, 11}
