"""Bands and bits that 8-bit RGB would lose are said by the check and by the loader, and nothing else is."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from band_files import data_set, encode, values
from PIL import Image
from voc_files import image_bytes

import detaug as da
from detaug.converters import check_coco, pack_coco
from detaug.files.image_headers import parse_image_header

LOST = {
    "16-bit gray.png": encode(values(1, "uint16"), "png"),
    "16-bit.png": encode(values(3, "uint16"), "png"),
    "16-bit alpha.png": encode(values(4, "uint16"), "png"),
    "16-bit.jp2": encode(values(3, "uint16"), "jp2"),
    "16-bit.ppm": encode(values(3, "uint16"), "ppm"),
    "16-bit.pgm": encode(values(1, "uint16"), "ppm"),
    "16-bit gray.tif": encode(values(1, "uint16"), "tif"),
    "16-bit rgb.tif": encode(values(3, "uint16"), "tif", photometric="rgb"),
    "float.tif": encode(values(1, "float32"), "tif"),
    "signed.tif": encode(values(1, "int16"), "tif"),
    "double.tif": encode(values(2, "float64"), "tif"),
    "32-bit.tif": encode(values(1, "uint32"), "tif"),
    "two bands.tif": encode(values(2, "uint8"), "tif"),
    "near infrared.tif": encode(values(4, "uint8"), "tif", photometric="rgb", extrasamples=["unspecified"]),
    "six bands.tif": encode(values(6, "uint8"), "tif"),
    "six bands, big endian.tif": encode(values(6, "uint16"), "tif", byteorder=">"),
    "six bands.bigtiff.tif": encode(values(6, "uint16"), "tif", bigtiff=True),
    "six bands, compressed.tif": encode(values(6, "uint16"), "tif", compression="deflate", tile=(16, 16)),
    "six bands, planar.tif": encode(values(6, "uint16"), "tif", planarconfig="separate"),
    "three bands, planar.tif": encode(values(3, "uint8"), "tif", planarconfig="separate"),
}
"""Of which bands or bits would be lost."""


def pillow(mode: str, kind: str, **options: object) -> bytes:
    content, image = io.BytesIO(), Image.fromarray(values(3, "uint8")).convert(mode)
    if mode == "RGBA":
        image.putalpha(Image.fromarray(values(1, "uint8")[..., 0]))
    image.save(content, kind, **options)
    return content.getvalue()


KEPT = {
    "photo.jpg": pillow("RGB", "JPEG"),
    "grey.jpg": pillow("L", "JPEG"),
    "cmyk.jpg": pillow("CMYK", "JPEG"),
    "screenshot.png": pillow("RGBA", "PNG"),
    "gray and alpha.png": pillow("LA", "PNG"),
    "palette.png": pillow("P", "PNG"),
    "grey.png": pillow("L", "PNG"),
    "black and white.png": pillow("1", "PNG"),
    "alpha.webp": pillow("RGBA", "WEBP", lossless=True, exact=True),
    "alpha, extended.webp": pillow("RGBA", "WEBP", lossless=False),
    "photo.webp": pillow("RGB", "WEBP"),
    "alpha.jp2": pillow("RGBA", "JPEG2000"),
    "photo.jp2": pillow("RGB", "JPEG2000"),
    "alpha.tif": pillow("RGBA", "TIFF"),
    "cmyk.tif": pillow("CMYK", "TIFF"),
    "palette.tif": pillow("P", "TIFF"),
    "jpeg.tif": pillow("RGB", "TIFF", compression="jpeg"),
    "planar rgb.tif": encode(values(3, "uint8"), "tif", photometric="rgb", planarconfig="separate"),
    "photo.bmp": pillow("RGB", "BMP"),
    "photo.ppm": pillow("RGB", "PPM"),
}
ALPHA = {name for name in KEPT if "alpha" in name or name == "screenshot.png"}


def test_check_names_what_would_be_lost_and_alpha_apart(tmp_path: Path) -> None:
    folder, annotations = data_set(tmp_path, LOST | KEPT)
    summary = check_coco(annotations, folder, decode=True)
    names = list(LOST | KEPT)
    found = {group.kind: {names[row] for row in group.rows.tolist()} for group in summary.groups}
    assert found == {"image-bands": set(LOST), "image-alpha": ALPHA}
    messages = {finding.file_name: finding.message for finding in summary.findings}
    remedy = 'read it with CocoReader(channels=6, dtype="uint8"), or save it as 8-bit RGB'
    assert messages["six bands.tif"] == f"has 6 bands, of which 3 would be left; {remedy}"


@pytest.mark.parametrize("name", LOST)
def test_loader_stops_with_one_sentence(tmp_path: Path, name: str) -> None:
    reader = da.CocoReader(*data_set(tmp_path, {"a.jpg": image_bytes(size=(53, 37)), name: LOST[name]}))
    loader = da.Loader(reader, [da.Resize((16, 16))], batch_size=1, train=False, device="cpu")
    batches = iter(loader)
    next(batches)  # the batch before it
    with pytest.raises(da.DataError, match=f"{name} has .* of which .* would be left; .*save it as 8-bit RGB") as error:
        next(batches)
    assert "\n" not in str(error.value)
    with pytest.raises(da.DataError, match="would be left"):  # and again: it was not decoded in between
        list(loader)


def test_loader_reads_what_loses_nothing(tmp_path: Path) -> None:
    reader = da.CocoReader(*data_set(tmp_path, KEPT))
    loader = da.Loader(reader, [da.Resize((37, 53)), da.Normalize(dtype="uint8")], 3, train=False, device="cpu")
    images = np.concatenate([batch.images.numpy() for batch in loader])
    expected = values(3, "uint8")
    for at, name in enumerate(KEPT):
        if name in ("screenshot.png", "alpha.tif", "alpha.webp", "planar rgb.tif", "photo.bmp", "photo.ppm"):
            np.testing.assert_array_equal(images[at].transpose(1, 2, 0), expected, err_msg=name)


def test_skipped_with_the_reason(tmp_path: Path) -> None:
    files = {f"{n}.png": KEPT["screenshot.png"] for n in range(4)}
    reader = da.CocoReader(*data_set(tmp_path, files | {"deep.png": LOST["16-bit.png"]}))
    ops = [da.Resize((16, 16))]
    loader = da.Loader(reader, ops, 2, train=False, device="cpu", on_error="skip", max_skipped=0.5)
    with pytest.warns(UserWarning, match="deep.png has 3 bands of type uint16"):
        assert sum(len(batch.images) for batch in loader) == 4
    assert [path.name for path in loader.skipped] == ["deep.png"]


def test_images_in_shards(tmp_path: Path) -> None:
    folder, annotations = data_set(tmp_path / "in", {"a.jpg": KEPT["photo.jpg"], "deep.tif": LOST["six bands.tif"]})
    pack_coco(annotations, folder, tmp_path / "out")
    reader = da.CocoReader(tmp_path / "out", next((tmp_path / "out").glob("*.json")))
    with pytest.raises(da.DataError, match=r"deep.tif has 6 bands, of which 3 would be left"):
        list(da.Loader(reader, [da.Resize((16, 16))], 2, train=False, device="cpu"))


@pytest.mark.parametrize("name", [name for name in LOST if name.endswith(("tif", "jp2"))])
def test_cut_off_headers_are_no_bugs(name: str) -> None:
    content = LOST[name]
    for end in (*range(0, 200, 7), len(content) // 2):
        try:
            parse_image_header(io.BytesIO(content[:end]))
        except da.InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
