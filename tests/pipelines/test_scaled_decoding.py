"""`Resize(decode="scaled")`: large JPEGs decoded at a half, a quarter or an eighth show what whole ones show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from seeds import slow
from voc_files import with_segment, xmp_orientation

import detaug as da
from detaug.ops.op import Op
from detaug.pipelines.scaled_decoding import choose_scales

HEIGHT, WIDTH = 1003, 1334
"""No multiples of 8: a decoded image is then not exactly a half, a quarter or an eighth."""
GEOMETRY: dict[str, list[Op]] = {
    "an eighth": [da.Resize((50, 60))],
    "a quarter": [da.Resize((100, 120))],
    "a half": [da.Resize((250, 210))],
    "letterbox": [da.Resize((100, 90), letterbox="center")],
    "shorter side": [da.RandomShortestSize((90, 120))],
    "crops": [da.RandomHorizontalFlip(0.5), da.RandomIoUCrop((0.7, 1.0)), da.Resize((90, 80))],
    "resized crops": [da.RandomResizedCrop(90, scale=(0.5, 1))],
    "turned": [da.RandomAffine(20, scale=(0.8, 1)), da.Resize((80, 90))],
    "mosaic": [da.Resize((80, 90)), da.Mosaic()],
}


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    """Return an image of broad strokes: no line of it is like another, and none is fine."""
    rng = np.random.default_rng(5)
    coarse = Image.fromarray(rng.integers(0, 256, (HEIGHT // 30, WIDTH // 30, 3), np.uint8))
    return coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)


def reader_of(
    folder: Path, image: Image.Image, name: str, copies: int = 4, orientation: int = 1, **options: Any
) -> da.CocoReader:
    """Save an image under several names, and read it. Its size is that of the upright image."""
    width, height = image.size[:: -1 if orientation >= 5 else 1]
    exif = Image.Exif()
    exif[0x0112] = orientation
    names = [f"{at}{name}" for at in range(copies)]
    for each in names:
        image.save(folder / each, exif=exif, **options)
    document = {
        "images": [{"id": at, "file_name": each, "width": width, "height": height} for at, each in enumerate(names)],
        "annotations": [
            {"id": at, "image_id": at, "category_id": 1, "bbox": [99, 99, 500, 400]} for at in range(copies)
        ],
        "categories": [{"id": 1, "name": "thing"}],
    }
    (folder / "train.json").write_text(json.dumps(document))
    return da.CocoReader(folder, folder / "train.json")


def scaled(ops: list[Op]) -> list[Op]:
    return [replace(op, decode="scaled") if hasattr(op, "decode") else op for op in ops]  # type: ignore[type-var]


def batches(reader: da.CocoReader, ops: list[Op], **options: Any) -> list[da.Batch]:
    return [*da.Loader(reader, ops, 4, device="cpu", **options)]


def difference(reader: da.CocoReader, ops: list[Op]) -> np.ndarray[Any, Any]:
    """Return by how much the pixels differ; the boxes must not."""
    whole, smaller = (batches(reader, each, seed=3)[0] for each in (ops, scaled(ops)))
    assert whole.boxes.equal(smaller.boxes)
    return np.abs(whole.images.numpy().astype(int) - smaller.images.numpy())


@pytest.mark.parametrize("name", GEOMETRY)
def test_pixels_are_those_of_the_whole_image(tmp_path: Path, picture: Image.Image, name: str) -> None:
    found = difference(reader_of(tmp_path, picture, ".jpg", quality=95), GEOMETRY[name])
    assert 0 < found.mean() < 0.9
    assert found.max() < 9


@pytest.mark.parametrize("orientation", [6, 2, *slow(1, 3, 4, 5, 7, 8)])
def test_orientation(tmp_path: Path, picture: Image.Image, orientation: int) -> None:
    """A side that the decoder counts from its other end is off by a part of a pixel: the strokes would show it."""
    reader = reader_of(tmp_path, picture, ".jpg", quality=95, orientation=orientation)
    for size in ((50, 60), (120, 120)):
        found = difference(reader, [da.Resize(size)])
        assert 0 < found.mean() < 0.9
        assert found.max() < 9


@pytest.mark.parametrize(
    ("mode", "name"),
    [("RGB", ".png"), *slow(("L", ".png"), ("P", ".png"), ("RGB", ".tiff"), ("L", ".bmp"), ("RGB", ".webp"))],
)
def test_other_formats_are_averaged(tmp_path: Path, picture: Image.Image, name: str, mode: str) -> None:
    found = difference(reader_of(tmp_path, picture.convert(mode), name), [da.Resize((100, 120))])
    assert found.mean() < 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"restart_marker_rows": 1}]
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpegs_of_all_kinds(tmp_path: Path, picture: Image.Image, mode: str, options: dict[str, Any]) -> None:
    reader = reader_of(tmp_path, picture.convert(mode), ".jpg", quality=95, **options)
    for size in ((50, 60), (100, 120), (250, 210)):
        assert difference(reader, [da.Resize(size)]).mean() < 0.9


def test_an_orientation_that_only_pillow_knows(tmp_path: Path, picture: Image.Image) -> None:
    """DALI ignores XMP's, and so does the scaled image."""
    reader = reader_of(tmp_path, picture, ".jpg", quality=95)
    for path in tmp_path.glob("*.jpg"):
        picture.save(path, quality=95)  # without EXIF
        path.write_bytes(with_segment(path.read_bytes(), xmp_orientation(3)))
        with Image.open(path) as image:
            assert image.getexif()[0x0112] == 3
    assert difference(reader, [da.Resize((50, 60))]).mean() < 0.9


OPS = (da.Resize((50, 60)), da.RandomShortestSize((90, 120)), da.RandomResizedCrop(90))


@pytest.mark.parametrize("op", OPS)
def test_states_know_how_images_are_decoded(tmp_path: Path, picture: Image.Image, op: Op) -> None:
    """A recipe that does not say it has the text that it had before it could."""
    assert "decode" not in repr(op)
    (other,) = scaled([op])
    assert repr(other) == f"{repr(op).removesuffix(')')}, decode='scaled')"
    reader = reader_of(tmp_path, picture, ".jpg")
    state = da.Loader(reader, [op], 2, device="cpu").state_dict()
    da.Loader(reader, [op], 2, device="cpu").load_state_dict(state)
    with pytest.raises(da.InputError, match="recipe"):
        da.Loader(reader, [other], 2, device="cpu").load_state_dict(state)


def test_scales() -> None:
    """The largest scale that leaves twice the output's pixels along both axes; none for a part that is soon decoded."""
    sizes = np.array([[1600, 1600]] * 7)
    windows = np.array([[1600, 1600], [1600, 1599], [800, 800], [1600, 1600], [1000, 800], [1200, 1600], [1600, 399]])
    outputs = np.array([[100, 100], [100, 100], [50, 50], [500, 50], [50, 50], [300, 400], [1, 1]])
    region = np.stack([sizes - windows, sizes, outputs], axis=1).astype(np.float32)
    assert choose_scales(region, sizes).tolist() == [8, 4, 8, 1, 8, 2, 1]
    mirrored = region[:, [1, 0, 2]]
    assert choose_scales(mirrored, sizes).tolist() == [8, 4, 8, 1, 8, 2, 1]


def test_a_broken_file_is_named(tmp_path: Path, picture: Image.Image) -> None:
    reader = reader_of(tmp_path, picture, ".jpg")
    broken = tmp_path / "2.jpg"
    broken.write_bytes(broken.read_bytes()[:20_000])
    ops = scaled([da.Resize((50, 60))])
    with pytest.raises(da.DataError, match=r"2\.jpg"):
        batches(reader, ops)
    with pytest.warns(UserWarning, match=r"2\.jpg.*; skipped"):
        assert len(batches(reader, ops, on_error="skip", max_skipped=0.5)[0].images) == 4


def test_what_it_cannot_be_combined_with(tmp_path: Path, picture: Image.Image) -> None:
    reader = reader_of(tmp_path, picture, ".jpg", copies=2)
    with pytest.raises(da.InputError, match=r"leave out cache, or decode"):
        batches(reader, scaled([da.Resize((50, 60))]), cache="device")
    with pytest.raises(da.InputError, match=r"decode must be 'whole' or 'scaled', got 'half'"):
        da.Resize((50, 60), decode="half")  # type: ignore[arg-type]


class Decoded(da.Source):
    """Two images that are decoded."""

    files, decodes = False, True

    def __init__(self, image: Image.Image) -> None:
        super().__init__([image.size[::-1]] * 2, ["thing"])
        self.image = image

    def path(self, index: int) -> Path:
        return Path(f"image {index}")

    def contents(self, indices: Any) -> list[Any]:
        return [np.asarray(self.image)] * len(indices)


def test_images_that_come_decoded_stay(picture: Image.Image) -> None:
    samples = da.batch([np.asarray(picture)])
    ops: list[list[Op]] = [[da.Resize((50, 60))], scaled([da.Resize((50, 60))])]
    one, same = (recipe[0](samples).images[0] for recipe in ops)
    assert np.array_equal(one, same)
    first, second = (next(iter(da.Loader(Decoded(picture), recipe, 2, device="cpu"))) for recipe in ops)
    assert first.images.equal(second.images)
