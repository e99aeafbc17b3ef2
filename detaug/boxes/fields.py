"""Fields: maps of finished images that no matrix describes, such as the distortion of a lens.

A field says for each point of the output which point of the undistorted image is seen there: that is what renders
pixels. Annotations go the other way, from the undistorted image to the output, by Newton's method. Views and layers
know nothing of it: they describe the undistorted image, which a field bends once, at the end.

The sums take NumPy's arrays and torch's tensors alike, so that masks on a GPU are sampled where its pixels are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.field_loops import undo_shifts
from detaug.boxes.units import EDGE, FAR, ONE

CHORD_ERROR = 0.05
"""Output pixels that the straight pieces of a bent line may lie beside it."""

STRONGEST = -0.3
"""The lowest coefficient of a lens: below -4/11 the corners of an image would fold over."""


@dataclass(frozen=True, eq=False)
class Field:
    """The fields of N outputs: a point is shifted by a free-form deformation, and then seen through a lens.

    The deformation is Rueckert's (1999): control points on a grid are shifted, and what lies between them by the sum of
    their shifts, weighted by cubic B-splines. While none is shifted by 0.48 of the distance between them, nothing folds
    (Choi and Lee 2000), so that every point has one place.
    """

    size: Floats
    """(N, 2): height and width of the output."""
    lens: Floats
    """(N,): the coefficient k of the lens. A point at (x, y) from the center, as fractions of width and height, shows
    is at (x, y) (1 + k r^2 + k r^4) of the undistorted image, r^2 = x^2 + y^2; 0 leaves it as it is."""
    control: NDArray[np.float32]
    """(N, R, C, 2): shifts of the control points along x and y, output pixels. The first ones lie one distance left of
    and above the image; an image smaller than others does not use the last ones."""
    spacing: Floats
    """(N,): the distance between control points, output pixels."""

    @classmethod
    def none(cls, size: Floats) -> Field:
        """Return fields that leave images of these sizes as they are."""
        count = len(size)
        return cls(size, np.zeros(count), np.zeros((count, 4, 4, 2), np.float32), np.full(count, NOT_SHIFTED))

    def __len__(self) -> int:
        return len(self.size)

    def __getitem__(self, images: slice | Ints) -> Field:
        """Return the fields of some images."""
        return Field(**{member.name: getattr(self, member.name)[images] for member in fields(self)})

    def replace_at(self, images: Ints, other: Field) -> Field:
        """Return these fields with those at the indices `images` replaced by `other`, in order."""
        room = np.maximum(self.control.shape[1:3], other.control.shape[1:3]).tolist()
        ours, theirs = (replace(field, control=_padded(field.control, room)) for field in (self, other))
        changed = {member.name: getattr(ours, member.name).copy() for member in fields(self)}
        for name, array in changed.items():
            array[images] = getattr(theirs, name)[: len(images)]
        return Field(**changed)

    @property
    def bends(self) -> Bools:
        """Return (N,): whether an image changes at all."""
        return np.asarray((self.lens != 0) | self._shifts)

    @cached_property
    def _shifts(self) -> Bools:
        """Return (N,): whether control points are shifted."""
        return np.asarray(self.control.any((1, 2, 3)))

    def undistorted(self, image: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """Return where in the undistorted images points of the outputs come from: x and y, output pixels.

        `image` holds their images, 0..N - 1, and broadcasts with x and y. Tensors must have double precision.
        """
        height, width, lens = (_like(values[image], x) for values in (*self.size.T, self.lens))
        if self._shifts.any():
            to_right, down = self._shift(image, x.clip(0 * width, width), y.clip(0 * height, height))
            x, y = x + to_right, y + down
        across, down = x - width / 2, y - height / 2
        of_width, of_height = across / width, down / height
        squared = of_width * of_width + of_height * of_height
        further = lens * squared * (1 + squared)
        return x + across * further, y + down * further

    def undistorted_units(self, image: int, x: Ints, y: Ints, rim: float = 0.0) -> tuple[Ints, Ints]:
        """Return where points of an output come from, x and y (R, C), all in units of 1/256 pixel, rounded.

        `x` (C,), `y` (R, 1). What comes from outside of the image is far away, since it is fill; but what comes from up
        to `rim` pixels outside, where an image is drawn with the pixels of its rim, from there.
        `mask_kernels.undistort` gives the same bits, for masks.
        """
        height, width = self.size[image].tolist()
        in_x, in_y = x / ONE, y / ONE
        at_x, at_y = self.undistorted(image, in_x + 0 * in_y, in_y + 0 * in_x)
        seen = (at_x >= -rim) & (at_x < width + rim) & (at_y >= -rim) & (at_y < height + rim)
        units = [np.where(seen, np.floor(position * ONE + 0.5), -FAR) for position in (at_x, at_y)]
        if rim:
            sides = width * ONE, height * ONE
            units = [np.where(seen, unit.clip(0, side - 1), unit) for unit, side in zip(units, sides, strict=True)]
        from_x, from_y = (unit.astype(np.int64) for unit in units)
        return from_x, from_y

    def placed(self, image: Ints, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return where points of the undistorted images are seen in the outputs: the inverse of `undistorted`.

        Beyond the corners, where the map of a negative coefficient folds over, points are placed outside of the output.
        """
        if self.lens.any():
            height, width, lens = (values[image] for values in (*self.size.T, self.lens))
            across, down = x - width / 2, y - height / 2
            radius = np.hypot(across / width, down / height)
            closer = _radius_before(lens, radius) / np.where(radius > 0, radius, 1) - 1
            closer = np.where((lens != 0) & (radius > 0), closer, 0)
            x, y = x + across * closer, y + down * closer
        if not self._shifts.any():
            return x, y
        shape, moved = x.shape, [np.array(coordinate, np.float64).ravel() for coordinate in (x, y)]
        numbers = np.ascontiguousarray(np.broadcast_to(image, shape)).ravel()
        undo_shifts(numbers, *moved, np.ascontiguousarray(self.size), self.control, self.spacing)
        return moved[0].reshape(shape), moved[1].reshape(shape)

    def _shift(self, image: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """Return how far the deformations shift points in the images, along x and y."""
        spacing, (rows, columns) = _like(self.spacing[image], x), self.control.shape[1:3]
        (row, down), (column, across) = (_cell_of(coordinate / spacing) for coordinate in (y, x))
        start = (_like(np.asarray(image), row) * rows + row) * columns + column
        control = _like(self.control.reshape(-1, 2), x)
        along_x, along_y = 0 * x, 0 * y
        for at_y, of_y in enumerate(_weights(down)):
            for at_x, of_x in enumerate(_weights(across)):
                shifts = control[start + (at_y * columns + at_x)]
                along_x, along_y = along_x + shifts[..., 0] * (of_y * of_x), along_y + shifts[..., 1] * (of_y * of_x)
        return along_x, along_y

    def place(self, image: Ints, points: Floats) -> Floats:
        """Return points (B, ..., 2) of the undistorted images in the outputs. `image`: (B,)."""
        image = image.reshape(-1, *[1] * (points.ndim - 2))
        return np.stack(self.placed(image, points[..., 0], points[..., 1]), axis=-1)

    def shows(self, image: Ints, points: Floats) -> Bools:
        """Return (B, ...): whether points (B, ..., 2) of the outputs lie in them or on their borders. `image`: (B,)."""
        sides = self.size[image, ::-1].reshape(-1, *[1] * (points.ndim - 2), 2)
        return np.asarray(((points >= -EDGE) & (points <= sides + EDGE)).all(-1))

    def pieces(self, image: Ints, lengths: Floats) -> Ints:
        """Return into how many straight pieces to cut lines of the undistorted images before they are bent.

        `image`: (Q,); `lengths`: (Q,) output pixels. A piece of length s and curvature c lies up to s^2 c / 8 off.
        """
        strength = np.abs(self.lens)
        narrowest = 1 + 2.75 * np.minimum(self.lens, 0)  # the least derivative along a radius, at the corners
        curvature = 4 * strength / (self.size.min(1) * narrowest**3)
        second_differences = [np.abs(np.diff(self.control, 2, axis=axis)).max((1, 2, 3), initial=0) for axis in (1, 2)]
        curvature += np.maximum(*second_differences) / self.spacing**2
        finest = np.sqrt(curvature / (8 * CHORD_ERROR)).clip(None, FINEST)
        count = np.ceil(np.minimum(np.nan_to_num(lengths), LONGEST) * finest[image])
        return np.asarray(count.clip(1).astype(np.int64))

    def growth(self) -> Floats:
        """Return (N,): at most how many times larger an area is in the undistorted image than in the output."""
        wider, slope = np.maximum(self.lens, 0), 2 * np.abs(self.control).max((1, 2, 3)) / self.spacing
        return np.asarray((1 + 0.75 * wider) * (1 + 2.75 * wider) * ((1 + slope) ** 2 + slope**2))


NOT_SHIFTED = 1e9
"""Output pixels between control points that are not shifted."""

FINEST = 2.0
"""Pieces of a pixel that lines are cut into at most."""


def _padded(control: NDArray[np.float32], room: Sequence[int]) -> NDArray[np.float32]:
    """Return control points (N, R, C, 2) with zeros after them, so that they are `room` rows and columns."""
    return np.pad(
        control, [(0, 0), *((0, most - own) for most, own in zip(room, control.shape[1:3], strict=True)), (0, 0)]
    )


def _cell_of(place: Any) -> tuple[Any, Any]:
    """Return the cell of the grid that places lie in, as whole numbers, and how far they are in it, in 0..1."""
    cell = place // 1
    return cell.long() if hasattr(cell, "long") else cell.astype(np.int64), place - cell


def _weights(part: Any) -> tuple[Any, Any, Any, Any]:
    """Return the weights of four control points in a cubic B-spline, `part` of the way from the second to the third."""
    left, squared, cubed = 1 - part, part * part, part * part * part  # not **: NumPy and torch round that differently
    first = left * left * left / 6, (3 * cubed - 6 * squared + 4) / 6
    return *first, (-3 * cubed + 3 * squared + 3 * part + 1) / 6, cubed / 6


def cut_to_images(start: Floats, end: Floats, size: Floats) -> tuple[Bools, Floats, Floats]:
    """Cut segments (P, 2) to (P, 2) to images of `size` (P, 2), height and width: return which are seen, and ends."""
    along, sides = end - start, size[:, ::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        to_low, to_high = -start / along, (sides - start) / along
    still, outside = along == 0, (start < 0) | (start > sides)
    first = np.where(still, np.where(outside, np.inf, 0), np.minimum(to_low, to_high)).max(1).clip(0)
    last = np.where(still, 1, np.maximum(to_low, to_high)).min(1).clip(None, 1)
    seen = first <= last
    first, last = (np.where(seen, share, 0)[:, None] for share in (first, last))
    return seen, start + first * along, start + last * along


LONGEST = 1e5
"""Output pixels: longer lines, which leave the image, get no more pieces."""


def _like(array: NDArray[Any], other: Any) -> Any:
    """Return the array as a tensor on the device of `other`, if that is one."""
    return other.new_tensor(array) if hasattr(other, "new_tensor") else array


def _radius_before(lens: Floats, radius: Floats) -> Floats:
    """Solve r (1 + k r^2 + k r^4) = radius for r, by Newton's method.

    The left side is convex for a positive k and concave for a negative one, so the steps never overshoot. With a
    negative k it has a largest value: for a radius beyond that, return the r of the largest value.
    """
    negative = np.minimum(lens, -1e-9)
    summit = np.where(lens < 0, np.sqrt((np.sqrt(9 - 20 / negative) - 3) / 10), np.inf)  # where the derivative is 0
    solution = np.minimum(radius, summit)
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(40):
            squared = solution**2
            value = solution * (1 + lens * squared * (1 + squared)) - radius
            slope = np.maximum(1 + lens * squared * (3 + 5 * squared), 1e-6)
            before, solution = solution, np.minimum(solution - value / slope, summit)
            if not (np.abs(solution - before) > 1e-13).any():
                break
    return np.asarray(solution)
