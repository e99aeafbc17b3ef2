"""Batches that carry what was drawn for them, and are made again from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from painted_files import Folder
from PIL import Image

import detaug as da

RECIPE = [
    da.RandomZoomOut(p=0.5),
    da.RandomIoUCrop(),
    da.RandomApply([da.RandomRotation(20)], p=0.5),
    da.RandomHorizontalFlip(),
    da.Resize([(120, 160), (96, 96)]),
    da.RandomPhotometricDistort(),
    da.Normalize(),
]


@pytest.fixture(scope="module")
def shapes(demo_folder: Path) -> da.CocoReader:
    return da.CocoReader(demo_folder / "demo/VOC/JPEGImages", demo_folder / "train.json")


@pytest.mark.parametrize("other", [RECIPE[1:], [da.RandomVerticalFlip(), *RECIPE[1:]]])
def test_a_batch_of_another_recipe_is_refused(other: list[da.Op], shapes: da.CocoReader) -> None:
    batch = next(iter(da.Loader(shapes, RECIPE, 2, device="cpu", return_params=True)))
    with pytest.raises(da.InputError, match="params are those of another recipe: replay with the ops that drew them"):
        da.Loader(shapes, other, 2, device="cpu").replay(batch)


def test_a_batch_is_made_again(shapes: da.CocoReader, device: str) -> None:
    loader = da.Loader(shapes, RECIPE, 8, device=device, return_params=True)
    for batch in loader:
        again = loader.replay(batch)
        for name in ("images", "boxes", "labels", "valid", "image_id", "source_size", "image_size", "matrix"):
            assert torch.equal(getattr(batch, name), getattr(again, name)), name
    assert batch.params is not None
    assert [set(each) for each in batch.params][:2] == [{"ratio", "offset"}, {"window"}]
    assert batch.params[1]["window"].shape == (8, 4)


@pytest.mark.gpu
def test_a_batch_that_was_moved_is_made_again(shapes: da.CocoReader) -> None:
    loader = da.Loader(shapes, RECIPE, 8, device="cpu", return_params=True)
    batch = next(iter(loader))
    assert torch.equal(loader.replay(batch.to("cuda")).images, batch.images)


def test_a_batch_of_a_later_epoch_is_made_again(shapes: da.CocoReader) -> None:
    ops = [da.Resize((60, 60)), da.Mosaic(until_epoch=1)]
    loader = da.Loader(shapes, ops, 8, device="cpu", return_params=True)
    for _ in range(3):
        assert all(torch.equal(batch.images, loader.replay(batch).images) for batch in loader)


def test_params_do_not_change_what_is_drawn(shapes: da.CocoReader) -> None:
    with_params, without = (
        next(iter(da.Loader(shapes, RECIPE, 8, device="cpu", return_params=r))) for r in (True, False)
    )
    assert torch.equal(with_params.images, without.images)
    assert without.params is None


def test_a_batch_without_params_cannot_be_made_again(shapes: da.CocoReader) -> None:
    loader = da.Loader(shapes, RECIPE, 8, device="cpu")
    with pytest.raises(ValueError, match="make its loader with return_params=True"):
        loader.replay(next(iter(loader)))


@pytest.mark.parametrize("resize", [da.Resize([(40, 50), (30, 30), (60, 20)]), da.RandomShortestSize((30, 45, 60))])
def test_a_batch_that_lost_its_first_image_keeps_its_size(resize: da.Op, painted: Folder) -> None:
    (painted[0] / "08.png").write_bytes(b"no image")
    for seed in range(4):
        how = {"train": False, "device": "cpu", "seed": seed, "return_params": True}
        loader = da.Loader(da.CocoReader(*painted), [resize], 4, on_error="skip", max_skipped=1, **how)
        with pytest.warns(UserWarning, match="skipped"):
            batches = list(loader)
        assert batches[2].image_id.tolist() == [19, 20, 21]
        assert torch.equal(loader.replay(batches[2]).image_size, batches[2].image_size)


def test_a_file_that_has_another_size_by_now_is_named(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), da.presets.ssd300(), 4, device=device, return_params=True)
    batch = next(iter(loader))
    name = f"{int(batch.image_id[0]) - 10:02}.png"
    Image.new("RGB", (200, 200)).save(painted[0] / name)
    with pytest.raises(da.DataError, match=rf"{name} has 200 x 200 pixels"):
        loader.replay(batch)
