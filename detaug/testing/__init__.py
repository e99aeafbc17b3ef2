"""Test any op: paint objects, run the op, and compare its boxes, keypoints or masks with those in the pixels."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from detaug.arguments import check, is_whole
from detaug.arrays import Array, Arrays
from detaug.ops.op import Op, PixelOp
from detaug.testing.maps import assert_maps_follow_pixels as assert_maps_follow_pixels
from detaug.testing.painted import Painted as Painted
from detaug.testing.painted import Result as Result
from detaug.testing.painted import paint as paint
from detaug.testing.painted import paint_discs as paint_discs
from detaug.testing.painted import paint_stars as paint_stars
from detaug.testing.painted import run as run
from detaug.testing.pixels import Comparison, compare_boxes, compare_masks, compare_points
from detaug.testing.pixels import Misplaced as Misplaced
from detaug.testing.pixels import read_box as read_box


def assert_boxes_follow_pixels(
    ops: Op | Iterable[Op],
    *,
    size: tuple[int, int] = (192, 256),
    images: int = 8,
    smallest: int = 24,
    min_boxes: int = 1,
    seed: int = 0,
    device: str = "cpu",
    tolerance: float | None = None,
    pipeline: bool = False,
    picture: str | Path | None = None,
) -> int:
    """Paint rectangles, run `ops`, one or a recipe, and compare every box with its rectangle in the pixels.

    The check of pixel ops is coarser: a white rectangle must still stand out where its box is.

    Returns the number of compared boxes. Raises AssertionError if they are fewer than `min_boxes`. Raises
    AssertionError that lists the misplaced boxes and names a PNG, `picture` or a temporary file, with the op's box in
    green and the rectangle in the pixels in red.

    Args:
        ops: One op, or a recipe.
        size: (H, W) of the painted images.
        images: Number of painted images.
        smallest: Smallest side of a painted rectangle in pixels.
        min_boxes: How many boxes must be left to compare; 0 allows an op that drops all of them.
        seed: Of the painting and of the draws.
        device: "cpu" or "cuda".
        tolerance: Output pixels; None is 0.5, or an eighth of a pixel of the source if that is more, and 1 where an op
            rotates the image (the tip of a rotated rectangle is not sharper than a pixel, of the source or of the
            output).
        pipeline: Run the ops in a `Loader` on files, not directly on arrays; the recipe then needs a Resize. Fills
            should be black: the rectangles are white.
        picture: A PNG file to write where something is misplaced; None: a temporary one.

    >>> da.testing.assert_boxes_follow_pixels([da.RandomIoUCrop(), da.Resize((300, 300)), da.RandomInvert(p=1)])
    19
    """
    check("smallest", smallest, 1 <= smallest <= min(size) // 2, "at least 1 and at most half of the shorter side")
    painted = [paint(size, images, smallest, seed)]
    settings: dict[str, Any] = {"seed": seed, "device": device, "pipeline": pipeline}
    return _follow("boxes", ops, painted, compare_boxes, min_boxes, tolerance, picture, settings)


def assert_points_follow_pixels(
    ops: Op | Iterable[Op],
    *,
    size: tuple[int, int] = (192, 256),
    images: int = 8,
    min_points: int = 1,
    seed: int = 0,
    device: str = "cpu",
    tolerance: float | None = None,
    pipeline: bool = False,
    picture: str | Path | None = None,
) -> int:
    """Paint discs at keypoints, run `ops`, one or a recipe, and compare every keypoint with the center of its disc.

    Each image has three objects with a left and a right hand, which must be swapped where the op mirrors. Points of
    visibility 1 and discs that a border cuts are not compared; a point that is out of view, while its disc is not, is
    misplaced.

    Args:
        ops: One op, or a recipe.
        size: (H, W) of the painted images.
        images: Number of painted images.
        min_points: How many keypoints must be left to compare.
        seed: Of the painting and of the draws.
        device: "cpu" or "cuda".
        tolerance: Output pixels; None is 0.5, or half a pixel of the source if that is more. The ops must not mix
            images, and fills should be black. Other arguments, what is returned, and errors are those of
            `assert_boxes_follow_pixels`.
        pipeline: Whether to run DALI's pipeline in place of `da.batch`.
        picture: A PNG file to write where something is misplaced; None: a temporary one.

    >>> turn = da.RandomRotation(20, fill=(0, 0, 0))
    >>> da.testing.assert_points_follow_pixels([da.RandomHorizontalFlip(), turn, da.Resize((300, 300))])
    45
    """
    painted = [paint_discs(size, images, side, seed) for side in (0, 1)]
    settings: dict[str, Any] = {"seed": seed, "device": device, "pipeline": pipeline}
    return _follow("keypoints", ops, painted, compare_points, min_points, tolerance, picture, settings)


def assert_masks_follow_pixels(
    ops: Op | Iterable[Op],
    *,
    size: tuple[int, int] = (192, 256),
    images: int = 8,
    min_masks: int = 1,
    seed: int = 0,
    device: str = "cpu",
    tolerance: float | None = None,
    pipeline: bool = False,
    picture: str | Path | None = None,
) -> int:
    """Paint stars, run `ops`, one or a recipe, and compare every mask with the pixels of its star.

    Args:
        ops: One op, or a recipe.
        size: (H, W) of the painted images.
        images: Number of painted images.
        min_masks: How many masks must be left to compare.
        seed: Of the painting and of the draws.
        device: "cpu" or "cuda".
        tolerance: How many output pixels a mask may differ along polygons; None is 1, or a pixel of the source if that
            is more. The ops must not mix images, and fills should be black. Other arguments, what is returned, and
            errors are those of `assert_boxes_follow_pixels`.
        pipeline: Whether to run DALI's pipeline in place of `da.batch`.
        picture: A PNG file to write where something is misplaced; None: a temporary one.

    >>> turn = da.RandomRotation(20, fill=(0, 0, 0))
    >>> da.testing.assert_masks_follow_pixels([da.RandomHorizontalFlip(), turn, da.Resize((300, 300))])
    24
    """
    painted = [paint_stars(size, images, seed)]
    settings: dict[str, Any] = {"seed": seed, "device": device, "pipeline": pipeline}
    return _follow("masks", ops, painted, compare_masks, min_masks, tolerance, picture, settings)


def _follow(
    what: str,
    ops: Op | Iterable[Op],
    painted: list[Painted],
    compare: Callable[[list[Result], float | None], Comparison],
    least: int,
    tolerance: float | None,
    picture: str | Path | None,
    settings: dict[str, Any],
) -> int:
    """Run ops on painted images, one or several of the same objects, and compare; return how many were compared."""
    recipe = tuple([ops] if isinstance(ops, Op) else ops)
    per_image = 3 * len(painted)
    most, rule = per_image * len(painted[0].images), f"a whole number from 0 to {per_image} for each image"
    check(_least_of(what), least, is_whole(least, 0, most), rule)
    moving = tuple(_without_pixels(op) if _is_plain_pixel_op(op) else op for op in recipe)
    results = [run(moving, one, **settings) for one in painted]
    compared, wrong = compare(results, tolerance)
    if wrong:
        images = [np.maximum.reduce(alike) for alike in zip(*(one.images for one in results), strict=True)]
        raise AssertionError(_complaint(wrong, compared, recipe, _drawn(images, wrong, picture), what))
    assert compared >= least, _too_few(compared, most, least, recipe, what)
    if moving != recipe:
        _assert_pixels_stay(recipe, moving, painted[0], settings)
    return compared


# ------------------------------------------------------------------------------------------- pixel ops


def _without_pixels(op: Op) -> Op:
    """Return an op that draws as `op` does and leaves the pixels. It has the same name, for errors."""
    named: type[_DrawsOnly] = type(type(op).__name__, (_DrawsOnly,), {})
    return named(op)


@dataclass(frozen=True)
class _DrawsOnly(PixelOp):
    """Draws the numbers of a pixel op and leaves the pixels unchanged."""

    op: Op

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        self.op.draw(rng, n)
        return {}


def _is_plain_pixel_op(op: Op) -> bool:
    return isinstance(op, PixelOp) and type(op).plan is PixelOp.plan


def _assert_pixels_stay(
    ops: tuple[Op, ...], moving: tuple[Op, ...], painted: Painted, settings: dict[str, Any]
) -> None:
    """Check that pixel ops do not change boxes, and that white still differs from black."""
    white = Painted([np.repeat(image.max(2, keepdims=True), 3, 2) for image in painted.images], painted.boxes)
    after, before = run(ops, white, **settings), run(moving, white, **settings)
    for index, (image, plain) in enumerate(zip(after.images, before.images, strict=True)):
        same = np.array_equal(after.labels[index], before.labels[index]) and np.array_equal(
            after.boxes[index], before.boxes[index]
        )
        assert same, f"boxes of image {index} differ with and without the pixel ops of {list(ops)}"
        stands_out = _stands_out(np.asarray(image, np.float64).mean(2), plain.mean(2))
        assert stands_out, f"image {index}: rectangles are not where they were without the pixel ops of {list(ops)}"


def _stands_out(gray: Array, plain: Array) -> bool:
    """Return whether nearly all pixels that are white in `plain` differ in brightness from the black ones."""
    white, black = gray[plain > 250], gray[plain < 5]
    if min(len(white), len(black)) < 20:
        return True
    middle = (np.median(white) + np.median(black)) / 2
    side = np.sign(np.median(white) - middle)
    return bool(np.mean(side * (white - middle) > 0) > 0.8 and np.mean(side * (black - middle) < 0) > 0.8)


# -------------------------------------------------------------------------------------------- messages


def _complaint(wrong: list[Misplaced], compared: int, ops: tuple[Op, ...], picture: Path, what: str) -> str:
    one = {"boxes": "box", "keypoints": "keypoint", "masks": "mask of the box"}[what]
    lines = [
        f"  image {misplaced.image}, label {misplaced.label}: {one} {np.round(misplaced.box, 2).tolist()}, "
        + (f"pixels {np.round(misplaced.seen, 2).tolist()}" if misplaced.seen is not None else "no pixel of it is left")
        for misplaced in wrong[:10]
    ]
    more = [f"  and {len(wrong) - 10} more"] if len(wrong) > 10 else []
    head = f"{len(wrong)} of {compared} {what} are not where their pixels are, after {list(ops)}; see {picture}"
    return "\n".join([head, *lines, *more])


def _least_of(what: str) -> str:
    """Return the argument for the least number of boxes, keypoints or masks."""
    return f"min_{what.removeprefix('key')}"


def _too_few(compared: int, painted: int, least: int, ops: tuple[Op, ...], what: str) -> str:
    name = _least_of(what)
    number = f"only {compared}" if compared else "none"
    return (
        f"{number} of the {painted} painted {what} are left to check after {list(ops)}, but {name} is {least}: "
        f"correct the op, or give more images; for an op that is meant to drop {what} give a smaller {name}, such as 0"
    )


def _outline(box: NDArray[Any]) -> list[float]:
    """Return the first and the last pixel of a box (x, y, x, y), which are the same in one smaller than a pixel.

    Of a point x, y, return the square around it.
    """
    if len(box) == 2:
        return [*(box - 3), *(box + 3)]
    return list(np.maximum(box - (0, 0, 1, 1), np.tile(box[:2], 2)))


def _drawn(images: list[Array], wrong: list[Misplaced], picture: str | Path | None) -> Path:
    """Write a PNG of the first image with misplaced boxes: green is the op's box, red the rectangle in the pixels."""
    image = Image.fromarray(np.clip(images[wrong[0].image] // 2, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for misplaced in (misplaced for misplaced in wrong if misplaced.image == wrong[0].image):
        draw.rectangle(_outline(misplaced.box), outline=(0, 255, 0))
        if misplaced.seen is not None:
            draw.rectangle(_outline(misplaced.seen), outline=(255, 0, 0))
    path = Path(picture or tempfile.mkstemp(prefix="misplaced_", suffix=".png")[1])
    image.save(path)
    return path
