"""Read boxes, discs and shapes in the pixels, and compare them with what ops say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from detaug.arrays import Array
from detaug.coco.rings import box_of_mask
from detaug.testing.painted import RADIUS, Result


class Misplaced(NamedTuple):
    """A box that is not where its rectangle is, or a point that is not where its disc is."""

    image: int
    label: int
    box: Array
    """XYXY, the op's box, or that around its mask; or x, y of a point."""
    seen: Array | None
    """The same in the pixels; None if no pixel of it is left."""


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
    """Return where the profile first rises through zero; pixel i has its center at i + 0.5; a border is an edge."""
    if first == 0:
        return 0.0
    before, after = bright[first - 1], bright[first]
    return float(first - 0.5 + before / (before - after))


class Comparison(NamedTuple):
    """The number of compared boxes, and the misplaced ones."""

    boxes: int
    misplaced: list[Misplaced]


def compare_boxes(results: list[Result], tolerance: float | None) -> Comparison:
    """Compare every box with its rectangle in the pixels. `results`: one."""
    (result,), compared, wrong = results, 0, []
    for index, (image, boxes, labels) in enumerate(zip(result.images, result.boxes, result.labels, strict=True)):
        for box, label in zip(boxes, labels, strict=True):
            channel = np.asarray(image[:, :, label - 1], np.float64)
            seen = read_box(channel) if channel.max() > 100 else None
            if seen is None or not _agree(box, seen, channel, result.to_output[index], tolerance):
                wrong.append(Misplaced(index, int(label), box, seen))
            compared += 1
    return Comparison(compared, wrong)


def _agree(box: Array, seen: Array, channel: Array, to_output: Array, tolerance: float | None) -> bool:
    """Compare a box with its rectangle; the sharp tip of a turned one ends between its half bright and faint pixels."""
    rotated = abs(to_output[[0, 1], [1, 0]]).max() > 1e-6 or len(to_output) == 3
    magnification = max(1.0, _magnification(to_output, box))
    if not rotated:
        allowed = max(0.5, magnification / 8) if tolerance is None else tolerance
        return bool(np.abs(seen - box).max() <= allowed)
    allowed = (1.0 if tolerance is None else tolerance) * magnification
    faint = read_box(channel, 0.02)
    low, high = np.minimum(seen, faint) - allowed, np.maximum(seen, faint) + allowed
    return bool(((box >= low) & (box <= high)).all())


def compare_points(results: list[Result], tolerance: float | None) -> Comparison:
    """Compare the keypoints with discs. `results`: with the discs of left points and with those of right points."""
    compared, wrong = 0, []
    assert results[0].keypoints is not None
    for index, (keypoints, labels) in enumerate(zip(results[0].keypoints, results[0].labels, strict=True)):
        flipped = np.linalg.det(_square(results[0].to_output[index])[:2, :2]) < 0
        for row, side in np.ndindex(len(labels), 2):
            point, label = keypoints[row][side], labels[row]
            pixels = np.asarray(results[side ^ int(flipped)].images[index][:, :, label - 1], np.float64)
            seen = _read_disc(pixels, results[0].to_output[index])
            magnification = (
                max(1.0, _magnification(results[0].to_output[index], np.tile(seen, 2))) if seen is not None else 1
            )
            allowed = 0.5 * magnification if tolerance is None else tolerance
            if seen is None:
                misplaced = point[2] == 2 and pixels.max() < 100
            else:
                misplaced = point[2] == 0 or (point[2] == 2 and np.abs(point[:2] - seen).max() > allowed)
            compared += bool(misplaced or (seen is not None and point[2] == 2))
            if misplaced:
                wrong.append(Misplaced(index, int(label), point[:2], seen))
    return Comparison(compared, wrong)


def _read_disc(channel: Array, to_output: Array) -> Array | None:
    """Return x, y of the center of the only disc, None if it is cut off or not there."""
    mass = channel.sum()
    if channel.max() < 100:
        return None
    y, x = np.indices(channel.shape) + 0.5
    center = np.array(((x * channel).sum(), (y * channel).sum())) / mass
    expected = 255 * np.pi * (RADIUS * _magnification(to_output, np.tile(center, 2))) ** 2
    return center if mass > 0.97 * expected else None


def _square(to_output: Array) -> Array:
    """Return (3, 3) of a matrix (2, 3) or (3, 3)."""
    square = np.eye(3)
    square[: len(to_output)] = to_output
    return square


def _magnification(to_output: Array, box: Array) -> float:
    """Return the size of a source pixel at the box, in output pixels."""
    square = _square(to_output)
    inverse = np.linalg.inv(square)
    depth = inverse[2] @ [*(box[:2] + box[2:]) / 2, 1]
    return float(np.sqrt(abs(np.linalg.det(square) * depth**3)))


def compare_masks(results: list[Result], tolerance: float | None) -> Comparison:
    """Compare the masks with the bright pixels of their objects. `results`: one."""
    (result,), compared, wrong = results, 0, []
    assert result.masks is not None
    for index, (image, masks, labels) in enumerate(zip(result.images, result.masks, result.labels, strict=True)):
        for mask, label, box in zip(masks, labels, result.boxes[index], strict=True):
            bright = np.asarray(image[:, :, label - 1], np.float64) > 127.5
            allowed = max(1.0, _magnification(result.to_output[index], box)) if tolerance is None else tolerance
            if _is_deeper(bright ^ mask, allowed):
                wrong.append(Misplaced(index, int(label), box, np.array(box_of_mask(bright)) if bright.any() else None))
            compared += 1
    return Comparison(compared, wrong)


def _is_deeper(pixels: Array, depth: float) -> bool:
    """Return whether some of the pixels lie more than `depth` pixels, in whole steps, from all others."""
    for _ in range(max(1, round(depth))):
        around = np.pad(pixels, 1, mode="edge")
        pixels = pixels & around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    return bool(pixels.any())
