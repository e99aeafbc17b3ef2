"""Draw a small Pascal VOC dataset, for `detaug demo` and the notebooks, which need data without a download.

Balls, cars, fish, houses, mugs and trees, in meadows and streets, on tables and beaches, and under water. The
scenes are as detailed as images, so that files are as large and take as long to decode. An object's box is
measured on its visible pixels.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from detaug.demo.scenes import SCENES, Role
from detaug.demo.textures import Random, photograph
from detaug.demo.things import draw_thing
from detaug.errors import InputError

__all__ = ["make_voc"]

Box = tuple[float, float, float, float]
Mask = npt.NDArray[np.bool_]

CLASSES = ("ball", "car", "fish", "house", "mug", "tree")
"""In the order of their numbers in SegmentationClass, from 1."""

SIZES = ((500, 375), (500, 333), (375, 500), (500, 375), (480, 360), (500, 400), (333, 500), (500, 375))


class Thing(NamedTuple):
    """An object in an image: its class, its box, XYXY pixels in continuous coordinates, VOC's flags, (H, W) mask."""

    name: str
    box: Box
    truncated: bool
    occluded: bool
    difficult: bool
    seen: Mask


class Sprite(NamedTuple):
    """A thing before it is pasted: its class, its RGBA pixels, and x, y of its top left corner."""

    name: str
    image: Image.Image
    xy: tuple[int, int]


class View(NamedTuple):
    """A sprite in its image: (H, W) masks of the pixels that it covers, and of those in which it is visible."""

    sprite: Sprite
    mask: Mask
    seen: Mask


# ---------------------------------------------------------------- the dataset


def make_voc(root: str | Path, images: int = 60, seed: int = 0) -> Path:
    """Draw a Pascal VOC dataset into the folder `root`; return it.

    It has Annotations, JPEGImages, ImageSets/Main, and the visible pixels of each object, SegmentationObject, and of
    each class, SegmentationClass: the n-th of the names in order is n, and 0 the background, as in class_names.txt.
    images: their number; the last fifth is the split `val`, the others are `train`, all of them `trainval`.
    seed: the same seed gives the same images and boxes; image n does not depend on how many there are.
    Among five images or more, one has no objects, one has a difficult object, one has decimal coordinates.
    Files of the same name are overwritten. Raises InputError for less than 1 image.

    >>> import tempfile
    >>> root = make_voc(tempfile.mkdtemp(), images=2)
    >>> sorted(path.name for path in root.iterdir())
    ['Annotations', 'ImageSets', 'JPEGImages', 'SegmentationClass', 'SegmentationObject', 'class_names.txt']
    """
    if images < 1:
        raise InputError(f"images must be at least 1, got {images}; the demo has 60")
    root, names = Path(root), [f"{n:06d}" for n in range(1, images + 1)]
    for folder in ("Annotations", "JPEGImages", "SegmentationObject", "SegmentationClass", "ImageSets/Main"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for n, name in enumerate(names):
        image, things = paint(n, seed)
        image.save(root / "JPEGImages" / f"{name}.jpg", quality=90)
        _annotation(f"{name}.jpg", image.size, things).write(root / "Annotations" / f"{name}.xml")
        numbers = {"Object": range(1, len(things) + 1), "Class": [CLASSES.index(thing.name) + 1 for thing in things]}
        for kind, own in numbers.items():
            _numbered(image.size, things, own).save(root / f"Segmentation{kind}" / f"{name}.png", optimize=True)
    (root / "class_names.txt").write_text("".join(f"{name}\n" for name in ("background", *CLASSES)), encoding="ascii")
    train = images - images // 5
    for split, part in {"train": names[:train], "val": names[train:], "trainval": names}.items():
        file = root / "ImageSets" / "Main" / f"{split}.txt"
        file.write_text("".join(f"{name}\n" for name in part), encoding="ascii")
    return root


def _numbered(size: tuple[int, int], things: Sequence[Thing], numbers: Sequence[int]) -> Image.Image:
    """Return VOC's image of the numbers of objects: at each pixel the visible one, in its color of VOC's map."""
    pixels = np.zeros(size[::-1], np.uint8)
    for number, thing in zip(numbers, things, strict=True):
        pixels[thing.seen] = number
    image = Image.fromarray(pixels)
    # The lowest bits of a number are the highest of red, green and blue, the next three the next ones.
    bits = [[sum((n >> 3 * k + channel & 1) << 7 - k for k in range(3)) for channel in range(3)] for n in range(256)]
    image.putpalette(np.ravel(bits).tolist())
    return image


def _annotation(filename: str, size: tuple[int, int], things: Sequence[Thing]) -> ET.ElementTree[ET.Element]:
    root = ET.Element("annotation")
    _add(root, folder="demo", filename=filename)
    _add(ET.SubElement(root, "source"), database="detaug demo", annotation="drawn", image="drawn")
    _add(ET.SubElement(root, "size"), width=size[0], height=size[1], depth=3)
    _add(root, segmented=1)
    for thing in things:
        _add_object(ET.SubElement(root, "object"), thing)
    ET.indent(root, "\t")
    return ET.ElementTree(root)


def _add_object(element: ET.Element, thing: Thing) -> None:
    """Add an object in VOC's coordinates: pixels from 1, the last one included (decision 1)."""
    x1, y1, x2, y2 = thing.box
    _add(element, name=thing.name, pose="Unspecified", truncated=int(thing.truncated))
    _add(element, occluded=int(thing.occluded), difficult=int(thing.difficult))
    corners = {"xmin": x1 + 1, "ymin": y1 + 1, "xmax": x2, "ymax": y2}
    _add(ET.SubElement(element, "bndbox"), **{tag: f"{value:g}" for tag, value in corners.items()})


def _add(element: ET.Element, **texts: str | int) -> None:
    for tag, text in texts.items():
        ET.SubElement(element, tag).text = str(text)


# ---------------------------------------------------------------- one image


def paint(n: int, seed: int = 0) -> tuple[Image.Image, list[Thing]]:
    """Draw image number `n`; return it and its visible things, from the farthest to the nearest."""
    image, sprites = compose(n, seed)
    views = cut_views(sprites, image.size)
    for view in views:
        paste(image, view.sprite)
    things = [_thing(view, decimals=n % 5 == 1 or _has_small_ball(n)) for view in views]
    return photograph(image, np.random.default_rng([seed, n, 1])), things


def compose(n: int, seed: int = 0) -> tuple[Image.Image, list[Sprite]]:
    """Draw the empty scene of image `n` and the sprites to paste into it, in that order."""
    rng, size = np.random.default_rng([seed, n]), SIZES[n % len(SIZES)]
    scene, roles = SCENES[n % len(SCENES)]
    image, horizon = scene(rng, *size)
    if n % 14 == 4:
        return image, []
    cast = [role for role in roles for _ in range(rng.integers(*role.number))]
    plan = sorted((rng.uniform(*role.depth), role) for role in cast)
    sprites = [make_sprite(rng, role, depth, size, horizon) for depth, role in plan]
    return image, sprites + [_small_ball(rng, size)] * _has_small_ball(n)


def make_sprite(rng: Random, role: Role, depth: float, size: tuple[int, int], horizon: float) -> Sprite:
    """Draw a sprite on the ground: the farther away, the higher and smaller; a fish swims anywhere."""
    image = draw_thing(role.name, rng, side_of(rng, role, depth, size))
    return place_sprite(rng, role.name, image, depth, size, horizon)


def side_of(rng: Random, role: Role, depth: float, size: tuple[int, int]) -> int:
    """Return the size of a thing in pixels."""
    return round(min(size) * role.scale * (0.3 + 0.7 * depth) * rng.uniform(0.85, 1.15))


def place_sprite(
    rng: Random, name: str, image: Image.Image, depth: float, size: tuple[int, int], horizon: float
) -> Sprite:
    """Put the image of a thing on the ground, at any x."""
    width, height = size
    x = rng.uniform(-0.3 * image.width, width - 0.7 * image.width)
    foot = height * (horizon + (1 - horizon) * (0.04 + 0.92 * depth))
    if name == "fish":
        foot = image.height + rng.uniform(-0.1, 0.9) * (height - image.height / 2)
    return Sprite(name, image, (round(x), round(foot) - image.height))


def _has_small_ball(n: int) -> bool:
    return n % 15 == 2


def _small_ball(rng: Random, size: tuple[int, int]) -> Sprite:
    """Draw a ball in front, fully visible, and so small that VOC's annotators would call it difficult."""
    x, y = rng.uniform(0.3, 0.7) * size[0], rng.uniform(0.75, 0.9) * size[1]
    return Sprite("ball", draw_thing("ball", rng, 15), (round(x), round(y)))


def cut_views(sprites: Sequence[Sprite], size: tuple[int, int]) -> list[View]:
    """Return the visible parts of sprites behind later ones; drop sprites of which less than a third is visible."""
    views: list[View] = []
    clear = np.ones(size[::-1])  # the fraction of each pixel that nearer things leave
    for sprite in reversed(sprites):
        cover = Image.new("L", size)
        cover.paste(sprite.image.getchannel("A"), sprite.xy)
        alpha = np.asarray(cover) / 255
        view = View(sprite, alpha > 0.5, alpha * clear > 0.5)
        if view.seen.sum() > pixels_of(sprite) / 3:
            views.insert(0, view)
            clear *= 1 - alpha
    return views


def _thing(view: View, decimals: bool) -> Thing:
    """Measure box and flags of a sprite; mostly hidden or very small objects are difficult."""
    sprite, mask, seen = view
    box = tight_box(seen)
    share = seen.sum() / pixels_of(sprite)
    return Thing(
        sprite.name,
        _finer(sprite) if decimals and share == 1 else box,
        truncated=bool(mask.sum() < 0.99 * pixels_of(sprite)),
        occluded=bool(seen.sum() < 0.95 * mask.sum()),
        difficult=bool(share < 0.45 or max(box[2] - box[0], box[3] - box[1]) < 20),
        seen=seen,
    )


def pixels_of(sprite: Sprite) -> int:
    return int((np.asarray(sprite.image.getchannel("A")) > 127).sum())


def tight_box(mask: Mask) -> Box:
    """Return the smallest box around the True pixels."""
    x, y = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    return int(x[0]), int(y[0]), int(x[-1]) + 1, int(y[-1]) + 1


def _finer(sprite: Sprite) -> Box:
    """Return the box of a fully visible sprite to a tenth of a pixel."""
    alpha = np.asarray(sprite.image.getchannel("A")) / 255
    (x1, x2), (y1, y2) = _edges(alpha.max(0)), _edges(alpha.max(1))
    x, y = sprite.xy
    return round(x + x1, 1), round(y + y1, 1), round(x + x2, 1), round(y + y2, 1)


def _edges(cover: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return both ends of the covered part of a row of pixels: a pixel covered by 0.3 counts as 0.3 pixels."""
    inside = np.flatnonzero(cover > 0.5)
    first, last = int(inside[0]), int(inside[-1])
    return first + 1 - float(cover[: first + 1].sum()), last + float(cover[last:].sum())


# ---------------------------------------------------------------- pasting


def paste(image: Image.Image, sprite: Sprite) -> None:
    if sprite.name != "fish":
        _cast_shadow(image, sprite)
    image.paste(sprite.image, sprite.xy, sprite.image)


def _cast_shadow(image: Image.Image, sprite: Sprite) -> None:
    """Draw a soft dark ellipse under the foot of a thing; its box does not include it."""
    (x, y), (width, height) = sprite.xy, sprite.image.size
    reach = 0.04 * width + 0.03 * height
    shadow = Image.new("L", image.size)
    ellipse = (x + 0.04 * width, y + height - reach, x + 1.05 * width, y + height + reach)
    ImageDraw.Draw(shadow).ellipse(ellipse, fill=150)
    image.paste((12, 14, 22), mask=shadow.filter(ImageFilter.GaussianBlur(reach / 2)))
