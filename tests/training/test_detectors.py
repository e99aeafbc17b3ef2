"""torchvision's detectors on batches of detaug give what they give with torchvision's own transform."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import write_coco
from PIL import Image
from reference import require_torchvision
from test_train_points import tiny_parts

import detaug as da
from detaug.loading.batch import Batch
from detaug.scoring import evaluate_model, predict_files
from detaug.training import Detector, TrainedModel, TrainOptions, load_model, train
from detaug.training.detectors import images_for
from detaug.training.torchvision_models import PassThrough, without_transform

require_torchvision()

SIZES = [(100, 165), (133, 100)]
"""(height, width) of two images, no multiples of 32; the shorter side is SIDE."""

SIDE = 100

TRANSFORM: dict[str, Any] = {"min_size": SIDE, "max_size": 1000, "image_mean": [0.0] * 3, "image_std": [1.0] * 3}
"""torchvision's preprocessing."""


def small_retinanet() -> Any:
    from torchvision.models.detection import RetinaNet

    parts = tiny_parts(3)
    return RetinaNet(
        parts["backbone"],
        3,
        anchor_generator=parts["rpn_anchor_generator"],
        score_thresh=0.0,
        detections_per_img=20,
        **TRANSFORM,
    )


def small_mask_rcnn() -> Any:
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    return MaskRCNN(
        **tiny_parts(3),
        **TRANSFORM,
        box_score_thresh=0.0,
        box_detections_per_img=20,
        mask_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        mask_head=MaskRCNNHeads(32, (32, 32), 1),
        mask_predictor=MaskRCNNPredictor(32, 32, 3),
    )


def small_keypoint_rcnn() -> Any:
    from torchvision.models.detection import KeypointRCNN
    from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    return KeypointRCNN(
        **tiny_parts(3),
        **TRANSFORM,
        box_score_thresh=0.0,
        box_detections_per_img=20,
        keypoint_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        keypoint_head=KeypointRCNNHeads(32, (32, 32)),
        keypoint_predictor=KeypointRCNNPredictor(32, 5),
    )


MODELS = [small_retinanet, small_mask_rcnn, small_keypoint_rcnn]


@pytest.fixture(params=MODELS, ids=lambda make: make.__name__)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A model of torchvision, and one with the same weights for batches of detaug."""
    torch.manual_seed(0)
    theirs = request.param()
    ours = request.param()
    ours.load_state_dict(theirs.state_dict())
    return theirs, without_transform(ours)


@pytest.fixture
def reader(tmp_path: Path) -> da.CocoReader:
    rng = np.random.default_rng(0)
    for at, size in enumerate(SIZES):
        Image.fromarray(rng.integers(0, 255, (*size, 3), np.uint8)).save(tmp_path / f"{at}.png")
    boxes = [[20, 20, 60, 90], [30, 10, 95, 60]]
    folder, annotations = write_coco(tmp_path, [(f"{at}.png", size, boxes) for at, size in enumerate(SIZES)], 2)
    return da.CocoReader(folder, annotations)


def batch_of(reader: da.CocoReader) -> Batch:
    (batch,) = da.Loader(reader, [da.Resize(SIDE), NORMALIZE], 2, device="cpu", train=False)
    assert batch.images.shape[2:] == (160, 192)
    return batch


NORMALIZE = da.Normalize((0, 0, 0), (1, 1, 1))


def images_of(reader: da.CocoReader) -> list[torch.Tensor]:
    """Return the images as torchvision's detectors take them."""
    pixels = [np.array(Image.open(reader.path(at))) for at in range(len(SIZES))]
    return [torch.from_numpy(each).permute(2, 0, 1) / 255 for each in pixels]


@torch.inference_mode()
def test_detections_are_torchvisions(pair: tuple[Any, Any], reader: da.CocoReader) -> None:
    """Of each image alone, and of a batch, whose padding has none and takes the place of none."""
    theirs, ours = (each.eval() for each in pair)
    images, batch = images_of(reader), batch_of(reader)
    for expected, found in (
        (theirs(images[:1]), ours(images[0][None])),
        (theirs(images), ours(images_for(ours, batch))),
        (theirs(images), ours(images)),
    ):
        for one, other in zip(expected, found, strict=True):
            objects = one["labels"] > 0  # see PassThrough
            assert objects.sum() > 5
            for name in one:
                assert torch.allclose(other[name], one[name][objects], atol=1e-3), name


@torch.inference_mode()
def test_masks_of_a_batch_are_torchvisions(reader: da.CocoReader) -> None:
    """They are of the size of their image, not of the batch."""
    torch.manual_seed(0)
    theirs = small_mask_rcnn().eval()
    expected = theirs(images_of(reader))
    ops, device = (da.Resize(SIDE), NORMALIZE), torch.device("cpu")
    model = TrainedModel(without_transform(theirs), ops, reader.class_names, device, finds="segm")
    for found, one, size in zip(model.predict(batch_of(reader), min_score=0), expected, SIZES, strict=True):
        visible = (one["boxes"][:, 2:] - one["boxes"][:, :2] > 0.01).all(1)
        assert found["masks"].shape == (visible.sum(), *size)
        assert (found["masks"] == (one["masks"][visible, 0] > 0.5)).float().mean() > 0.9999


@pytest.mark.parametrize("shape", [(160, 192), (2, 3, 160, 192), (2, 1, 1, 160, 192), (2, 100, 192)])
def test_masks_of_other_shapes_are_refused(reader: da.CocoReader, shape: tuple[int, ...]) -> None:
    batch = batch_of(reader)
    with pytest.raises(da.InputError, match=r"masks\[0\] must be \(K, 160, 192\) .* or \(K, 1, 100, 165\), in pixels"):
        batch.masks_to_source([torch.zeros(shape)] * 2)


def test_losses_are_torchvisions(pair: tuple[Any, Any], reader: da.CocoReader) -> None:
    theirs, ours = pair
    batch = batch_of(reader)
    targets = [each | {"masks": mask_of(each, size)} for each, size in zip(batch.targets(), SIZES, strict=True)]
    targets = [each | {"keypoints": torch.full((len(each["boxes"]), 5, 3), 50.0)} for each in targets]
    losses = []
    for model, images in ((theirs, images_of(reader)), (ours, images_for(ours, batch))):
        torch.manual_seed(0)  # of the sampled proposals
        losses.append(model(images, copy.deepcopy(targets)))
    for name in losses[0]:
        assert torch.allclose(losses[0][name], losses[1][name], rtol=1e-3), name


def mask_of(target: dict[str, torch.Tensor], size: tuple[int, int]) -> torch.Tensor:
    masks = torch.zeros(len(target["boxes"]), *size, dtype=torch.uint8)
    for mask, (x0, y0, x1, y1) in zip(masks, target["boxes"].int().tolist(), strict=True):
        mask[y0:y1, x0:x1] = 1
    return masks


class FindsMiddle(torch.nn.Module):
    """Finds all of an image but a margin of 10 pixels, and its loss is 0 where that is the target."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = PassThrough(32)
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, images: Any, targets: Any = None) -> Any:
        sizes = self.transform(images)[0].image_sizes
        boxes = torch.tensor([[[10.0, 10, width - 10, height - 10]] for height, width in sizes])
        if targets is not None:
            return {"far": (torch.stack([each["boxes"] for each in targets]) - self.weight * boxes).abs().sum()}
        return [{"boxes": each, "scores": torch.ones(1), "labels": torch.ones(1).long()} for each in boxes]


def test_all_that_call_a_model_give_it_the_sizes_of_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, output = tmp_path / "images", tmp_path / "run"
    folder.mkdir()
    for at, size in enumerate(SIZES):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(folder / f"{at}.png")
    boxes = [
        (f"{at}.png", (height, width), [[10, 10, width - 10, height - 10]]) for at, (height, width) in enumerate(SIZES)
    ]
    _, annotations = write_coco(folder, boxes, 1)
    detector = Detector(FindsMiddle())
    for module in ("loop", "predict"):
        monkeypatch.setattr(f"detaug.training.{module}.make_detector", lambda *_, **__: detector)
    settings: dict[str, Any] = {"val": annotations, "epochs": 1, "batch_size": 2, "size": SIDE, "device": "cpu"}
    options = TrainOptions(annotations, folder, output, lr=1e-9, model="retinanet_resnet50_fpn_v2", **settings)
    assert train(options, make_model=lambda *_, **__: detector)["evaluation"]["AP"] == 1
    assert json.loads((output / "metrics.jsonl").read_text().splitlines()[0])["far"] == 0
    assert evaluate_model(output / "model.pt", annotations, folder, batch_size=2, device="cpu").metrics.AP == 1
    predict_files(output / "model.pt", [folder], tmp_path / "found.json", batch_size=2, device="cpu")
    found = json.loads((tmp_path / "found.json").read_text())["annotations"]
    assert [each["bbox"] for each in found] == [[10, 10, width - 20, height - 20] for height, width in SIZES]
    model = load_model(output / "model.pt", "cpu")
    (batch,) = da.Loader(da.CocoReader(folder, annotations), model.ops, 2, device="cpu", train=False)
    for each, (height, width) in zip(model.predict(batch), SIZES, strict=True):
        assert each["boxes"].tolist() == [[10, 10, width - 10, height - 10]]
