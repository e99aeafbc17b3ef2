"""Encoded images of many bands and types, written by Pillow, OpenCV and tifffile, or by hand."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

import detaug as da

Array = NDArray[Any]


def values(bands: int, dtype: str, size: tuple[int, int] = (37, 53), seed: int = 0) -> Array:
    """Return (H, W, bands): any whole number of the type, or floats in -100..300."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return rng.uniform(-100, 300, (*size, bands)).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (*size, bands), endpoint=True).astype(dtype)


def encode(array: Array, kind: str, **options: Any) -> bytes:
    """Return an image (H, W, bands) in a format: png, jp2, ppm, webp, npy or tif.

    `options` of TIFF are those of tifffile; planarconfig "separate" stores one band after the other.
    """
    bands = array.shape[2]
    if kind == "npy":
        content = io.BytesIO()
        np.save(content, array)
        return content.getvalue()
    if kind == "ppm":
        big_endian = array.astype(array.dtype.newbyteorder(">")).tobytes()
        number = np.iinfo(array.dtype).max
        return (
            b"%s\n# by hand\n%d %d\n%d\n" % (b"P5" if bands == 1 else b"P6", *array.shape[1::-1], number) + big_endian
        )
    if kind == "tif":
        content = io.BytesIO()
        planar = options.get("planarconfig") == "separate"
        usual = {"photometric": "minisblack"} | ({} if planar or bands == 1 else {"planarconfig": "contig"})
        tifffile.imwrite(content, np.moveaxis(array, 2, 0) if planar else array.squeeze(), **(usual | options))
        return content.getvalue()
    if kind == "png" and (bands, array.dtype.name) == (2, "uint16"):
        return grey_and_alpha_png(array)
    if kind == "webp" or bands == 2:
        content = io.BytesIO()
        Image.fromarray(array).save(content, {"webp": "WEBP", "png": "PNG"}[kind], **options)
        return content.getvalue()
    order = [2, 1, 0, *range(3, bands)] if bands > 2 else [0]
    lossless = [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000] if kind == "jp2" else []
    return bytes(cv2.imencode(f".{kind}", array[..., order], lossless)[1])


def grey_and_alpha_png(array: Array) -> bytes:
    """Return a PNG of (H, W, 2) uint16, which neither Pillow nor OpenCV writes."""
    height, width, _ = array.shape
    rows = array.astype(">u2").reshape(height, -1).view(np.uint8)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)  # the filter of each line, and its bytes
    chunks = {b"IHDR": struct.pack(">2I5B", width, height, 16, 4, 0, 0, 0), b"IDAT": zlib.compress(lines.tobytes())}
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*each) for each in [*chunks.items(), (b"IEND", b"")])


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def turned(stored: Array, orientation: int) -> Array:
    """Return an image as EXIF's orientation says."""
    return {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(stored),
    }[orientation]


def data_set(folder: Path, files: dict[str, bytes], size: tuple[int, int] = (37, 53)) -> tuple[Path, Path]:
    """Write images of one size, each with a box, and their JSON file. Returns both, as CocoReader takes them."""
    images = [
        {"id": n, "file_name": name, "height": size[0], "width": size[1]} for n, name in enumerate(files, start=1)
    ]
    boxes = [
        {"id": n, "image_id": n, "category_id": 1, "bbox": [4, 5, 20, 10], "area": 200, "iscrowd": 0}
        for n in range(1, len(files) + 1)
    ]
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    json_file = folder / "images.json"
    json_file.write_text(json.dumps(document))
    return folder, json_file


SIZE = (37, 53)
"""Of `values`."""

EXACT = [da.Resize(SIZE), da.Normalize(scale=1)]
"""A recipe that changes nothing."""

READING: dict[str, Any] = {"channels": 6, "dtype": "uint16"}


def loader_of(
    folder: Path, files: dict[str, bytes], ops: list[da.Op], batch_size: int = 1, train: bool = False, **reading: Any
) -> da.Loader:
    reader = da.CocoReader(*data_set(folder, files), **reading)
    return da.Loader(reader, ops, batch_size, train=train, device="cpu")


def first(loader: da.Loader) -> Array:
    """Return the first image of a loader, (H, W, bands)."""
    return np.asarray(next(iter(loader)).images[0].permute(1, 2, 0).numpy())
