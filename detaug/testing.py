"""Test any op: paint rectangles or discs, run the op, and compare its boxes or key points with those in the pixels."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from detaug.arguments import check, is_whole
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.shapes import Shapes
from detaug.loading.loader import Loader
from detaug.ops.op import Arrays, Op, PixelOp
from detaug.samples.samples import Samples, batch
from detaug.sources.coco_reader import CocoReader

Array = NDArray[Any]


SIDES = ("left_hand", "right_hand")
RADIUS = 7.0
"""Of painted discs, in pixels."""


class Painted(NamedTuple):
    """Black images with one white rectangle, or disc, in each colour channel. Label k is channel k - 1."""

    images: list[Array]
    """N (H, W, 3) uint8."""
    boxes: list[Array]
    """N (3, 4) XYXY whole pixels."""
    points: list[Array] | None = None
    """N (3, 2, 2) x, y of the left and the right point of each object, of which one has a disc."""


class Result(NamedTuple):
    """The images and boxes after the ops."""

    images: list[Array]
    """N (H, W, 3)."""
    boxes: list[Array]
    """N (M, 4) XYXY pixels."""
    labels: list[Array]
    """N (M,)."""
    matrix: Array
    """(N, 2 or 3, 3): source pixels -> pixels of `images`."""
    keypoints: list[Array] | None = None
    """N (M, 2, 3) x, y, visibility."""


class Misplaced(NamedTuple):
    """A box that is not where its rectangle is, or a point that is not where its disc is."""

    image: int
    label: int
    box: Array
    """XYXY, the op's box; or x, y of a point."""
    seen: Array | None
    """The same in the pixels; None if no pixel of it is left."""


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

    `size`: (H, W) of the painted images, `images` their number, `smallest` the least side of a rectangle in pixels.
    `min_boxes`: how many boxes must be left to compare; 0 allows an op that drops all of them.
    `tolerance`: output pixels; None is 0.5, or an eighth of a pixel of the source if that is more, and 1 where an op
    turns the image (the tip of a turned rectangle is no sharper than a pixel, of the source or of the output).
    `pipeline`: run the ops in a `Loader` on files, not directly on arrays; the recipe then needs a Resize.
    Fills should be black: the rectangles are white.

    The check of pixel ops is coarser: a white rectangle must still stand out where its box is.

    Returns the number of compared boxes. Raises AssertionError if they are fewer than `min_boxes`. Raises
    AssertionError that lists the misplaced boxes and names a PNG, `picture` or a temporary file, with the op's box in
    green and the rectangle in the pixels in red.

    >>> da.testing.assert_boxes_follow_pixels([da.RandomIoUCrop(), da.Resize((300, 300)), da.RandomInvert(p=1)])
    19
    """
    recipe = tuple([ops] if isinstance(ops, Op) else ops)
    check("smallest", smallest, 1 <= smallest <= min(size) // 2, "at least 1 and at most half of the shorter side")
    check("min_boxes", min_boxes, is_whole(min_boxes, 0, 3 * images), "a whole number from 0 to 3 for each image")
    painted = paint(size, images, smallest, seed)
    settings: dict[str, Any] = {"seed": seed, "device": device, "pipeline": pipeline}
    moving = tuple(_without_pixels(op) if _is_plain_pixel_op(op) else op for op in recipe)
    result = run(moving, painted, **settings)
    compared, wrong = _compare(result, tolerance)
    if wrong:
        raise AssertionError(_complaint(wrong, compared, recipe, _drawn(result, wrong, picture)))
    assert compared >= min_boxes, _too_few(compared, 3 * images, min_boxes, recipe)
    if moving != recipe:
        _assert_pixels_stay(recipe, moving, painted, settings)
    return compared


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
    """Paint discs at key points, run `ops`, one or a recipe, and compare every key point with the centre of its disc.

    Each image has three objects with a left and a right hand, which must change places where the op mirrors. Points of
    visibility 1 and discs that a border cuts are not compared; a point that is out of view, while its disc is not, is
    misplaced. `tolerance`: output pixels; None is 0.5, or half a pixel of the source if that is more. The ops must not
    mix images, and fills should be black. Other arguments, what is returned, and errors are those of
    `assert_boxes_follow_pixels`.

    >>> turn = da.RandomRotation(20, fill=(0, 0, 0))
    >>> da.testing.assert_points_follow_pixels([da.RandomHorizontalFlip(), turn, da.Resize((300, 300))])
    45
    """
    recipe = tuple([ops] if isinstance(ops, Op) else ops)
    check("min_points", min_points, is_whole(min_points, 0, 6 * images), "a whole number from 0 to 6 for each image")
    painted = [paint_discs(size, images, side, seed) for side in (0, 1)]
    settings: dict[str, Any] = {"seed": seed, "device": device, "pipeline": pipeline}
    moving = tuple(_without_pixels(op) if _is_plain_pixel_op(op) else op for op in recipe)
    results = [run(moving, each, **settings) for each in painted]
    compared, wrong = _compare_points(results, tolerance)
    if wrong:
        pairs = zip(*(one.images for one in results), strict=True)
        both = results[0]._replace(images=[np.maximum(left, right) for left, right in pairs])
        raise AssertionError(_complaint(wrong, compared, recipe, _drawn(both, wrong, picture), "key points"))
    assert compared >= min_points, _too_few(compared, 6 * images, min_points, recipe, "key points")
    if moving != recipe:
        _assert_pixels_stay(recipe, moving, painted[0], settings)
    return compared


def paint(size: tuple[int, int], n: int, smallest: int, seed: int) -> Painted:
    """Paint three rectangles in each of n images, with sides of `smallest` pixels to half of the image.

    >>> painted = da.testing.paint((192, 256), n=2, smallest=24, seed=0)
    >>> print(painted.images[0].shape, painted.boxes[0].tolist())
    (192, 256, 3) [[15, 44, 126, 87], [85, 10, 152, 93], [161, 91, 220, 158]]
    """
    rng, (height, width) = np.random.default_rng([2, seed]), size
    images, boxes = np.zeros((n, *size, 3), np.uint8), np.zeros((n, 3, 4), np.int64)
    for at in np.ndindex(n, 3):
        sides = rng.integers(smallest, (max(width // 2, smallest) + 1, max(height // 2, smallest) + 1))
        start = rng.integers(0, (width, height) - sides + 1)
        boxes[at] = x0, y0, x1, y1 = (*start, *(start + sides))
        images[at[0], y0:y1, x0:x1, at[1]] = 255
    return Painted(list(images), list(boxes))


def paint_discs(size: tuple[int, int], n: int, side: int, seed: int) -> Painted:
    """Paint three objects in each of n images: a disc at the left point of each, or for `side` 1 at the right one.

    >>> painted = da.testing.paint_discs((192, 256), n=2, side=0, seed=0)
    >>> print(painted.images[0].shape, painted.points[0][0].round().tolist())
    (192, 256, 3) [[29.0, 50.0], [200.0, 110.0]]
    """
    rng, (height, width) = np.random.default_rng([3, seed]), size
    low, high = np.full(2, RADIUS + 2), np.array((width, height)) - RADIUS - 2
    images, points = np.zeros((n, *size, 3), np.uint8), rng.uniform(low, high, (n, 3, 2, 2))
    y, x = np.mgrid[:height, :width] + 0.5
    for at in np.ndindex(n, 3):
        while np.hypot(*(points[at][0] - points[at][1])) < min(size) / 4:
            points[at] = rng.uniform(low, high, (2, 2))
        from_center = np.hypot(x - points[at][side, 0], y - points[at][side, 1])
        images[at[0], ..., at[1]] = np.round(255 * (RADIUS + 0.5 - from_center).clip(0, 1))
    boxes = np.concatenate([np.floor(points.min(2) - RADIUS - 1), np.ceil(points.max(2) + RADIUS + 1)], axis=2)
    return Painted(list(images), list(boxes.astype(np.int64)), list(points))


def run(ops: Iterable[Op], painted: Painted, *, seed: int, device: str, pipeline: bool) -> Result:
    """Run `ops` on painted images, directly or in a loader.

    >>> painted = da.testing.paint((192, 256), n=2, smallest=24, seed=0)
    >>> result = da.testing.run([da.RandomHorizontalFlip(p=1)], painted, seed=0, device="cpu", pipeline=False)
    >>> print(result.images[0].shape, result.boxes[0].round().tolist())
    (192, 256, 3) [[130.0, 44.0, 241.0, 87.0], [104.0, 10.0, 171.0, 93.0], [36.0, 91.0, 95.0, 158.0]]
    """
    recipe = list(ops)
    if pipeline:
        with tempfile.TemporaryDirectory() as folder:
            return _loaded_result(recipe, painted, Path(folder), seed, device)
    labels = [np.arange(1, 4)] * len(painted.images)
    settings: dict[str, Any] = {"seed": seed, "device": device}
    if painted.points is not None:
        settings["shapes"] = Shapes(keypoints=KeyPoints(_visible(np.concatenate(painted.points)), [SIDES]))
    return _eager_result(batch(painted.images, painted.boxes, labels, **settings).then(*recipe))


def _visible(points: Array) -> Array:
    """Return (..., 3): points (..., 2) with visibility 2."""
    return np.concatenate([points, np.full((*points.shape[:-1], 1), 2.0)], axis=-1)


def _eager_result(samples: Samples) -> Result:
    images = [image if image.shape[2] == 3 else image.transpose(1, 2, 0) for image in samples.images]
    keypoints = None if samples.shapes.keypoints is None else samples.keypoints
    return Result(images, samples.boxes, samples.labels, samples.matrix, keypoints)


def _loaded_result(ops: list[Op], painted: Painted, folder: Path, seed: int, device: str) -> Result:
    """Run the ops in a loader; results are in the order of `painted`, since a training loader shuffles."""
    loader = Loader(_written(painted, folder), ops, len(painted.images), device=device, seed=seed)
    batch = next(iter(loader)).to("cpu")
    order = np.argsort(batch.image_id.numpy())
    images = batch.images.permute(0, 2, 3, 1).float().numpy()
    targets = batch.targets()
    boxes, labels = ([targets[at][name].numpy() for at in order] for name in ("boxes", "labels"))
    keypoints = [targets[at]["keypoints"].numpy() for at in order] if batch.has_keypoints else None
    return Result([images[at] for at in order], boxes, labels, batch.matrix.numpy()[order], keypoints)


def _written(painted: Painted, folder: Path) -> CocoReader:
    """Write PNG files and their json."""
    height, width = painted.images[0].shape[:2]
    names = [f"{at:04}.png" for at in range(len(painted.images))]
    for name, image in zip(names, painted.images, strict=True):
        Image.fromarray(image).save(folder / name)
    images = [{"id": at, "file_name": name, "width": width, "height": height} for at, name in enumerate(names)]
    boxes = [(at, k, box.tolist()) for at, each in enumerate(painted.boxes) for k, box in enumerate(each, 1)]
    annotations: list[dict[str, Any]] = [
        {"id": n, "image_id": at, "category_id": k, "bbox": [x0, y0, x1 - x0, y1 - y0], "area": 1, "iscrowd": 0}
        for n, (at, k, (x0, y0, x1, y1)) in enumerate(boxes, 1)
    ]
    categories: list[dict[str, Any]] = [{"id": k, "name": str(k)} for k in (1, 2, 3)]
    if painted.points is not None:
        for each, points in zip(annotations, np.concatenate(painted.points), strict=True):
            each["keypoints"] = _visible(points - 0.5).ravel().tolist()  # COCO counts pixels
        categories = [category | {"keypoints": SIDES} for category in categories]
    (folder / "painted.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    return CocoReader(folder, folder / "painted.json", keypoints=painted.points is not None)


# ---------------------------------------------------------------------------------------- reading pixels


def read_box(channel: Array, brightness: float = 0.5) -> Array:
    """Return the XYXY box of the bright pixels, to a fraction of a pixel: it ends at `brightness` times the maximum.

    >>> channel = np.zeros((100, 200))
    >>> channel[10:50, 20:60] = 255
    >>> print(da.testing.read_box(channel))
    [20. 10. 60. 50.]
    """
    x0, x1 = _edges(channel.max(axis=0), brightness)
    y0, y1 = _edges(channel.max(axis=1), brightness)
    return np.array([x0, y0, x1, y1])


def _edges(profile: Array, brightness: float) -> tuple[float, float]:
    bright = profile / profile.max() - brightness
    inside = np.flatnonzero(bright >= 0)
    return _crossing(bright, inside[0]), len(bright) - _crossing(bright[::-1], len(bright) - 1 - inside[-1])


def _crossing(bright: Array, first: int) -> float:
    """Return where the profile first rises through zero; pixel i has its centre at i + 0.5; a border is an edge."""
    if first == 0:
        return 0.0
    before, at = bright[first - 1], bright[first]
    return float(first - 0.5 + before / (before - at))


class Comparison(NamedTuple):
    """The number of compared boxes, and the misplaced ones."""

    boxes: int
    misplaced: list[Misplaced]


def _compare(result: Result, tolerance: float | None) -> Comparison:
    """Compare every box with its rectangle in the pixels."""
    compared, wrong = 0, []
    for at, (image, boxes, labels) in enumerate(zip(result.images, result.boxes, result.labels, strict=True)):
        for box, label in zip(boxes, labels, strict=True):
            channel = np.asarray(image[:, :, label - 1], np.float64)
            seen = read_box(channel) if channel.max() > 100 else None
            if seen is None or not _agree(box, seen, channel, result.matrix[at], tolerance):
                wrong.append(Misplaced(at, int(label), box, seen))
            compared += 1
    return Comparison(compared, wrong)


def _agree(box: Array, seen: Array, channel: Array, matrix: Array, tolerance: float | None) -> bool:
    """Compare a box with its rectangle; the sharp tip of a turned one ends between its half bright and faint pixels."""
    turned = abs(matrix[[0, 1], [1, 0]]).max() > 1e-6 or len(matrix) == 3
    magnification = max(1.0, _magnification(matrix, box))
    if not turned:
        allowed = max(0.5, magnification / 8) if tolerance is None else tolerance
        return bool(np.abs(seen - box).max() <= allowed)
    allowed = (1.0 if tolerance is None else tolerance) * magnification
    faint = read_box(channel, 0.02)
    low, high = np.minimum(seen, faint) - allowed, np.maximum(seen, faint) + allowed
    return bool(((box >= low) & (box <= high)).all())


def _compare_points(results: list[Result], tolerance: float | None) -> Comparison:
    """Compare the key points with discs. `results`: with the discs of left points and with those of right points."""
    compared, wrong = 0, []
    assert results[0].keypoints is not None
    for at, (keypoints, labels) in enumerate(zip(results[0].keypoints, results[0].labels, strict=True)):
        mirrored = np.linalg.det(_square(results[0].matrix[at])[:2, :2]) < 0
        for row, side in np.ndindex(len(labels), 2):
            point, label = keypoints[row][side], labels[row]
            pixels = np.asarray(results[side ^ int(mirrored)].images[at][:, :, label - 1], np.float64)
            seen = _read_disc(pixels, results[0].matrix[at])
            magnification = max(1.0, _magnification(results[0].matrix[at], np.tile(seen, 2))) if seen is not None else 1
            allowed = 0.5 * magnification if tolerance is None else tolerance
            if seen is None:
                misplaced = point[2] == 2 and pixels.max() < 100
            else:
                misplaced = point[2] == 0 or (point[2] == 2 and np.abs(point[:2] - seen).max() > allowed)
            compared += bool(misplaced or (seen is not None and point[2] == 2))
            if misplaced:
                wrong.append(Misplaced(at, int(label), point[:2], seen))
    return Comparison(compared, wrong)


def _read_disc(channel: Array, matrix: Array) -> Array | None:
    """Return x, y of the centre of the only disc, None if it is cut off or not there."""
    mass = channel.sum()
    if channel.max() < 100:
        return None
    y, x = np.indices(channel.shape) + 0.5
    center = np.array(((x * channel).sum(), (y * channel).sum())) / mass
    expected = 255 * np.pi * (RADIUS * _magnification(matrix, np.tile(center, 2))) ** 2
    return center if mass > 0.97 * expected else None


def _square(matrix: Array) -> Array:
    """Return (3, 3) of a matrix (2, 3) or (3, 3)."""
    square = np.eye(3)
    square[: len(matrix)] = matrix
    return square


def _magnification(matrix: Array, box: Array) -> float:
    """Return the size of a source pixel at the box, in output pixels."""
    square = _square(matrix)
    inverse = np.linalg.inv(square)
    depth = inverse[2] @ [*(box[:2] + box[2:]) / 2, 1]
    return float(np.sqrt(abs(np.linalg.det(square) * depth**3)))


# ----------------------------------------------------------------------------------------- pixel ops


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
    for at, (image, plain) in enumerate(zip(after.images, before.images, strict=True)):
        same = np.array_equal(after.labels[at], before.labels[at]) and np.array_equal(after.boxes[at], before.boxes[at])
        assert same, f"boxes of image {at} differ with and without the pixel ops of {list(ops)}"
        stands_out = _stands_out(np.asarray(image, np.float64).mean(2), plain.mean(2))
        assert stands_out, f"image {at}: rectangles are not where they were without the pixel ops of {list(ops)}"


def _stands_out(gray: Array, plain: Array) -> bool:
    """Return whether nearly all pixels that are white in `plain` differ in brightness from the black ones."""
    white, black = gray[plain > 250], gray[plain < 5]
    if min(len(white), len(black)) < 20:
        return True
    middle = (np.median(white) + np.median(black)) / 2
    side = np.sign(np.median(white) - middle)
    return bool(np.mean(side * (white - middle) > 0) > 0.8 and np.mean(side * (black - middle) < 0) > 0.8)


# ------------------------------------------------------------------------------------------- messages


def _complaint(wrong: list[Misplaced], compared: int, ops: tuple[Op, ...], picture: Path, what: str = "boxes") -> str:
    one = "box" if what == "boxes" else "key point"
    lines = [
        f"  image {each.image}, label {each.label}: {one} {np.round(each.box, 2).tolist()}, "
        + (f"pixels {np.round(each.seen, 2).tolist()}" if each.seen is not None else "no pixel of it is left")
        for each in wrong[:10]
    ]
    more = [f"  and {len(wrong) - 10} more"] if len(wrong) > 10 else []
    head = f"{len(wrong)} of {compared} {what} are not where their pixels are, after {list(ops)}; see {picture}"
    return "\n".join([head, *lines, *more])


def _too_few(compared: int, painted: int, least: int, ops: tuple[Op, ...], what: str = "boxes") -> str:
    name = f"min_{what.split()[-1]}"
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


def _drawn(result: Result, wrong: list[Misplaced], picture: str | Path | None) -> Path:
    """Write a PNG of the first image with misplaced boxes: green is the op's box, red the rectangle in the pixels."""
    image = Image.fromarray(np.clip(result.images[wrong[0].image] // 2, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for each in (each for each in wrong if each.image == wrong[0].image):
        draw.rectangle(_outline(each.box), outline=(0, 255, 0))
        if each.seen is not None:
            draw.rectangle(_outline(each.seen), outline=(255, 0, 0))
    path = Path(picture or tempfile.mkstemp(prefix="misplaced_", suffix=".png")[1])
    image.save(path)
    return path
