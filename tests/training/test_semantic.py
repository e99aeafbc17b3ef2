"""Models of semantic segmentation: the loss, what a training writes, what is found in the pixels of a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug, error_line
from PIL import Image
from reference import require_torchvision
from semantic_files import COLORS, IGNORED, NAMES, list_images, paint_folder, painted, tiny_semantic

import detaug as da
from detaug.errors import InputError
from detaug.sheets import maps_sheet
from detaug.training import TrainOptions, load_model, train
from detaug.training import evaluation as evaluation_module
from detaug.training import predict as predict_module
from detaug.training.detectors import make_detector
from detaug.training.loaders import evaluation_resize, train_recipe
from detaug.training.predict import map_entry
from detaug.training.semantic_models import SemanticModel

MODEL = "lraspp_mobilenet_v3_large"


def options(root: Path, output: Path, **more: Any) -> TrainOptions:
    settings: dict[str, Any] = {
        "val": list_images(root),
        "model": MODEL,
        "size": 48,
        "epochs": 30,
        "batch_size": 4,
        "optimizer": "adamw",
        "lr": 0.1,
        "eval_every": 10,
        "device": "cpu",
        "map": da.ClassMap("masks", classes=NAMES),
    }
    return TrainOptions(list_images(root), root / "images", output, **{**settings, **more})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of images and maps, of a run in its folder `run`, and what `train` returned."""
    root, shown = paint_folder(tmp_path_factory.mktemp("semantic")), dict[int, Any]()

    def sheet(reader: Any, name: str, found: dict[int, Any], title: str) -> Any:
        shown.update(found)
        return maps_sheet(reader, name, found, title)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation_module, "maps_sheet", sheet)
        result = train(options(root, root / "run"), make_model=tiny_semantic, say=lambda line: None)
    return root, {**result, "shown": shown}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_module, "make_detector", tiny_semantic)


class Fixed(torch.nn.Module):
    """Returns the scores that it was made with."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(scores)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.scores}


@pytest.mark.parametrize("ignore", [255, 1])
def test_the_loss_is_the_mean_over_known_pixels(tmp_path: Path, ignore: int) -> None:
    root = paint_folder(tmp_path, 2)
    reader = da.MapReader(root / "images", root / "masks", ignore=ignore)
    batch = next(iter(da.Loader(reader, [da.Resize((40, 40)), da.Normalize()], 2, train=False, device="cpu")))
    scores = torch.randn(2, 256, 40, 40, dtype=torch.float64)
    truth = batch.maps["semantic"].long()
    logs = scores.log_softmax(1)
    wanted = [
        -logs[at, truth[at, y, x], y, x].item()
        for at in range(2)
        for y in range(40)
        for x in range(40)
        if truth[at, y, x] != ignore
    ]
    assert 1000 < len(wanted) < 3200
    model = SemanticModel(Fixed(scores)).train()
    (loss,) = model(*model.inputs(batch)).values()
    assert loss.item() == pytest.approx(np.mean(wanted), rel=1e-5)


def test_a_batch_without_a_known_pixel_has_a_loss_of_0() -> None:
    model = SemanticModel(Fixed(torch.randn(1, 3, 4, 4)))
    (loss,) = model(torch.zeros(1, 3, 4, 4), torch.full((1, 4, 4), -1)).values()
    loss.backward()
    assert loss.item() == 0
    assert model.net.scores.grad.abs().sum() == 0  # type: ignore[union-attr,operator]


def test_what_a_training_writes(trained: tuple[Path, dict[str, Any]]) -> None:
    root, result = trained
    scores = result["evaluation"]["semantic"]
    assert scores["mIoU"] > 0.97
    assert scores["accuracy"] > 0.98
    assert [*scores["iou"]] == [*NAMES]
    lines = [json.loads(line) for line in (root / "run/metrics.jsonl").read_text().splitlines()]
    evaluations = [line["evaluation"]["semantic"]["mIoU"] for line in lines if "evaluation" in line]
    assert len(evaluations) == 3
    assert all("cross_entropy" in line for line in lines if "loss" in line)
    page = (root / "run/curves.html").read_text()
    assert "semantic mIoU" in page
    assert "IoU of each class" in page
    assert "last IoU" in page
    assert f"best mIoU {max(evaluations):.3f}" in page
    content = torch.load(root / "run/model.pt", weights_only=True)
    assert tuple(content["class_names"]) == NAMES
    assert [*result["shown"]] == [1, 2, 3, 4, 5, 6]
    for image_id, found in result["shown"].items():  # what predictions.jpg has
        with Image.open(root / f"masks/{image_id - 1}.png") as file:
            true = np.asarray(file)
        assert (found == true)[true != IGNORED].mean() > 0.97
    for name in ("train_batch.jpg", "predictions.jpg"):
        with Image.open(root / "run" / name) as image:
            assert min(image.size) > 100


def test_the_best_model_is_that_of_the_highest_miou(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy falls with each evaluation, and mIoU is highest in the second one."""
    scores = iter([(0.2, 0.9), (0.6, 0.8), (0.4, 0.7)])

    def compute(self: da.SemanticEvaluator) -> da.SemanticMetrics:
        miou, accuracy = next(scores)
        return da.SemanticMetrics(miou, accuracy, 0.5, dict.fromkeys(NAMES, float("nan")), 10)

    monkeypatch.setattr(da.SemanticEvaluator, "compute", compute)
    root, said = paint_folder(tmp_path, 4), list[str]()
    train(options(root, root / "run", epochs=3, eval_every=1), make_model=tiny_semantic, say=said.append)
    best, last = (torch.load(root / "run" / name, weights_only=True)["model"] for name in ("best.pt", "model.pt"))
    assert not all(best[name].equal(last[name]) for name in best)
    assert any("mIoU 0.600  accuracy 0.800" in line for line in said)
    evaluation = json.loads((root / "run/metrics.jsonl").read_text().splitlines()[-1])["evaluation"]["semantic"]
    assert evaluation["iou"] == dict.fromkeys(NAMES, -1.0)  # JSON has no NaN
    assert "best mIoU 0.600" in (root / "run/curves.html").read_text()


@pytest.mark.parametrize("size", [(48, 64), (200, 90)])
def test_predictions_are_in_the_pixels_of_the_image(
    trained: tuple[Path, dict[str, Any]], tiny: None, size: tuple[int, int]
) -> None:
    """Of an image that the evaluation shrinks or enlarges: the class is that of the color, but at borders."""
    root, _ = trained
    model = load_model(root / "run/model.pt", "cpu")
    assert model.finds == "semantic"
    assert model.class_names == NAMES
    image, _ = painted(31, size)
    (found,) = model.predict(image)
    assert [*found] == ["semantic"]
    assert found["semantic"].dtype == torch.uint8
    assert found["semantic"].shape == size
    of_color = np.abs(image[:, :, None].astype(int) - COLORS.astype(int)).sum(3).argmin(2)
    inside = np.ones(size, bool)
    reach = 3 * max(1, max(size) // 32)
    for shift in (-reach, reach):
        inside &= (np.roll(of_color, shift, 0) == of_color) & (np.roll(of_color, shift, 1) == of_color)
    wrong = (found["semantic"].numpy() != of_color) & inside
    assert wrong.mean() < 0.01
    assert (found["semantic"].numpy() == of_color).mean() > 0.93
    assert {*np.unique(of_color)} == {0, 1, 2}
    drawn = np.asarray(model.draw(image))
    assert drawn.shape == (*size, 3)
    assert (drawn != image).any()


def test_a_batch_and_its_files_give_the_same(trained: tuple[Path, dict[str, Any]], tiny: None, tmp_path: Path) -> None:
    """Of images that are resized by different factors."""
    model = load_model(trained[0] / "run/model.pt", "cpu")
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for number, size in enumerate([(48, 64), (96, 120), (40, 70), (150, 70)]):
        for folder, pixels in zip(("images", "masks"), painted(number, size), strict=True):
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    reader = da.MapReader(tmp_path / "images", tmp_path / "masks")
    batch = next(iter(da.Loader(reader, model.ops, 4, train=False, device="cpu")))
    alone = model.predict([tmp_path / "images" / name for name in reader.file_names])
    for one, other in zip(model.predict(batch), alone, strict=True):
        assert one["semantic"].shape == other["semantic"].shape
        assert (one["semantic"] == other["semantic"]).float().mean() > 0.99


def test_a_large_image_is_looked_up_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    from detaug.evaluation import map_predictions

    scores = torch.randn(5, 9, 7)
    points = torch.rand(23, 17, 2) * torch.tensor([70.0, 90.0])
    whole = map_predictions.at_points(scores, points, (90, 70)).argmax(0)
    monkeypatch.setattr(map_predictions, "STRIP", 5 * 17 * 4)
    assert map_predictions.classes_at(scores, points, (90, 70)).equal(whole)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"map": None}, "learns the class of each pixel: give the folder of the maps and the names of their classes"),
        ({"map": da.ClassMap("masks")}, "give the folder of the maps and the names of their classes, map=ClassMap("),
        ({"model": "fcos_resnet50_fpn"}, f'fcos_resnet50_fpn learns no map; leave it out, or choose model="{MODEL}"'),
        ({"val": None, "val_map": da.ClassMap("masks", classes=NAMES)}, "val_map must be left out without val and map"),
    ],
)
def test_maps_that_do_not_fit_the_model(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        options(paint_folder(tmp_path, 2), tmp_path / "run", **more)


def test_arguments_that_are_of_boxes(trained: tuple[Path, dict[str, Any]], tiny: None) -> None:
    root, _ = trained
    model = load_model(root / "run/model.pt", "cpu")
    image, _ = painted(1)
    for more in ({"min_score": 0.1}, {"tile": 32}):
        with pytest.raises(InputError, match=f"{next(iter(more))} must be left out for a model of semantic"):
            model.predict(image, **more)  # type: ignore[arg-type]


def test_a_map_with_a_value_of_no_class_is_named(tmp_path: Path) -> None:
    root = paint_folder(tmp_path, 4)
    settings = options(root, tmp_path / "run", map=da.ClassMap("masks", classes=NAMES[:2]))
    with pytest.raises(da.DataError, match=r"masks/\d\.png has the value 2, where its ClassMap has 2 classes"):
        train(settings, make_model=tiny_semantic, say=lambda line: None)


def test_other_classes_do_not_resume(trained: tuple[Path, dict[str, Any]]) -> None:
    root, _ = trained
    other = da.ClassMap("masks", classes=("a", "b", "c"))
    with pytest.raises(InputError, match=r"was made with class_names \['ground', 'red', 'blue'\], this training has"):
        train(options(root, root / "run", map=other, resume=True), make_model=tiny_semantic, say=lambda line: None)


def test_the_maps_of_the_evaluation_may_be_in_another_folder(tmp_path: Path) -> None:
    root = paint_folder(paint_folder(tmp_path, 6), 4, "val", "val_masks", first=6)
    val = list_images(root, "val", "val.json")
    more = {"val": val, "val_images": root / "val", "val_map": da.ClassMap("val_masks", classes=NAMES)}
    found = train(options(root, root / "run", epochs=1, **more), make_model=tiny_semantic, say=lambda line: None)
    known = [np.asarray(Image.open(path)) != IGNORED for path in (root / "val_masks").iterdir()]
    assert found["evaluation"]["semantic"]["pixels"] == sum(int(each.sum()) for each in known)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"classes": NAMES[::-1]}, "masks of the evaluation has the classes blue, red, ground, and"),
        (
            {"classes": NAMES, "ignore": 7},
            "of the evaluation has ignore=7 and no table, and the model",
        ),
    ],
)
def test_the_maps_of_the_evaluation_have_the_same_classes(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    settings = options(paint_folder(tmp_path, 2), tmp_path / "run", val_map=da.ClassMap("masks", **other))
    with pytest.raises(InputError, match=message):
        train(settings, make_model=tiny_semantic, say=lambda line: None)


def test_the_default_recipe_and_the_evaluation(tmp_path: Path) -> None:
    settings = options(paint_folder(tmp_path, 2), tmp_path / "run", size=None)
    _, window, *_ = train_recipe(settings, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # type: ignore[misc]
    assert (window.size, window.scale) == (520, (0.25, 1.0))
    assert evaluation_resize(settings) == da.Resize(520, max_size=866)


def test_evaluate_and_predict_of_a_detector_say_what_to_give(
    trained: tuple[Path, dict[str, Any]], tiny: None, tmp_path: Path
) -> None:
    require_torchvision()
    root, _ = trained
    words = ("evaluate", str(root / "all.json"), str(root / "images"), "--model", str(root / "run/model.pt"))
    assert "finds the class of each pixel, which a map is compared with; give it: --map" in error_line(detaug(*words))


def test_the_model_knows_the_maps_of_its_training(trained: tuple[Path, dict[str, Any]], tiny: None) -> None:
    root, _ = trained
    assert load_model(root / "run/model.pt", "cpu").map == da.ClassMap("", classes=NAMES)
    of_colors = da.ClassMap("masks", table={(90, 110, 90): 0, (220, 40, 30): 1}, ignore=3, classes=NAMES)
    content = torch.load(root / "run/model.pt", weights_only=True)
    torch.save(content | map_entry(of_colors), root / "colors.pt")
    map = load_model(root / "colors.pt", "cpu").map
    assert map is not None
    assert map.numbering == of_colors.numbering


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_remedy_of_the_export_works(trained: tuple[Path, dict[str, Any]], tiny: None, tmp_path: Path) -> None:
    require_torchvision()
    onnxruntime = pytest.importorskip("onnxruntime")
    root, _ = trained
    words = ("export", str(root / "run/model.pt"), "-o", str(tmp_path / "model.onnx"))
    message = error_line(detaug(*words))
    assert f"{MODEL} is not exported, since its graph would have no boxes; torch.onnx.export takes" in message
    model, images = load_model(root / "run/model.pt", "cpu").model, torch.rand(1, 3, 32, 40)
    torch.onnx.export(model, (images,), str(tmp_path / "model.onnx"), dynamo=False, input_names=["images"])
    (scores,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"images": images.numpy()})
    assert np.abs(scores - model(images).detach().numpy()).max() < 1e-4


def test_statistics_follow_a_short_training() -> None:
    """MobileNet's momentum of 0.01 would leave them at those of the first steps."""
    require_torchvision()
    model = make_detector(MODEL, 3).model
    momenta = {layer.momentum for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)}
    assert momenta == {0.1}
