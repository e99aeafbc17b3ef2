"""Draw the gallery of the site: for each op the source, three draws with their boxes, and what was drawn in words."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import detaug as da
from detaug.converters import voc_to_coco
from detaug.demo import make_people, make_ships, make_voc
from detaug.drawing import class_colors, draw_boxes, to_image
from detaug.drawing.sheet import Tile
from detaug.sheets import draws_sheet
from detaug.sheets.photos import Photo, read_photos
from detaug.sheets.recipe_sheets import augment, step_tile

GROUPS: dict[str, list[str]] = {
    "Flips and quarter turns": [
        "da.RandomHorizontalFlip()",
        "da.RandomVerticalFlip()",
        "da.RandomRotate90()",
    ],
    "Rotation, affine, perspective, distortion": [
        "da.RandomRotation(20)",
        "da.RandomAffine(degrees=10, translate=(0.1, 0.1), scale=(0.7, 1.2), shear=15)",
        "da.RandomPerspective(p=1)",
        "da.OpticalDistortion((-0.3, 0.6))",
        "da.ElasticTransform(alpha=1000, sigma=20)",
    ],
    "Crops and canvases": [
        "da.RandomIoUCrop()",
        "da.RandomBoxSafeCrop()",
        "da.RandomSizeCrop()",
        "da.RandomCrop((240, 240))",
        "da.CenterCrop((240, 240))",
        "da.RandomZoomOut(p=1)",
        "da.Pad(40)",
        "da.PadToMultiple(128)",
        "da.ScaleJitter((375, 500), scale=(0.4, 1.6))",
    ],
    "Sizes": [
        'da.Resize((300, 300), letterbox="center")',
        "da.RandomShortestSize((120, 160, 240))",
        "da.RandomResizedCrop((240, 320))",
    ],
    "Several images in one": [
        "da.Mosaic()",
        "da.MixUp()",
        "da.CutMix()",
        "da.CopyPaste(p=1)",
    ],
    "Erasing": [
        "da.RandomErasing(p=1)",
        "da.GridMask(p=1)",
    ],
    "Colour": [
        "da.RandomPhotometricDistort()",
        "da.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)",
        "da.RandomHSV()",
        "da.RandomGrayscale(p=0.5)",
        "da.RandomChannelPermutation(p=1)",
        "da.RandomAutocontrast()",
        "da.RandomEqualize()",
        "da.CLAHE(p=1)",
        "da.RandomInvert()",
        "da.RandomPosterize(bits=2)",
        "da.RandomSolarize(threshold=128)",
        "da.RandomGamma((0.4, 2.5), p=1)",
        "da.ChannelDropout(p=1)",
        "da.RandomFog(p=1)",
        "da.RandomRain(density=1, p=1)",
        "da.RandomShadow(count=(1, 3), p=1)",
    ],
    "Blur, noise, compression": [
        "da.MotionBlur((9, 25), p=1)",
        "da.Defocus((3, 6), p=1)",
        "da.MedianBlur(7, p=1)",
        "da.Downscale((0.1, 0.3), p=1)",
        "da.GaussianBlur(sigma=(0.5, 5), p=1)",
        "da.RandomAdjustSharpness(4)",
        "da.GaussianNoise(p=1)",
        "da.SaltAndPepperNoise(p=1)",
        "da.JPEG(quality=(2, 20), p=1)",
    ],
    "Ops that choose ops": [
        "da.RandomApply((da.RandomHorizontalFlip(p=1), da.RandomRotation(20)))",
        "da.RandomChoice((da.RandomVerticalFlip(p=1), da.RandomZoomOut(p=1), da.RandomIoUCrop()))",
        "da.RandomOrder((da.RandomInvert(p=1), da.RandomSolarize(100, p=1)))",
        "da.RandAugment()",
        "da.TrivialAugmentWide()",
    ],
    "Boxes and values": [
        "da.SanitizeBoundingBoxes(min_area=14000)",
        "da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)",
    ],
}
"""The examples, each the last op of its recipe."""

RECIPES = {
    "objects": "[da.RandomAffine(10), da.Resize((300, 300)), da.Mosaic(), da.RandomErasing(p=1)]",
    "people": "[da.RandomRotation(15), da.RandomHorizontalFlip(), da.Resize((300, 300), letterbox='center')]",
    "ships": "[da.RandomRotation(180), da.Resize((300, 300), letterbox='center'), da.RandomHSV()]",
}
"""Recipes for the demo's objects with masks, people with keypoints and ships with rotated boxes."""

DRAWS = 3
IMAGES = 8
SOURCE = 7
"""Position of the image that all ops get."""
SIZE = (375, 500)
SEED = 2
CELL = 320
"""Pixels, the longer side of an image."""

INTRODUCTION = f"""\
# Gallery

Every op with one example. The first image is the source with its boxes, the others are three draws of the op, or its
one result where it draws nothing; below each is what it changed and the random numbers that it drew. The site's build
makes the images from the examples with the images of `detaug demo`. Such a row for a recipe of your own:

```python
import detaug as da
from detaug.sheets import draws_sheet

reader = da.CocoReader("demo/VOC/JPEGImages", "demo/train.json")
ops = [da.RandomIoUCrop(), da.RandomHorizontalFlip()]
draws_sheet(reader, ops, [{SOURCE}], columns=3, seed={SEED}).save("row.png")
```

Pixel ops and ops that mix images come after `da.Resize({SIZE})` here. [ops.md](ops.md) has the ops' names in other
libraries. One op has no image: [OpticalFlow](video.md#optical-flow) changes no pixels.
"""


def name_of(example: str) -> str:
    """Return the op of an example.

    >>> name_of("da.Pad(40)")
    'Pad'
    """
    return example.partition("(")[0].removeprefix("da.")


def write_gallery(page: Path) -> None:
    """Write the Markdown `page`, and its images into the folder `gallery` beside it."""
    pictures = page.parent / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    reader, photos = read_demo()
    names = list(reader.class_names[1:])
    save(photos[0].tile(), pictures / "source.webp", names)
    parts = [INTRODUCTION]
    for title, examples in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [entry(example, photos, pictures, names) for example in examples]
    parts.append("## Masks, keypoints and rotated boxes\n")
    parts += [shapes_entry(name, recipe, pictures) for name, recipe in RECIPES.items()]
    page.write_text("\n".join(parts), encoding="utf-8")


def read_demo() -> tuple[da.CocoReader, list[Photo]]:
    """Return the demo's reader and the images of one batch: three times the image, then others to mix with it."""
    with tempfile.TemporaryDirectory() as folder:
        root = make_voc(Path(folder, "VOC"), images=IMAGES)
        voc_to_coco(root, Path(folder, "train.json"))
        reader = da.CocoReader(root / "JPEGImages", Path(folder, "train.json"))
        others = [row for row in range(IMAGES) if row != SOURCE]
        return reader, read_photos(reader, [SOURCE] * DRAWS + others)[:IMAGES]


def draw(example: str, photos: list[Photo]) -> list[Tile]:
    """Run an example on the images and return its draws for the first three, with captions."""
    op = eval(example, {"da": da})
    before = [] if op.stage in ("view", "render") else [da.Resize(SIZE)]
    results = [augment(photos, ops, SEED) for ops in (before, [*before, op])]
    return [step_tile(results, number, 1) for number in range(DRAWS)]


def is_random(example: str) -> bool:
    """Return whether an op draws random numbers.

    >>> is_random("da.Pad(40)"), is_random("da.RandomInvert()")
    (False, True)
    """
    return bool(eval(example, {"da": da}).draw(np.random.default_rng(0), DRAWS))


def entry(example: str, photos: list[Photo], pictures: Path, class_names: list[str]) -> str:
    """Save the images of an example and return its section of the page."""
    name = name_of(example)
    figures = [figure("gallery/source.webp", f"{name}, source", ["source"])]
    tiles = draw(example, photos)
    for number, tile in enumerate(tiles if is_random(example) else tiles[:1], 1):
        file = f"{name}-{number}.webp"
        save(tile, pictures / file, class_names)
        lines = [f"draw {number}" if is_random(example) else "result", *filter(None, tile.caption.split("\n"))]
        figures.append(figure(f"gallery/{file}", f"{name}, draw {number} with boxes", lines))
    summary = (getattr(da, name).__doc__ or "").partition("\n")[0]
    rows = "\n".join(figures)
    link = f"{{py:obj}}`Arguments <detaug.{name}>`"
    return f"### {name}\n\n{summary} {link}\n\n```python\n{example}\n```\n\n::::{{container}} draws\n{rows}\n::::\n"


def objects_with_masks(folder: str) -> da.CocoReader:
    root, annotations = make_voc(Path(folder, "VOC"), images=IMAGES), Path(folder, "objects.json")
    voc_to_coco(root, annotations, masks=True)
    return da.CocoReader(root / "JPEGImages", annotations, masks=True)


SHAPES: dict[str, Callable[[str], da.CocoReader]] = {
    "objects": objects_with_masks,
    "people": lambda folder: da.CocoReader(f"{folder}/people", make_people(folder, images=2), keypoints=True),
    "ships": lambda folder: da.CocoReader(f"{folder}/ships", make_ships(folder, images=2), rotated=True),
}
"""The readers of `RECIPES`."""


def shapes_entry(name: str, recipe: str, pictures: Path) -> str:
    """Save a sheet of a recipe on the demo's `name` and return its section of the page."""
    with tempfile.TemporaryDirectory() as folder:
        reader = SHAPES[name](folder)
        sheet = draws_sheet(reader, eval(recipe, {"da": da}), [0, 1], columns=DRAWS, seed=SEED, size=CELL)
    sheet.save(pictures / f"{name}.webp", "WEBP", quality=80)
    alt = f"{name}, sources and draws with their masks, keypoints or rotated boxes"
    return f"```python\n{recipe}\n```\n\n:::{{figure}} gallery/{name}.webp\n:alt: {alt}\n:loading: lazy\n:::\n"


def figure(file: str, alt: str, lines: list[str]) -> str:
    """Return a figure whose caption has a line in bold and then what was drawn."""
    head, *rest = lines
    caption = ": ".join([f"**{head}**", "; ".join(rest)]) if rest else f"**{head}**"
    return f":::{{figure}} {file}\n:alt: {alt}\n:loading: lazy\n\n{caption}\n:::"


def save(tile: Tile, path: Path, class_names: list[str]) -> None:
    """Draw a tile with its boxes, the longer side `CELL` pixels."""
    image = to_image(tile.image)
    factor = CELL / max(image.size)
    size = (round(image.height * factor), round(image.width * factor))
    colors = class_colors(class_names)
    picture = draw_boxes(image, tile.boxes, tile.names, difficult=tile.difficult, size=size, colors=colors)
    picture.save(path, "WEBP", quality=80)


def examples() -> Iterator[str]:
    """Return the examples of all groups."""
    for group in GROUPS.values():
        yield from group
