"""`detaug train` for keypoints: a tiny Keypoint R-CNN on the demo's people."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from reference import require_torchvision

import detaug as da
from detaug.demo import make_people
from detaug.demo.people import NAMES, SKELETON
from detaug.drawing.points import SIDES
from detaug.errors import InputError
from detaug.scoring import evaluate_model
from detaug.training import Detector, TrainOptions, load_model, train
from detaug.training import predict as predict_module
from detaug.training.detectors import make_detector
from detaug.training.torchvision_models import without_transform
from detaug.training.weights import load_weights

require_torchvision()
pytestmark = pytest.mark.slow


def tiny_parts(num_classes: int) -> dict[str, Any]:
    """Return a narrow backbone, and the parts of a detector with two stages that find boxes."""
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.ops import MultiScaleRoIAlign

    layers = [(3, 16, 4), (16, 32, 2), (32, 32, 2)]
    parts = [torch.nn.Sequential(torch.nn.Conv2d(a, b, 5, s, 2), torch.nn.ReLU()) for a, b, s in layers]
    backbone: Any = torch.nn.Sequential(*parts)
    backbone.out_channels = 32
    return {
        "backbone": backbone,
        "rpn_anchor_generator": AnchorGenerator(((32, 64, 112),), ((1.0, 2.0),)),
        "rpn_post_nms_top_n_train": 100,
        "rpn_post_nms_top_n_test": 30,
        "box_roi_pool": MultiScaleRoIAlign(["0"], 7, 2),
        "box_head": TwoMLPHead(32 * 49, 64),
        "box_predictor": FastRCNNPredictor(64, num_classes),
        "box_batch_size_per_image": 32,
    }


def tiny_keypoint_rcnn(_name: str, num_classes: int, num_keypoints: int) -> Detector:
    """Return a Keypoint R-CNN with the layers of torchvision's, all of them narrow."""
    from torchvision.models.detection import KeypointRCNN
    from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    model = KeypointRCNN(
        **tiny_parts(num_classes),
        keypoint_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        keypoint_head=KeypointRCNNHeads(32, (32, 32)),
        keypoint_predictor=KeypointRCNNPredictor(32, num_keypoints),
    )
    return Detector(without_transform(model))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """people.json, of 9 images."""
    return make_people(tmp_path_factory.mktemp("people"), images=9)


def options(people: Path, output: Path, **others: Any) -> TrainOptions:
    settings: dict[str, Any] = {"val": people, "epochs": 2, "batch_size": 3, "size": (128, 160), "device": "cpu"}
    settings |= {"model": "keypointrcnn_resnet50_fpn", "optimizer": "adamw", "lr": 0.001} | others
    return TrainOptions(people, people.parent / "people", output, **settings)


class Trained(tuple[Path, dict[str, Any], list[str]]):
    """The output folder, the result and the lines of a training."""


@pytest.fixture(scope="module")
def trained(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    output, said = tmp_path_factory.mktemp("trained") / "run", list[str]()
    result = train(options(people, output), make_model=tiny_keypoint_rcnn, say=said.append)
    return Trained((output, result, said))


def test_a_training_evaluates_boxes_and_key_points(trained: Trained) -> None:
    output, result, said = trained
    assert result["steps"] == 6
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert all(line["loss_keypoint"] > 0 for line in lines if "loss" in line)
    evaluation = lines[-1]["evaluation"]
    assert evaluation["images"] == evaluation["keypoints"]["images"] == 9
    assert {"AP", "AR", "APm"} < set(evaluation["keypoints"])
    (line,) = [line for line in said if line.startswith("evaluation")]
    assert re.fullmatch(r"evaluation  AP \S+  AP50 \S+  keypoints  AP \S+  AP50 \S+", line)


def test_it_learns_the_key_points_of_four_pictures(tmp_path: Path) -> None:
    """On the images that it is evaluated on."""
    people = make_people(tmp_path / "people", images=4)
    settings = options(people, tmp_path / "run", epochs=100, eval_every=100, lr=0.004)
    result = train(settings, make_model=tiny_keypoint_rcnn, say=lambda _: None)
    assert result["evaluation"]["AP50"] > 0.9
    assert result["evaluation"]["keypoints"]["AP50"] > 0.9


def test_the_model_predicts_and_draws_what_was_evaluated(
    trained: Trained, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_module, "make_detector", tiny_keypoint_rcnn)
    model = load_model(trained[0] / "model.pt", device="cpu")
    assert model.keypoints is not None
    assert [list(names) for names in model.keypoints.names] == [NAMES]
    assert model.keypoints.of_class(0, 17)[1] == [(a - 1, b - 1) for a, b in SKELETON]
    reader = da.CocoReader(people.parent / "people", people)
    batch = next(iter(da.Loader(reader, model.ops, 1, train=False, device="cpu")))
    with torch.no_grad():
        (expected,) = model.model(batch.images)
    (found,) = model.predict(reader.path(0), min_score=0)
    (points,) = batch.points_to_source([expected["keypoints"][..., :2]])
    assert len(points) > 0
    assert torch.allclose(found["keypoints"][..., :2], points, atol=0.05)
    assert found["keypoints"].shape == (len(points), 17, 3)
    with Image.open(reader.path(0)) as image:
        drawn = model.draw(image, min_score=float(found["scores"][0]))
    x, y = found["keypoints"][0, :, :2].floor().long().T
    inside = (x >= 0) & (y >= 0) & (x < drawn.width) & (y < drawn.height)
    places = zip(x[inside].tolist(), y[inside].tolist(), strict=True)
    colors = [drawn.getpixel(place) in SIDES.values() for place in places]
    assert len(colors) > 5
    assert np.mean(colors) > 0.5  # points of an untrained model lie on each other


def test_heads_are_float32_under_autocast() -> None:
    model: Any = tiny_keypoint_rcnn("", 2, num_keypoints=17).model
    with torch.autocast("cpu", torch.bfloat16):
        outputs = [
            *(each for level in model.rpn.head([torch.rand(1, 32, 8, 8)]) for each in level),
            *model.roi_heads.box_predictor(torch.rand(4, 64)),
            model.roi_heads.keypoint_predictor(torch.rand(1, 32, 14, 14)),
        ]
        assert model.roi_heads.box_head(torch.rand(4, 32, 7, 7)).dtype == torch.bfloat16
    assert [output.dtype for output in outputs] == [torch.float32] * 5


def test_the_model_of_torchvision_has_the_key_points_of_the_data() -> None:
    model: Any = make_detector("keypointrcnn_resnet50_fpn", 2, num_keypoints=5).model
    assert model.roi_heads.keypoint_predictor.kps_score_lowres.out_channels == 5
    hooked = {name for name, module in model.named_modules() if module._forward_hooks}
    assert hooked == {"rpn.head", "roi_heads.box_predictor", "roi_heads.keypoint_predictor"}


def test_weights_for_another_number_of_key_points(tmp_path: Path) -> None:
    torch.save(tiny_keypoint_rcnn("", 2, num_keypoints=17).model.state_dict(), tmp_path / "weights.pt")
    _, made, _ = load_weights(tiny_keypoint_rcnn("", 2, num_keypoints=5), tmp_path / "weights.pt")
    assert made == [f"roi_heads.keypoint_predictor.kps_score_lowres.{name}" for name in ("weight", "bias")]


def test_evaluation_with_other_key_points_is_refused(people: Path, tmp_path: Path) -> None:
    document = json.loads(people.read_text())
    document["categories"][0] |= {"keypoints": NAMES[:1], "skeleton": []}
    for each in document["annotations"]:
        each["keypoints"] = each["keypoints"][:3]
    (tmp_path / "val.json").write_text(json.dumps(document))
    settings = options(people, tmp_path / "run", val=tmp_path / "val.json", val_images=people.parent / "people")
    with pytest.raises(InputError, match=r"val\.json has 1 keypoints for each object, .*people\.json 17; evaluate"):
        train(settings, make_model=tiny_keypoint_rcnn, say=lambda _: None)


def test_a_model_of_other_key_points_is_not_evaluated(
    trained: Trained, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_module, "make_detector", tiny_keypoint_rcnn)
    document = json.loads(people.read_text())
    document["categories"][0] |= {"keypoints": NAMES[:1], "skeleton": []}
    for each in document["annotations"]:
        each["keypoints"] = each["keypoints"][:3]
    (tmp_path / "val.json").write_text(json.dumps(document))
    with pytest.raises(
        InputError, match=r"model\.pt finds 17 keypoints of each object, and .*val\.json has 1; evaluate"
    ):
        evaluate_model(trained[0] / "model.pt", tmp_path / "val.json", people.parent / "people", device="cpu")


def test_a_json_without_key_points_is_refused(people: Path, tmp_path: Path) -> None:
    document = json.loads(people.read_text())
    for each in document["annotations"]:
        del each["keypoints"]
    document["categories"] = [{"id": 1, "name": "person"}]
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    settings = TrainOptions(
        tmp_path / "boxes.json", people.parent / "people", tmp_path / "run", model="keypointrcnn_resnet50_fpn"
    )
    with pytest.raises(InputError, match="no annotation has 'keypoints'"):
        train(settings, say=lambda _: None)
