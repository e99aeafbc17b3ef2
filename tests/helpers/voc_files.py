"""Make small Pascal VOC datasets for the tests: every XML and every image, byte by byte."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pycocotools.coco import COCO

from detaug.converters import VocSummary, voc_to_coco

WIDTH, HEIGHT = 100, 80


@cache
def image_bytes(
    size: tuple[int, int] = (WIDTH, HEIGHT), kind: str = "JPEG", mode: str = "RGB", **options: Any
) -> bytes:
    """Return an image of size (width, height), always the same noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


def several(kind: str, count: int = 2, **options: Any) -> bytes:
    """Return an animation, or a TIFF of several pages, of different noise."""
    rng, file = np.random.default_rng(1), io.BytesIO()
    images = [Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)) for _ in range(count)]
    images[0].save(file, kind, save_all=True, append_images=images[1:], **options)
    return file.getvalue()


def exif(orientation: int, order: str = "<", type_: int = 3) -> bytes:
    """Return an EXIF block with an orientation only, from its TIFF header on."""
    value = struct.pack(order + "I", orientation) if type_ == 4 else struct.pack(order + "HH", orientation, 0)
    entry = struct.pack(order + "HHI", 0x0112, type_, 1) + value
    head = b"II*\0" if order == "<" else b"MM\0*"
    return head + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


def with_segment(jpeg: bytes, payload: bytes, marker: int = 0xE1) -> bytes:
    """Return the JPEG with one more segment at its beginning."""
    return jpeg[:2] + bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload + jpeg[2:]


def xmp_orientation(orientation: int) -> bytes:
    """Return the segment of an orientation in XMP, which Pillow applies to a JPEG without EXIF, and DALI does not."""
    tags = f'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="{orientation}"/>'
    name = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    packet = f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{name}">{tags}</rdf:RDF></x:xmpmeta>'
    return b"http://ns.adobe.com/xap/1.0/\0" + packet.encode()


def png_chunk(name: bytes, data: bytes) -> bytes:
    """Return one chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def rotated_jpeg(orientation: int, **options: Any) -> bytes:
    """Return a JPEG with an EXIF orientation."""
    return with_segment(image_bytes(**options), b"Exif\0\0" + exif(orientation))


def box_xml(xmin: object, ymin: object, xmax: object, ymax: object, name: str = "cat", more: str = "") -> str:
    """Return one <object>."""
    corners = f"<xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax>"
    return f"<object><name>{name}</name>{more}<bndbox>{corners}</bndbox></object>"


def voc_xml(*objects: str, filename: str = "", size: tuple[object, object] | None = (WIDTH, HEIGHT)) -> str:
    """Return one <annotation>."""
    name = f"<filename>{filename}</filename>" if filename else ""
    sides = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
    return f"<annotation>{name}{sides}{''.join(objects)}</annotation>"


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, by relative path; text as UTF-8."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def devkit(
    folder: Path,
    xmls: Mapping[str, str | bytes],
    images: Mapping[str, bytes] | None = None,
    splits: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write a dataset in the devkit's layout; by default each XML has a JPEG of its stem, all different."""
    if images is None:
        images = {f"{stem}.jpg": with_segment(image_bytes(), stem.encode(), 0xFE) for stem in xmls}
    for name in ("Annotations", "JPEGImages"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_files(folder / "Annotations", {f"{stem}.xml": content for stem, content in xmls.items()})
    write_files(folder / "JPEGImages", images)
    write_files(folder / "ImageSets/Main", {f"{name}.txt": content for name, content in (splits or {}).items()})
    return folder


def convert(root: Path, **options: Any) -> tuple[dict[str, Any], VocSummary]:
    """Convert, and check what every written file must fulfil."""
    output = options.pop("output", root.parent / "out.json")
    summary = voc_to_coco(root, output, **options)
    document = json.loads(output.read_bytes())
    assert_valid(document, summary)
    COCO(str(output))
    return document, summary


def assert_valid(document: dict[str, Any], summary: VocSummary) -> None:
    """Check that ids count from 1, boxes lie inside their images and have an area, and the summary counts them."""
    images, annotations = document["images"], document["annotations"]
    for rows in (images, annotations, document["categories"]):
        assert [row["id"] for row in rows] == list(range(1, len(rows) + 1))
    for row in annotations:
        image = images[row["image_id"] - 1]
        x, y, width, height = row["bbox"]
        assert x >= 0
        assert y >= 0
        assert min(width, height) > 0
        assert x + width <= image["width"]
        assert y + height <= image["height"]
        assert row["area"] == width * height or "segmentation" in row
        assert 1 <= row["category_id"] <= len(document["categories"])
    assert len({image["file_name"] for image in images}) == len(images) == summary.images
    assert len(annotations) == summary.boxes
    assert {category["name"] for category in document["categories"]} == set(summary.class_counts)


def boxes_of(document: dict[str, Any], file_name: str | None = None) -> list[list[float]]:
    """Return the boxes of one image, or of all."""
    names = {image["id"]: image["file_name"] for image in document["images"]}
    return [row["bbox"] for row in document["annotations"] if file_name in (None, names[row["image_id"]])]
