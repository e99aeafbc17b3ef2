"""Images of many bands and of 16 bits or floats: read, refused, checked, packed and drawn."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from band_files import (
    EXACT,
    READING,
    SIZE,
    Array,
    data_set,
    encode,
    first,
    loader_of,
    png_chunk,
    turned,
    values,
)
from command import detaug, usage_error
from PIL import Image

import detaug as da
from detaug.converters import check_coco, pack_coco
from detaug.drawing.images import stretched
from detaug.files.decodable import as_decodable
from detaug.sheets import batch_sheet

FILES: dict[str, tuple[int, str, str, dict[str, Any]]] = {
    "gray png": (1, "uint8", "png", {}),
    "gray and alpha png": (2, "uint8", "png", {}),
    "16-bit gray and alpha png": (2, "uint16", "png", {}),
    "rgba png": (4, "uint8", "png", {}),
    "16-bit gray png": (1, "uint16", "png", {}),
    "16-bit rgb png": (3, "uint16", "png", {}),
    "16-bit rgba png": (4, "uint16", "png", {}),
    "gray jp2": (1, "uint8", "jp2", {}),
    "16-bit gray jp2": (1, "uint16", "jp2", {}),
    "16-bit rgb jp2": (3, "uint16", "jp2", {}),
    "16-bit pgm": (1, "uint16", "ppm", {}),
    "16-bit ppm": (3, "uint16", "ppm", {}),
    "rgba webp": (4, "uint8", "webp", {"lossless": True, "exact": True}),
    **{
        f"{bands} of {dtype}{name} tif": (bands, dtype, "tif", options)
        for bands in (1, 2, 4, 6, 13)
        for dtype in ("uint8", "uint16", "float32")
        for name, options in {
            "": {},
            ", planar": {"planarconfig": "separate"},
        }.items()
        if bands > 1 or not name
    },
    "16-bit rgb, planar tif": (3, "uint16", "tif", {"photometric": "rgb", "planarconfig": "separate"}),
    "6 bands, lzw tif": (6, "uint16", "tif", {"compression": "lzw", "predictor": True}),
    "6 bands, tiled tif": (6, "uint16", "tif", {"compression": "deflate", "tile": (16, 16)}),
    "6 bands, planar, tiled tif": (
        6, "float32", "tif", {"compression": "deflate", "tile": (16, 16), "planarconfig": "separate"}
    ),
    "6 bands, big endian tif": (6, "float32", "tif", {"byteorder": ">"}),
    "6 bands, bigtiff": (6, "uint16", "tif", {"bigtiff": True}),
    "white is 0 tif": (1, "uint8", "tif", {"photometric": "miniswhite"}),
    "white is 0, 16-bit tif": (1, "uint16", "tif", {"photometric": "miniswhite"}),
    "white is 0, floats, tiled tif": (2, "float32", "tif", {"photometric": "miniswhite", "tile": (16, 16)}),
    "cielab tif": (3, "uint16", "tif", {"photometric": "cielab"}),
    "npy": (6, "uint16", "npy", {}),
    "npy of one band": (1, "float32", "npy", {}),
}  # fmt: skip


"""Bands, type, format and options of files."""


QUICK = [name for name in FILES if not name.startswith(("2 of", "4 of", "13 of uint8", "13 of float32"))]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FILES])
def test_values_of_files_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    bands, dtype, kind, options = FILES[name]
    expected = values(bands, dtype)
    file = {f"a.{kind}": encode(expected, kind, **options)}
    image = first(loader_of(tmp_path, file, EXACT, channels=bands, dtype=dtype))
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, expected.astype(np.float32))


def test_bands_are_picked_in_order(tmp_path: Path) -> None:
    expected = values(6, "uint16")
    reading = {"channels": 6, "dtype": "uint16", "bands": [3, 0, 5]}
    image = first(loader_of(tmp_path, {"a.tif": encode(expected, "tif")}, EXACT, **reading))
    np.testing.assert_array_equal(image, expected[..., [3, 0, 5]].astype(np.float32))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            encode(values(3, "uint16"), "png"),
            "has 3 bands of type uint16, and the reader has channels=6, dtype='uint16'; save it like",
        ),
        (encode(values(6, "uint8"), "tif"), "has 6 bands of type uint8, and the reader has"),
        (
            encode(values(6, "float32"), "tif", planarconfig="separate"),
            "has 6 bands of type float32, and the reader has",
        ),
        (encode(values(6, "int16"), "tif"), "has 6 bands of type int16"),
        (encode(values(6, "uint16", (9, 9)), "tif"), "has 9 x 9 pixels"),
        (encode(values(6, "uint16"), "tif")[:3000], "DALI does not decode it"),
        (encode(values(6, "uint16"), "tif", planarconfig="separate")[:3000], "does not decode"),
        (encode(values(6, "uint16"), "npy")[:3000], "does not decode"),
    ],
)
def test_a_file_that_differs_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    files = {f"{n}.tif": encode(values(6, "uint16"), "tif") for n in range(3)} | {"other.tif": content}
    with pytest.raises(da.DataError, match=f"other.tif:? {message}"):
        list(loader_of(tmp_path, files, EXACT, batch_size=2, **READING))


def test_arguments_of_the_reader(tmp_path: Path) -> None:
    folder, annotations = data_set(tmp_path, {"a.tif": encode(values(6, "uint16"), "tif")})
    for wrong, message in (
        ({"channels": 0}, "channels must be"),
        ({"channels": 65536}, r"channels must be a whole number in 1\.\.65535, got 65536"),
        ({"dtype": "int16"}, "dtype must be 'uint8', 'uint16' or 'float32'"),
        ({"channels": 6, "bands": (6,)}, r"bands must be positions of bands, in 0..5"),
        ({"bands": ()}, "bands must be"),
    ):
        with pytest.raises(da.InputError, match=message):
            da.CocoReader(folder, annotations, **wrong)
    reader = da.CocoReader(folder, annotations, **READING)
    with pytest.raises(da.InputError, match="the cache keeps 8-bit RGB"):
        da.Loader(reader, EXACT, 1, device="cpu", cache="host")
    with pytest.raises(da.InputError, match="sources must all have the same channels"):
        da.ConcatReader([reader, da.CocoReader(folder, annotations)])
    assert len(da.ConcatReader([reader, reader])) == 2


def test_check_knows_what_the_reader_expects(tmp_path: Path) -> None:
    good = {
        "a.tif": encode(values(6, "uint16"), "tif"),
        "planar.tif": encode(values(6, "uint16", seed=1), "tif", planarconfig="separate"),
        "b.npy": encode(values(6, "uint16", seed=2), "npy"),
    }
    bad = {"rgb.png": encode(values(3, "uint8"), "png"), "cut.tif": encode(values(6, "uint16", seed=3), "tif")[:9000]}
    folder, annotations = data_set(tmp_path, good | bad)
    summary = check_coco(annotations, folder, decode=True, channels=6, dtype="uint16")
    found = {finding.file_name: finding.kind for finding in summary.findings}
    assert found == {"rgb.png": "image-bands", "cut.tif": "image-broken"}
    assert check_coco(annotations, folder).kind_counts["image-bands"] == 4
    result = detaug("check", annotations, folder, "--channels", 6, "--dtype", "uint16")
    assert result.code == 1
    assert "(id 4, rgb.png): has 3 bands of type uint8, and the reader has channels=6" in result.out


def test_shards_keep_them(tmp_path: Path) -> None:
    files = {"a.tif": encode(values(6, "uint16"), "tif"), "b.npy": encode(values(6, "uint16", seed=1), "npy")}
    folder, annotations = data_set(tmp_path / "in", files)
    pack_coco(annotations, folder, tmp_path / "out")
    packed = da.CocoReader(tmp_path / "out", next((tmp_path / "out").glob("*.json")), **READING)
    for reader in (packed, da.ConcatReader([packed, da.CocoReader(folder, annotations, **READING)])):
        loader = da.Loader(reader, EXACT, 1, train=False, device="cpu")
        images = np.stack([batch.images[0].permute(1, 2, 0).numpy() for batch in loader])
        np.testing.assert_array_equal(images[0], values(6, "uint16"))
        np.testing.assert_array_equal(images[1], values(6, "uint16", seed=1))


def test_pictures_of_batches_stretch_percentiles_of_chosen_bands(tmp_path: Path) -> None:
    files = {f"{n}.tif": encode(values(6, "uint16", seed=n), "tif") for n in range(2)}
    reader = da.CocoReader(*data_set(tmp_path, files), **READING)
    ops: list[da.Op] = [da.Resize(SIZE), da.Normalize()]
    batch = next(iter(da.Loader(reader, ops, 2, train=False, device="cpu")))
    source = np.stack([values(6, "uint16", seed=n) for n in range(2)]).astype(np.float64)
    pictures = stretched(list(batch.images), [5, 2, 0])
    low, high = np.percentile(source[..., [5, 2, 0]].reshape(-1, 3), (2, 98), axis=0)
    expected = ((source[..., [5, 2, 0]] - low) / (high - low)).clip(0, 1) * 255
    assert np.abs(np.stack([*map(np.asarray, pictures.images)]) - expected).max() <= 0.51
    assert pictures.note == "bands 5, 2, 0, from the 2nd to the 98th percentile"
    assert batch_sheet(batch, reader.class_names, ops=ops).width == batch_sheet(batch, bands=[4]).width
    assert batch._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(da.InputError, match=r"bands must be one or three positions in 0..5"):
        batch_sheet(batch, bands=[6])


def test_a_resumed_loader_refuses_other_bands(tmp_path: Path) -> None:
    folder, annotations = data_set(tmp_path, {"a.tif": encode(values(6, "uint16"), "tif")})
    loaders = [
        da.Loader(da.CocoReader(folder, annotations, **READING, bands=bands), EXACT, 1, device="cpu")
        for bands in (None, (0, 1, 2), (2, 1, 0))
    ]
    loaders[1].load_state_dict(loaders[1].state_dict())
    for other in (loaders[0], loaders[2]):
        with pytest.raises(da.InputError, match="resume with the same"):
            loaders[1].load_state_dict(other.state_dict())


def test_sources_of_ones_own(tmp_path: Path) -> None:
    expected = values(5, "float32")

    class Files(da.Source):
        files = False
        pixel_format = da.PixelFormat(5, "float32", bands=(4, 0))

        def path(self, index: int) -> Path:
            return Path(f"{index}.npy")

        def read(self, index: int) -> bytes:
            return encode(expected, "npy")

    class Arrays(Files):
        decodes = True

        def contents(self, indices: Any) -> list[Array]:
            return [expected for _ in indices]

    class Paths(Files):
        files = True

    with pytest.raises(da.InputError, match="must have files = False"):
        da.Loader(Paths([SIZE], ["thing"]), EXACT, 1, device="cpu")
    for make in (Files, Arrays):
        loader = da.Loader(make([SIZE], ["thing"]), EXACT, 1, train=False, device="cpu")
        np.testing.assert_array_equal(first(loader), expected[..., [4, 0]])


@pytest.mark.parametrize(
    "orientation", [pytest.param(n, marks=() if n in (2, 5, 8) else pytest.mark.slow) for n in range(1, 9)]
)
def test_the_orientation_of_a_tiff_turns_all_bands(tmp_path: Path, orientation: int) -> None:
    stored = values(6, "uint16")
    content = encode(stored, "tif", extratags=[(274, "H", 1, orientation, True)])
    check_values(tmp_path, "a.tif", content, turned(stored, orientation))


def check_values(folder: Path, name: str, content: bytes, expected: Array) -> None:
    """Check what a loader gives of a file, and a reader of its tiles."""
    size, (channels, dtype) = expected.shape[:2], (expected.shape[2], expected.dtype.name)
    reader = da.CocoReader(*data_set(folder, {name: content}, size), channels=channels, dtype=dtype)
    for source in (reader, da.TileReader(reader, 100)):
        loader = da.Loader(source, [da.Resize(size), da.Normalize(scale=1)], 1, train=False, device="cpu")
        np.testing.assert_array_equal(first(loader), expected)


@pytest.mark.parametrize("orientation", [3, 6])
@pytest.mark.parametrize(("kind", "bands"), [("PNG", 1), ("PNG", 2), ("PNG", 4), ("WEBP", 4)])
def test_the_orientation_of_a_picture_turns_all_bands(tmp_path: Path, kind: str, bands: int, orientation: int) -> None:
    stored, content, tags = values(bands, "uint8"), io.BytesIO(), Image.Exif()
    tags[0x0112] = orientation
    lossless = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    Image.fromarray(stored.squeeze()).save(content, kind, exif=tags, **lossless)
    check_values(tmp_path, f"a.{kind.lower()}", content.getvalue(), turned(stored, orientation))


def test_deep_pictures_that_are_not_turned_are_named(tmp_path: Path) -> None:
    """DALI does not turn RGBA, and Pillow does not read 16 bits of it."""
    png, tags = encode(values(4, "uint16"), "png"), Image.Exif()
    tags[0x0112] = 3
    png = png[:33] + png_chunk(b"eXIf", tags.tobytes().removeprefix(b"Exif\0\0")) + png[33:]
    with pytest.raises(da.DataError, match=r"a.png has 16-bit RGBA rotated by EXIF.*; save it upright"):
        next(iter(loader_of(tmp_path, {"a.png": png}, EXACT, channels=4, dtype="uint16")))


@pytest.mark.parametrize("kind", ["columns first", "big endian", "version 2", "by hand"])
def test_arrays_of_any_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also while Python's parser of literals fails, as it does in threads now and then."""
    expected, content = values(6, "uint16"), io.BytesIO()
    stored = {"columns first": np.asfortranarray(expected), "big endian": expected.astype(">u2")}.get(kind, expected)
    np.lib.format.write_array(content, stored, version=(2, 0) if kind == "version 2" else (1, 0))
    file = content.getvalue()
    if kind == "by hand":
        text = b'{"shape":(37,53, 6),"fortran_order":False,"descr":"<u2"}'
        file = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + expected.tobytes()
    monkeypatch.setattr("ast.literal_eval", raise_system_error)
    check_values(tmp_path, "a.npy", file, expected)


def raise_system_error(*_: object) -> None:
    raise SystemError("AST constructor recursion depth mismatch")


def test_preview_of_files_with_bands(tmp_path: Path) -> None:
    files = {f"{n}.tif": encode(values(6, "uint16", seed=n), "tif") for n in range(3)}
    folder, annotations = data_set(tmp_path / "in", files)
    recipe, sheet = tmp_path / "recipe.yaml", tmp_path / "sheet.png"
    da.save_recipe(
        [da.RandomZoomOut(fill=(1, 2, 3, 4, 5, 60000)), da.Resize((64, 64)), da.Normalize(scale=1000)], recipe
    )
    reading = ("--channels", 6, "--dtype", "uint16")
    for more in ((), ("--bands", "5,1,3"), ("--bands", "4"), ("--recipe", recipe, "--rows", 1, "--columns", 2)):
        result = detaug("preview", annotations, folder, "-o", sheet, *reading, *more)
        assert (result.code, result.err) == (0, "")
        assert "of 3 images" in result.out
        sheet.unlink()
    for more, message in (
        (("--bands", "1,x"), "must be positions from 0, such as 3,2,1"),
        (("--bands", "1,9,2"), "bands must be one or three positions in 0..5"),
        (("--preset", "ssd300"), "--preset is for 8-bit RGB: leave it out, or --channels"),
    ):
        assert message in usage_error("preview", annotations, folder, "-o", sheet, *reading, *more)
    assert "has 6 bands of type uint16, of which" in usage_error("preview", annotations, folder, "-o", sheet)


@pytest.mark.slow
def test_grey_jpegs_stay_grey(tmp_path: Path) -> None:
    """DALI's decoder would end the process."""
    files = {}
    for orientation in (1, 6):
        tags = Image.Exif()
        tags[0x0112] = orientation
        content = io.BytesIO()
        Image.fromarray(values(1, "uint8", (40, 40))[..., 0]).save(content, "JPEG", exif=tags)
        files[f"{orientation}.jpg"] = content.getvalue()
    folder, annotations = data_set(tmp_path / "a", files, (40, 40))
    reader = da.CocoReader(folder, annotations, channels=1)
    recipe: list[da.Op] = [da.Resize((40, 40)), da.Normalize(scale=1)]
    images = next(iter(da.Loader(reader, recipe, 2, train=False, device="cpu"))).images.numpy()[:, 0]
    expected = np.asarray(Image.open(folder / "1.jpg"))
    np.testing.assert_array_equal(images[0], expected)
    np.testing.assert_array_equal(images[1], np.rot90(expected, -1))
    assert check_coco(annotations, folder, decode=True, channels=1).errors == 0
    for broken in (files["1.jpg"][:700], files["1.jpg"][:100], b"\xff\xd8"):
        reader = da.CocoReader(*data_set(tmp_path / "b", {"a.jpg": broken}, (40, 40)), channels=1)
        with pytest.raises(da.DataError, match=r"a.jpg"):
            list(da.Loader(reader, recipe, 1, device="cpu"))


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA"])
def test_bands_of_an_8_bit_reader_are_those_of_the_file(tmp_path: Path, mode: str) -> None:
    content = io.BytesIO()
    Image.fromarray(values(3, "uint8")).convert(mode).save(content, "TIFF")
    reader = da.CocoReader(*data_set(tmp_path, {"a.tif": content.getvalue()}), bands=(2, 1, 0))
    with pytest.raises(da.DataError, match=r"a.tif has (1 band|CMYK|4 bands).*; save it like the others"):
        list(da.Loader(reader, EXACT, 1, device="cpu"))


def test_what_the_header_does_not_say_is_found_by_decoding(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.fromarray(values(1, "uint8")[..., 0]).save(content, "BMP")  # its palette is gray
    files = {"a.bmp": content.getvalue(), "b.png": encode(values(3, "uint8"), "png")}
    reader = da.CocoReader(*data_set(tmp_path, files), bands=(2, 1, 0))
    with pytest.raises(da.DataError, match=r"a.bmp: DALI does not decode it \(.*same size"):
        list(da.Loader(reader, EXACT, 2, device="cpu"))


def test_damaged_files_are_left_to_the_decoder_to_refuse() -> None:
    contents = [
        encode(values(6, "uint16"), "tif", planarconfig="separate", compression="deflate"),
        encode(values(6, "uint16"), "tif", extratags=[(274, "H", 1, 6, True)]),
        encode(values(6, "uint16"), "npy"),
        encode(values(2, "uint8"), "png"),
    ]
    rng, refused = np.random.default_rng(0), 0
    for content in contents:
        good = as_decodable(np.frombuffer(content, np.uint8), (53, 37) if content is contents[1] else SIZE)
        assert good[:4].tobytes() == b"II*\0"
        for _ in range(60):
            damaged = np.frombuffer(content, np.uint8).copy()
            damaged[rng.integers(min(len(damaged), 500), size=4)] = rng.integers(256, size=4)
            refused += len(as_decodable(damaged[: rng.integers(len(damaged))], SIZE)) == 1
    assert refused > 100
