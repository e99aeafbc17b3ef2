"""Pairs of registered files, such as RGB and thermal, as one image: painted pixels, boxes, errors."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from band_files import EXACT, SIZE, Array, data_set, encode, values

import detaug as da


def pair(folder: Path, kind: str = "tif", dtype: str = "uint16", count: int = 3) -> tuple[list[Array], list[Array]]:
    """Write RGB images and thermal ones of the same names, with the same boxes."""
    visible = [values(3, "uint8", seed=seed) for seed in range(count)]
    thermal = [values(1, dtype, seed=9 + seed) for seed in range(count)]
    data_set(folder / "visible", {f"{at}.png": encode(each, "png") for at, each in enumerate(visible)})
    data_set(folder / "thermal", {f"{at}.{kind}": encode(each, kind) for at, each in enumerate(thermal)})
    return visible, thermal


def readers(folder: Path, dtype: Any = "uint16", **options: Any) -> list[da.CocoReader]:
    names = folder / "visible", folder / "thermal"
    visible, thermal = ((each, each / "images.json") for each in names)
    return [da.CocoReader(*visible, columns=["area"]), da.CocoReader(*thermal, channels=1, dtype=dtype, **options)]


@pytest.mark.parametrize(("kind", "dtype"), [("tif", "uint16"), ("png", "uint8"), ("npy", "float32")])
def test_bands_follow_each_other_unchanged(kind: str, dtype: str, tmp_path: Path) -> None:
    visible, thermal = pair(tmp_path, kind, dtype)
    reader = da.StackReader(readers(tmp_path, dtype))
    assert (reader.pixel_format.channels, reader.pixel_format.dtype) == (4, dtype)
    with da.Loader(reader, EXACT, 2, train=False, device="cpu") as loader:
        images = torch.cat([batch.images for batch in loader])
    expected = np.stack([np.concatenate(each, axis=2, dtype="float32") for each in zip(visible, thermal, strict=True)])
    assert np.array_equal(images.permute(0, 2, 3, 1).numpy(), expected)


def test_objects_follow_both_pictures(tmp_path: Path) -> None:
    """A box is painted into both files: after crops and turns it is where both show it."""
    folders = [tmp_path / "visible", tmp_path / "thermal"]
    painted = [np.zeros((*SIZE, bands), dtype) for bands, dtype in ((3, "uint8"), (1, "uint16"))]
    for array, color in zip(painted, (250, 9000), strict=True):
        array[5:15, 4:24] = color
    data_set(folders[0], {"0.png": encode(painted[0], "png")})
    data_set(folders[1], {"0.tif": encode(painted[1], "tif")})
    recipe = [da.RandomZoomOut(), da.RandomHorizontalFlip(), da.Resize((120, 160)), da.Normalize(scale=1)]
    with da.Loader(da.StackReader(readers(tmp_path)), recipe, 1, device="cpu") as loader:
        for _ in range(5):
            (batch,) = loader
            x0, y0, x1, y1 = batch.boxes[0, 0].tolist()
            for band, color in enumerate((250, 250, 250, 9000)):
                rows, columns = np.nonzero(batch.images[0, band].numpy() > color / 2)
                found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                assert np.abs(np.subtract(found, [x0, y0, x1, y1])).max() <= 1
            assert batch.columns["area"].tolist() == [[200]]


def test_images_are_matched_by_their_ids(tmp_path: Path) -> None:
    visible, thermal = pair(tmp_path)
    path = tmp_path / "thermal" / "images.json"
    document = json.loads(path.read_text())
    document["images"].reverse()
    path.write_text(json.dumps(document))
    (first, *_) = da.StackReader(readers(tmp_path)).contents(np.arange(3))
    assert np.array_equal(first[..., 3:], thermal[0])
    picked = da.StackReader([*readers(tmp_path), readers(tmp_path)[0]])
    assert np.array_equal(picked.contents(np.array([1]))[0][..., 4:], visible[1])


def test_new_files_of_any_source_are_noticed(tmp_path: Path) -> None:
    pair(tmp_path)
    before = da.StackReader(readers(tmp_path)).files_fingerprint
    assert before == da.StackReader(readers(tmp_path)).files_fingerprint
    (tmp_path / "thermal" / "1.tif").write_bytes(encode(values(1, "uint16", (37, 53), seed=77), "tif") + bytes(9))
    assert before != da.StackReader(readers(tmp_path)).files_fingerprint


def test_each_source_picks_its_bands(tmp_path: Path) -> None:
    visible, thermal = pair(tmp_path)
    folder = tmp_path / "visible"
    picked = da.CocoReader(folder, folder / "images.json", bands=(2, 0))
    reader = da.StackReader([readers(tmp_path)[1], picked])
    assert str(reader.pixel_format) == "3 bands of uint16"
    for image, warm, colors in zip(reader.contents(np.arange(3)), thermal, visible, strict=True):
        assert np.array_equal(image, np.concatenate([warm, colors[..., [2, 0]]], axis=2))


def test_tiles_of_each_source_are_stacked(tmp_path: Path) -> None:
    """Training takes the tiles of one grid in an epoch, near each other, as the first source does."""
    pair(tmp_path)
    tiles = [da.TileReader(each, 20, grids=2) for each in readers(tmp_path)]
    reader, whole = da.StackReader(tiles), da.TileReader(da.StackReader(readers(tmp_path)), 20, grids=2)
    assert all(map(np.array_equal, reader.contents(np.arange(9)), whole.contents(np.arange(9))))
    assert reader.rounds is not None
    assert np.array_equal(reader.rounds, whole.rounds)
    assert reader.stretch_of_clip is not None
    assert np.array_equal(reader.stretch_of_clip, whole.stretch_of_clip)


def test_each_source_knows_which_of_its_images_come(tmp_path: Path) -> None:
    pair(tmp_path)
    path = tmp_path / "thermal" / "images.json"
    document = json.loads(path.read_text())
    document["images"].reverse()
    path.write_text(json.dumps(document))
    asked = list[list[int]]()

    class Asked(da.CocoReader):
        def prefetch(self, upcoming: Any) -> None:
            asked.extend(each.indices.tolist() for each in upcoming)

    folder = tmp_path / "thermal"
    thermal = Asked(folder, folder / "images.json", channels=1, dtype="uint16")
    with da.Loader(da.StackReader([readers(tmp_path)[0], thermal]), EXACT, 2, train=False, device="cpu") as loader:
        assert len(list(loader)) == 2
    assert asked[0] == [2, 1, 0]


def test_other_sources_take_it(tmp_path: Path) -> None:
    visible, thermal = pair(tmp_path)
    reader = da.StackReader(readers(tmp_path))
    whole = np.concatenate([visible[1], thermal[1]], axis=2, dtype="uint16")
    joined, tiles = da.ConcatReader([reader, reader]), da.TileReader(reader, 30)
    assert np.array_equal(joined.contents(np.array([4]))[0], whole)
    at = int(np.flatnonzero(tiles.pictures == 1)[0])
    assert np.array_equal(tiles.contents(np.array([at]))[0], whole[:30, :30])
    other = da.StackReader(2 * readers(tmp_path)[:1])
    with da.Loader(reader, EXACT, 1, device="cpu") as loader, da.Loader(other, EXACT, 1, device="cpu") as another:
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(da.InputError, match="are not those of this state"):
            another.load_state_dict(loader.state_dict())


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    pair(tmp_path)
    reader = da.StackReader(readers(tmp_path))
    (tmp_path / "thermal" / "1.tif").unlink()
    for source in (reader, da.TileReader(reader, 30)):
        with pytest.raises(da.DataError, match=r"^\S*thermal/1\.tif does not exist any more"):
            list(da.Loader(source, EXACT, 2, train=False, device="cpu"))


def test_another_process_gets_the_same_images(tmp_path: Path) -> None:
    pair(tmp_path)
    for reader in (da.StackReader(readers(tmp_path)), da.TileReader(da.StackReader(readers(tmp_path)), 30)):
        before = reader.contents(np.arange(3))  # with its threads and pipelines
        after = pickle.loads(pickle.dumps(reader)).contents(np.arange(3))
        assert all(map(np.array_equal, before, after))


def test_pictures_of_other_sizes_or_ids_are_named(tmp_path: Path) -> None:
    pair(tmp_path)
    path = tmp_path / "thermal" / "images.json"
    document = json.loads(path.read_text())
    smaller = {**document, "images": [{**each, "width": 50} for each in document["images"]]}
    path.write_text(json.dumps(smaller))
    with pytest.raises(da.InputError, match=r"image 1 has 53 x 37 pixels in .*, 50 x 37 in .*; resample the files"):
        da.StackReader(readers(tmp_path))
    path.write_text(
        json.dumps(
            {**document, "images": [{**each, "id": each["id"] + 9} for each in document["images"]], "annotations": []}
        )
    )
    with pytest.raises(da.InputError, match="has no image with id 1"):
        da.StackReader(readers(tmp_path))
    path.write_text(json.dumps({**document, "images": document["images"][:2], "annotations": []}))
    with pytest.raises(da.InputError, match=r"has 3 images, .*thermal/images.json 2"):
        da.StackReader(readers(tmp_path))
    with pytest.raises(da.InputError, match="sources must be a list of sources"):
        da.StackReader(readers(tmp_path)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["missing", "broken", "size"])
def test_a_file_without_its_pair_is_named_or_skipped(fault: str, tmp_path: Path) -> None:
    pair(tmp_path)
    file = tmp_path / "thermal" / "1.tif"
    if fault == "missing":
        file.unlink()
    else:
        file.write_bytes(encode(values(1, "uint16", (37, 50)), "tif") if fault == "size" else file.read_bytes()[:300])
    reader = da.StackReader(readers(tmp_path))
    options: Any = {"train": False, "device": "cpu"}
    with pytest.raises(da.InputError, match=r"1\.tif"):
        list(da.Loader(reader, EXACT, 2, **options))
    with pytest.warns(UserWarning, match=r"^\S*thermal/1\.tif (does not exist|cannot be read \().*skipped"):
        batches = list(da.Loader(reader, EXACT, 2, **options, on_error="skip", max_skipped=0.5))
    assert [i for batch in batches for i in batch.image_id.tolist()] == [1, 3]


def test_scores_are_those_of_the_images_own_json(tmp_path: Path) -> None:
    pair(tmp_path)
    stack = da.StackReader(readers(tmp_path))
    with pytest.raises(da.InputError, match=r"got a StackReader; give it the images' own JSON file$"):
        da.CocoEvaluator(stack)  # type: ignore[call-overload]
    evaluator = da.CocoEvaluator(tmp_path / "visible/images.json")
    with da.Loader(stack, EXACT, 2, train=False, device="cpu") as loader:
        for batch in loader:
            found = [{**target, "scores": torch.ones(len(target["labels"]))} for target in batch.targets()]
            evaluator.update(batch, found)
    assert evaluator.compute().AP > 0.999


def classes(count: int = 4) -> Array:
    """Return (H, W, 1): vertical strips of some classes."""
    height, width = SIZE
    return np.tile(np.arange(width) * count // width, (height, 1)).astype(np.uint8)[:, :, None]


@pytest.mark.parametrize(
    ("band", "is_warned"),
    [
        (classes(), True),
        (classes(2) * 255, True),
        (np.where(np.random.default_rng(0).random((*SIZE, 1)) < 0.5, 3, 4).astype(np.uint8), False),
        (classes(1), False),
        (np.arange(SIZE[0] * SIZE[1]).reshape(*SIZE, 1).astype(np.uint8), False),
    ],
    ids=["classes", "a mask", "noise", "nothing", "many values"],
)
def test_a_band_of_classes_is_warned_of_once(tmp_path: Path, band: Array, is_warned: bool) -> None:
    data_set(tmp_path / "visible", {f"{at}.png": encode(values(3, "uint8", seed=at), "png") for at in range(2)})
    data_set(tmp_path / "thermal", {f"{at}.png": encode(band, "png") for at in range(2)})
    reader = da.StackReader(readers(tmp_path, "uint8"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in (0, 1, 0):
            reader.contents(np.array([index]))
    assert len(caught) == int(is_warned)
    assert all("band 0 of " in str(each.message) and "da.ClassMap(FOLDER)" in str(each.message) for each in caught)


def test_the_remedy_of_a_band_of_classes_keeps_the_classes(tmp_path: Path) -> None:
    data_set(tmp_path / "visible", {"0.png": encode(values(3, "uint8", seed=0), "png")})
    data_set(tmp_path / "thermal", {"0.png": encode(classes() * 40, "png")})
    visible, labels = readers(tmp_path, "uint8")
    with pytest.warns(UserWarning, match="as a map of classes has"):
        batch = next(iter(da.Loader(da.StackReader([visible, labels]), [da.Resize((37, 91))], 1, device="cpu")))
    assert len(batch.images[0, 3].unique()) > 4
    maps = {"semantic": da.ClassMap(tmp_path / "thermal")}
    reader = da.CocoReader(tmp_path / "visible", tmp_path / "visible/images.json", maps=maps)
    batch = next(iter(da.Loader(reader, [da.Resize((37, 91))], 1, device="cpu")))
    assert batch.maps["semantic"].unique().tolist() == [0, 40, 80, 120]
