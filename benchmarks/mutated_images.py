"""Check damaged and crafted images of five formats, clean the file, and train on what is left: nothing may die or hang.

    python benchmarks/mutated_images.py [--images 10000] [--first 0] [--piece 500] [--seed 0]

Draws small JPEG, PNG, TIFF, WebP and BMP files and changes each in one to three ways: bytes flipped, cut off, zeroed,
repeated or moved, a chunk or segment twice, another size in the header, other numbers anywhere; then with the checksums
of PNG put right. The JSON file has the sizes of their headers, as if it was converted from them. Each piece runs
`detaug check --decode --isolated --clean` and two epochs on the CPU with the cleaned JSON file, in a process of its
own. Prints for each piece how it ended, and what the check found; libraries print on stderr. The exit code is 1 if a
process died or took more than an hour.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import detaug as da
from detaug.converters import check_coco
from detaug.files.image_headers import ImageError, read_image_header

Rng = np.random.Generator
Original = tuple[str, bytes]
"""(extension, content)."""

SECONDS = 3600  # for a piece; a minute is usual
WIDTH, HEIGHT = 96, 64
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


# ---------------------------------------------------------------------------------------------- originals


def originals() -> list[Original]:
    """Return intact images: each format in the kinds that have their own code in decoders."""
    picture = _picture()
    exif = Image.Exif()
    exif[0x0112] = 6
    saved: list[tuple[str, Image.Image, dict[str, Any]]] = [
        *(("jpg", picture, options) for options in ({}, {"progressive": True}, {"exif": exif}, {"subsampling": 0})),
        *(("jpg", picture.convert(mode), {}) for mode in ("L", "CMYK")),
        *(("png", picture.convert(mode), {}) for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")),
        *(("png", picture.quantize(16), {"bits": 4}), ("png", picture, {"exif": exif})),
        *(("tif", picture, {"compression": kind}) for kind in (None, "tiff_lzw", "jpeg", "tiff_adobe_deflate")),
        *(("tif", picture.convert("L"), {"compression": "packbits"}), ("tif", picture.convert("1"), {})),
        *(("webp", picture, options) for options in ({}, {"lossless": True}, {"exif": exif})),
        ("webp", picture.convert("RGBA"), {}),
        *(("bmp", picture.convert(mode), {}) for mode in ("RGB", "L", "P", "1")),
    ]
    return [(extension, _encoded(image, extension, options)) for extension, image, options in saved]


def _picture() -> Image.Image:
    image = Image.radial_gradient("L").resize((WIDTH, HEIGHT)).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.rectangle((10, 10, 50, 40), fill=(200, 30, 60))
    draw.ellipse((40, 20, 90, 60), fill=(20, 160, 220))
    return image


def _encoded(image: Image.Image, extension: str, options: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    image.save(file, {"jpg": "JPEG", "tif": "TIFF"}.get(extension, extension.upper()), **options)
    return file.getvalue()


# ---------------------------------------------------------------------------------------------- mutations


def mutated(original: Original, rng: Rng) -> bytes:
    """Return an image changed in one to three ways."""
    extension, content = original
    data = bytearray(content)
    ways = [*WAYS, *OF_FORMAT.get(extension, ())]
    for _ in range(int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15]))):
        ways[int(rng.integers(len(ways)))](data, rng)
    if extension == "png" and rng.random() < 0.8:
        data = _with_right_checksums(data)
    return bytes(data)


def _part(data: bytearray, rng: Rng, longest: int = 64) -> slice:
    """Return a random part, more often one near the beginning, where the header is."""
    end = len(data) if rng.random() < 0.7 else min(len(data), 200)
    first = int(rng.integers(max(1, end)))
    return slice(first, first + int(rng.integers(1, longest)))


def _flip(data: bytearray, rng: Rng) -> None:
    for _ in range(int(rng.integers(1, 12))):
        at = _part(data, rng).start
        if at < len(data):
            data[at] ^= 1 << int(rng.integers(8))


def _cut(data: bytearray, rng: Rng) -> None:
    del data[int(rng.integers(len(data) + 1)) :]


def _cut_and_end(data: bytearray, rng: Rng) -> None:
    """Cut off pixels, but keep the last bytes, so that the end marker is there."""
    end = data[-12:]
    _cut(data, rng)
    data += end


def _zero(data: bytearray, rng: Rng) -> None:
    part = _part(data, rng, 400)
    data[part] = bytes(len(data[part]))


def _repeat(data: bytearray, rng: Rng) -> None:
    part = _part(data, rng, 400)
    data[part.start : part.start] = data[part]


def _move(data: bytearray, rng: Rng) -> None:
    part = _part(data, rng, 200)
    moved = data[part]
    del data[part]
    at = _part(data, rng).start
    data[at:at] = moved


def _number(data: bytearray, rng: Rng) -> None:
    """Write a number that is often at a limit, in 2 or 4 bytes of either order."""
    at = _part(data, rng).start
    size, order = int(rng.choice([2, 4])), str(rng.choice(["little", "big"]))
    number = NUMBERS[int(rng.integers(len(NUMBERS)))] & ((1 << 8 * size) - 1)
    data[at : at + size] = number.to_bytes(size, order)  # type: ignore[arg-type]


WAYS: list[Callable[[bytearray, Rng], None]] = [_flip, _cut, _cut_and_end, _zero, _repeat, _move, _number]


def _side(rng: Rng) -> int:
    """Return a number of pixels, seldom one that takes gigabytes."""
    return int(rng.choice([0, 1, 2, 95, 97, 128, 1000, 4000, 20_000, 65_500], p=[*[0.12] * 8, 0.02, 0.02]))


def _chunks(data: bytearray) -> list[slice]:
    """Return where the chunks of a PNG are, as far as they can be followed."""
    found, at = [], len(PNG_MAGIC)
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        found.append(slice(at, end))
        at = end
    return found


def _with_right_checksums(data: bytearray) -> bytearray:
    for chunk in _chunks(data):
        data[chunk.stop - 4 : chunk.stop] = struct.pack(">I", zlib.crc32(data[chunk.start + 4 : chunk.stop - 4]))
    return data


def _repeat_one(data: bytearray, parts: list[slice], rng: Rng) -> None:
    """Insert one of the parts in front of another one."""
    if parts:
        part, before = (parts[int(rng.integers(len(parts)))] for _ in range(2))
        data[before.start : before.start] = data[part]


def _chunk_twice(data: bytearray, rng: Rng) -> None:
    _repeat_one(data, _chunks(data), rng)


def _exif_twice(data: bytearray, rng: Rng) -> None:
    """Insert EXIF chunks in front of any chunk but the first, or behind the last."""
    exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
    for _ in range(2):
        places = [each.stop for each in _chunks(data)]
        if places:
            at = int(rng.choice(places))
            data[at:at] = chunk


def _png_size(data: bytearray, rng: Rng) -> None:
    data[16:24] = struct.pack(">II", _side(rng), _side(rng))


def _segments(data: bytearray) -> list[slice]:
    """Return where the segments of a JPEG are, up to its pixels."""
    found, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found.append(slice(at, end))
        at = end
    return found


def _segment_twice(data: bytearray, rng: Rng) -> None:
    _repeat_one(data, _segments(data), rng)


def _jpeg_size(data: bytearray, rng: Rng) -> None:
    for segment in _segments(data):
        if 0xC0 <= data[segment.start + 1] <= 0xC2:
            data[segment.start + 5 : segment.start + 9] = struct.pack(">HH", _side(rng), _side(rng))


def _bmp_size(data: bytearray, rng: Rng) -> None:
    data[18:26] = struct.pack("<ii", _side(rng), _side(rng) * int(rng.choice([-1, 1])))


def _tiff_entry(data: bytearray, rng: Rng) -> None:
    """Write another number into an entry of the first directory: type, count or value."""
    if len(data) > 8 and data[:2] == b"II":
        first = int.from_bytes(data[4:8], "little")
        count = int.from_bytes(data[first : first + 2], "little")
        at = first + 2 + 12 * int(rng.integers(max(1, count))) + int(rng.choice([2, 4, 8, 8]))
        number = _side(rng) if rng.random() < 0.7 else NUMBERS[int(rng.integers(len(NUMBERS)))]
        data[at : at + 4] = number.to_bytes(4, "little")


def _webp_size(data: bytearray, rng: Rng) -> None:
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        data[24:30] = _side(rng).to_bytes(3, "little") + _side(rng).to_bytes(3, "little")
    elif kind == b"VP8 ":
        data[26:30] = struct.pack("<HH", _side(rng) & 0x3FFF, _side(rng) & 0x3FFF)
    elif kind == b"VP8L":
        data[21:25] = struct.pack("<I", (_side(rng) & 0x3FFF) | (_side(rng) & 0x3FFF) << 14)


OF_FORMAT = {
    "png": [_chunk_twice, _exif_twice, _png_size],
    "jpg": [_segment_twice, _jpeg_size],
    "bmp": [_bmp_size],
    "tif": [_tiff_entry, _tiff_entry],
    "webp": [_webp_size],
}


# ---------------------------------------------------------------------------------------------- a run


def write_corpus(folder: Path, first: int, count: int, seed: int) -> Path:
    """Write mutations first, first + 1, ... and a JSON file of them; return that. A mutation depends on its number."""
    sources, rows = originals(), []
    for number in range(first, first + count):
        rng = np.random.default_rng((seed, number))
        extension, content = sources[number % len(sources)]
        name = f"{number:06}.{extension}"
        (folder / name).write_bytes(mutated((extension, content), rng))
        rows.append({"id": number + 1, "file_name": name} | _size(folder / name))
    boxes = [{"id": row["id"], "image_id": row["id"], "category_id": 1, "bbox": [0, 0, 1, 1]} for row in rows]
    document = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    path = folder / "mutated.json"
    path.write_text(json.dumps(document))
    return path


def _size(path: Path) -> dict[str, int]:
    try:
        header = read_image_header(path)
    except ImageError:
        return {"width": WIDTH, "height": HEIGHT}
    return {"width": header.width, "height": header.height}


def run_piece(folder: Path, first: int, count: int, seed: int) -> None:
    """Check a piece, clean it, read two epochs, one of them with crops, and print the findings."""
    path, clean = write_corpus(folder, first, count, seed), folder / "clean.json"
    summary = check_coco(path, folder, decode=True, isolated=True, clean=clean)
    print(f"errors: {summary.errors}, by kind: {summary.kind_counts}", flush=True)
    for finding in summary.findings:
        if finding.kind == "image-unsafe":
            print(f"{finding.file_name}: {finding.message}", flush=True)
    reader, crops = da.CocoReader(folder, clean), da.presets.ssd300()
    images = sum(map(len, da.Loader(reader, da.presets.evaluation((64, 64)), 16, train=False, device="cpu")))
    print(f"epoch: {images} of {count} images", flush=True)
    list(da.Loader(reader, crops, 16, last_batch="partial", device="cpu", seed=seed))


def pieces(first: int, count: int, piece: int) -> Iterator[tuple[int, int]]:
    """Yield the first mutation and the number of mutations of each piece."""
    for start in range(first, first + count, piece):
        yield start, min(piece, first + count - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutation")
    parser.add_argument("--piece", type=int, default=500, help="images of one process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    failed = 0
    for first, count in pieces(options.first, options.images, options.piece):
        with TemporaryDirectory() as folder:
            if options.in_this_process:
                run_piece(Path(folder), first, count, options.seed)
                continue
            arguments = ["--first", first, "--images", count, "--piece", count, "--seed", options.seed]
            command = [sys.executable, __file__, *map(str, arguments), "--in-this-process"]
            start = time.monotonic()
            code = subprocess.run(command, timeout=SECONDS, check=False).returncode
            failed += code != 0
            seconds = time.monotonic() - start
            print(f"images {first} to {first + count - 1}: exit code {code}, {seconds:.0f} s", flush=True)
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
