"""Draw a small Pascal VOC data set: what `detaug demo` and the notebooks use where no photographs are at hand.

Balls, cars, fish, houses, mugs and trees stand in meadows, streets, on tables and under water. The scenes are as
busy as photographs, so that files are as large and decoding takes as long. Each thing is drawn at two to four
times its size and shrunk; its box is read off the pixels of it that are left to see.

Outlines are (K, 2) points x, y in the unit square of a thing, y downwards. Colours are (R, G, B) in 0..255.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageFilter

__all__ = ["make_voc"]

Array = npt.NDArray[np.float32]
Points = Sequence[tuple[float, float]] | npt.NDArray[np.float64]
Color = tuple[float, float, float]
Box = tuple[float, float, float, float]
Random = np.random.Generator

SIZES = ((500, 375), (500, 333), (375, 500), (500, 375), (480, 360), (500, 400), (333, 500), (500, 375))


class Thing(NamedTuple):
    """An object in a picture: its class and box, (4,) XYXY pixels in continuous coordinates, and VOC's flags."""

    name: str
    box: Box
    truncated: bool
    occluded: bool
    difficult: bool


class Sprite(NamedTuple):
    """A thing before it is pasted: its class, its RGBA pixels, where its top left corner goes, its shadow."""

    name: str
    image: Image.Image
    xy: tuple[int, int]
    casts_shadow: bool


class Sketch(NamedTuple):
    """The square RGBA canvas that a thing is drawn on, and the random numbers it is drawn with."""

    image: Image.Image
    rng: Random


# ---------------------------------------------------------------- the data set


def make_voc(root: str | Path, images: int = 60, seed: int = 0) -> Path:
    """Draw a Pascal VOC data set into the folder `root` (Annotations, JPEGImages, ImageSets/Main); return it.

    images: how many; the last fifth of them is the split `val`, the others are `train` (`trainval` is both).
    seed: the same seed gives the same pictures and boxes; picture n does not depend on how many there are.
    From five images on, there is one without objects, one with a difficult object, one with decimal coordinates.
    Files of the same name are overwritten. Raises ValueError for a number of images under 1.

    >>> import tempfile
    >>> root = make_voc(tempfile.mkdtemp(), images=2)
    >>> sorted(path.name for path in root.iterdir())
    ['Annotations', 'ImageSets', 'JPEGImages']
    """
    if images < 1:
        raise ValueError(f"images must be at least 1, got {images}; the demo uses 60")
    root = Path(root)
    names = [f"{n:06d}" for n in range(1, images + 1)]
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for n, name in enumerate(names):
        picture, things = paint(n, seed)
        picture.save(root / "JPEGImages" / f"{name}.jpg", quality=90)
        _annotation(f"{name}.jpg", picture.size, things).write(root / "Annotations" / f"{name}.xml")
    _write_splits(root / "ImageSets" / "Main", names)
    return root


def _write_splits(folder: Path, names: Sequence[str]) -> None:
    train = len(names) - len(names) // 5
    for split, part in {"train": names[:train], "val": names[train:], "trainval": names}.items():
        (folder / f"{split}.txt").write_text("".join(f"{name}\n" for name in part), encoding="ascii")


def _annotation(filename: str, size: tuple[int, int], things: Sequence[Thing]) -> ET.ElementTree[ET.Element]:
    root = ET.Element("annotation")
    _add(root, folder="demo", filename=filename)
    _add(_child(root, "source"), database="detaug demo", annotation="drawn", image="drawn")
    _add(_child(root, "size"), width=size[0], height=size[1], depth=3)
    _add(root, segmented=0)
    for thing in things:
        _add_object(_child(root, "object"), thing)
    ET.indent(root, "\t")
    return ET.ElementTree(root)


def _add_object(element: ET.Element, thing: Thing) -> None:
    """Coordinates as VOC counts them: pixels from 1, the last one included (decision 1)."""
    x1, y1, x2, y2 = thing.box
    _add(element, name=thing.name, pose="Unspecified", truncated=int(thing.truncated))
    _add(element, occluded=int(thing.occluded), difficult=int(thing.difficult))
    _add(_child(element, "bndbox"), xmin=f"{x1 + 1:g}", ymin=f"{y1 + 1:g}", xmax=f"{x2:g}", ymax=f"{y2:g}")


def _child(element: ET.Element, tag: str) -> ET.Element:
    return ET.SubElement(element, tag)


def _add(element: ET.Element, **texts: str | int) -> None:
    for tag, text in texts.items():
        _child(element, tag).text = str(text)


# ---------------------------------------------------------------- one picture


def paint(n: int, seed: int = 0) -> tuple[Image.Image, list[Thing]]:
    """Picture number `n`, and what is to be seen in it, from the farthest to the nearest."""
    picture, sprites = compose(n, seed)
    things = _things(sprites, picture.size, decimals=n % 10 == 1)
    for sprite in sprites:
        _paste(picture, sprite)
    return _photograph(picture, np.random.default_rng([seed, n, 1])), things


def compose(n: int, seed: int = 0) -> tuple[Image.Image, list[Sprite]]:
    """The scene of picture `n` while it is still empty, and the things to be pasted into it, in that order."""
    rng = np.random.default_rng([seed, n])
    size = SIZES[n % len(SIZES)]
    scene, cast = SCENES[n % len(SCENES)]
    ground, horizon = scene(rng, *size)
    sprites = [] if n % 15 == 4 else _cast(rng, cast, size, horizon)
    if n % 15 == 2:
        sprites.append(_small_ball(rng, size))
    return _to_image(ground), _uncrowded(sprites, size)


def _cast(
    rng: Random, cast: dict[str, tuple[int, int, float]], size: tuple[int, int], horizon: float
) -> list[Sprite]:
    """Things of the classes that belong to a scene: so many at least, so many at most, so large in front."""
    plan = [
        (rng.uniform(0.05, 1), name, scale)
        for name, (low, high, scale) in cast.items()
        for _ in range(rng.integers(low, high + 1))
    ]
    return [_stand(rng, name, scale, depth, size, horizon) for depth, name, scale in sorted(plan)]


def _stand(
    rng: Random, name: str, scale: float, depth: float, size: tuple[int, int], horizon: float
) -> Sprite:
    """A thing on the ground, farther up and smaller the less its depth; a fish swims anywhere."""
    width, height = size
    side = min(size) * scale * (0.3 + 0.7 * depth) * rng.uniform(0.85, 1.15)
    image = _draw(name, rng, round(side))
    x = rng.uniform(-0.3 * image.width, width - 0.7 * image.width)
    if name == "fish":
        return Sprite(
            name, image, (round(x), round(rng.uniform(-0.1, 0.9) * (height - image.height / 2))), False
        )
    foot = height * (horizon + (1 - horizon) * (0.06 + 0.9 * depth))
    return Sprite(name, image, (round(x), round(foot - image.height)), True)


def _small_ball(rng: Random, size: tuple[int, int]) -> Sprite:
    """So small that VOC's annotators would call it difficult."""
    x, y = rng.uniform(0.3, 0.7) * size[0], rng.uniform(0.75, 0.9) * size[1]
    return Sprite("ball", _draw("ball", rng, 15), (round(x), round(y)), True)


def _uncrowded(sprites: Sequence[Sprite], size: tuple[int, int]) -> list[Sprite]:
    """Without those of which less than a third would be seen."""
    kept: list[Sprite] = []
    covered = np.zeros(size[::-1], bool)
    for sprite in reversed(sprites):
        mask = _mask(sprite, size)
        if (mask & ~covered).sum() > _pixels(sprite) / 3:
            kept.insert(0, sprite)
            covered |= mask
    return kept


def _things(sprites: Sequence[Sprite], size: tuple[int, int], decimals: bool) -> list[Thing]:
    """What is to be seen of each sprite after those in front of it are painted."""
    things: list[Thing] = []
    covered = np.zeros(size[::-1], bool)
    for sprite in reversed(sprites):
        mask = _mask(sprite, size)
        seen = mask & ~covered
        things.insert(0, _thing(sprite, mask, seen, decimals))
        covered |= mask
    return things


def _thing(sprite: Sprite, mask: npt.NDArray[np.bool_], seen: npt.NDArray[np.bool_], decimals: bool) -> Thing:
    box = _tight(seen)
    share = seen.sum() / _pixels(sprite)
    whole = share > 0.999
    small = max(box[2] - box[0], box[3] - box[1]) < 20
    return Thing(
        sprite.name,
        _finer(sprite, box) if decimals and whole else box,
        truncated=bool(mask.sum() < 0.99 * _pixels(sprite)),
        occluded=bool(seen.sum() < 0.95 * mask.sum()),
        difficult=bool(share < 0.45 or small),
    )


def _finer(sprite: Sprite, box: Box) -> Box:
    """The box of a wholly visible sprite to a tenth of a pixel, from how much of the border pixels it covers."""
    alpha = np.pad(np.asarray(sprite.image.getchannel("A")) / 255, 1)
    edges = []
    for cover, start in ((alpha.max(0), sprite.xy[0]), (alpha.max(1), sprite.xy[1])):
        inside = np.flatnonzero(cover > 0.5)
        first, last = inside[0], inside[-1]
        edges.append(
            (
                start + first - cover[first - 1 : first + 1].sum(),
                start + last - 2 + cover[last : last + 2].sum(),
            )
        )
    (x1, x2), (y1, y2) = edges
    return round(x1, 1), round(y1, 1), round(x2, 1), round(y2, 1)


def _tight(mask: npt.NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """The smallest box around the True pixels, XYXY, half-open."""
    x, y = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    return int(x[0]), int(y[0]), int(x[-1]) + 1, int(y[-1]) + 1


def _mask(sprite: Sprite, size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """(H, W), True where a pixel of the picture is more than half the sprite's."""
    mask = Image.new("L", size)
    mask.paste(sprite.image.getchannel("A"), sprite.xy)
    return np.asarray(mask) > 127


def _pixels(sprite: Sprite) -> int:
    return int((np.asarray(sprite.image.getchannel("A")) > 127).sum())


def _paste(picture: Image.Image, sprite: Sprite) -> None:
    if sprite.casts_shadow:
        _shade_ground(picture, sprite)
    picture.paste(sprite.image, sprite.xy, sprite.image)


def _shade_ground(picture: Image.Image, sprite: Sprite) -> None:
    """A soft dark ellipse under the foot of a thing."""
    (x, y), (width, height) = sprite.xy, sprite.image.size
    reach = 0.04 * width + 0.03 * height
    shadow = Image.new("L", picture.size)
    ellipse = (x + 0.04 * width, y + height - reach, x + 1.05 * width, y + height + reach)
    ImageDraw.Draw(shadow).ellipse(ellipse, fill=150)
    picture.paste((12, 14, 22), mask=shadow.filter(ImageFilter.GaussianBlur(reach / 2)))


def _photograph(picture: Image.Image, rng: Random) -> Image.Image:
    """Darker corners and film grain."""
    pixels = np.asarray(picture, np.float32)
    y, x = _grid(picture.height, picture.width)
    pixels = pixels * (1.04 - 0.22 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))[..., None]
    grain = rng.standard_normal(pixels.shape[:2], np.float32)[..., None] * 3.5
    return _to_image(pixels + grain)


# ---------------------------------------------------------------- textures


def _to_image(pixels: Array) -> Image.Image:
    return Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))


def _grid(height: int, width: int) -> tuple[Array, Array]:
    """y (H, 1) and x (1, W), the centres of the pixels in 0..1."""
    y = (np.arange(height, dtype=np.float32) + 0.5) / height
    x = (np.arange(width, dtype=np.float32) + 0.5) / width
    return y[:, None], x[None, :]


def _noise(rng: Random, shape: tuple[int, int], cell: float, octaves: int = 4, stretch: float = 1) -> Array:
    """(H, W) of soft noise, about -1..1: lumps of `cell` pixels, `stretch` times as wide, and finer ones on them."""
    height, width = shape
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        size = cell / 2**octave
        lattice = rng.uniform(-1, 1, (int(height / size) + 3, int(width / size / stretch) + 3)).astype(
            np.float32
        )
        window = (0, 0, width / size / stretch, height / size)
        total += _enlarge(lattice, shape, window) / 1.7**octave
    return total / 1.3


def _enlarge(lattice: Array, shape: tuple[int, int], window: tuple[float, float, float, float]) -> Array:
    image = Image.fromarray(lattice)
    return np.asarray(image.resize(shape[::-1], Image.Resampling.BICUBIC, window), np.float32)


def _mix(a: Color, b: Color, t: Array) -> Array:
    """(H, W, 3) colours: `a` where t is 0, `b` where it is 1."""
    low, high = np.array(a, np.float32), np.array(b, np.float32)
    return low + (high - low) * np.clip(t, 0, 1)[..., None]


def _over(top: Array, bottom: Array, cover: Array) -> Array:
    return bottom + (top - bottom) * np.clip(cover, 0, 1)[..., None]


def _pick(rng: Random, *choices: Color) -> Color:
    return choices[rng.integers(len(choices))]


# ---------------------------------------------------------------- scenes: (H, W, 3) pixels, and where the ground begins


def _sky(rng: Random, width: int, height: int) -> Array:
    y, _ = _grid(height, width)
    top, low = (
        _pick(rng, (70, 130, 205), (96, 150, 210), (58, 104, 170)),
        _pick(rng, (190, 216, 236), (238, 214, 190)),
    )
    clouds = _noise(rng, (height, width), height / 3, 6, stretch=2.2) * 1.3 - 0.25
    sky = _mix(top, low, np.broadcast_to(y * 1.6, (height, width)))
    return _over(_mix((205, 208, 216), (252, 252, 250), clouds), sky, clouds * 1.6)


def _ridge(rng: Random, width: int, level: float, swing: float) -> Array:
    """(W,) heights of a skyline."""
    return level + swing * _noise(rng, (1, width), width / 3, 5)[0]


def _hills(rng: Random, ground: Array, horizon: float) -> Array:
    height, width = ground.shape[:2]
    y = np.arange(height, dtype=np.float32)[:, None]
    for level, color in ((0.13, (128, 152, 172)), (0.05, (84, 118, 92))):
        ridge = _ridge(rng, width, (horizon - level) * height, 0.05 * height)
        texture = _noise(rng, (height, width), 14, 4)[..., None] * 16
        ground = _over(np.array(color, np.float32) + texture, ground, y - ridge)
    return ground


def _floor(ground: Array, floor: Array, horizon: float) -> Array:
    """The lower part of the picture, from the horizon down, becomes `floor`."""
    y = np.arange(ground.shape[0], dtype=np.float32)[:, None]
    return _over(floor, ground, np.broadcast_to(y - horizon * ground.shape[0], ground.shape[:2]))


def _depth(shape: tuple[int, int], horizon: float) -> Array:
    """(H, 1): 0 at the horizon, 1 at the lower border."""
    return np.clip((_grid(*shape)[0] - horizon) / (1 - horizon), 0, 1)


def _meadow(rng: Random, width: int, height: int) -> tuple[Array, float]:
    shape, horizon = (height, width), rng.uniform(0.42, 0.52)
    depth = _depth(shape, horizon)
    blades = (
        _noise(rng, shape, 9, 4, stretch=0.35) * (0.25 + depth) + _noise(rng, shape, 60, 3, stretch=2) * 0.5
    )
    grass = _mix((52, 84, 34), (146, 178, 80), 0.5 + 0.42 * blades)
    flowers = (rng.random(shape) > 1 - 0.004 * depth) * 1.0
    bloom = (
        np.asarray(_to_image(255 * flowers.astype(np.float32)).filter(ImageFilter.MaxFilter(3)), np.float32)
        / 255
    )
    grass = _over(
        np.array(_pick(rng, (246, 220, 90), (240, 240, 244), (214, 110, 160)), np.float32), grass, bloom
    )
    return _floor(_hills(rng, _sky(rng, width, height), horizon), grass, horizon), horizon


def _street(rng: Random, width: int, height: int) -> tuple[Array, float]:
    shape, horizon = (height, width), rng.uniform(0.44, 0.5)
    depth, (_, x) = _depth(shape, horizon), _grid(*shape)
    asphalt = _mix(
        (70, 72, 78), (128, 128, 130), 0.5 + 0.3 * _noise(rng, shape, 5, 3) + 0.2 * _noise(rng, shape, 90, 3)
    )
    paving = _mix((150, 144, 136), (196, 190, 180), 0.5 + 0.4 * _noise(rng, shape, 8, 4))
    ground = _over(paving, asphalt, (0.22 - depth) * 60 + 0 * x)
    kerb = (np.abs(depth - 0.23) < 0.012) + 0 * x
    ground = _over(np.array((206, 204, 198), np.float32), ground, kerb)
    dashes = (np.abs(depth - 0.62) < 0.022) & ((x * 4 + depth + rng.random()) % 1 < 0.55)
    ground = _over(np.array((226, 224, 212), np.float32), ground, dashes * 0.85)
    return _floor(_hills(rng, _sky(rng, width, height), horizon), ground, horizon), horizon


def _table(rng: Random, width: int, height: int) -> tuple[Array, float]:
    shape, horizon = (height, width), rng.uniform(0.34, 0.46)
    wall = _mix(
        _pick(rng, (96, 78, 66), (66, 84, 92), (92, 92, 74)),
        (206, 190, 162),
        0.45 + 0.5 * _noise(rng, shape, 130, 2),
    )
    wall = _lights(rng, wall)
    depth = _depth(shape, horizon)
    grain = _noise(rng, shape, 26, 5, stretch=14) + 0.35 * _noise(rng, shape, 3, 2, stretch=20)
    wood = _mix(_pick(rng, (96, 58, 30), (120, 84, 48), (84, 62, 46)), (216, 168, 112), 0.5 + 0.4 * grain)
    seams = (depth**0.7 * 5) % 1
    wood = _over(
        np.array((48, 30, 18), np.float32),
        wood,
        0.75 * (np.minimum(seams, 1 - seams) < 0.02) + 0 * wood[..., 0],
    )
    return _floor(wall, wood, horizon), horizon


def _lights(rng: Random, wall: Array) -> Array:
    """Lamps far out of focus."""
    height, width = wall.shape[:2]
    glow = Image.new("RGB", (width, height))
    for _ in range(14):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height / 2), rng.uniform(0.02, 0.07) * width
        color = rng.integers(20, 80, 3) + np.array((40, 20, 0))
        lamp = Image.new("RGB", (width, height))
        ImageDraw.Draw(lamp).ellipse((x - r, y - r, x + r, y + r), fill=tuple(color.tolist()))
        glow = ImageChops.add(glow, lamp)
    return wall + np.asarray(glow.filter(ImageFilter.GaussianBlur(3)), np.float32)


def _water(rng: Random, width: int, height: int) -> tuple[Array, float]:
    shape, horizon = (height, width), rng.uniform(0.72, 0.82)
    y, x = _grid(*shape)
    sea = _mix(
        _pick(rng, (66, 176, 196), (74, 160, 204), (90, 184, 170)),
        (10, 54, 92),
        y * 1.15 + 0.12 * _noise(rng, shape, 90, 5),
    )
    angle = (x - rng.uniform(0.2, 0.8)) / (y + 0.25)
    rays = np.interp(angle, np.linspace(-5, 5, 400), _noise(rng, (1, 400), 14, 3)[0]).astype(np.float32)
    sea = sea + (np.clip(rays, 0, 1) * (1 - y) * 70)[..., None] + _noise(rng, shape, 10, 3)[..., None] * 7
    sand = _mix((92, 104, 92), (196, 190, 150), 0.5 + 0.35 * _noise(rng, shape, 18, 5, stretch=3))
    return _weeds(rng, _floor(sea, sand, horizon), horizon), horizon


def _weeds(rng: Random, ground: Array, horizon: float) -> Array:
    picture = _to_image(ground)
    height, width = ground.shape[:2]
    for foot in np.sort(rng.uniform(horizon, 0.98, 16)) * height:
        x, tall = rng.uniform(0, width), rng.uniform(0.15, 0.4) * height
        t = np.linspace(0, 1, 24)
        sway = x + np.sin(t * 7 + rng.uniform(0, 6)) * 0.03 * width * t
        half = 0.012 * width * (1 - t) ** 0.6 + 0.5
        leaf = np.stack([np.r_[sway - half, (sway + half)[::-1]], foot - tall * np.r_[t, t[::-1]]], 1)
        color = _pick(rng, (38, 104, 70), (60, 124, 60), (110, 88, 52), (30, 84, 84))
        ImageDraw.Draw(picture).polygon([tuple(p) for p in leaf], fill=tuple(int(c) for c in color))
    return np.asarray(picture.filter(ImageFilter.GaussianBlur(1.2)), np.float32)


def _beach(rng: Random, width: int, height: int) -> tuple[Array, float]:
    shape, horizon = (height, width), rng.uniform(0.3, 0.4)
    shore = horizon + 0.16
    waves = _noise(rng, shape, 7, 3, stretch=9)
    sea = _mix((28, 96, 140), (120, 196, 206), _depth(shape, horizon) * 2.4 + 0.35 * waves)
    sand = _mix(
        (178, 146, 102),
        (244, 220, 178),
        0.5 + 0.3 * _noise(rng, shape, 40, 4, stretch=2) + 0.2 * _noise(rng, shape, 4, 2),
    )
    ground = _floor(_sky(rng, width, height), sea, horizon)
    y = np.arange(height, dtype=np.float32)[:, None]
    line = _ridge(rng, width, shore * height, 0.02 * height)
    ground = _over(sand, ground, y - line)
    foam = np.exp(-(((y - line) / (0.012 * height)) ** 2)) * (0.75 + 0.4 * waves)
    return _over(np.array((248, 250, 250), np.float32), ground, foam), shore


# class: how many at least, at most, and how large in front (of the picture's shorter side)
SCENES: tuple[
    tuple[Callable[[Random, int, int], tuple[Array, float]], dict[str, tuple[int, int, float]]], ...
] = (
    (_meadow, {"house": (1, 1, 0.8), "tree": (2, 4, 0.85), "ball": (1, 2, 0.22)}),
    (_table, {"mug": (1, 3, 0.6), "ball": (0, 2, 0.4), "car": (0, 1, 0.5)}),
    (_street, {"car": (1, 3, 0.75), "house": (1, 2, 0.7), "tree": (0, 2, 0.8), "ball": (0, 1, 0.2)}),
    (_water, {"fish": (2, 6, 0.6)}),
    (_beach, {"ball": (1, 3, 0.35), "mug": (0, 1, 0.3), "car": (0, 1, 0.7), "tree": (0, 1, 0.9)}),
)


# ---------------------------------------------------------------- things


def _draw(name: str, rng: Random, side: int) -> Image.Image:
    """An RGBA sprite of a thing, about `side` pixels large, tilted and cut to its pixels."""
    painter, tilt = PAINTERS[name]
    finer = 2 if side > 150 else 3 if side > 40 else 4
    canvas = painter(Sketch(Image.new("RGBA", (side * finer, side * finer)), rng))
    canvas = canvas if rng.random() < 0.5 else canvas.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    canvas = canvas.rotate(rng.uniform(-tilt, tilt), Image.Resampling.BICUBIC, expand=True)
    sprite = canvas.reduce(finer)
    return sprite.crop(sprite.getchannel("A").point(lambda a: 255 * (a > 127)).getbbox())


def _part(
    sketch: Sketch,
    outline: Points,
    color: Color,
    *,
    shade: float = 0.2,
    round_: float = 0.0,
    pattern: Callable[[Array, Array], Array] | None = None,
    inside: Image.Image | None = None,
) -> Image.Image:
    """Fill an outline; return its mask, as large as the canvas.

    shade: how much darker the foot is than the top. round_: how much darker the sides are, as on a cylinder lit
    from the left. pattern: brightness as a function of y and x in 0..1 over the part. inside: paint there only.
    """
    canvas, rng = sketch
    points = np.asarray(outline, np.float64) * canvas.width
    mask = Image.new("L", canvas.size)
    ImageDraw.Draw(mask).polygon([tuple(p) for p in points], fill=255)
    mask = mask if inside is None else ImageChops.multiply(mask, inside)
    area = mask.getbbox()
    if area is None:
        return mask
    shape = area[3] - area[1], area[2] - area[0]
    y, x = _grid(*shape)
    light = 1 + shade * (0.5 - y) - round_ * np.abs(x - 0.36) ** 1.5 * 1.8
    light = light * (1 if pattern is None else pattern(y, x)) + 0.05 * _noise(
        rng, shape, 6 + canvas.width / 40, 4
    )
    canvas.paste(_to_image(light[..., None] * np.array(color, np.float32)), area[:2], mask.crop(area))
    return mask


def _ellipse(x: float, y: float, rx: float, ry: float, start: float = 0, stop: float = 2 * np.pi) -> Points:
    t = np.linspace(start, stop, 72)
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1)


def _curve(*points: tuple[float, float]) -> Points:
    """A smooth closed outline through `points` (Catmull-Rom)."""
    p1 = np.array(points)
    p0, p2, p3 = np.roll(p1, 1, 0), np.roll(p1, -1, 0), np.roll(p1, -2, 0)
    t = np.linspace(0, 1, 12, endpoint=False)[:, None, None]
    curve = (
        2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2 + (3 * p1 - p0 - 3 * p2 + p3) * t**3
    )
    return np.asarray(curve.transpose(1, 0, 2).reshape(-1, 2) / 2)


def _between(
    a: tuple[float, float],
    b: tuple[float, float],
    c: tuple[float, float],
    d: tuple[float, float],
    box: tuple[float, float, float, float],
) -> Points:
    """A rectangle x1, y1, x2, y2 in 0..1 of the quadrilateral a b c d (clockwise from its top left)."""
    (x1, y1, x2, y2), (a_, b_, c_, d_) = box, (np.array(p) for p in (a, b, c, d))
    corners = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
    return np.array([(a_ * (1 - u) + b_ * u) * (1 - v) + (d_ * (1 - u) + c_ * u) * v for u, v in corners])


def _ball(sketch: Sketch) -> Image.Image:
    """A sphere with a pattern that is turned any way, lit from the upper left."""
    side, rng = sketch.image.width, sketch.rng
    y, x = _grid(side, side)
    y, x = (y - 0.5) * 2.04, (x - 0.5) * 2.04
    inside = x**2 + y**2 <= 1
    z = np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))
    normal = np.stack(np.broadcast_arrays(x, y, z), -1)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0].astype(np.float32)
    paint = (_beach_ball, _football, _basketball)[rng.integers(3)]
    lit = np.clip(normal @ np.array((-0.45, -0.65, 0.61), np.float32), 0, 1)
    pixels = paint(normal @ turn, rng) * (0.42 + 0.68 * lit)[..., None] + (lit**28 * 110)[..., None]
    pixels = pixels + _noise(rng, (side, side), 8, 3)[..., None] * 4
    sketch.image.paste(_to_image(pixels), mask=Image.fromarray(inside.astype(np.uint8) * 255))
    return sketch.image


def _beach_ball(normal: Array, rng: Random) -> Array:
    colors = np.array([_pick(rng, (226, 58, 52), (240, 120, 40)), (246, 244, 238), _pick(rng, (40, 112, 200), (30, 150, 120)),
                       (246, 244, 238), (246, 200, 54), (246, 244, 238)], np.float32)  # fmt: skip
    sector = np.floor((np.arctan2(normal[..., 1], normal[..., 0]) / (2 * np.pi) % 1) * 6).astype(int) % 6
    pixels = colors[sector]
    pixels[np.abs(normal[..., 2]) > 0.95] = 246
    return pixels


def _football(normal: Array, rng: Random) -> Array:
    """Black around the 12 corners of an icosahedron, seams half way between them."""
    g = (1 + 5**0.5) / 2
    corners = np.array([(0, a, b * g) for a in (-1, 1) for b in (-1, 1)])
    corners = np.concatenate([np.roll(corners, k, 1) for k in range(3)]) / np.hypot(1, g)
    near = np.sort(normal @ corners.T.astype(np.float32), -1)
    pixels = np.full((*normal.shape[:2], 3), 240, np.float32)
    pixels[near[..., -1] - near[..., -2] < 0.025] = 120
    pixels[near[..., -1] > 0.93] = rng.choice(np.array([(34, 34, 40), (30, 60, 150), (170, 30, 40)]))
    return pixels


def _basketball(normal: Array, rng: Random) -> Array:
    pixels = np.full(
        (*normal.shape[:2], 3), _pick(rng, (216, 112, 44), (200, 92, 40), (190, 204, 60)), np.float32
    )
    x, y, z = np.moveaxis(normal, -1, 0)
    seams = np.minimum(np.abs(x), np.abs(y)) < 0.028
    pixels[seams | (np.abs(np.abs(x) - 0.42 - 0.35 * y**2) < 0.028)] = (54, 34, 28)
    return pixels


def _mug(sketch: Sketch) -> Image.Image:
    rng = sketch.rng
    color = _pick(
        rng, (208, 62, 56), (58, 110, 176), (236, 232, 222), (70, 140, 104), (232, 178, 60), (120, 88, 150)
    )
    ring = [*_ellipse(0.68, 0.52, 0.26, 0.25), *_ellipse(0.68, 0.52, 0.165, 0.16)[::-1]]
    _part(sketch, ring, color, shade=0.5)
    body = _part(sketch, [*_ellipse(0.38, 0.87, 0.31, 0.1, 0, np.pi), *_ellipse(0.38, 0.17, 0.35, 0.1, np.pi, 2 * np.pi)],
                 color, round_=1.1)  # fmt: skip
    _decorate_mug(sketch, body, _pick(rng, (250, 246, 236), (250, 214, 120), (40, 44, 60)))
    _part(sketch, _ellipse(0.38, 0.17, 0.35, 0.1), tuple(min(255, c * 1.15 + 12) for c in color))
    _part(sketch, _ellipse(0.38, 0.175, 0.315, 0.083), tuple(c * 0.6 for c in color), shade=-0.5)
    _part(
        sketch,
        _ellipse(0.38, 0.195, 0.28, 0.06),
        _pick(rng, (66, 40, 26), (150, 100, 60), (170, 80, 30)),
        shade=-0.3,
    )
    return sketch.image


def _decorate_mug(sketch: Sketch, body: Image.Image, color: Color) -> None:
    if sketch.rng.random() < 0.4:
        heart = [
            (0.38, 0.74),
            (0.22, 0.54),
            (0.24, 0.44),
            (0.31, 0.42),
            (0.38, 0.49),
            (0.45, 0.42),
            (0.52, 0.44),
            (0.54, 0.54),
        ]
        _part(sketch, heart, color, inside=body)
        return
    for y in sketch.rng.choice([0.36, 0.46, 0.56, 0.66, 0.76], 2, replace=False):
        upper, lower = _ellipse(0.38, y, 0.4, 0.1, np.pi, 0), _ellipse(0.38, y + 0.06, 0.4, 0.1, 0, np.pi)
        _part(sketch, [*upper, *lower], color, round_=1.1, inside=body)


def _house(sketch: Sketch) -> Image.Image:
    """A gable front, a long side in perspective, a roof with tiles."""
    rng = sketch.rng
    wall = _pick(rng, (232, 220, 196), (206, 150, 110), (190, 204, 212), (226, 200, 120), (186, 92, 74))
    roof = _pick(rng, (156, 66, 48), (92, 84, 84), (120, 58, 50), (70, 88, 110))
    rows = _rows(rng.integers(8, 14))
    side = ((0.42, 0.5), (0.95, 0.52), (0.95, 0.92), (0.42, 0.97))
    _part(
        sketch,
        [(0.68, 0.06), (0.76, 0.06), (0.76, 0.3), (0.68, 0.3)],
        tuple(c * 0.8 for c in roof),
        pattern=_rows(7),
    )
    _part(sketch, side, tuple(c * 0.78 for c in wall), pattern=rows)
    _part(sketch, [(0.06, 0.95), (0.06, 0.5), (0.24, 0.2), (0.42, 0.5), (0.42, 0.97)], wall, pattern=rows)
    _part(sketch, [(0.22, 0.15), (0.8, 0.2), (0.99, 0.55), (0.43, 0.54)], roof, pattern=_rows(9), shade=0.35)
    _part(sketch, [(0.22, 0.15), (0.25, 0.15), (0.46, 0.54), (0.42, 0.56), (0.235, 0.22), (0.05, 0.54), (0.01, 0.52)],
          tuple(c * 1.25 for c in roof))  # fmt: skip
    for x in (0.12, 0.58):
        _window(sketch, _between(*side, (x, 0.28, x + 0.28, 0.68)))
    _window(sketch, [(0.19, 0.34), (0.29, 0.34), (0.29, 0.48), (0.19, 0.48)])
    _part(
        sketch,
        [(0.17, 0.64), (0.31, 0.64), (0.31, 0.962), (0.17, 0.957)],
        _pick(rng, (110, 62, 36), (50, 90, 80), (140, 36, 40)),
    )
    _part(sketch, _ellipse(0.285, 0.81, 0.012, 0.012), (236, 210, 120))
    return sketch.image


def _rows(count: int) -> Callable[[Array, Array], Array]:
    """Boards, bricks or tiles: `count` rows, each with a dark joint."""
    return lambda y, x: (
        1 - 0.22 * ((y * count) % 1 < 0.16) - 0.08 * ((x * count + np.floor(y * count) * 0.5) % 1 < 0.12)
    )


def _window(sketch: Sketch, corners: Points) -> None:
    a, b, c, d = (tuple(p) for p in np.asarray(corners))
    _part(sketch, corners, (244, 242, 234))
    for x in (0.1, 0.54):
        for y in (0.08, 0.53):
            _part(sketch, _between(a, b, c, d, (x, y, x + 0.36, y + 0.39)), (96, 130, 160), shade=0.9)


def _tree(sketch: Sketch) -> Image.Image:
    bark = _pick(sketch.rng, (98, 70, 48), (120, 100, 80))
    trunk = _curve((0.46, 0.98), (0.455, 0.7), (0.43, 0.5), (0.57, 0.5), (0.545, 0.7), (0.55, 0.98))
    _part(
        sketch,
        trunk,
        bark,
        round_=1.0,
        pattern=lambda y, x: 1 - 0.2 * (np.sin(x * 40 + np.sin(y * 14) * 2) > 0.4),
    )
    crown = (_conifer, _leaves)[int(sketch.rng.random() < 0.65)]
    crown(sketch)
    return sketch.image


def _leaves(sketch: Sketch) -> None:
    """Clumps of leaves, from the dark ones at the back to those in the light."""
    (canvas, rng), side = sketch, sketch.image.width
    draw = ImageDraw.Draw(canvas)
    leaf = np.array(_pick(rng, (78, 128, 48), (104, 140, 50), (60, 108, 62), (206, 128, 44)))
    centers = rng.uniform(-1, 1, (26, 2)) * (0.3, 0.23) * rng.uniform(0.75, 1.1, (26, 1)) + (0.5, 0.36)
    centers = centers[np.argsort(-centers[:, 1])]
    for k, (x, y) in enumerate(centers):
        for level in np.linspace(0, 1, 26):
            angle, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.12) * (1.1 - level * 0.5)
            cx, cy = x + reach * np.cos(angle) - 0.03 * level, y + reach * np.sin(angle) - 0.045 * level
            r = rng.uniform(0.014, 0.036)
            light = (0.42 + 0.5 * level + 0.22 * k / len(centers)) * rng.uniform(0.85, 1.15)
            box = [side * v for v in (cx - r, cy - r, cx + r, cy + r)]
            draw.ellipse(box, fill=tuple(int(min(255, c * light)) for c in leaf))


def _conifer(sketch: Sketch) -> None:
    rng = sketch.rng
    color = _pick(rng, (40, 84, 56), (52, 96, 50), (36, 76, 72))
    for k, top in enumerate(np.linspace(0.58, 0.02, 6)):
        half, foot = 0.36 - 0.05 * k, top + 0.26
        teeth = np.linspace(0, 1, 15)
        hem = np.stack(
            [0.5 - half + 2 * half * teeth, foot + 0.02 * (np.arange(15) % 2) - 0.05 * (2 * teeth - 1) ** 2],
            1,
        )
        hem[:, 1] += rng.uniform(-0.012, 0.012, 15)
        _part(sketch, [(0.5, top), *hem[::-1]], tuple(c * (0.85 + 0.06 * k) for c in color), shade=-0.5, round_=0.9,
              pattern=lambda y, x: 1 + 0.16 * np.sin(x * 50 + y * 9) * np.sin(y * 30))  # fmt: skip


def _car(sketch: Sketch) -> Image.Image:
    rng = sketch.rng
    color = _pick(
        rng, (196, 44, 44), (44, 92, 164), (232, 232, 228), (242, 186, 48), (60, 130, 98), (150, 156, 164)
    )
    cabin = _curve(
        (0.2, 0.5), (0.33, 0.33), (0.47, 0.29), (0.62, 0.3), (0.73, 0.36), (0.83, 0.5), (0.5, 0.55)
    )
    _part(sketch, cabin, color, shade=0.3)
    body = _curve((0.015, 0.6), (0.03, 0.52), (0.12, 0.475), (0.27, 0.455), (0.5, 0.46), (0.75, 0.455), (0.93, 0.475), (0.98, 0.53),
                  (0.985, 0.63), (0.95, 0.675), (0.5, 0.69), (0.06, 0.675))  # fmt: skip
    _part(
        sketch,
        body,
        color,
        pattern=lambda y, x: 1.12 - 0.3 * (y > 0.42) * y - 0.12 * (np.abs(y - 0.42) < 0.03),
    )
    glass = (74, 98, 116)
    _part(sketch, [(0.275, 0.465), (0.36, 0.36), (0.465, 0.33), (0.475, 0.465)], glass, shade=1.1)
    _part(sketch, [(0.505, 0.465), (0.5, 0.33), (0.62, 0.335), (0.7, 0.38), (0.765, 0.465)], glass, shade=1.1)
    for x in (0.49, 0.775):
        _part(
            sketch,
            [(x, 0.47), (x + 0.006, 0.47), (x + 0.006, 0.65), (x, 0.65)],
            tuple(c * 0.5 for c in color),
        )
    _part(
        sketch, [(0.53, 0.515), (0.585, 0.515), (0.585, 0.528), (0.53, 0.528)], tuple(c * 0.5 for c in color)
    )
    _part(sketch, _ellipse(0.055, 0.545, 0.035, 0.026), (252, 246, 214))
    _part(sketch, _ellipse(0.965, 0.55, 0.018, 0.035), (190, 30, 30))
    for x in (0.22, 0.77):
        _wheel(sketch, x, 0.665)
    return sketch.image


def _wheel(sketch: Sketch, x: float, y: float) -> None:
    for radius, color in (
        (0.115, (38, 38, 42)),
        (0.1, (26, 26, 28)),
        (0.062, (196, 198, 204)),
        (0.05, (120, 124, 130)),
    ):
        _part(sketch, _ellipse(x, y, radius, radius), color, shade=0.4)
    for turn in np.arange(5) * 0.4 * np.pi + sketch.rng.uniform(0, 1):
        along, across = np.array((np.cos(turn), np.sin(turn))), np.array((-np.sin(turn), np.cos(turn)))
        corners = [
            (x, y) + along * r + across * s
            for r, s in ((0, -0.01), (0.056, -0.007), (0.056, 0.007), (0, 0.01))
        ]
        _part(sketch, corners, (214, 216, 220))


def _fish(sketch: Sketch) -> Image.Image:
    rng = sketch.rng
    color = _pick(
        rng, (238, 132, 40), (246, 204, 60), (72, 142, 204), (214, 80, 92), (120, 190, 150), (170, 130, 200)
    )
    fin = tuple(c * 0.78 for c in color)
    _part(
        sketch,
        _curve((0.74, 0.5), (0.86, 0.4), (0.985, 0.3), (0.94, 0.5), (0.985, 0.7), (0.86, 0.6)),
        fin,
        pattern=_fan,
    )
    _part(
        sketch,
        _curve((0.28, 0.34), (0.42, 0.2), (0.6, 0.19), (0.72, 0.28), (0.66, 0.42), (0.4, 0.4)),
        fin,
        pattern=_fan,
    )
    _part(sketch, _curve((0.44, 0.66), (0.52, 0.79), (0.62, 0.78), (0.62, 0.62)), fin, pattern=_fan)
    outline = _curve((0.015, 0.51), (0.1, 0.4), (0.27, 0.31), (0.48, 0.3), (0.66, 0.38), (0.8, 0.46), (0.8, 0.54), (0.66, 0.62),
                     (0.46, 0.7), (0.26, 0.69), (0.09, 0.6))  # fmt: skip
    body = _part(sketch, outline, color, shade=-0.25, pattern=_scales)
    stripe = _pick(rng, (250, 248, 240), (40, 48, 66), (250, 220, 120))
    for x in (0.3, 0.5, 0.67)[: rng.integers(0, 4)]:
        band = _curve((x, 0.2), (x + 0.06, 0.2), (x + 0.085, 0.5), (x + 0.06, 0.8), (x, 0.8), (x + 0.03, 0.5))
        _part(sketch, band, stripe, pattern=_scales, inside=body)
    _part(
        sketch, _curve((0.36, 0.5), (0.5, 0.46), (0.55, 0.54), (0.48, 0.63), (0.38, 0.57)), fin, pattern=_fan
    )
    for radius, eye in ((0.042, (250, 250, 246)), (0.024, (20, 22, 30)), (0.009, (255, 255, 255))):
        _part(sketch, _ellipse(0.15, 0.455, radius, radius), eye)
    _part(
        sketch,
        _curve((0.02, 0.53), (0.07, 0.56), (0.11, 0.555), (0.07, 0.575)),
        tuple(c * 0.4 for c in color),
    )
    return sketch.image


def _fan(y: Array, x: Array) -> Array:
    return 1 + 0.14 * np.sin(26 * (y - 0.5) / (x + 0.35))


def _scales(y: Array, x: Array) -> Array:
    row = np.floor(y * 16)
    u, v = (x * 22 + 0.5 * (row % 2)) % 1 - 0.5, y * 16 % 1
    return 1.25 - 0.55 * y - 0.13 * (np.hypot(u, v) > 0.55) + 0.25 * (y > 0.75) * (y - 0.75) * 4


# class: how it is drawn, and by how many degrees it may be tilted
PAINTERS: dict[str, tuple[Callable[[Sketch], Image.Image], float]] = {
    "ball": (_ball, 0),
    "car": (_car, 6),
    "fish": (_fish, 40),
    "house": (_house, 2),
    "mug": (_mug, 9),
    "tree": (_tree, 5),
}
