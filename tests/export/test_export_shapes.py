"""`detaug export` of masks and keypoints: the file finds those of the model, and pastes into the source images."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug
from PIL import Image
from torch import Tensor, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torchvision")

import test_train_masks  # noqa: E402
import test_train_points  # noqa: E402
from test_export_onnx import run, wanted  # noqa: E402
from test_train_masks import painted as painted  # noqa: E402  the fixture
from test_train_masks import tiny_mask_rcnn  # noqa: E402
from test_train_points import tiny_keypoint_rcnn  # noqa: E402

import detaug as da  # noqa: E402
from detaug.demo.people import make_people  # noqa: E402
from detaug.export import export_onnx, write_triton  # noqa: E402
from detaug.export.verify import _pasted  # noqa: E402
from detaug.training import Detector, train  # noqa: E402
from detaug.training.torchvision_models import without_transform  # noqa: E402

pytestmark = pytest.mark.slow

MASKS, POINTS = "maskrcnn_resnet50_fpn_v2", "keypointrcnn_resnet50_fpn"
SIZE = (128, 160)


class Pyramid(nn.Module):
    """A narrow backbone with maps of three sizes."""

    out_channels = 16

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(a, 16, 5, s, 2) for a, s in ((3, 4), (16, 2), (16, 2)))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        maps = {}
        for at, layer in enumerate(self.layers):
            x = layer(x).relu()
            maps[str(at)] = x
        return maps


def with_pyramid(_name: str, num_classes: int, *, masks: bool, num_keypoints: int = 5) -> Detector:
    """Return a detector of two stages, whose regions are of several maps, for two classes with scores apart."""
    from torchvision.models.detection import KeypointRCNN, MaskRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    torch.manual_seed(3)
    pool = partial(MultiScaleRoIAlign, ["0", "1", "2"], sampling_ratio=2, canonical_scale=48)
    parts: dict[str, Any] = {
        "backbone": Pyramid(),
        "rpn_anchor_generator": AnchorGenerator(((16,), (32,), (64,)), ((0.5, 1.0, 2.0),) * 3),
        "rpn_pre_nms_top_n_test": 80,
        "rpn_post_nms_top_n_test": 200,
        "box_roi_pool": pool(7),
        "box_head": TwoMLPHead(16 * 49, 32),
        "box_predictor": FastRCNNPredictor(32, num_classes),
        "box_detections_per_img": 100,
    }
    if masks:
        heads = MaskRCNNHeads(16, (16,), 1), MaskRCNNPredictor(16, 16, num_classes)
        model: Any = MaskRCNN(**parts, mask_roi_pool=pool(14), mask_head=heads[0], mask_predictor=heads[1])
    else:
        heads = KeypointRCNNHeads(16, (16,)), KeypointRCNNPredictor(16, num_keypoints)
        model = KeypointRCNN(**parts, keypoint_roi_pool=pool(14), keypoint_head=heads[0], keypoint_predictor=heads[1])
    for name, parameter in model.named_parameters():
        if name.endswith(("cls_score.weight", "mask_fcn_logits.weight", "bbox_pred.weight")):
            parameter.data.normal_(0, 0.05 if "cls" in name else 0.3)
    detector: Any = without_transform(model).eval()
    logits = list[Tensor]()
    predictor = detector.roi_heads.box_predictor
    hook = predictor.register_forward_hook(lambda _model, _inputs, found: logits.append(found[0]))
    with torch.no_grad():
        detector(torch.rand(1, 3, *SIZE))
        # else one class has the higher score in all boxes
        predictor.cls_score.bias[2] += (logits[0][:, 1] - logits[0][:, 2]).median()
    hook.remove()
    return Detector(detector)


def model_file(path: Path, make: Any, name: str, **more: Any) -> Path:
    of_data = {"num_keypoints": 5} if name == POINTS else {}
    model = make(name, 3, **of_data).model
    resize = {"size": SIZE, "max_size": None, "letterbox": None, "fill": (0.0, 0.0, 0.0)}
    content = {"name": name, "size": SIZE, "class_names": ("background", "cat", "dog"), "resize": resize}
    torch.save({**content, **more, "model": model.state_dict()}, path)
    return path


FIVE = {
    "count": 5,
    "names": [[*"abcde"], [*"abcde"]],
    "skeletons": [[], []],
    "swapped": [list(range(5))] * 2,
}


@pytest.mark.parametrize("name", [MASKS, POINTS])
def test_the_shapes_are_those_of_the_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = partial(with_pyramid, masks=name == MASKS)
    monkeypatch.setattr("detaug.training.predict.make_detector", make)
    points = {"keypoints": FIVE} if name == POINTS else {}
    trained = export_onnx(model_file(tmp_path / "model.pt", make, name, **points), tmp_path / "model.onnx")
    height, width = SIZE
    for count in (1, 3):
        images = np.random.default_rng(count).random((count, 3, *SIZE), np.float32)
        of_onnx = run(tmp_path / "model.onnx", images, [[height * 2, width * 3]] * count)
        for one, other in zip(wanted(trained, images), of_onnx, strict=True):
            scale = torch.tensor([3.0, 2, 3, 2])
            assert len(one["boxes"]) == len(other["boxes"]) > 20
            # Rounding may change which of two boxes is suppressed, and the order of two scores.
            away = (other["boxes"][:, None] - one["boxes"] * scale).abs().amax(2)
            away += 1e6 * (other["labels"][:, None] != one["labels"])
            least, nearest = away.min(1)
            assert (least < 0.01).float().mean() > 0.95
            assert len(set(nearest[least < 0.01].tolist())) == int((least < 0.01).sum())
            one = {name: values[nearest[least < 0.01]] for name, values in one.items()}
            other = {name: values[least < 0.01] for name, values in other.items()}
            torch.testing.assert_close(other["scores"], one["scores"], atol=1e-4, rtol=0)
            assert {*one["labels"].tolist()} == {1, 2}
            if name == MASKS:
                torch.testing.assert_close(other["mask_boxes"], one["boxes"] * scale, atol=0.01, rtol=0)
                pasted = _pasted(other["masks"], other["mask_boxes"] / scale, SIZE, trained.model)
                assert 0.002 < (one["masks"] >= 0.5).float().mean() < 0.95
                torch.testing.assert_close(pasted, one["masks"], atol=0.001, rtol=0)
            else:
                expected = one["keypoints"] * torch.tensor([3.0, 2, 1])
                far = (other["keypoints"] - expected).abs().amax(-1) > 0.05
                assert far.float().mean() < 0.01  # two places of a map with the same height
                torch.testing.assert_close(other["keypoints_scores"], one["keypoints_scores"], atol=1e-4, rtol=0)
    repository = tmp_path / "repository"
    write_triton(tmp_path / "model.pt", repository)
    outputs = onnx.load(repository / "detector/1/model.onnx").graph.output
    for model in ("detector", "image_detector"):
        rows = re.findall(
            r'output \[ \{ name: "(\w+)" .* dims: \[ (.*?) \]', (repository / model / "config.pbtxt").read_text()
        )
        assert [row for row, _ in rows] == [output.name for output in outputs]
        ranks = [len(output.type.tensor_type.shape.dim) - 1 for output in outputs]
        assert [len(dims.split(",")) for _, dims in rows[1:]] == ranks[1:]  # that of num_dets is reshaped


def paste(mask: np.ndarray[Any, Any], box: np.ndarray[Any, Any], size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return the mask of an image (H, W), as docs/training.md pastes it."""
    (h, w), (x1, y1, x2, y2), (height, width) = mask.shape, box.tolist(), size
    x, y = w / (x2 - x1), h / (y2 - y1)
    numbers = (x, 0, -x1 * x, 0, y, -y1 * y)
    pasted = Image.fromarray(mask).transform(
        (width, height), Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR
    )
    return np.asarray(pasted) >= 0.5


def test_masks_of_a_trained_model(painted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AP of both are equal, and a mask that is pasted into the source image is where the object was painted."""
    monkeypatch.setattr("detaug.training.predict.make_detector", tiny_mask_rcnn)
    options = test_train_masks.options(painted, tmp_path / "run", epochs=80, eval_every=80, lr=0.003, batch_size=4)
    train(options, make_model=tiny_mask_rcnn, say=lambda _: None)
    file = tmp_path / "model.onnx"
    words = ("-o", file, "--size", "128x160", "--verify", painted, painted.parent / "people")
    result = detaug("export", tmp_path / "run/model.pt", *words)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert re.fullmatch(
        r"verified on 8 images: AP 0\.\d{4} and 0\.[5-9]\d{3} \(masks\) of the model, 0\.\d{4} and 0\.[5-9]\d{3} "
        r"\(masks\) of the ONNX file, equal within 0\.001",
        lines[1],
    )
    reader = da.CocoReader(painted.parent / "people", painted, masks=True)
    image = np.asarray(Image.open(reader.path(0)))
    large = np.asarray(Image.fromarray(image).resize((400, 300)))  # of which the 160 x 128 pixels of the input are made
    pixels = np.asarray(Image.fromarray(large).resize((160, 128)), np.float32).transpose(2, 0, 1)[None] / 255
    (found,) = run(file, pixels, [[300, 400]])
    best = [int(row) for row in found["scores"].nonzero() if found["scores"][row] > 0.6]
    masks = [paste(found["masks"][row].numpy(), found["mask_boxes"][row].numpy(), (300, 400)) for row in best]
    painted_pixels = large.max(2) > 130  # the background is below 90
    found_pixels = np.any(masks, axis=0)
    assert (found_pixels & painted_pixels).sum() / (found_pixels | painted_pixels).sum() > 0.8


def test_keypoints_of_a_trained_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detaug.training.predict.make_detector", tiny_keypoint_rcnn)
    people = make_people(tmp_path / "people", images=6)
    options = test_train_points.options(people, tmp_path / "run", epochs=100, eval_every=100, lr=0.003)
    train(options, make_model=tiny_keypoint_rcnn, say=lambda _: None)
    words = ("-o", tmp_path / "model.onnx", "--size", "128x160", "--verify", people, people.parent / "people")
    result = detaug("export", tmp_path / "run/model.pt", *words)
    assert (result.code, result.err) == (0, "")
    (ap, other) = re.findall(r"(\d\.\d{4}) \(keypoints\)", result.out)
    assert float(ap) > 0.5
    assert abs(float(ap) - float(other)) <= 0.001
