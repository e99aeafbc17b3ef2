"""Targets of one number of rows: `Loader(max_boxes=N)` and `batch.as_detr(max_boxes=N)`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import detaug as da

RESIZE = [da.Resize((48, 96))]
SIDES = [[3, 8, 5, 8, 2, 8, 6], [4, 4], [], [1, 9, 2, 7], [5]]
"""The sides of the boxes of five images; the images' boxes have areas of 9, 64, 25, ... pixels."""
MOST = 7


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Images of 96 x 48 with squares in a row, each with its polygon, a keypoint at its corner, and a column."""
    folder, images, objects = tmp_path_factory.mktemp("squares"), [], []
    for at, sides in enumerate(SIDES):
        Image.new("RGB", (96, 48), (at, 99, 199)).save(folder / f"{at}.png")
        images.append({"id": 10 + at, "file_name": f"{at}.png", "width": 96, "height": 48})
        for place, side in enumerate(sides):
            x = 12 * place + at
            ring = [x, 4, x + side, 4, x + side, 4 + 0.6 * side, x, 4 + side]  # less than the box
            objects.append(
                {
                    "id": 100 * at + place,
                    "image_id": 10 + at,
                    "category_id": 1 + place % 3,
                    "bbox": [x, 4, side, side],
                    "area": side * side,
                    "segmentation": [ring],
                    "keypoints": [x, 4, 2],
                    "num_keypoints": 1,
                }
            )
    categories = [{"id": number, "name": f"class {number}", "keypoints": ["corner"]} for number in (1, 2, 3)]
    path = folder / "squares.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    return folder, path


def make(squares: tuple[Path, Path], ops: list[da.Op] = RESIZE, batch_size: int = 2, **options: Any) -> da.Loader:
    reader = da.CocoReader(*squares, columns=["id"], masks=True, keypoints=True)
    return da.Loader(
        reader, ops, batch_size, **{"device": "cpu", "train": False, "pipelines": 1, "threads": 1} | options
    )


def largest(boxes: torch.Tensor, count: int) -> list[int]:
    """Return the places of the largest of boxes (M, 4), in their order."""
    areas = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).tolist()
    return sorted(sorted(range(len(areas)), key=lambda place: -areas[place])[:count])


def test_every_batch_has_the_same_rows_and_the_same_boxes(squares: tuple[Path, Path], device: str) -> None:
    with make(squares, device=device) as plain, make(squares, device=device, max_boxes=9) as fixed:
        for before, after in zip(plain, fixed, strict=True):
            count, room = len(before), before.boxes.shape[1]
            assert before.boxes_left_out is None
            assert after.boxes_left_out.tolist() == [0] * count
            assert after.counts == before.counts
            assert after.boxes.shape == (count, 9, 4)
            assert after.keypoints.shape == (count, 9, 1, 3)
            assert after.masks(padded=True).shape == (count, 9, 48, 96)
            names = ("boxes", "labels", "valid", "keypoints", "rows", "image_id_of_box")
            pairs = [(getattr(before, name), getattr(after, name)) for name in names]
            pairs += [
                (before.columns["id"], after.columns["id"]),
                (before.masks(padded=True), after.masks(padded=True)),
            ]
            assert all(torch.equal(one, other[:, :room]) for one, other in pairs)
            paddings = [0, -1, False, 0, -1, -1, -1, False]
            assert all((other[:, room:] == fill).all() for (_, other), fill in zip(pairs, paddings, strict=True))
            assert [
                {name: each.tolist() for name, each in target.items()} for target in before.targets(masks=True)
            ] == [{name: each.tolist() for name, each in target.items()} for target in after.targets(masks=True)]


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_the_largest_boxes_stay_with_all_that_is_theirs(squares: tuple[Path, Path], rows: int, device: str) -> None:
    with make(squares, device=device) as plain, make(squares, device=device, max_boxes=rows) as fixed:
        with pytest.warns(
            UserWarning, match=f"max_boxes={rows} is less than the 7 boxes that image_id 10 shows"
        ) as said:
            batches = [batch for _ in range(2) for batch in fixed]
        assert [each.filename for each in said] == [__file__]
        for before, after in zip([*plain, *plain], batches, strict=True):
            assert after.boxes.shape[1] == rows
            own = [largest(target["boxes"], rows) for target in before.targets()]
            assert after.boxes_left_out.tolist() == [max(0, count - rows) for count in before.counts]
            assert after.counts == tuple(map(len, own))
            for old, new, places in zip(before.targets(masks=True), after.targets(masks=True), own, strict=True):
                names = ("boxes", "labels", "keypoints", "masks")
                assert all(torch.equal(old[name][places], new[name]) for name in names)
            for image, places in enumerate(own):
                ids = after.columns["id"][image, : len(places)]
                assert ids.tolist() == before.columns["id"][image, places].tolist()
                assert (after.columns["id"][image, len(places) :] == -1).all()


def test_boxes_of_one_size_stay_in_the_order_of_the_file(squares: tuple[Path, Path]) -> None:
    with make(squares, batch_size=1, max_boxes=2) as fixed, pytest.warns(UserWarning, match="max_boxes"):
        assert next(iter(fixed)).columns["id"].tolist() == [[1, 3]]


@pytest.mark.parametrize(
    "ops",
    [
        [da.RandomHorizontalFlip(), *RESIZE, da.Mosaic(p=1)],
        [*RESIZE, da.CopyPaste(p=1), da.MixUp(p=1)],
        [da.RandomRotation(30), da.RandomIoUCrop(), *RESIZE],
    ],
)
def test_what_a_whole_recipe_shows_counts(squares: tuple[Path, Path], ops: list[da.Op], device: str) -> None:
    options = {"device": device, "train": True, "batch_size": 5, "seed": 3}
    with make(squares, ops, **options) as plain, make(squares, ops, max_boxes=3, **options) as fixed:
        left_out = 0
        with pytest.warns(UserWarning, match="max_boxes=3") as said:
            pairs = [pair for _ in range(4) for pair in zip(plain, fixed, strict=True)]
        assert len(said) == 1
        for before, after in pairs:
            assert torch.equal(before.images, after.images)
            for image, target in enumerate(before.targets(masks=True)):
                places, count = largest(target["boxes"], 3), after.counts[image]
                assert torch.equal(target["boxes"][places], after.boxes[image, :count])
                assert torch.equal(target["masks"][places], after.targets(masks=True)[image]["masks"])
                assert after.image_id_of_box[image, :count].tolist() == before.image_id_of_box[image, places].tolist()
                left_out += len(target["boxes"]) - count
        assert sum(int(after.boxes_left_out.sum()) for _, after in pairs) == left_out > 0


@pytest.mark.filterwarnings("ignore:.*0.png")
def test_the_rows_stay_where_an_image_is_skipped(squares: tuple[Path, Path], tmp_path: Path) -> None:
    for path in squares[0].glob("*.png"):
        (tmp_path / path.name).write_bytes(path.read_bytes() if path.stem != "0" else b"no image")
    with (
        make((tmp_path, squares[1]), max_boxes=3, on_error="skip", max_skipped=1) as fixed,
        pytest.warns(UserWarning, match="the 4 boxes that image_id 13 shows"),
    ):
        batches = [*fixed]
    assert [batch.boxes.shape for batch in batches] == [(1, 3, 4), (2, 3, 4), (1, 3, 4)]
    assert [batch.boxes_left_out.tolist() for batch in batches] == [[0], [0, 1], [0]]


def test_a_batch_is_made_again_with_its_rows(squares: tuple[Path, Path]) -> None:
    ops = [da.RandomHorizontalFlip(), *RESIZE]
    with make(squares, ops, max_boxes=3, return_params=True, train=True) as fixed:
        with pytest.warns(UserWarning, match="max_boxes=3"):
            batches = [*fixed]
        for batch in batches:
            again = fixed.replay(batch)
            assert torch.equal(again.boxes, batch.boxes)
            assert torch.equal(again.boxes_left_out, batch.boxes_left_out)


def test_a_clip_keeps_the_objects_that_are_largest_in_a_frame(tmp_path: Path) -> None:
    """Object 3 is the largest one in the second frame alone; object 1 is not in it, and object 4 in no other."""
    sides = [{1: 6, 2: 5, 3: 2}, {2: 4, 3: 9, 4: 1}]
    images, objects = [], []
    for frame, of_frame in enumerate(sides):
        Image.new("RGB", (60, 20)).save(tmp_path / f"{frame}.png")
        images.append(
            {"id": frame, "file_name": f"{frame}.png", "width": 60, "height": 20, "video_id": 1, "frame_id": frame}
        )
        objects += [
            {
                "id": 10 * frame + track,
                "image_id": frame,
                "category_id": 1,
                "track_id": track,
                "bbox": [12 * track, 2, side, side],
            }
            for track, side in of_frame.items()
        ]
    path = tmp_path / "clips.json"
    content = {"videos": [{"id": 1}], "images": images, "annotations": objects, "categories": [{"id": 1, "name": "a"}]}
    path.write_text(json.dumps(content))
    reader, ops = da.ClipReader(tmp_path, path, frames=2), [da.Resize((20, 60))]
    with (
        da.Loader(reader, ops, 1, device="cpu", train=False, max_boxes=2) as loader,
        pytest.warns(UserWarning, match="max_boxes=2 is less than the 4 boxes that image_id 0 shows"),
    ):
        batch = next(iter(loader))
    assert batch.track_id.tolist() == [[[1, 3], [-1, 3]]]
    with da.Loader(reader, ops, 1, device="cpu", train=False, max_boxes=5) as loader:
        batch = next(iter(loader))
    assert batch.track_id.tolist() == [[[1, 2, 3, -1, -1], [-1, 2, 3, 4, -1]]]


@pytest.mark.parametrize(
    ("options", "message"), [({"max_boxes": 0}, "at least 1, got 0"), ({"max_boxes": 2.5}, r"at least 1, got 2\.5")]
)
def test_a_wrong_number_is_refused(squares: tuple[Path, Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=f"max_boxes must be .*{message}"):
        make(squares, **options)
    with pytest.raises(da.InputError, match=f"max_boxes must be .*{message}"):
        next(iter(make(squares))).as_detr(**options)


# ------------------------------------------------------------------------------------------- as_detr


@pytest.mark.parametrize("of_loader", [None, 7, 12])
@pytest.mark.parametrize("masks", [False, True])
def test_targets_of_detr_have_rows_behind_their_boxes(
    squares: tuple[Path, Path], masks: bool, of_loader: int | None, device: str
) -> None:
    with make(squares, device=device, max_boxes=of_loader) as loader:
        for batch in loader:
            _, plain = batch.as_detr(first_label=0, masks=masks)
            _, fixed = batch.as_detr(first_label=0, masks=masks, max_boxes=9)
            for old, new in zip(plain, fixed, strict=True):
                count = len(old["boxes"])
                assert new.pop("valid").tolist() == [True] * count + [False] * (9 - count)
                assert {*old} == {*new}
                for name, values in old.items():
                    assert new[name].dtype == values.dtype
                    if name in ("image_id", "size", "orig_size"):
                        assert torch.equal(new[name], values)
                    else:
                        assert new[name].shape == (9, *values.shape[1:])
                        assert torch.equal(new[name][:count], values)
                        assert not new[name][count:].any()


@pytest.mark.parametrize(("masks", "rows"), [(False, 3), (True, 3), (False, 6)])
def test_the_largest_boxes_are_targets_of_detr(squares: tuple[Path, Path], masks: bool, rows: int, device: str) -> None:
    with make(squares, device=device, batch_size=5) as loader:
        batch = next(iter(loader))
        with pytest.warns(UserWarning, match=f"max_boxes={rows} is less than the number of boxes of some") as said:
            _, fixed = batch.as_detr(masks=masks, max_boxes=rows)
        assert [each.filename for each in said] == [__file__]
        for old, new in zip(batch.as_detr(masks=masks)[1], fixed, strict=True):
            places = largest(
                old["boxes"][:, 2:].repeat(1, 2) * torch.tensor([0, 0, 1, 1], device=batch.boxes.device), rows
            )
            assert new["valid"].tolist() == [True] * len(places) + [False] * (rows - len(places))
            for name in {"boxes", "labels", "area", "iscrowd", "keypoints", "masks"} & {*old}:
                assert torch.equal(new[name][: len(places)], old[name][places])


def test_a_batch_without_boxes_has_empty_rows(squares: tuple[Path, Path]) -> None:
    with make(squares, batch_size=1) as loader:
        batch = [*loader][2]
        assert batch.boxes.shape == (1, 0, 4)
        (target,) = batch.as_detr(max_boxes=4, masks=True)[1]
    assert target["masks"].shape == (4, 48, 96)
    assert target["boxes"].tolist() == [[0] * 4] * 4
    assert target["valid"].tolist() == [False] * 4


@pytest.mark.slow
@pytest.mark.parametrize("masks", [False, True])
def test_targets_are_those_that_rf_detr_pads(squares: tuple[Path, Path], masks: bool) -> None:
    tensors = pytest.importorskip("rfdetr.utilities.tensors", reason="needs rfdetr")
    with make(squares, max_boxes=8) as loader:
        for batch in loader:
            ours = batch.as_detr(first_label=0, masks=masks, max_boxes=8)[1]
            theirs = tensors.pad_targets_to_fixed_count(batch.as_detr(first_label=0, masks=masks)[1], 8)
            for one, other in zip(ours, theirs, strict=True):
                assert {*one} == {*other}
                assert all(torch.equal(one[name], other[name]) for name in one)
                assert all(one[name].dtype == other[name].dtype for name in one)


def test_a_step_that_is_compiled_once_takes_every_batch(squares: tuple[Path, Path]) -> None:
    """torch.compile makes another graph for other shapes, which its counter shows."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    @torch.compile(backend=counter, dynamic=False)
    def loss(boxes: torch.Tensor, labels: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return (boxes.sum(-1) * labels).where(valid, 0).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with make(squares, batch_size=1, max_boxes=8) as loader:
            sums = [float(loss(batch.boxes, batch.labels, batch.valid)) for batch in loader]
    assert counter.frame_count == 1
    assert len({*sums}) > 3
    assert np.isfinite(sums).all()


def test_a_state_is_of_one_number_of_rows(squares: tuple[Path, Path]) -> None:
    """With another one the boxes would be other ones, as with another recipe."""
    with make(squares, max_boxes=9) as fixed, make(squares, max_boxes=9) as same, make(squares) as plain:
        next(iter(fixed))
        same.load_state_dict(fixed.state_dict())
        with pytest.raises(da.InputError, match="this state has max_boxes 9, this loader None; make them equal"):
            plain.load_state_dict(fixed.state_dict())
        state = plain.state_dict()
        del state["max_boxes"]  # as an earlier version saved it
        plain.load_state_dict(state)
        with pytest.raises(da.InputError, match="this state has max_boxes None, this loader 9; make them equal"):
            fixed.load_state_dict(state)
