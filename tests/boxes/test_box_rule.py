"""Boxes that reach out of their image by at most a pixel are clipped, at every entrance; others are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dali_pipelines import given, make, outputs
from PIL import Image

import detaug as da

HEIGHT, WIDTH = 60, 80
IMAGE = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
RESIZE = da.Resize((HEIGHT, WIDTH))


class OneImage(da.Source):
    """The image in memory."""

    files, decodes = False, True

    def path(self, index: int) -> Path:
        return Path("one.png")

    def contents(self, indices: Any) -> list[Any]:
        return [IMAGE for _ in indices]


def in_a_source(box: list[float], _: Path, *, relative: bool = False) -> Any:
    sides = [WIDTH, HEIGHT] * 2 if relative else [1] * 4
    source = OneImage(
        [(HEIGHT, WIDTH)], ["a"], boxes=np.array([box]) / sides, counts=[1], labels=[1], relative=relative
    )
    (batch,) = da.Loader(source, [RESIZE], 1, device="cpu", train=False)
    return batch.boxes[0]


def in_a_json(box: list[float], folder: Path) -> Any:
    Image.fromarray(IMAGE).save(folder / "one.png")
    x0, y0, x1, y1 = box
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [x0, y0, x1 - x0, y1 - y0]}
    image = {"id": 1, "file_name": "one.png", "width": WIDTH, "height": HEIGHT}
    content = {"images": [image], "annotations": [annotation], "categories": [{"id": 1, "name": "a"}]}
    (folder / "one.json").write_text(json.dumps(content))
    (batch,) = da.Loader(da.CocoReader(folder, folder / "one.json"), [RESIZE], 1, device="cpu", train=False)
    return batch.boxes[0]


def in_arrays(box: list[float], _: Path) -> Any:
    return da.batch([IMAGE], [[box]], [[1]]).then(RESIZE).boxes[0]


def in_a_target(box: list[float], _: Path) -> Any:
    target = {"boxes": torch.tensor([box]), "labels": torch.tensor([1])}
    return da.Compose([RESIZE])(IMAGE, target)[1]["boxes"]


def in_a_pipeline(box: list[float], _: Path, *, relative: bool = False) -> Any:
    sides = [WIDTH, HEIGHT] * 2 if relative else [1] * 4
    boxes = [np.array([box], np.float32) / np.array(sides, np.float32)]
    units = "relative" if relative else "pixels"

    def nodes() -> Any:
        return da.fn.augment(given([IMAGE]), given(boxes), None, [RESIZE], units=units)

    return outputs(make(nodes, 1, "cpu"))[1][0]


ENTRANCES: dict[str, Callable[..., Any]] = {
    "Source": in_a_source,
    "Source, relative": lambda *each: in_a_source(*each, relative=True),
    "CocoReader": in_a_json,
    "da.batch": in_arrays,
    "Compose": in_a_target,
    "da.fn": in_a_pipeline,
    "da.fn, relative": lambda *each: in_a_pipeline(*each, relative=True),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_box_that_is_out_by_at_most_a_pixel_is_clipped(entrance: str, tmp_path: Path) -> None:
    boxes = ENTRANCES[entrance]([-0.9, 10.0, 80.9, 60.9], tmp_path)
    assert np.allclose(np.asarray(boxes), [[0, 10, WIDTH, HEIGHT]], atol=1e-4)


@pytest.mark.parametrize(
    ("box", "rule"),
    [
        ([-1.2, 10.0, 50.0, 50.0], "image"),
        ([10.0, 10.0, 50.0, 61.2], "image"),
        ([50.0, 10.0, 40.0, 50.0], "x0 <= x1|becomes"),
        ([float("nan"), 10.0, 40.0, 50.0], "finite|number"),
        ([20.0, 10.0, 20.0, 50.0], "of some width and height in their image; leave out|sides of at least"),
        ([20.0, 10.0, 40.0, 10.0], "of some width and height|sides of at least"),
        ([-0.9, 10.0, 0.0, 50.0], "of some width and height|outside its image"),
    ],
)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_other_boxes_are_refused(entrance: str, box: list[float], rule: str, tmp_path: Path) -> None:
    with pytest.raises((da.InputError, RuntimeError), match=rule):
        ENTRANCES[entrance](box, tmp_path)
