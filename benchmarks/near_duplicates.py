"""Measure `detaug check --near`: what it finds among variants of images, and how long 118,000 images take.

    python benchmarks/near_duplicates.py FOLDER ... [--images 118000] [--drawing near.jpg]

FOLDER: real images that differ from each other. Each is compared with a variant of each: another size, JPEG quality 50,
a crop of 0 to 5 % on each side, a flip, brightness times 0.7 or 1.3, contrast times 0.7 or 1.3, all at once. Prints for
each kind the recall, and the pairs of different images that were taken for the same, the reading rate of one process,
and for random thumbnails with planted pairs the seconds, the memory and the planted pairs that were found. --drawing
draws an image of `detaug demo` and its variants.
"""

from __future__ import annotations

import argparse
import io
import resource
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance

from detaug.demo.shapes import make_voc
from detaug.files.image_file import ImageFile
from detaug.files.near_duplicates import SIDE, near_pairs, read_thumbnails
from detaug.files.paths import list_files

PLANTED = 1000
rng = np.random.default_rng(0)


def jpeg(image: Image.Image) -> Image.Image:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=50)
    return Image.open(content).convert("RGB")


def half(image: Image.Image) -> Image.Image:
    return image.resize((max(image.width // 2, SIDE), max(image.height // 2, SIDE)), Image.Resampling.LANCZOS)


def crop(image: Image.Image) -> Image.Image:
    left, top, right, bottom = rng.uniform(0, 0.05, 4)
    width, height = image.size
    return image.crop((int(left * width), int(top * height), int((1 - right) * width), int((1 - bottom) * height)))


def flip(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def brightness(image: Image.Image) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(rng.choice([0.7, 1.3]))


def contrast(image: Image.Image) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(rng.choice([0.7, 1.3]))


VARIANTS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": half,
    "JPEG quality 50": jpeg,
    "crop": crop,
    "flip": flip,
    "brightness": brightness,
    "contrast": contrast,
    "all at once": lambda image: jpeg(brightness(half(flip(crop(image))))),
}


def measure_photographs(paths: list[Path]) -> None:
    start = time.perf_counter()
    originals, faults = read_thumbnails([ImageFile(str(path)) for path in paths], jobs=1)
    seconds = time.perf_counter() - start
    alike = [(pair.first, pair.second) for pair in near_pairs(originals)]
    print(f"{len(paths):,} images, {len(faults)} do not decode; {len(paths) / seconds:,.0f} images/s of one process")
    print("the same already:", ", ".join(f"{paths[a].name} and {paths[b].name}" for a, b in alike) or "none")
    known = {frozenset(pair) for pair in alike}
    textured = originals.std((1, 2)) >= 4  # the others are of one color, and not compared
    print("\n| variant | recall | wrong pairs |\n|---|---|---|")
    recalls = []
    file = Path(".near-variant.png")
    for name, make in VARIANTS.items():
        thumbnails = []
        for path in paths:
            make(Image.open(path).convert("RGB")).save(file, compress_level=1)
            thumbnails.append(read_thumbnails([ImageFile(str(file))], jobs=1)[0][0])
        pairs = near_pairs(np.array(thumbnails), originals)
        right = sum(pair.first == pair.second for pair in pairs)
        wrong = [pair for pair in pairs if pair.first != pair.second and frozenset(pair[:2]) not in known]
        recalls.append(right / textured.sum())
        print(f"| {name} | {recalls[-1]:.3f} | {len(wrong)} |", flush=True)
    file.unlink()
    print(f"| mean | {np.mean(recalls):.3f} | |")


def measure_pairs(count: int) -> None:
    thumbnails = rng.integers(0, 256, (count, 8, 8)).astype(np.uint8).repeat(SIDE // 8, 1).repeat(SIDE // 8, 2)
    order = rng.permutation(count)[: 2 * PLANTED].reshape(PLANTED, 2)
    noise = rng.normal(0, 3, (PLANTED, SIDE, SIDE))
    thumbnails[order[:, 1]] = (thumbnails[order[:, 0]] + noise).clip(0, 255).astype(np.uint8)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    pairs = near_pairs(thumbnails)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    planted = {frozenset(pair) for pair in order.tolist()}
    right = sum(frozenset(pair[:2]) in planted for pair in pairs)
    print(f"\n{count:,} random images: {seconds:.0f} s, {(after - before) / 1024:,.0f} MB more")
    print(f"{right} of {PLANTED} planted pairs, and {len(pairs) - right} others")


def draw_variants(output: Path) -> None:
    with TemporaryDirectory() as folder:
        make_voc(folder, 1)
        image = Image.open(next(Path(folder, "JPEGImages").iterdir())).convert("RGB")
    sheet, pen_height, side = Image.new("RGB", (1000, 2 * 210), "white"), 18, 190
    pen = ImageDraw.Draw(sheet)
    for index, (name, make) in enumerate({"an image": lambda same: same, **VARIANTS}.items()):
        tile = make(image)
        tile = tile.resize((240, round(240 * tile.height / tile.width))).crop((0, 0, 240, side))
        corner = (index % 4 * 250, index // 4 * 210)
        pen.text((corner[0] + 2, corner[1] + 3), name, "black")
        sheet.paste(tile, (corner[0], corner[1] + pen_height))
    sheet.save(output, quality=85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--images", type=int, default=118_000)
    parser.add_argument("--drawing", type=Path)
    arguments = parser.parse_args()
    if arguments.drawing:
        draw_variants(arguments.drawing)
    paths = [folder / name for folder in arguments.folders for name in list_files(folder, (".jpg", ".jpeg", ".png"))]
    if paths:
        measure_photographs(paths)
    measure_pairs(arguments.images)


if __name__ == "__main__":
    main()
