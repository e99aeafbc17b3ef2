"""CPU time of a tile: from files of `detaug tile`, and from TileReader without files. All in one process, interleaved.

    python benchmarks/tiles.py [--pictures 6] [--turns 5] [--tiles 128]

Makes source images of 4000 x 3000 (12 megapixels) as JPEGs of about 1.7 bits a pixel and as TIFFs in tiles of 512 x
512, of RGB and of six bands of uint16, cuts them to tiles of 1024 x 1024, and loads these in the order of training,
mirrored at random, as uint8. Prints the CPU milliseconds of a tile, medians of the turns and in brackets their range,
the ratios of the same turn, and the bytes on the disk. Needs tifffile, imagecodecs and jpeglib.

- tiles / files: files of `detaug tile --format jpeg` beside JPEGs of 1024 x 1024 that Pillow wrote of other parts.
- TIFF / its tiles: `TileReader.contents` on TIFFs beside decoding the touched tiles of the TIFF alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tifffile
from PIL import Image

import detaug as da

HEIGHT, WIDTH, SIZE, TIFF_TILE = 3000, 4000, 1024, 512


def write_pictures(folder: Path, count: int) -> None:
    """Write the source images as JPEG and TIFF, a JSON file of each, and their parts as JPEGs of their own."""
    for name in ("jpeg", "zlib", "bands", "files"):
        (folder / name).mkdir()
    rows, parts = [], []
    for at in range(count):
        rng = np.random.default_rng(at)
        coarse = Image.fromarray(rng.integers(0, 256, (HEIGHT // 60, WIDTH // 60, 3), np.uint8))
        noise = rng.normal(0, 4, (HEIGHT // 2, WIDTH // 2)).astype(np.int16).repeat(2, 0).repeat(2, 1)[:, :, None]
        pixels = (np.asarray(coarse.resize((WIDTH, HEIGHT)), np.int16) + noise).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(pixels)
        image.save(folder / "jpeg" / f"{at}.jpg", quality=90)
        options: dict[str, Any] = {"tile": (TIFF_TILE, TIFF_TILE), "photometric": "rgb"}
        tifffile.imwrite(
            folder / "jpeg" / f"{at}.tif", pixels, compression="jpeg", compressionargs={"level": 90}, **options
        )
        tifffile.imwrite(folder / "zlib" / f"{at}.tif", pixels, compression="zlib", predictor=True, **options)
        bands = np.concatenate([pixels, pixels[::-1]], axis=2).astype(np.uint16) * 17
        options = {"tile": (TIFF_TILE, TIFF_TILE), "photometric": "minisblack", "planarconfig": "contig"}
        tifffile.imwrite(folder / "bands" / f"{at}.tif", bands, compression="zlib", predictor=True, **options)
        rows.append({"id": at, "width": WIDTH, "height": HEIGHT})
        for x, y in ((16 + 720 * column, 16 + 640 * row) for column in range(5) for row in range(4)):
            number = len(parts)
            image.crop((x, y, x + SIZE, y + SIZE)).save(folder / "files" / f"{number}.jpg", quality=90)
            parts.append({"id": number, "file_name": f"{number}.jpg", "width": SIZE, "height": SIZE})
    for name, images in (
        ("jpg", [{**row, "file_name": f"jpeg/{row['id']}.jpg"} for row in rows]),
        ("tif", [{**row, "file_name": f"jpeg/{row['id']}.tif"} for row in rows]),
        ("zlib", [{**row, "file_name": f"zlib/{row['id']}.tif"} for row in rows]),
        ("bands", [{**row, "file_name": f"bands/{row['id']}.tif"} for row in rows]),
        ("files", [{**part, "file_name": f"files/{part['file_name']}"} for part in parts]),
    ):
        rng = np.random.default_rng(0)
        boxes = [
            {
                "id": 9 * at + k,
                "image_id": image["id"],
                "category_id": 1,
                "bbox": [int(rng.integers(image["width"] - 90)), int(rng.integers(image["height"] - 90)), 80, 60],
            }
            for at, image in enumerate(images)
            for k in range(9)
        ]
        document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
        (folder / f"{name}.json").write_text(json.dumps(document))


def bytes_of(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def loaded(source: da.Source) -> Iterator[int]:
    """Yield how many tiles each batch has, epoch after epoch."""
    recipe = [da.RandomHorizontalFlip(), da.Resize((SIZE, SIZE)), da.Normalize(dtype="uint8")]
    loader = da.Loader(source, recipe, batch_size=8, device="cpu")
    return (len(batch) for _ in iter(int, 1) for batch in loader)


def reading(tiles: da.TileReader) -> Callable[[int], int]:
    """Return a function that reads this many tiles in a random order, batches of 8, and nothing else."""
    order = np.random.default_rng(1).permutation(len(tiles))

    def read(count: int) -> int:
        for start in range(0, count, 8):
            tiles.contents(np.take(order, range(start, start + 8), mode="wrap"))
        return -(-count // 8) * 8

    return read


def decoding(tiles: da.TileReader) -> Callable[[int], int]:
    """Return a function that decodes the tiles of the TIFFs that `reading` needs, once for a batch."""
    order = np.random.default_rng(1).permutation(len(tiles))
    pages = [tifffile.TiffFile(tiles.reader.path(at)).pages[0] for at in range(len(tiles.reader))]
    contents = [tiles.reader.path(at).read_bytes() for at in range(len(tiles.reader))]
    across = -(-WIDTH // TIFF_TILE)

    def decode(count: int) -> int:
        for start in range(0, count, 8):
            touched = set()
            for tile in np.take(order, range(start, start + 8), mode="wrap").tolist():
                x, y, width, height = tiles.windows[tile].tolist()
                touched |= {
                    (int(tiles.pictures[tile]), row * across + column)
                    for row in range(y // TIFF_TILE, -(-(y + height) // TIFF_TILE))
                    for column in range(x // TIFF_TILE, -(-(x + width) // TIFF_TILE))
                }
            for picture, at in touched:
                page: Any = pages[picture]
                first, length = page.dataoffsets[at], page.databytecounts[at]
                page.decode(contents[picture][first : first + length], at, jpegtables=page.jpegtables)
        return -(-count // 8) * 8

    return decode


def take(batches: Iterator[int]) -> Callable[[int], int]:
    """Return a function that takes this many tiles of a loader."""

    def run(count: int) -> int:
        taken = 0
        while taken < count:
            taken += next(batches)
        return taken

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=6)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tiles", type=int, default=128)
    options = parser.parse_args()
    da.keep_freed_memory()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder, options.pictures)
        for form, quality in (("jpeg", 90), ("jpeg", "keep"), ("png", 90)):
            start = time.process_time()
            out = folder / f"tiles as {form} {quality}"
            summary = da.tile_coco(folder / "jpg.json", folder, out, format=form, quality=quality)
            spent = (time.process_time() - start) / summary.tiles * 1e3
            size = bytes_of(summary.images, "**/*.*") / bytes_of(folder, "jpeg/*.jpg")
            print(
                f"detaug tile --format {form} --quality {quality}: {spent:.0f} CPU ms a tile, {size:.2f} of the bytes"
            )
        sources = {name: da.CocoReader(folder, folder / f"{name}.json") for name in ("files", "jpg", "tif", "zlib")}
        for name, out in (("tiles", "jpeg 90"), ("kept", "jpeg keep"), ("png", "png 90")):
            sources[name] = da.CocoReader(folder / f"tiles as {out}/images", folder / f"tiles as {out}/jpg.json")
        sources["bands"] = da.CocoReader(folder, folder / "bands.json", channels=6, dtype="uint16")
        readers = {name: da.TileReader(sources[name]) for name in ("jpg", "tif", "zlib", "bands")}
        ways = {
            "files of 1024 x 1024": take(loaded(sources["files"])),
            "files of detaug tile, JPEG": take(loaded(sources["tiles"])),
            "files of detaug tile, JPEG, kept": take(loaded(sources["kept"])),
            "files of detaug tile, PNG": take(loaded(sources["png"])),
            "TileReader, JPEG, all source images kept": take(loaded(readers["jpg"])),
            "TileReader, JPEG, 200 MB": take(loaded(da.TileReader(sources["jpg"], memory="200MB"))),
            "TileReader, TIFF (JPEG)": take(loaded(readers["tif"])),
            "TileReader, TIFF (zlib)": take(loaded(readers["zlib"])),
            "TIFF (JPEG), contents": reading(readers["tif"]),
            "TIFF (JPEG), its tiles": decoding(readers["tif"]),
            "TIFF (zlib), contents": reading(readers["zlib"]),
            "TIFF (zlib), its tiles": decoding(readers["zlib"]),
            "TIFF (six bands), contents": reading(readers["bands"]),
            "TIFF (six bands), its tiles": decoding(readers["bands"]),
        }
        measure(ways, options.tiles, options.turns)


def settle() -> None:
    """Wait until the pipelines of all loaders are full again: each turn then pays for the tiles that it took."""
    before = -1.0
    while (now := time.process_time()) - before > 0.01:
        before = now
        time.sleep(0.25)


def measure(ways: dict[str, Callable[[int], int]], count: int, turns: int) -> None:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, run in ways.items():
            start = time.process_time()
            done = run(count)
            settle()
            if turn:  # the first one compiles and fills caches
                found[name].append((time.process_time() - start) / done * 1e3)
    for name, each in found.items():
        print(f"{name}: {median(each):.1f} CPU ms a tile ({min(each):.1f} to {max(each):.1f})")
    for title, one, other in (
        ("speed of tiles / files", "files of 1024 x 1024", "files of detaug tile, JPEG"),
        ("TIFF (JPEG) / its tiles", "TIFF (JPEG), contents", "TIFF (JPEG), its tiles"),
        ("speed of tiles, kept / files", "files of 1024 x 1024", "files of detaug tile, JPEG, kept"),
        ("TIFF (zlib) / its tiles", "TIFF (zlib), contents", "TIFF (zlib), its tiles"),
        ("TIFF (six bands) / its tiles", "TIFF (six bands), contents", "TIFF (six bands), its tiles"),
    ):
        ratios = sorted(a / b for a, b in zip(found[one], found[other], strict=True))
        print(f"{title}: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
