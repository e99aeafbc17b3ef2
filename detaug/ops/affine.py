"""Rotation, affine and perspective maps: ops that turn or shear the view.

A box becomes the hull of its turned corners, as in torchvision, or of the turned ellipse inside it
(`rotate_method="ellipse"`), which is tighter for round objects (Kalra et al. 2021, "Towards Rotation Invariance in
Object Detection").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from detaug.arguments import FILL, RGB, Range, check, check_fill, check_p, check_range, is_number, is_numbers, renamed
from detaug.arrays import Arrays, Floats
from detaug.boxes import polygons
from detaug.boxes.views import Views
from detaug.ops.op import GeometricOp

RotateMethod = Literal["box", "ellipse"]
BOX_SHAPES = {"box": polygons.UNIT_SQUARE, "ellipse": polygons.UNIT_ELLIPSE}


@renamed(outline="rotate_method")
@dataclass(frozen=True)
class RandomRotation(GeometricOp):
    """Turn the image about its center by a random angle, counter-clockwise (torchvision's `RandomRotation`).

    The size of an expanded view may differ by a pixel or two from torchvision's and Pillow's, which round each corner.
    DALI: rotate, bbox_rotate.

    Args:
        degrees: (smallest, largest) angle, or one number d for (-d, d).
        p: Probability per image.
        expand: Whether the view grows to contain the whole image; otherwise the image's corners are cut off.
        fill: RGB 0..255 beside the image.
        rotate_method: How a box follows. "box": the hull of its rotated corners. "ellipse": the hull of the rotated
            ellipse inside it, which is tighter for round objects.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.RandomRotation((90, 90), expand=True)(samples).boxes[0].round())
    [[ 10. 140.  50. 180.]]
    >>> print(da.RandomRotation(10)(samples).boxes[0].round(1))  # by an angle from -10 to 10 degrees
    [[18.2 12.  60.  53.8]]
    """

    degrees: float | Range
    p: float = 1.0
    expand: bool = False
    fill: RGB = FILL
    rotate_method: RotateMethod = "box"

    def check_arguments(self) -> None:
        _check_degrees(self.degrees)
        check_p(self.p)
        _check_turn(self.fill, self.rotate_method)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        angle = rng.uniform(*_bounds(self.degrees), n)
        return {"angle": np.where(rng.random(n) < self.p, angle, 0)}

    def move(self, views: Views, drawn: Arrays) -> Views:
        linear = rotation(-drawn["angle"])
        height, width = (np.abs(linear) @ views.size[:, ::-1, None])[:, ::-1, 0].T
        size = np.stack([height, width], axis=1) if self.expand else views.size
        return _turn(views, about_centre(linear, views.size, size), size, self.fill, self.rotate_method)


@renamed(outline="rotate_method")
@dataclass(frozen=True)
class RandomAffine(GeometricOp):
    """Rotate, translate, scale and shear the image about its center (torchvision's `RandomAffine`).

    DALI: transforms.rotation and others, warp_affine.

    Args:
        degrees: (smallest, largest) angle, or one number d for (-d, d): clockwise, as torchvision's RandomAffine, whose
            RandomRotation rotates the other way.
        translate: Largest shift along x and y, as fractions of width and height.
        scale: (smallest, largest) factor.
        shear: Degrees: (smallest, largest) along x, four numbers for x and y, or one number d for (-d, d) along x.
        p: Probability per image.
        fill: RGB 0..255 beside the image.
        rotate_method: How a box follows; see `RandomRotation`.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.RandomAffine(scale=(0.5, 0.5))(samples).boxes[0].round())
    [[60. 30. 80. 50.]]
    >>> print(da.RandomAffine(10, translate=(0.1, 0.1), scale=(0.8, 1.2))(samples).boxes[0].round(1))
    [[23.8 23.9 71.9 72. ]]
    """

    degrees: float | Range = 0.0
    translate: tuple[float, float] = (0.0, 0.0)
    scale: Range = (1.0, 1.0)
    shear: float | tuple[float, ...] = 0.0
    p: float = 1.0
    fill: RGB = FILL
    rotate_method: RotateMethod = "box"

    def check_arguments(self) -> None:
        _check_degrees(self.degrees)
        shifts = is_numbers(self.translate, 2) and all(0 <= shift <= 1 for shift in self.translate)
        check("translate", self.translate, shifts, "two fractions of width and height in 0..1")
        check_range("scale", self.scale, 0, float("inf"))
        check("scale", self.scale, self.scale[0] > 0, "above 0")
        steep = is_numbers(self._shear, 4) and all(abs(angle) < 90 for angle in self._shear)
        check("shear", self.shear, steep, "one, two or four angles between -90 and 90 degrees")
        low_x, high_x, low_y, high_y = self._shear
        check("shear", self.shear, low_x <= high_x and low_y <= high_y, "(smallest, largest), or one number from 0")
        check_p(self.p)
        _check_turn(self.fill, self.rotate_method)

    @property
    def _shear(self) -> tuple[float, ...]:
        if is_number(self.shear):
            return (-self.shear, self.shear, 0.0, 0.0)
        return (*self.shear, 0.0, 0.0) if is_numbers(self.shear, 2) else self.shear  # type: ignore[misc, return-value]

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        applied = rng.random(n) < self.p
        low_x, high_x, low_y, high_y = self._shear
        shear = rng.uniform((low_x, low_y), (high_x, high_y), (n, 2))
        return {
            "angle": np.where(applied, rng.uniform(*_bounds(self.degrees), n), 0),
            "translate": applied[:, None] * rng.uniform(-1, 1, (n, 2)) * self.translate,
            "scale": np.where(applied, rng.uniform(*self.scale, n), 1),
            "shear": applied[:, None] * shear,
        }

    def move(self, views: Views, drawn: Arrays) -> Views:
        linear = rotation(drawn["angle"]) @ shearing(drawn["shear"]) * drawn["scale"][:, None, None]
        change = about_centre(linear, views.size, views.size)
        change[:, :2, 2] += np.round(drawn["translate"] * views.size[:, ::-1])
        return _turn(views, change, views.size, self.fill, self.rotate_method)


@renamed(outline="rotate_method")
@dataclass(frozen=True)
class RandomPerspective(GeometricOp):
    """Move each corner of the image inwards (torchvision's `RandomPerspective`).

    The batch's `matrix` is then (N, 3, 3). DALI: experimental.warp_perspective.

    Args:
        distortion_scale: Twice the largest shift of a corner, as a fraction of each side: at least 0 and below 1.
        p: Probability per image.
        fill: RGB 0..255 beside the image.
        rotate_method: How a box follows; see `RandomRotation`.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.RandomPerspective(p=1)(samples)
    >>> print(after.boxes[0].round(1), after.matrix.shape)
    [[45.5 14.3 79.9 48.4]] (1, 3, 3)
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    fill: RGB = FILL
    rotate_method: RotateMethod = "box"

    def check_arguments(self) -> None:
        inside = is_number(self.distortion_scale, 0, 1) and self.distortion_scale < 1
        check("distortion_scale", self.distortion_scale, inside, "at least 0 and below 1")
        check_p(self.p)
        _check_turn(self.fill, self.rotate_method)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        inwards = rng.uniform(0, self.distortion_scale / 2, (n, 4, 2))
        return {"corners": np.where((rng.random(n) < self.p)[:, None, None], inwards, 0)}

    def move(self, views: Views, drawn: Arrays) -> Views:
        square = polygons.UNIT_SQUARE
        corners = (square + drawn["corners"] * (1 - 2 * square)) * views.size[:, None, ::-1]
        change = _square_to(corners) @ np.linalg.inv(_square_to(square * views.size[:, None, ::-1]))
        return _turn(views, change, views.size, self.fill, self.rotate_method, projective=True)


def _turn(
    views: Views, change: Floats, size: Floats, fill: RGB, rotate_method: RotateMethod, *, projective: bool = False
) -> Views:
    return views.warp(change, size, fill, BOX_SHAPES[rotate_method], projective=projective).clip()


def rotation(degrees: Floats) -> Floats:
    """Return rotations (N, 2, 2), clockwise where y points down."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1)


def shearing(degrees: Floats) -> Floats:
    """Return shears (N, 2, 2), along x and then along y, with torchvision's signs. `degrees`: (N, 2)."""
    x, y = np.tan(np.radians(degrees)).T
    one = np.ones_like(x)
    along_x = np.stack([np.stack([one, -x], axis=1), np.stack([0 * one, one], axis=1)], axis=1)
    along_y = np.stack([np.stack([one, 0 * one], axis=1), np.stack([-y, one], axis=1)], axis=1)
    return np.asarray(along_y @ along_x)


def about_centre(linear: Floats, size: Floats, new_size: Floats) -> Floats:
    """Return (N, 3, 3): linear maps (N, 2, 2) of pixels that take the center of one view to the center of the other."""
    change = np.tile(np.eye(3), (len(linear), 1, 1))
    change[:, :2, :2] = linear
    change[:, :2, 2] = new_size[:, ::-1] / 2 - (linear @ size[:, ::-1, None] / 2)[..., 0]
    return change


def _square_to(corners: Floats) -> Floats:
    """Return projective maps (N, 3, 3) of the unit square to four corners (N, 4, 2). Source: Heckbert 1989, 2.2.3."""
    p0, p1, p2, p3 = corners.transpose(1, 2, 0)
    right, down, off = p1 - p2, p3 - p2, p0 - p1 + p2 - p3
    g, h = _cross(off, down) / _cross(right, down), _cross(right, off) / _cross(right, down)
    matrix = np.ones((len(corners), 3, 3))
    matrix[:, :2] = np.stack([p1 - p0 + g * p1, p3 - p0 + h * p3, p0], axis=1).transpose(2, 0, 1)
    matrix[:, 2, :2] = np.stack([g, h], axis=1)
    return matrix


def _cross(a: Floats, b: Floats) -> Floats:
    return np.asarray(a[0] * b[1] - a[1] * b[0])


def _bounds(degrees: float | Range) -> Range:
    """Return (smallest, largest) angle; one number d is (-d, d)."""
    return degrees if isinstance(degrees, tuple) else (-degrees, degrees)


def _check_degrees(degrees: float | Range) -> None:
    in_order = is_numbers(degrees, 2) and degrees[0] <= degrees[1]  # type: ignore[index]
    check(
        "degrees", degrees, in_order or is_number(degrees, 0), "(smallest, largest), or one number d from 0 for (-d, d)"
    )


def _check_turn(fill: RGB, rotate_method: str) -> None:
    check_fill("fill", fill)
    check("rotate_method", rotate_method, rotate_method in BOX_SHAPES, "'box' or 'ellipse'")
