"""`detaug train PATH` to the end with models of masks and of keypoints: narrow ones, with torchvision's layers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import detaug
from PIL import Image
from reference import require_torchvision
from test_seven_kinds import assert_the_commands_do_the_same
from test_train_folder import FILES
from test_train_masks import tiny_mask_rcnn
from test_train_points import tiny_keypoint_rcnn

from detaug.demo.people import make_people
from detaug.training import load_model, loop

require_torchvision()
pytestmark = pytest.mark.slow


class Case(NamedTuple):
    model: str
    make: Callable[..., Any]
    kind: str
    """What `evaluate` scores beside boxes."""
    other: str
    """What the data have, and the model does not learn."""
    key: str
    """Of the annotations that `predict` writes."""


CASES = [
    Case("maskrcnn_resnet50_fpn_v2", tiny_mask_rcnn, "segm", "keypoints", "segmentation"),
    Case("keypointrcnn_resnet50_fpn", tiny_keypoint_rcnn, "keypoints", "masks", "keypoints"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_a_folder_becomes_a_detector_of_shapes(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(loop.train.__kwdefaults__, "make_model", case.make)
    monkeypatch.setattr("detaug.training.predict.make_detector", case.make)
    make_people(Path("data"), images=6)
    words = ("--model", case.model, "--size", "128x160", "--batch-size", "2", "--epochs", "1", "--device", "cpu")
    result = detaug("train", "data", "-o", "run", *words)
    assert (result.code, result.err) == (0, "")
    assert f"{case.model} does not learn the {case.other}" in result.out
    files = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
    assert files >= FILES
    assert f"  {case.kind}: AP " in result.out
    assert case.kind in Path("run/evaluation.html").read_text()
    assert case.kind in Path("run/curves.html").read_text()
    for name in ("train_batch.jpg", "predictions.jpg"):
        with Image.open(Path("run") / name) as image:
            assert min(image.size) > 100
    assert_the_commands_do_the_same(result.out)
    (train_on,) = (line for line in Path("run/README.txt").read_text().splitlines() if "--weights" in line)
    again = detaug(*shlex.split(train_on)[1:])
    assert (again.code, again.err) == (0, "")
    assert load_model("run-2/model.pt", "cpu").finds == case.kind
    assert detaug("predict", "run/model.pt", "data/people", "--device", "cpu", "--min-score", "0.01").code == 0
    found = json.loads(Path("predictions/predictions.json").read_text())["annotations"]
    assert found
    assert all(row[case.key] for row in found)
