"""The rotated FCOS: its code of boxes, losses and suppression, and what it learns from drawn boxes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmark_scripts import load_script
from command import detaug
from PIL import Image, ImageDraw
from reference import require_torchvision
from torch import Tensor

import detaug as da
from detaug.demo.ships import make_ships
from detaug.errors import InputError
from detaug.evaluation.rotated import iou_of_quadrangles
from detaug.sheets import Detections, detections_sheet
from detaug.training import Detector, TrainOptions, load_model, train
from detaug.training import predict as predict_module
from detaug.training.detectors import make_detector
from detaug.training.loaders import make_train_loader
from detaug.training.weights import load_weights

require_torchvision()

from detaug.training.rotated_fcos import (  # noqa: E402
    Places,
    RotatedFCOS,
    box_losses,
    corners_of,
    decode,
    encode,
    match,
    probiou_loss,
    rotated_nms,
)

script = load_script("rotated_detector")
small_rotated = script.small_rotated


def tiny_rotated(_name: str, num_classes: int) -> Detector:
    return Detector(small_rotated(num_classes))


def random_boxes(count: int, seed: int = 0, least: float = 1) -> Tensor:
    """Return (count, 5) le90: cx, cy, w, h, a of all sizes and angles, some of them squares."""
    rng = torch.Generator().manual_seed(seed)
    u = torch.rand(count, 5, generator=rng)
    height = least + 60 * u[:, 2] ** 2
    width = height * (1 + 4 * u[:, 3] * (u[:, 3] > 0.2))
    return torch.stack([200 * u[:, 0], 200 * u[:, 1], width, height, (u[:, 4] - 0.5) * torch.pi], 1)


def some_places(count: int, seed: int = 1) -> Places:
    rng = torch.Generator().manual_seed(seed)
    strides = torch.tensor([8.0, 16, 32])[torch.randint(3, (count,), generator=rng)]
    return Places(200 * torch.rand(count, 2, generator=rng), strides)


def own_iou(one: Tensor, other: Tensor) -> list[float]:
    """Return the IoU of the pairs of quadrangles (P, 4, 2)."""
    pairs = zip(one.double().numpy(), other.double().numpy(), strict=True)
    return [iou_of_quadrangles(a[None], b[None]).item() for a, b in pairs]


def target(rows: Sequence[Sequence[float]], labels: Sequence[int]) -> dict[str, Tensor]:
    rotated = torch.tensor(rows, dtype=torch.float32).reshape(-1, 5)
    corners = corners_of(rotated)
    boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
    return {"rotated": rotated, "boxes": boxes, "labels": torch.tensor(labels, dtype=torch.int64)}


# ---------------------------------------------------------------------------------------- the code of boxes


def test_corners_are_those_of_the_product(tmp_path: Path) -> None:
    """The reader's corners, as le90, and as corners again: the same rectangles, of flipped and rotated images too."""
    reader = da.CocoReader(tmp_path / "ships", make_ships(tmp_path, 6), rotated=True)
    ops = [da.RandomHorizontalFlip(), da.RandomRotation(180), da.Resize(200)]
    batch = next(iter(da.Loader(reader, ops, 6, device="cpu", seed=3)))
    rotated = batch.rotated_boxes("cxcywhr", "le90", border="whole")
    assert batch.valid.sum() > 20
    iou = own_iou(corners_of(rotated[batch.valid]), batch.corners[batch.valid])
    assert min(iou) > 0.999


def test_a_box_is_coded_and_decoded() -> None:
    boxes, places = random_boxes(500), some_places(500)
    code = encode(boxes, places)
    assert code.shape == (500, 8)
    found = decode(code, places)
    torch.testing.assert_close(found[:, :4], boxes[:, :4], atol=1e-3, rtol=1e-4)
    assert min(own_iou(corners_of(found), corners_of(boxes))) > 0.999
    # the length of the vectors does not count
    longer = torch.cat([code[:, :4], code[:, 4:6] * 3, code[:, 6:] * 0.2], 1)
    torch.testing.assert_close(decode(longer, places), found, atol=1e-4, rtol=1e-4)


def test_the_code_has_no_jump() -> None:
    """Where the angle of le90 jumps from pi/2 to -pi/2, and where the longer side of a square becomes the other one."""
    place = Places(torch.tensor([[50.0, 50.0]]), torch.tensor([8.0]))
    angles = torch.linspace(math.pi / 2 - 0.01, math.pi / 2 + 0.01, 21)
    wrapped = (angles + math.pi / 2) % math.pi - math.pi / 2
    assert wrapped.max() - wrapped.min() > 3  # the jump of the angle itself
    codes = torch.cat([encode(torch.tensor([[52.0, 51, 40, 20, angle]]), place) for angle in wrapped])
    assert codes.diff(dim=0).abs().max() < 0.01
    wide, high = (
        encode(torch.tensor([row]), place)
        for row in ([52.0, 51, 20.01, 20, 0.3], [52.0, 51, 20.01, 20, 0.3 - math.pi / 2])
    )
    torch.testing.assert_close(wide[:, 6:], high[:, 6:])  # the vector of 4a is the same, that of 2a is not
    torch.testing.assert_close(wide[:, 4:6], -high[:, 4:6])


def test_the_vector_of_4a_tells_the_angle_and_that_of_2a_the_side() -> None:
    """So a vector of 2a that is wrong by 40 degrees, as of a near-square, changes nothing; an opposite one the side."""
    boxes, places = random_boxes(200, 4), some_places(200)
    code = encode(boxes, places)
    for degrees, quarter_turns in ((40, 0), (-40, 0), (180, 1)):
        by = math.radians(degrees)
        rotation = torch.tensor([[math.cos(by), math.sin(by)], [-math.sin(by), math.cos(by)]])
        noisy = torch.cat([code[:, :4], code[:, 4:6] @ rotation, code[:, 6:]], 1)
        away = decode(noisy, places)[:, 4] - boxes[:, 4] + quarter_turns * math.pi / 2
        torch.testing.assert_close((2 * away).cos(), torch.ones(200), atol=1e-4, rtol=0)


def test_the_angle_is_clockwise_on_the_screen() -> None:
    """Beside the pixels that PIL paints: a box whose width goes to the lower right."""
    corners = corners_of(torch.tensor([[50.0, 50, 60, 10, math.pi / 4]]))[0]
    picture = Image.new("L", (100, 100))
    ImageDraw.Draw(picture).polygon([tuple(each) for each in corners.tolist()], fill=255)
    pixels = np.asarray(picture)
    assert pixels[65, 65] == pixels[35, 35] == 255
    assert pixels[35, 65] == pixels[65, 35] == 0


def test_places_predict_boxes_of_their_level() -> None:
    strides = torch.tensor([8.0, 16, 32, 64, 128])
    grids = [torch.cartesian_prod(torch.arange(0, 256, s), torch.arange(0, 256, s)).float() for s in strides.tolist()]
    places = Places(torch.cat(grids), torch.cat([s.expand(len(g)) for s, g in zip(strides, grids, strict=True)]))
    sizes = {8: (30, 30), 16: (120, 20), 32: (120, 120), 64: (250, 200)}  # the second one: sqrt(120 * 20) = 49
    for stride, (width, height) in sizes.items():
        boxes = torch.tensor([[128.0, 128, width, height, 0.4]])
        found = match(boxes, places, strides, 1.5)
        assert set(places.strides[found.place].tolist()) == {stride}
        assert len(found.place) > 1
        away = places.points[found.place] - boxes[:, :2]
        assert (away.norm(dim=1) < 1.5 * math.sqrt(2) * stride).all()
        nearest = found.place[found.centerness.argmax()]
        assert (places.points[nearest] - boxes[0, :2]).norm() == away.norm(dim=1).min()


def test_places_lie_inside_of_a_box_at_its_angle() -> None:
    """Beside the IoU of a point-like square with the box: a second way to say that a place is inside."""
    strides = torch.tensor([8.0, 16])
    points = torch.cartesian_prod(torch.arange(0, 128, 8), torch.arange(0, 128, 8)).float()
    places = Places(points, torch.full((len(points),), 8.0))
    for angle in (-1.2, -0.3, 0.4, 1.1):
        box = torch.tensor([[61.0, 63, 50, 18, angle]])
        middle = torch.tensor([[61.0, 63, 24, 18, angle]])  # 1.5 strides to both sides
        inside = {
            n for n, (x, y) in enumerate(points.tolist())
            if own_iou(corners_of(torch.tensor([[x, y, 0.1, 0.1, 0]])), corners_of(middle))[0] > 0
        }  # fmt: skip
        assert set(match(box, places, strides, 1.5).place.tolist()) == inside
        assert len(inside) > 3


def test_the_nearest_place_predicts_a_narrow_box_and_a_place_the_smallest_box() -> None:
    strides = torch.tensor([8.0, 16])
    points = torch.cartesian_prod(torch.arange(0, 64, 8), torch.arange(0, 64, 8)).float()
    places = Places(points, torch.full((len(points),), 8.0))
    found = match(torch.tensor([[28.0, 28, 10, 3, 0.1]]), places, strides, 1.5)  # between four places
    assert points[found.place].tolist() in ([[24.0, 24.0]], [[24.0, 32.0]], [[32.0, 24.0]], [[32.0, 32.0]])
    assert found.centerness.item() == pytest.approx(0.05)
    both = match(torch.tensor([[32.0, 32, 30, 30, 0], [32, 32, 20, 18, 0]]), places, strides, 1.5)
    at_center = both.box[(points[both.place] == 32).all(1)]
    assert at_center.tolist() == [1]


# ---------------------------------------------------------------------------------------- losses


def test_the_loss_of_boxes_is_least_at_the_box() -> None:
    boxes, places = random_boxes(50, least=6), some_places(50)
    wanted = encode(boxes, places)
    least = box_losses(wanted, wanted)
    assert least.max() < 0.05
    right = wanted.clone().requires_grad_()
    box_losses(right, wanted).sum().backward()
    assert right.grad is not None
    assert right.grad.isfinite().all()
    for change in ([4, 0, 0, 0, 0], [0, 4, 0, 0, 0], [0, 0, 6, 0, 0], [0, 0, 0, 6, 0], [0, 0, 0, 0, 0.2]):
        other = encode(boxes + torch.tensor(change), places)
        assert (box_losses(other, wanted) > least + 0.003).all(), change


def test_which_side_of_a_near_square_is_longer_costs_little() -> None:
    place = Places(torch.tensor([[50.0, 50.0]]), torch.tensor([8.0]))
    for ratio, most, least in ((1.01, 0.06, 0.0), (3.0, 3.0, 1.0)):
        one, other = (
            encode(torch.tensor([[52.0, 51, 20 * ratio, 20, angle]]), place) for angle in (0.3, 0.3 - math.pi / 2)
        )
        assert least < box_losses(other, one).item() < most


def gaussian(box: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean (2,) and covariance (2, 2) of a box's Gaussian, by matrices."""
    cos, sin = box[4].cos(), box[4].sin()
    rotation = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
    return box[:2], rotation @ torch.diag(box[2:4] ** 2 / 12) @ rotation.T


def test_probiou_is_the_hellinger_distance_of_gaussians() -> None:
    one, other = random_boxes(60, 2, 6).double(), random_boxes(60, 3, 6).double()
    other[:, :2] = one[:, :2] + (other[:, :2] - 100) / 20
    places = Places(one[:, :2], torch.full((60,), 8.0).double())
    found = probiou_loss(encode(one, places), encode(other, places))
    expected = []
    for a, b in zip(one, other, strict=True):
        (mean1, sigma1), (mean2, sigma2) = gaussian(a), gaussian(b)
        sigma, away = (sigma1 + sigma2) / 2, mean1 - mean2
        spread = (sigma.det() / (sigma1.det() * sigma2.det()).sqrt()).log() / 2
        expected.append((1 - (-(away @ sigma.inverse() @ away / 8 + spread)).exp()).sqrt())
    torch.testing.assert_close(found, torch.stack(expected), atol=2e-2, rtol=1e-3)  # 1e-3 beneath the root
    assert found.std() > 0.1


EMPTY = target([], [])
THIN = target([[64, 64, 100, 2, 0.7]], [1])
CASES = {
    "all empty": [EMPTY, EMPTY],
    "one empty": [EMPTY, THIN],
    "thin and tiny": [THIN, target([[30, 30, 3, 2, 0.1]], [2])],
    "huge": [target([[64, 64, 400, 300, 0]], [1]), EMPTY],
    "two at one place": [target([[64, 64, 40, 20, 0], [64, 64, 40, 20, 0]], [1, 2]), THIN],
    "center outside": [target([[-30, 64, 100, 20, 0.3]], [1]), EMPTY],
    "square": [target([[64, 64, 30, 30, 0.3]], [1]), EMPTY],
    "no height": [target([[64, 64, 30, 0, 0.3]], [1]), EMPTY],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("amp", [False, True])
def test_losses_and_gradients_are_finite(name: str, amp: bool) -> None:
    torch.manual_seed(0)
    model = small_rotated(3).train()
    targets = CASES[name]
    for each in targets:  # torchvision refuses boxes without area
        each["boxes"] = each["boxes"].clamp(0, 128)
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        losses = model(torch.rand(2, 3, 128, 128), targets)
    assert set(losses) == {"classification", "bbox_regression", "bbox_ctrness"}
    assert all(each.dtype == torch.float32 and each.ndim == 0 for each in losses.values())
    total = torch.stack([*losses.values()]).sum()
    total.backward()
    assert total.isfinite()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())
    has_boxes = any(len(each["labels"]) for each in targets)
    assert (losses["bbox_regression"] > 0) == (losses["bbox_ctrness"] > 0) == has_boxes


# ---------------------------------------------------------------------------------------- suppression


def greedy(corners: Tensor, scores: Tensor, labels: Tensor, threshold: float) -> list[int]:
    """Return the rows that are kept, by comparing each box with each better one that is kept."""
    kept: list[int] = []
    for row in sorted(range(len(scores)), key=lambda at: -scores[at].item()):
        rivals = [other for other in kept if labels[other] == labels[row]]
        if all(own_iou(corners[[row]], corners[[other]])[0] <= threshold for other in rivals):
            kept.append(row)
    return kept


def test_suppression_beside_brute_force() -> None:
    boxes = random_boxes(80, 5, 8)
    boxes[40:] = boxes[:40] + torch.tensor([2, -1, 1, 2, 0.2]) * torch.rand(40, 1)  # two places find the same object
    boxes[:, :2] /= 3
    corners, rng = corners_of(boxes), torch.Generator().manual_seed(0)
    scores, labels = torch.rand(80, generator=rng), torch.randint(1, 4, (80,), generator=rng)
    for threshold in (0.05, 0.2, 0.6):
        kept = rotated_nms(corners, scores, labels, threshold).tolist()
        assert kept == greedy(corners, scores, labels, threshold)
        assert 10 < len(kept) < 80
    assert rotated_nms(corners[:0], scores[:0], labels[:0], 0.2).tolist() == []


def test_suppression_leaves_ships_side_by_side() -> None:
    """Their upright boxes overlap by more than a half."""
    boxes = torch.tensor(
        [[50.0, 50, 60, 10, math.pi / 4], [58, 42, 60, 10, math.pi / 4], [51, 51, 60, 10, math.pi / 4]]
    )
    kept = rotated_nms(corners_of(boxes), torch.tensor([0.9, 0.8, 0.7]), torch.ones(3), 0.2)
    assert kept.tolist() == [0, 1]


def test_detections_of_a_model(tmp_path: Path) -> None:
    """Best first, corners beside the boxes around them, at most so many, of two sizes of images."""
    torch.manual_seed(0)
    model: Any = small_rotated(3, score_thresh=0.0, detections_per_img=7).eval()
    with torch.no_grad():
        found = model([torch.rand(3, 100, 128), torch.rand(3, 128, 90)])
    for each, (height, width) in zip(found, ((100, 128), (128, 90)), strict=True):
        assert each["corners"].shape == (len(each["scores"]), 4, 2)
        assert len(each["scores"]) <= 7
        assert (each["scores"].diff() <= 0).all()
        assert (each["labels"] > 0).all()
        low, high = each["corners"].amin(1), each["corners"].amax(1)
        limits = torch.tensor([width, height])
        around = torch.cat([low.clamp(min=0).minimum(limits), high.clamp(min=0).minimum(limits)], 1)
        torch.testing.assert_close(each["boxes"], around)


# ---------------------------------------------------------------------------------------- in the product


def test_targets_of_a_batch(tmp_path: Path) -> None:
    reader = da.CocoReader(tmp_path / "ships", make_ships(tmp_path, 3), rotated=True)
    batch = next(iter(da.Loader(reader, [da.Resize(160)], 3, device="cpu", train=False)))
    targets = batch.targets(rotated=True)
    expected = batch.rotated_boxes("cxcywhr", "le90")
    for each, boxes, count in zip(targets, expected, batch.counts, strict=True):
        assert each["rotated"].shape == (count, 5)
        torch.testing.assert_close(each["rotated"], boxes[:count])
        assert (each["rotated"][:, 2] >= each["rotated"][:, 3]).all()
    assert "rotated" not in batch.targets()[0]
    upright = da.CocoReader(tmp_path / "ships", tmp_path / "ships.json")
    batch = next(iter(da.Loader(upright, [da.Resize(160)], 3, device="cpu", train=False)))
    with pytest.raises(InputError, match="rotated=True"):
        batch.targets(rotated=True)


def options(folder: Path, output: Path, **others: Any) -> TrainOptions:
    settings: dict[str, Any] = {
        "val": folder / "ships.json", "model": "fcos_rotated_resnet50_fpn", "size": 160, "epochs": 2, "batch_size": 4,
        "optimizer": "adamw", "lr": 0.003, "device": "cpu", "log_every": 1, "eval_every": 1,
    }  # fmt: skip
    return TrainOptions(folder / "ships.json", folder / "ships", output, **{**settings, **others})


def test_the_model_has_torchvisions_layers(tmp_path: Path) -> None:
    """So weights of its FCOS fit, but for the last layers, and those of a model of other classes too."""
    from torchvision.models.detection import fcos_resnet50_fpn

    model = make_detector("fcos_rotated_resnet50_fpn", 3)
    assert isinstance(model.model, RotatedFCOS)
    weights = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91).state_dict()
    torch.save(weights, tmp_path / "coco.pth")
    loaded, missing, _ = load_weights(model, tmp_path / "coco.pth")
    assert {name.rpartition(".")[0] for name in missing} == {
        "head.classification_head.cls_logits", "head.regression_head.bbox_reg"
    }  # fmt: skip
    own = loaded.model.state_dict()
    name = "head.regression_head.conv.0.weight"
    assert torch.equal(own[name], weights[name])
    with torch.autocast("cpu", torch.bfloat16):
        head: Any = loaded.model
        outputs = head.head([torch.rand(1, 256, 4, 4)])
    assert {each.dtype for each in outputs.values()} == {torch.float32}


@pytest.mark.parametrize(("which", "name"), [("coco", "fcos_resnet50_fpn_coco"), ("backbone", "resnet50-")])
def test_pretrained_weights_are_torchvisions(
    which: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torchvision.models import detection, get_weight

    from detaug.training.pretrained import pretrained_file

    chosen = {
        "coco": detection.FCOS_ResNet50_FPN_Weights.DEFAULT, "backbone": get_weight("ResNet50_Weights.IMAGENET1K_V1")
    }  # fmt: skip
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    path = tmp_path / "checkpoints" / chosen[which].url.rpartition("/")[2]
    path.parent.mkdir()
    path.touch()
    assert path.name.startswith(name)
    assert pretrained_file("fcos_rotated_resnet50_fpn", which, lambda _: None) == path


def test_a_json_without_rotated_boxes_is_refused(tmp_path: Path) -> None:
    """Before anything is decoded or written, of the training and of the evaluation."""
    make_ships(tmp_path, 2)
    document = json.loads((tmp_path / "ships.json").read_text())
    for each in document["annotations"]:
        del each["corners"]
        each["segmentation"] = [[*each["segmentation"][0][:6]]]
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    for files in (
        {"annotations": "boxes.json", "val": "ships.json"},
        {"annotations": "ships.json", "val": "boxes.json"},
    ):
        settings = TrainOptions(
            tmp_path / files["annotations"], tmp_path / "ships", tmp_path / "run", val=tmp_path / files["val"],
            model="fcos_rotated_resnet50_fpn",
        )  # fmt: skip
        with pytest.raises(
            InputError, match=r"boxes\.json: no annotation has corners, or a segmentation of four points"
        ):
            train(settings, make_model=tiny_rotated, say=lambda _: None)
        assert not (tmp_path / "run").exists()
    for each in document["annotations"]:
        each["segmentation"] = [[1, 1, 9, 1, 9, 9, 1, 9]]
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    (tmp_path / "ships.json").write_text(json.dumps(document))
    four_points = options(tmp_path, tmp_path / "run", epochs=1, batch_size=2)
    train(four_points, make_model=tiny_rotated, say=lambda _: None)


def test_stretching_is_warned_of(tmp_path: Path) -> None:
    """The images of the demo have several aspect ratios."""
    make_ships(tmp_path, 4)
    device, detector = torch.device("cpu"), tiny_rotated("", 3)
    with pytest.warns(UserWarning, match=r"Resize to 160x160 stretches \d images?, .* give size=160, or"):
        make_train_loader(options(tmp_path, tmp_path / "run", size=(160, 160)), device, detector)
    da.save_recipe([da.Resize((160, 160), letterbox="center"), da.Normalize()], tmp_path / "letterbox.yaml")
    make_train_loader(options(tmp_path, tmp_path / "run", size=160), device, detector)
    recipe = {"recipe": tmp_path / "letterbox.yaml", "size": None}
    make_train_loader(options(tmp_path, tmp_path / "run", **recipe), device, detector)
    boxes = options(tmp_path, tmp_path / "run", size=(160, 160), model="fcos_resnet50_fpn")
    make_train_loader(boxes, device, detector)


def test_the_recipe_flips_both_ways(tmp_path: Path) -> None:
    make_ships(tmp_path, 4)
    loader = make_train_loader(options(tmp_path, tmp_path / "run"), torch.device("cpu"), tiny_rotated("", 3))
    assert {da.RandomHorizontalFlip, da.RandomVerticalFlip} <= {type(op) for op in loader.ops}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """Two epochs on four images: the folder, the result and what was said."""
    folder = tmp_path_factory.mktemp("ships")
    make_ships(folder, 4)
    said = list[str]()
    result = train(options(folder, folder / "run"), make_model=tiny_rotated, say=said.append)
    return folder, result, said


def test_a_training_evaluates_rotated_boxes(trained: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, result, said = trained
    assert result["steps"] == 2
    evaluation = result["evaluation"]["rotated"]
    assert {"AP", "AP50", "AP75", "AP_by_class", "AP50_by_class", "images", "repeated"} == set(evaluation)
    lines = [line for line in said if line.startswith("evaluation")]
    form = r"evaluation  AP \S+  AP50 \S+  rotated  AP \S+  AP50 \S+  AP75 \S+"
    assert len(lines) == 2
    assert all(re.fullmatch(form, line) for line in lines)
    page = (folder / "run" / "curves.html").read_text()
    assert all(f"rotated {name}" in page for name in ("AP", "AP50", "AP75"))
    assert "boat" in page


def painted(folder: Path, images: int = 8, ratio: float = 3.0, seed: int = 0) -> Path:
    """Draw rectangles at any angle into folder/ships, two in each image; return folder/ships.json."""
    path: Path = script.draw_rectangles(folder, images, ratio, seed)
    return path


def test_the_loss_falls(tmp_path: Path) -> None:
    """On eight drawn images, in 12 steps."""
    painted(tmp_path)
    reader = da.CocoReader(tmp_path / "ships", tmp_path / "ships.json", rotated=True)
    torch.manual_seed(0)
    model = small_rotated(3).train()
    optimizer = torch.optim.AdamW(model.parameters(), 0.002)
    batch = next(iter(da.Loader(reader, [da.Resize(96), da.Normalize()], 8, device="cpu", train=False)))
    losses = list[dict[str, float]]()
    for _ in range(12):
        parts = model(batch.images, batch.targets(rotated=True))
        optimizer.zero_grad()
        torch.stack([*parts.values()]).sum().backward()
        optimizer.step()
        losses.append({name: part.item() for name, part in parts.items()})
    assert losses[-1]["classification"] < 0.8 * losses[0]["classification"]
    assert losses[-1]["bbox_regression"] < 0.7 * losses[0]["bbox_regression"]


class Exact(torch.nn.Module):
    """Finds boxes cx, cy, w, h, a of its input in each image, with the score 0.9 of the last one, and less before."""

    def __init__(self, rotated: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.corners = corners_of(torch.tensor(rotated))

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        around = torch.cat([self.corners.amin(1), self.corners.amax(1)], 1)
        count = len(around)
        scores = 0.9 - torch.arange(count - 1, -1, -1) / 10
        one = {"boxes": around, "corners": self.corners, "scores": scores, "labels": torch.ones(count).long()}
        return [one for _ in images]


def exact_model(rotated: Sequence[float], *ops: da.Op, others: Sequence[Sequence[float]] = ()) -> da.TrainedModel:
    model = Exact([*others, rotated])
    return da.TrainedModel(model, ops, ("background", "a"), torch.device("cpu"), finds="rotated")


IN_FILL = [[50.0, 8, 40, 8, 0.1]]
"""Of the letterbox above an image of 2 : 1 in 100 x 100."""


def test_corners_in_pixels_of_the_source() -> None:
    """Of an image of 200 x 100, in a letterbox of 100 x 100: half the size, 25 pixels lower."""
    ops = da.Resize((100, 100), letterbox="center"), da.Normalize()
    model = exact_model([50, 50, 40, 10, 0.5], *ops, others=IN_FILL)
    image = np.full((100, 200, 3), 30, np.uint8)
    (found,) = model.predict(image)
    assert set(found) == {"boxes", "corners", "scores", "labels"}
    expected = corners_of(torch.tensor([[100.0, 50, 80, 20, 0.5]]))
    torch.testing.assert_close(found["corners"].float(), expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(found["boxes"][0].float(), torch.cat([expected[0].amin(0), expected[0].amax(0)]))
    (none,) = model.predict(image, min_score=1)
    assert none["corners"].shape == (0, 4, 2)


def test_a_drawing_has_the_sides_of_the_rotated_box() -> None:
    model = exact_model([100, 50, 80, 20, 0.5], da.Resize((100, 200)), da.Normalize())
    pixels = np.full((100, 200, 3), 30, np.uint8)
    drawn = np.asarray(model.draw(pixels)).astype(int)
    changed = abs(drawn - pixels).max(2) > 60
    corners = corners_of(torch.tensor([[100.0, 50, 80, 20, 0.5]]))[0].numpy()
    for at in range(4):
        for part in (0.3, 0.5, 0.7):
            x, y = corners[at] * part + corners[(at + 1) % 4] * (1 - part)
            assert changed[int(y) - 2 : int(y) + 3, int(x) - 2 : int(x) + 3].any()
    low, high = corners.min(0).astype(int), corners.max(0).astype(int)
    assert not changed[high[1] - 12 : high[1], low[0] - 2 : low[0] + 3].any()  # a side of the upright box


def test_the_json_of_predictions(tmp_path: Path) -> None:
    """It is a dataset with rotated boxes: `check` finds no error in it, and evaluated against itself it is right.

    A detection in the letterbox is left out.
    """
    from detaug.check.check import check_coco
    from detaug.scoring import predict_files

    Image.new("RGB", (200, 100), (9, 60, 90)).save(tmp_path / "a.png")
    ops = da.Resize((100, 100), letterbox="center"), da.Normalize()
    model = exact_model([50, 50, 40, 10, 0.5], *ops, others=IN_FILL)
    predicted = predict_files(model, [tmp_path / "a.png"], tmp_path / "found.json", drawings=tmp_path / "drawn")
    assert predicted.objects == 1
    (row,) = json.loads((tmp_path / "found.json").read_text())["annotations"]
    expected = corners_of(torch.tensor([[100.0, 50, 80, 20, 0.5]]))[0].numpy()
    np.testing.assert_allclose(row["corners"], expected, atol=1e-2)
    assert row["segmentation"] == [np.ravel(row["corners"]).tolist()]
    assert row["area"] == pytest.approx(1600, abs=1)
    assert row["score"] == 0.9
    assert check_coco(tmp_path / "found.json", tmp_path).errors == 0
    assert (tmp_path / "drawn" / "a.png").exists()
    reader = da.CocoReader(tmp_path, tmp_path / "found.json", rotated=True)
    batch = next(iter(da.Loader(reader, model.ops, 1, device="cpu", train=False)))
    evaluator = da.CocoEvaluator(reader, kind="rotated")
    evaluator.update(batch, [{name: each[1:] for name, each in model.model(batch.images)[0].items()}])
    assert evaluator.compute().AP == 1


def test_a_batch_is_predicted_as_its_images(tmp_path: Path) -> None:
    painted(tmp_path, 2)
    model = exact_model([60, 40, 50, 20, -0.6], da.Resize((100, 100), letterbox="center"), da.Normalize())
    reader = da.CocoReader(tmp_path / "ships", tmp_path / "ships.json")
    batch = next(iter(da.Loader(reader, model.ops, 2, device="cpu", train=False)))
    for one, other in zip(model.predict(batch), model.predict([reader.path(0), reader.path(1)]), strict=True):
        torch.testing.assert_close(one["corners"].float(), other["corners"].float(), atol=1e-2, rtol=0)


def test_sheets_show_rotated_boxes(tmp_path: Path) -> None:
    path = painted(tmp_path, 2)
    reader = da.CocoReader(tmp_path / "ships", path, rotated=True)
    batch = next(iter(da.Loader(reader, [da.Resize(256)], 2, device="cpu", train=False)))
    rows = zip(batch.targets(), batch.corners, batch.counts, strict=True)
    found = [{**each, "corners": c[:n], "scores": torch.ones(n)} for each, c, n in rows]
    detections = Detections.of(batch, found)
    assert [each.corners.shape for each in detections if each.corners is not None] == [(2, 4, 2)] * 2
    truth = np.array([each["corners"] for each in json.loads(path.read_text())["annotations"]])
    np.testing.assert_allclose(np.concatenate([np.asarray(each.corners) for each in detections]), truth, atol=0.01)
    sheets = [
        np.asarray(detections_sheet(reader, each)).astype(int)
        for each in (detections, [one._replace(corners=None) for one in detections])
    ]
    assert (abs(sheets[0] - sheets[1]).max(2) > 5).mean() > 0.005


def test_tiles_are_merged_by_corners() -> None:
    """A bright box on a dark image of 300 x 200, which two tiles cut: the model finds the bright pixels' rectangle."""

    class Bright(torch.nn.Module):
        def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
            found = []
            for image in images:
                y, x = (image.mean(0) > 0.5).nonzero().double().T + 0.5
                if len(x) < 20:
                    found.append(
                        {"boxes": torch.zeros(0, 4), "corners": torch.zeros(0, 4, 2), "scores": torch.zeros(0)}
                    )
                else:
                    angle = torch.tensor(0.5).double()
                    along, across = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
                    (a0, a1), (b0, b1) = ((each.min(), each.max()) for each in (along, across))
                    middle = (a0 + a1) / 2, (b0 + b1) / 2
                    center = (
                        middle[0] * angle.cos() - middle[1] * angle.sin(),
                        middle[0] * angle.sin() + middle[1] * angle.cos(),
                    )
                    corners = corners_of(torch.stack([*center, a1 - a0, b1 - b0, angle])[None].float())
                    around = torch.cat([corners.amin(1), corners.amax(1)], 1)
                    found.append({"boxes": around, "corners": corners, "scores": torch.tensor([0.9])})
                found[-1]["labels"] = torch.ones(len(found[-1]["scores"]), dtype=torch.int64)
            return found

    wanted = corners_of(torch.tensor([[160.0, 100, 80, 20, 0.5]]))
    picture = Image.new("RGB", (300, 200))
    ImageDraw.Draw(picture).polygon([tuple(each) for each in (wanted[0] - 0.5).tolist()], fill=(255, 255, 255))
    ops = (da.Resize((200, 200)), da.Normalize((0, 0, 0), (1, 1, 1)))
    model = da.TrainedModel(Bright(), ops, ("background", "a"), torch.device("cpu"), finds="rotated")
    (found,) = model.predict(picture, tile=200, overlap=0.5)
    assert found["corners"].shape == (1, 4, 2)
    assert own_iou(found["corners"].float(), wanted)[0] > 0.9


def test_it_is_not_exported(trained: tuple[Path, dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    from detaug.export.graph import refuse_other_models

    with pytest.raises(InputError, match="fcos_rotated_resnet50_fpn is not exported, because ONNX has no"):
        refuse_other_models("fcos_rotated_resnet50_fpn")


# ---------------------------------------------------------------------------------------- what it learns


@pytest.mark.slow
def test_it_learns_ships_and_predicts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 120 steps, on the images that it is evaluated on; its file predicts the same in source pixels, not square."""
    make_ships(tmp_path, 8)
    da.save_recipe([da.Resize((160, 160), letterbox="center"), da.Normalize()], tmp_path / "plain.yaml")
    settings = options(tmp_path, tmp_path / "run", size=None, epochs=60, eval_every=60, recipe=tmp_path / "plain.yaml")
    result = train(settings, make_model=tiny_rotated, say=lambda _: None)
    print(result["evaluation"]["rotated"])
    assert result["steps"] == 120
    assert result["evaluation"]["rotated"]["AP50"] > 0.8
    monkeypatch.setattr(predict_module, "make_detector", tiny_rotated)
    model = load_model(tmp_path / "run" / "best.pt", device="cpu")
    reader = da.CocoReader(tmp_path / "ships", tmp_path / "ships.json")
    truth: dict[int, list[Any]] = {image_id: [] for image_id in reader.image_ids.tolist()}
    for row in json.loads((tmp_path / "ships.json").read_text())["annotations"]:
        truth[row["image_id"]].append(row["corners"])
    right = objects = 0
    for number, corners in enumerate(truth.values()):
        (found,) = model.predict(reader.path(number), min_score=0.3)
        iou = iou_of_quadrangles(np.array(corners), found["corners"].double().numpy())
        right, objects = right + int((iou.max(1, initial=0) > 0.5).sum()), objects + len(corners)
    assert objects > 40
    assert right > 0.8 * objects


@pytest.mark.parametrize(("angle", "right"), [(0.5, 1), (-0.5, 0)])
def test_the_class_table_is_that_of_rotated_boxes(
    angle: float, right: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upright box of a detection that lies the other way round is right, and the rotated one an error."""
    Image.new("RGB", (200, 100), (9, 60, 90)).save(tmp_path / "a.png")
    corners = corners_of(torch.tensor([[100.0, 50, 80, 20, 0.5]]))[0]
    low, size = corners.amin(0), corners.amax(0) - corners.amin(0)
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [*low.tolist(), *size.tolist()], "area": 1600}
    row |= {"segmentation": [corners.flatten().tolist()], "iscrowd": 0}
    images = [{"id": 1, "file_name": "a.png", "width": 200, "height": 100}]
    document = {"images": images, "annotations": [row], "categories": [{"id": 1, "name": "a"}]}
    (tmp_path / "all.json").write_text(json.dumps(document))
    model = exact_model([100, 50, 80, 20, angle], da.Resize((100, 200)), da.Normalize())
    monkeypatch.setattr(import_module("detaug.scoring.evaluate"), "load_model", lambda *_: model)
    page, found, report = (tmp_path / name for name in ("page.html", "found.json", "report.json"))
    words = ("--model", "model.pt", "--html", page, "-o", found, "--report", report)
    result = detaug("evaluate", tmp_path / "all.json", tmp_path, *words)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    at = lines.index("each class, by rotated boxes:")
    numbers = f"{right}.000  {right}.000      {right}.000   {right}.000"
    assert lines[at + 2].split() == ["a", *numbers.split(), "1"]
    assert lines[0].startswith("AP 1.000")
    kinds = "localization 1" if not right else "localization 0"
    assert any(line.startswith("errors of rotated boxes with a score of 0.4") and kinds in line for line in lines)
    text = page.read_text()
    assert "<h2>Classes, by rotated boxes</h2>" in text
    assert f"AP {right}.000" in text
    assert ("Images with the most errors" in text) == (not right)
    assert json.loads(report.read_text())["right"] == [right]
    (saved,) = json.loads(found.read_text())
    np.testing.assert_allclose(saved["corners"], model.model.corners[0], atol=0.01)  # type: ignore[union-attr]
    np.testing.assert_allclose(saved["bbox"], row["bbox"], atol=0.01)
