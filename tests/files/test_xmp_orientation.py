"""Images and predictions show images as the loader does, which ignores orientations in XMP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from coco_files import HEIGHT, WIDTH, document, write
from PIL import Image
from torch import nn
from voc_files import image_bytes, with_segment, xmp_orientation

import detaug as da
from detaug.cli.main import main
from detaug.training import TrainedModel


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, str]:
    """Return a JSON file and its images, which Pillow turns by a quarter."""
    content, images = document(), tmp_path / "images"
    (images / "sub").mkdir(parents=True)
    for row in content["images"]:
        (images / row["file_name"]).write_bytes(with_segment(image_bytes(), xmp_orientation(6)))
    with Image.open(images / "a.jpg") as image:
        assert image.getexif()[0x0112] == 6
    return str(write(tmp_path / "train.json", content)), str(images)


def test_previews(data: tuple[str, str], tmp_path: Path) -> None:
    assert main(["preview", *data, "-o", str(tmp_path / "preview.png")]) == 0


def test_pictures_of_findings(data: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    transpose = Image.Image.transpose
    monkeypatch.setattr(Image.Image, "transpose", lambda image, how: shown.append(how) or transpose(image, how))
    main(["check", *data, "--html", str(tmp_path / "page.html"), "-q"])
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert not shown


class Empty(nn.Module):
    """A detector that finds nothing."""

    def forward(self, images: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        nothing = {"boxes": torch.zeros(0, 4), "scores": torch.zeros(0), "labels": torch.zeros(0, dtype=torch.int64)}
        return [nothing] * len(images)


def test_predictions(data: tuple[str, str]) -> None:
    model = TrainedModel(Empty(), (da.Resize((8, 8)),), ("background", "cat"), torch.device("cpu"))
    assert model.draw(Path(data[1]) / "a.jpg").size == (WIDTH, HEIGHT)
