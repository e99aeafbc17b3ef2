"""`detaug train` for masks: a tiny Mask R-CNN on the demo's people."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from reference import require_torchvision
from test_train_points import Trained, tiny_parts
from test_train_points import options as options_of_model
from test_train_points import people as people  # the fixture

import detaug as da
from detaug.errors import InputError
from detaug.sheets import Detections, detections_sheet
from detaug.training import Detector, TrainOptions, load_model, train
from detaug.training import predict as predict_module
from detaug.training.detectors import make_detector
from detaug.training.torchvision_models import without_transform
from detaug.training.weights import load_weights

require_torchvision()
pytestmark = pytest.mark.slow


def tiny_mask_rcnn(_name: str, num_classes: int) -> Detector:
    """Return a Mask R-CNN with the layers of torchvision's, all of them narrow."""
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    model = MaskRCNN(
        **tiny_parts(num_classes),
        mask_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        mask_head=MaskRCNNHeads(32, (32, 32), 1),
        mask_predictor=MaskRCNNPredictor(32, 32, num_classes),
    )
    return Detector(without_transform(model))


options = partial(options_of_model, model="maskrcnn_resnet50_fpn_v2")


@pytest.fixture(scope="module")
def trained(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    output, said = tmp_path_factory.mktemp("trained") / "run", list[str]()
    result = train(options(people, output), make_model=tiny_mask_rcnn, say=said.append)
    return Trained((output, result, said))


def test_a_training_evaluates_boxes_and_masks(trained: Trained) -> None:
    output, result, said = trained
    assert result["steps"] == 6
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert all(line["loss_mask"] > 0 for line in lines if "loss" in line)
    evaluation = lines[-1]["evaluation"]
    assert evaluation["images"] == evaluation["segm"]["images"] == 9
    assert {"AP", "APs", "AR100", "AP_by_class"} < set(evaluation["segm"])
    (line,) = [line for line in said if line.startswith("evaluation")]
    assert re.fullmatch(r"evaluation  AP \S+  AP50 \S+  segm  AP \S+  AP50 \S+", line)


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """painted.json, of 8 images with a disc and a triangle each."""
    folder, rng = tmp_path_factory.mktemp("painted"), np.random.default_rng(1)
    (folder / "people").mkdir()
    images, annotations = [], []
    for image_id in range(1, 9):
        picture = Image.fromarray(rng.integers(0, 90, (128, 160, 3), np.uint8))
        for at, (corners, color) in enumerate(((24, (240, 90, 60)), (3, (90, 190, 250)))):
            center, radius = rng.uniform((80 * at + 31, 32), (80 * at + 49, 96)), rng.uniform(22, 30)
            angle = rng.uniform(0, 7) + np.arange(corners) / corners * 2 * np.pi
            ring = (center + radius * np.stack([np.cos(angle), np.sin(angle)], 1)).round(1)
            ImageDraw.Draw(picture).polygon(ring.ravel().tolist(), fill=color)
            low, size = ring.min(0), np.ptp(ring, axis=0)
            entry = {"id": len(annotations) + 1, "image_id": image_id, "category_id": at + 1}
            entry |= {"bbox": [*low.tolist(), *size.tolist()], "segmentation": [ring.ravel().tolist()]}
            annotations.append(entry)
        picture.save(folder / "people" / f"{image_id}.png")
        images.append({"id": image_id, "file_name": f"{image_id}.png", "width": 160, "height": 128})
    categories = [{"id": 1, "name": "disc"}, {"id": 2, "name": "triangle"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "painted.json").write_text(json.dumps(document))
    return folder / "painted.json"


def test_it_learns_masks(painted: Path, tmp_path: Path) -> None:
    """On the images that it is evaluated on."""
    settings = options(painted, tmp_path / "run", epochs=80, eval_every=80, lr=0.003, batch_size=4)
    result = train(settings, make_model=tiny_mask_rcnn, say=lambda _: None)
    assert result["evaluation"]["AP50"] > 0.8
    assert result["evaluation"]["segm"]["AP50"] > 0.8
    assert result["evaluation"]["segm"]["AP75"] > 0.5


def test_the_model_predicts_what_was_evaluated(trained: Trained, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_module, "make_detector", tiny_mask_rcnn)
    model = load_model(trained[0] / "model.pt", device="cpu")
    reader = da.CocoReader(people.parent / "people", people, masks=True)
    batch = next(iter(da.Loader(reader, model.ops, 1, train=False, device="cpu")))
    with torch.no_grad():
        (expected,) = model.model(batch.images)
    assert expected["masks"].shape[1:] == (1, 128, 160)
    (found,) = model.predict(reader.path(0), min_score=0)
    (masks,) = batch.masks_to_source([expected["masks"]])
    assert len(masks) > 0
    assert found["masks"].any()
    assert (found["masks"] != masks).float().mean() < 0.001
    assert found["masks"].shape == (len(masks), *batch.source_size[0].tolist())
    drawn = np.asarray(model.draw(reader.path(0), min_score=0)).astype(int)
    with Image.open(reader.path(0)) as image:
        changed = abs(drawn - np.asarray(image)).max(2) > 10
    assert changed[found["masks"].any(0).numpy()].mean() > 0.9
    (none,) = model.predict(reader.path(0), min_score=1)
    assert none["masks"].shape == (0, *batch.source_size[0].tolist())


def test_predictions_png_shows_masks(painted: Path) -> None:
    reader = da.CocoReader(painted.parent / "people", painted, masks=True)
    batch = next(iter(da.Loader(reader, da.presets.evaluation((256, 320)), 2, train=False, device="cpu")))
    found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets(masks=True)]
    detections = Detections.of(batch, found)
    assert [each.masks.shape for each in detections if each.masks is not None] == [(2, 128, 160)] * 2
    assert detections[0].masks is not None
    sheets = [
        np.asarray(detections_sheet(reader, each)).astype(int)
        for each in (detections, [one._replace(masks=None) for one in detections])
    ]
    shown = abs(sheets[0] - sheets[1]).max(2) > 5
    assert shown[:, : shown.shape[1] // 4].sum() == 0  # annotated
    assert shown.mean() > 0.05


def test_heads_are_float32_under_autocast() -> None:
    model: Any = tiny_mask_rcnn("", 2).model
    with torch.autocast("cpu", torch.bfloat16):
        features = model.roi_heads.mask_head(torch.rand(4, 32, 14, 14))
        assert features.dtype == torch.bfloat16
        assert model.roi_heads.mask_predictor(features).dtype == torch.float32


def test_the_model_of_torchvision() -> None:
    model: Any = make_detector("maskrcnn_resnet50_fpn_v2", 4).model
    assert model.roi_heads.mask_predictor.mask_fcn_logits.out_channels == 4
    hooked = {name for name, module in model.named_modules() if module._forward_hooks}
    assert hooked == {"rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor"}


def test_weights_for_other_classes(tmp_path: Path) -> None:
    torch.save(tiny_mask_rcnn("", 2).model.state_dict(), tmp_path / "weights.pt")
    _, made, _ = load_weights(tiny_mask_rcnn("", 5), tmp_path / "weights.pt")
    assert [name for name in made if "mask" in name] == [
        f"roi_heads.mask_predictor.mask_fcn_logits.{name}" for name in ("weight", "bias")
    ]


def test_a_json_without_outlines_is_refused(people: Path, tmp_path: Path) -> None:
    document = json.loads(people.read_text())
    for each in document["annotations"]:
        del each["segmentation"]
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    settings = TrainOptions(
        tmp_path / "boxes.json", people.parent / "people", tmp_path / "run", model="maskrcnn_resnet50_fpn_v2"
    )
    with pytest.raises(InputError, match="no annotation has a segmentation"):
        train(settings, say=lambda _: None)
