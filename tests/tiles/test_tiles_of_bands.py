"""Tiles of source images of many bands, 16 bits and floats: every value is that of the source image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from band_files import Array, data_set, encode, values
from command import detaug

import detaug as da

SIDE = 64
PICTURE = (150, 170)
IN_TILES: dict[str, Any] = {"tile": (32, 48)}


def tiles_of(tmp_path: Path, content: bytes, name: str, array: Array, **options: Any) -> da.TileReader:
    folder, path = data_set(tmp_path / "pictures", {name: content}, PICTURE)
    reading: Any = {"channels": array.shape[2], "dtype": array.dtype.name, "bands": options.pop("bands", None)}
    reader = da.CocoReader(folder, path, **reading)
    return da.TileReader(reader, SIDE, **options)


def loaded(tiles: da.TileReader) -> list[Array]:
    """Return the images that a loader gives, (H, W, bands) float32 in the values of the files."""
    with da.Loader(tiles, [da.Resize((SIDE, SIDE)), da.Normalize(scale=1)], 3, train=False, device="cpu") as loader:
        return [image.permute(1, 2, 0).numpy() for batch in loader for image in batch.images]


CASES = [
    (6, "uint16", "tif", IN_TILES),
    (6, "uint16", "tif", {**IN_TILES, "planarconfig": "separate", "compression": "zlib", "predictor": 2}),
    (4, "float32", "tif", {**IN_TILES, "byteorder": ">", "compression": "lzw"}),
    (1, "uint16", "tif", {**IN_TILES, "bigtiff": True}),
    (2, "uint8", "tif", IN_TILES),
    (5, "float32", "tif", {"planarconfig": "separate"}),
    (6, "uint16", "tif", {}),
    (3, "uint16", "png", {}),
    (3, "uint16", "jp2", {}),
    (7, "float32", "npy", {}),
]


@pytest.mark.parametrize(("bands", "dtype", "kind", "options"), CASES)
def test_values_are_those_of_the_picture(
    bands: int, dtype: str, kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    picture = values(bands, dtype, PICTURE)
    tiles = tiles_of(tmp_path, encode(picture, kind, **options), f"a.{kind}", picture)
    found = loaded(tiles)
    assert len(found) == len(tiles) == 12
    for image, (x, y, width, height) in zip(found, tiles.windows.tolist(), strict=True):
        assert np.array_equal(image, picture[y : y + height, x : x + width].astype(np.float32))


def test_only_the_touched_parts_of_each_plane_are_read(tmp_path: Path) -> None:
    picture = values(3, "uint16", PICTURE)
    content = bytearray(encode(picture, "tif", **IN_TILES, planarconfig="separate", compression="zlib"))
    (tmp_path / "a.tif").write_bytes(content)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        page = file.pages[0]
        last, length = page.dataoffsets[-1], page.databytecounts[-1]  # type: ignore[union-attr]
    content[last : last + length] = bytes(length)
    tiles = tiles_of(tmp_path, bytes(content), "a.tif", picture)
    (first,) = tiles.contents(np.array([0]))
    assert np.array_equal(first, picture[:SIDE, :SIDE])
    with pytest.raises(OSError, match="does not decode"):
        tiles.contents(np.array([len(tiles) - 1]))


def test_bands_are_picked_and_boxes_come_along(tmp_path: Path) -> None:
    picture = values(6, "uint16", PICTURE)
    tiles = tiles_of(tmp_path, encode(picture, "tif", **IN_TILES), "a.tif", picture, bands=(4, 0), grids=2)
    recipe = [da.RandomHorizontalFlip(), da.Resize((SIDE, SIDE)), da.Normalize(scale=65535)]
    with da.Loader(tiles, recipe, 4, train=False, device="cpu") as loader:
        batch = next(iter(loader))
    assert batch.images.shape == (4, 2, SIDE, SIDE)
    assert batch.boxes_in_source()[0].tolist() == [[4, 5, 24, 15]]
    assert np.array_equal(loaded(tiles)[0], picture[:SIDE, :SIDE, [4, 0]].astype(np.float32))


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_whole_picture_is_scaled_as_resize_does(dtype: str, tmp_path: Path) -> None:
    y, x = np.indices(PICTURE)
    picture = np.stack([100 * x + 7 * y, 3000 + 5 * x, x % 2 * 9000], axis=2).astype(dtype)
    tiles = tiles_of(tmp_path, encode(picture, "tif", **IN_TILES), "a.tif", picture, whole=50)
    (scaled,) = tiles.contents(np.array([len(tiles) - 1]))
    whole = torch.from_numpy(picture.astype(np.float64)).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(whole, scaled.shape[:2], mode="bilinear", antialias=True)[0]
    assert max(scaled.shape) == 50
    assert np.abs(scaled - expected.permute(1, 2, 0).numpy()).max() <= (0.51 if dtype == "uint16" else 0.01)


def test_wrong_and_broken_pictures_are_named(tmp_path: Path) -> None:
    picture = values(6, "uint16", PICTURE)
    tiles = tiles_of(tmp_path, encode(picture[..., :4], "tif", **IN_TILES), "a.tif", picture)
    with pytest.raises(
        da.DataError, match=r"a\.tif cannot be read \(has 4 bands of type uint16, and the reader has ch"
    ):
        loaded(tiles)
    content = encode(picture, "tif", compression="zlib")
    tiles = tiles_of(tmp_path, content[: len(content) // 2], "a.tif", picture)
    with pytest.raises(da.DataError, match=r"a\.tif cannot be read \(does not decode\)"):
        loaded(tiles)
    with pytest.raises(OSError, match="does not decode"):
        tiles.contents(np.array([0]))
    (tiles.reader.path(0)).write_bytes(encode(picture, "tif"))
    assert np.array_equal(tiles.contents(np.array([0]))[0], picture[:SIDE, :SIDE])  # after an error


def test_a_turned_tiff_in_tiles_is_shown_upright(tmp_path: Path) -> None:
    array = values(6, "uint16", PICTURE)
    content = encode(array, "tif", **IN_TILES, extratags=[(274, "H", 1, 3, True)])
    tiles = tiles_of(tmp_path, content, "a.tif", array)
    upright = array[::-1, ::-1]
    for tile, (x, y, width, height) in zip(tiles.contents(np.arange(3)), tiles.windows.tolist(), strict=False):
        assert np.array_equal(tile, upright[y : y + height, x : x + width])


def test_tiles_that_a_file_leaves_out_have_its_no_data(tmp_path: Path) -> None:
    """As GDAL writes SPARSE_OK."""
    array = values(6, "uint16", PICTURE)
    content = encode(array, "tif", **IN_TILES, extratags=[(42113, "s", 0, "7", True)])
    tiles = tiles_of(tmp_path, content, "a.tif", array)
    path = tiles.reader.path(0)
    with tifffile.TiffFile(path, mode="r+") as file:
        tag = file.pages[0].tags["TileByteCounts"]  # type: ignore[union-attr]
        tag.overwrite((0, *tag.value[1:]))
    (tile,) = tiles.contents(np.array([0]))
    expected = array[:SIDE, :SIDE].copy()
    expected[:32, :48] = 7
    assert np.array_equal(tile, expected)


FILES: list[tuple[int, str, str, dict[str, Any], Any, str]] = [
    (6, "uint16", "tif", IN_TILES, None, "tif"),
    (5, "float32", "tif", {"planarconfig": "separate"}, None, "tif"),
    (7, "float32", "npy", {}, "npy", "npy"),
    (3, "uint16", "png", {}, None, "tif"),
    (1, "uint16", "png", {}, "png", "png"),
    (2, "uint8", "png", {}, "png", "png"),
    (4, "uint8", "tif", {}, "png", "png"),
    (1, "uint8", "tif", IN_TILES, "png", "png"),
]


@pytest.mark.parametrize(("bands", "dtype", "kind", "options", "format", "written"), FILES)
def test_tiles_that_are_files_have_the_same_values(
    bands: int, dtype: Any, kind: str, options: dict[str, Any], format: Any, written: str, tmp_path: Path
) -> None:
    picture = values(bands, dtype, PICTURE)
    tiles = tiles_of(tmp_path, encode(picture, kind, **options), f"a.{kind}", picture)
    folder = tmp_path / "pictures"
    reading: Any = {"channels": bands, "dtype": dtype}
    summary = da.tile_coco(folder / "images.json", folder, tmp_path / "out", size=SIDE, format=format, **reading)
    assert f'"{summary.annotations}", channels={bands}, dtype="{dtype}")' in str(summary)
    document = json.loads(summary.annotations.read_text())
    assert [image["window"] for image in document["images"]] == tiles.windows.tolist()
    assert {image["file_name"].rpartition(".")[2] for image in document["images"]} == {written}
    files = da.CocoReader(summary.images, summary.annotations, **reading)
    assert [box.tolist() for box in files.objects()[0]] == [box.tolist() for box in tiles.objects()[0]]
    with da.Loader(files, [da.Resize((SIDE, SIDE)), da.Normalize(scale=1)], 3, train=False, device="cpu") as loader:
        found = [image.permute(1, 2, 0).numpy() for batch in loader for image in batch.images]
    for image, (x, y, width, height) in zip(found, tiles.windows.tolist(), strict=True):
        assert np.array_equal(image, picture[y : y + height, x : x + width].astype(np.float32))


def test_files_of_small_and_of_scaled_pictures(tmp_path: Path) -> None:
    picture = values(6, "uint16", PICTURE)
    content = encode(picture, "tif", **IN_TILES)
    folder, path = data_set(tmp_path / "pictures", {"a.tif": content}, PICTURE)
    whole = detaug("tile", path, folder, "-o", tmp_path / "out", "--size", "64", "--whole", "50", *SIX_BANDS)
    assert whole.code == 0, whole.err
    (scaled,) = (tmp_path / "out/images").glob("*_whole.tif")
    tiles = da.TileReader(da.CocoReader(folder, path, channels=6, dtype="uint16"), SIDE, whole=50)
    assert np.array_equal(tifffile.imread(scaled), tiles.contents(np.array([len(tiles) - 1]))[0])
    da.tile_coco(path, folder, tmp_path / "copy", size=1000, channels=6, dtype="uint16", format="npy")
    assert (tmp_path / "copy/images/a_whole.tif").read_bytes() == content


SIX_BANDS = ("--channels", "6", "--dtype", "uint16")


def test_what_is_not_written_as_files(tmp_path: Path) -> None:
    picture = values(6, "uint16", PICTURE)
    folder, path = data_set(tmp_path / "pictures", {"a.tif": encode(picture[..., :4], "tif")}, PICTURE)
    wrong = detaug("tile", path, folder, "-o", tmp_path / "out", *SIX_BANDS)
    assert (wrong.code, wrong.out) == (2, "")
    assert f"{folder / 'a.tif'} has 4 bands of type uint16, and the reader has channels=6" in wrong.err
    for format, reading, message in (
        ("png", {"channels": 6, "dtype": "uint16"}, "format png does not keep 6 bands of uint16; tiff and npy do"),
        ("jpeg", {"channels": 1}, "format jpeg does not keep 1 band of uint8; tiff and npy do"),
        ("tiff", {}, "format tiff is for channels and dtype other than 8-bit RGB; png keeps these"),
    ):
        with pytest.raises(da.InputError, match=message):
            da.tile_coco(path, folder, tmp_path / "out", format=format, **reading)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
