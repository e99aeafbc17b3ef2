"""Batches that carry what was drawn for them, and are made again from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

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
def shapes(tmp_path_factory: pytest.TempPathFactory) -> da.CocoReader:
    from detaug.converters import voc_to_coco
    from detaug.shapes import make_voc

    folder: Path = tmp_path_factory.mktemp("shapes")
    make_voc(folder / "VOC", 24, seed=3)
    voc_to_coco(folder / "VOC", folder / "all.json")
    return da.CocoReader(folder / "VOC" / "JPEGImages", folder / "all.json")


def test_a_batch_is_made_again(shapes: da.CocoReader, device: str) -> None:
    loader = da.Loader(shapes, RECIPE, 8, device=device, return_params=True)
    for batch in loader:
        again = loader.replay(batch)
        for name in ("images", "boxes", "labels", "mask", "image_id", "size", "image_size", "matrix"):
            assert torch.equal(getattr(batch, name), getattr(again, name)), name
    assert batch.params is not None
    assert [set(each) for each in batch.params][:2] == [{"ratio", "place"}, {"window"}]
    assert batch.params[1]["window"].shape == (8, 4)


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
