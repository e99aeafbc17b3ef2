"""`TrainedModel.predict` and `draw`: one image or several of any kind, a lowest score, an image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import write_coco
from PIL import Image
from torch import Tensor, nn

import detaug as da
from detaug.training import TrainedModel

WHITE_BOX = (10, 6, 50, 30)
"""XYXY, in an image of 80 x 60."""


class FindsWhite(nn.Module):
    """A detector that finds the white pixels twice, with the scores 0.9 and 0.3."""

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found = []
        for image in images:
            rows, columns = torch.nonzero(image.mean(0) > 0.5, as_tuple=True)
            box = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()
            found.append(
                {"boxes": box.repeat(2, 1), "scores": torch.tensor([0.9, 0.3]), "labels": torch.tensor([2, 1])}
            )
        return found


@pytest.fixture
def model() -> TrainedModel:
    ops = (da.Resize((120, 160)), da.Normalize((0, 0, 0), (1, 1, 1)))
    return TrainedModel(FindsWhite(), ops, ("background", "cat", "dog"), torch.device("cpu"))


@pytest.fixture
def pixels() -> np.ndarray:
    image = np.zeros((60, 80, 3), np.uint8)
    x0, y0, x1, y1 = WHITE_BOX
    image[y0:y1, x0:x1] = 255
    return image


@pytest.fixture
def file(pixels: np.ndarray, tmp_path: Path) -> Path:
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


KINDS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "text": lambda pixels, file: str(file),
    "path": lambda pixels, file: file,
    "PIL": lambda pixels, file: Image.open(file),
    "PIL, gray": lambda pixels, file: Image.open(file).convert("L"),
    "PIL, transparent": lambda pixels, file: Image.open(file).convert("RGBA"),
    "array": lambda pixels, file: pixels,
    "array of floats": lambda pixels, file: pixels / 255,
    "tensor": lambda pixels, file: torch.from_numpy(pixels).permute(2, 0, 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_of_any_kind_alone_or_in_a_list(
    model: TrainedModel, pixels: np.ndarray, file: Path, kind: str
) -> None:
    image = KINDS[kind](pixels, file)
    for images, count in ((image, 1), ([image], 1), ((image, file), 2), (iter([image, image, image]), 3)):
        found = model.predict(images, min_score=0)
        assert [each["boxes"].round().tolist() for each in found] == [[[*WHITE_BOX]] * 2] * count
        assert [each["labels"].tolist() for each in found] == [[2, 1]] * count


class FindsFill(FindsWhite):
    """Finds the white pixels, and an object in the fill above the image."""

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found = super().forward(images)
        for each in found:
            each["boxes"][1] = torch.tensor([3.0, 2, 90, 11])
        return found


def test_the_fill_of_a_letterbox_is_no_part_of_the_image(file: Path) -> None:
    """80 x 60 pixels become 160 x 120, with 20 rows of fill above and below."""
    ops = (da.Resize((160, 160), letterbox="center", fill=(0, 0, 0)), da.Normalize((0, 0, 0), (1, 1, 1)))
    model = TrainedModel(FindsFill(), ops, ("background", "cat", "dog"), torch.device("cpu"))
    (found,) = model.predict(file, min_score=0)
    assert found["boxes"].round().tolist() == [[*WHITE_BOX]]
    assert found["labels"].tolist() == [2]


def test_batches_of_arrays_and_tensors_are_several_images(model: TrainedModel, pixels: np.ndarray) -> None:
    several = np.stack([pixels] * 3)
    assert len(model.predict(several)) == 3
    assert len(model.predict(torch.from_numpy(several).permute(0, 3, 1, 2))) == 3
    assert model.predict([]) == []


def test_the_orientation_of_a_file_is_applied(model: TrainedModel, pixels: np.ndarray, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    (found,) = model.predict(tmp_path / "a.png")
    assert found["boxes"].round().tolist() == [[80 - 50, 60 - 30, 80 - 10, 60 - 6]]


@pytest.mark.parametrize(("score", "count"), [(0.0, 2), (0.3, 2), (0.31, 1), (0.9, 1), (1.0, 0)])
def test_only_detections_of_the_lowest_score_or_more(
    model: TrainedModel, pixels: np.ndarray, score: float, count: int
) -> None:
    (found,) = model.predict(pixels, min_score=score)
    assert [len(found[name]) for name in ("boxes", "scores", "labels")] == [count] * 3


def test_the_default_leaves_out_what_the_pictures_of_training_leave_out(model: TrainedModel, file: Path) -> None:
    (found,) = model.predict(file)
    assert found["scores"].tolist() == [pytest.approx(0.9)]


def test_the_drawing_has_outlines_where_the_detections_are(model: TrainedModel, pixels: np.ndarray, file: Path) -> None:
    drawn = np.asarray(model.draw(file))
    assert drawn.shape == pixels.shape
    changed = (drawn != pixels).any(2)
    x0, y0, x1, y1 = WHITE_BOX
    assert changed[y0:y1, x1 - 1].all()
    assert changed[y1 - 1, x0:x1].all()
    assert not changed[y0 + 8 : y1 - 8, x0 + 8 : x1 - 8].any()
    nothing = np.asarray(model.draw(file, min_score=1))
    assert (nothing == pixels).all()


def test_a_picture_of_three_rows_is_drawn_as_it_is(model: TrainedModel) -> None:
    """Nothing takes the rows of (3, 120, 3) pixels for planes."""
    pixels = np.zeros((3, 120, 3), np.uint8)
    pixels[:, 20:50] = 255
    drawn = np.asarray(model.draw(pixels))
    assert drawn.shape == pixels.shape
    assert (drawn[:, 60:] == 0).all()


@pytest.mark.parametrize(
    ("images", "arguments", "error", "message"),
    [
        (np.zeros((4, 4), np.uint8), {}, da.InputError, r"the image must be \(H, W, 3\), .* got \(4, 4\) uint8"),
        ([3], {}, TypeError, "the image must be a PIL image, an array"),
        (3, {}, TypeError, "the image must be a PIL image, an array"),
        (None, {}, TypeError, "the image must be a PIL image, an array"),
        (b"JPEG", {}, TypeError, "got bytes"),
        ("no.jpg", {}, FileNotFoundError, "No such file"),
        (Image.new("I;16", (4, 4)), {}, da.InputError, "scale it to 8 bits"),
        (np.zeros((4, 4, 3), np.uint8), {"min_score": 30}, da.InputError, r"min_score must be in 0\.\.1, got 30"),
    ],
)
def test_wrong_images_and_scores(
    model: TrainedModel, images: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.predict(images, **arguments)


class FindsColors(nn.Module):
    """A detector that finds a box for each level of white, and masks if it is asked to."""

    masks = False

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        (image,) = images
        levels = image[0].unique()[1:]
        places = [torch.nonzero(image[0] == level, as_tuple=True) for level in levels]
        boxes = [torch.stack([x.min(), y.min(), x.max() + 1, y.max() + 1]).float() for y, x in places]
        found = {"boxes": torch.stack(boxes) if boxes else torch.zeros(0, 4), "scores": torch.ones(len(boxes))}
        found["labels"] = torch.ones(len(boxes), dtype=torch.int64)
        return [found | ({"masks": torch.zeros(len(boxes), 1, *image.shape[1:])} if self.masks else {})]


def test_a_large_picture_is_searched_in_tiles() -> None:
    rng, pixels, boxes = np.random.default_rng(0), np.zeros((200, 340, 3), np.uint8), []
    for level in range(12):
        x, y = 25 * level + int(rng.integers(5)), int(rng.integers(180))
        pixels[y : y + 15, x : x + 18] = 100 + 10 * level
        boxes.append((x, y, x + 18, y + 15))
    ops = (da.Resize((100, 100)), da.Normalize((0, 0, 0), (1, 1, 1)))
    detector = FindsColors()
    model = TrainedModel(detector, ops, ("background", "x"), torch.device("cpu"))
    (found,) = model.predict([pixels], tile=100, overlap=0.3)
    assert sorted(map(tuple, found["boxes"].round().int().tolist())) == sorted(boxes)
    with pytest.raises(da.InputError, match="overlap must be"):
        model.predict([pixels], tile=100, overlap=1)
    detector.masks = True
    with pytest.raises(da.InputError, match="this one finds masks; leave it out"):
        model.predict([pixels], tile=100)


class FindsAnEnd(nn.Module):
    """Finds an object at the right end of a white image, where it is cut off, and all of it in others, less surely."""

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        cut = bool(images.mean() > 0.5)
        box = torch.tensor([[80.0, 20, 100, 40] if cut else [0.0, 20, 30, 40]])
        return [{"boxes": box, "scores": torch.tensor([0.45 if cut else 0.35]), "labels": torch.ones(1).long()}]


@pytest.mark.parametrize(("min_score", "found"), [(0.0, 1), (0.3, 1), (0.4, 0)])
def test_scores_are_judged_when_tiles_are_merged(min_score: float, found: int) -> None:
    """A higher score does not bring a box back that a whole one had replaced."""
    pixels = np.zeros((100, 180, 3), np.uint8)
    pixels[:, :90] = 255
    ops = (da.Resize((100, 100)), da.Normalize((0, 0, 0), (1, 1, 1)))
    model = TrainedModel(FindsAnEnd(), ops, ("background", "x"), torch.device("cpu"))
    (each,) = model.predict([pixels], tile=100, min_score=min_score)
    assert each["boxes"].tolist() == [[80, 20, 110, 40]] * found


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_a_broken_file_is_named(model: TrainedModel, tmp_path: Path, kind: str) -> None:
    whole, broken = tmp_path / f"whole.{kind}", tmp_path / f"broken.{kind}"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)).save(whole)
    broken.write_bytes(whole.read_bytes()[:-2000])
    with pytest.raises(OSError, match=f"broken.{kind}: does not decode .*; get the file again"):
        model.predict([whole, broken])


def test_a_batch_of_a_loader(model: TrainedModel, file: Path, tmp_path: Path) -> None:
    (file.parent / "b.png").write_bytes(file.read_bytes())
    folder, json_file = write_coco(tmp_path, [("a.png", (60, 80), [WHITE_BOX]), ("b.png", (60, 80), [])], classes=2)
    loader = da.Loader(da.CocoReader(folder, json_file), model.ops, 2, train=False, device="cpu")
    (batch,) = loader
    found, alone = model(batch, min_score=0.1), model([file, file], min_score=0.1)
    for one, other in zip(found, alone, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert one[name].numpy() == pytest.approx(other[name].numpy(), abs=1e-4)
    with pytest.raises(da.InputError, match="tile must be None for a batch"):
        model(batch, tile=100)
