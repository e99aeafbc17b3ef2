"""Layers: where images lie in the output, once an op has mixed them or covered parts of them.

An image that is not mixed is one layer: itself, seen through the map of its view. Mosaic, MixUp, CutMix and CopyPaste
put several images into one output. Each of them stays a layer with its own map to its own source, in the order in which
they are drawn, so that a box, a point or a mask can be taken back to the image that it is of, and so that what a
later layer covers is known. A hole, which erasing leaves, is a layer without an image.

Training seldom asks for layers, so ops keep a `Drawing`, from which they are worked out when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes import polygons
from detaug.boxes.stencils import Stencils, no_stencils, places_of
from detaug.errors import InputError

HOLE = np.iinfo(np.int64).min
"""The image of a layer that has none: of the fill around what is pasted."""
ERASED = HOLE + 1
"""The image of one that has none because an op erased it."""

NOTHING_SHOWN, ERASED_SHOWN = -1, -2
"""What `of_source` makes of them."""

SAME = 1e-9
"""Of an average: ends that differ by less were rounded differently."""
MOST_PARTS = 62
"""Bits of a whole number that are used: six `MixUp` after each other."""


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of N images, L each, in drawing order: a later one covers those before, or is averaged with them.

    An average, as `MixUp` makes them, is 0..1, of which each layer fills an interval: those of one image that of its
    weight, and those of the other the rest. A later layer covers an earlier one if its interval contains that one's
    (decision 29): so what an op covered stays covered when its output is averaged with another.

    A layer whose rectangle has no area is not used.
    """

    image: Ints
    """(N, L): the image that it shows, counted from this one among the views: 0 is the image itself, -1 the one before
    it, `HOLE` and `ERASED` none. `of_source` makes positions in the source of it."""
    to_source: Floats
    """(N, L, 3, 3): output pixels (x, y, 1) -> pixels of that image's source, projective."""
    rectangle: Floats
    """(N, L, 4) XYXY, output pixels that it may fill."""
    source_bounds: Floats
    """(N, L, 2, 2): (x0, y0) and (x1, y1) in source pixels; what lies outside of them is fill."""
    interval: Floats
    """(N, L, 2): the part of an average that it fills, 0 and 1 where there is none."""
    copy: Ints
    """(N, L): the first layer of the same copy of the same image. `CopyPaste` shows one through several rectangles."""
    mixed: Bools
    """(N,): whether it shows more than the image itself."""
    clip_region: Floats | None = None
    """(N, L, V, 2): a convex polygon in output pixels, outside of which is fill too."""
    stencil: Stencils | None = None
    """(N, L): which pixels of its rectangle each shows, where that is not all of them."""

    def __getitem__(self, images: slice | Ints) -> Layers:
        """Return the layers of some images."""
        return Layers(**{field.name: _take(getattr(self, field.name), images) for field in fields(self)})

    def __len__(self) -> int:
        return len(self.image)

    @property
    def share(self) -> Floats:
        """Return (N, L): the weight of each in an average."""
        return np.asarray(self.interval[..., 1] - self.interval[..., 0])

    def parts_of_average(self) -> tuple[Ints, NDArray[np.float32]]:
        """Return (N * L,): which parts of an average each fills, a bit each, and (N, P) the lengths of the parts.

        They end where a layer begins or ends to fill it. Raises InputError for more than 62 parts.
        """
        n, count = self.image.shape
        if ((self.interval[..., 0] <= SAME) & (self.interval[..., 1] >= 1 - SAME)).all():
            return np.ones(n * count, np.int64), np.ones((n, 1), np.float32)
        filled: Ints = np.zeros((n, count), np.int64)
        lengths: list[Floats] = []
        for image in range(n):
            ends = np.sort(self.interval[image].ravel())
            ends = ends[np.append(True, np.diff(ends) > SAME)]
            if len(ends) > MOST_PARTS + 1:
                raise InputError(
                    f"an image is an average of more than {MOST_PARTS} parts, in which maps cannot be looked up; use "
                    "fewer MixUp"
                )
            first, end = np.searchsorted(ends, self.interval[image] + SAME, side="right").T - 1
            filled[image] = (1 << end) - (1 << first)
            lengths.append(np.diff(ends))
        together = np.zeros((n, max(map(len, lengths))), np.float32)
        for own, image_lengths in zip(together, lengths, strict=True):
            own[: len(image_lengths)] = image_lengths
        return filled.ravel(), together

    def paste(
        self,
        images: Ints,
        source: Floats,
        target: Floats,
        interval: Floats | None = None,
        copy: Ints | None = None,
        stencil: Stencils | None = None,
    ) -> Layers:
        """Return the layers of images that are made of rectangles of these ones, T tiles each, in drawing order.

        `images` (N, T): the image of each tile. `source` (N, T, 4) XYXY: its rectangle in that image; `target`
        (N, T, 2) (x, y): where the rectangle goes. `interval` (N, T, 2): what each tile fills of an average, by
        default all. `copy` (T,): the first tile that shows the same image in the same place, by default the tile
        itself. `stencil` (N, T): which pixels of each tile are pasted, by default all.
        The layer l of the image of tile t becomes layer t * `room` + l. If images have several layers, there is a hole
        below each tile but the first, because the fill of a pasted image also covers what lies below it.
        """
        (n, tiles), count = images.shape, self.image.shape[1]
        interval = np.tile([0.0, 1.0], (n, tiles, 1)) if interval is None else interval
        low_end, high_end = np.split(interval.reshape(-1, 1, 2), 2, axis=2)
        steps = images - np.arange(n)[:, None]
        shift = target - source[..., :2]
        window = np.concatenate([target, target + source[..., 2:] - source[..., :2]], axis=2)
        parts = self[images.ravel()]._moved(np.repeat(shift.reshape(-1, 1, 2), count, axis=1))
        low, high = window.reshape(-1, 1, 4)[..., [0, 1, 0, 1]], window.reshape(-1, 1, 4)[..., [2, 3, 2, 3]]
        rectangle = parts.rectangle.clip(low, high)
        copies = np.arange(tiles) if copy is None else copy
        used = (rectangle[..., :2] < rectangle[..., 2:]).all(2)
        parts = replace(
            parts,
            image=np.where(parts.image > ERASED, parts.image + steps.reshape(-1, 1), parts.image),
            rectangle=rectangle,
            interval=low_end + parts.interval * (high_end - low_end),  # rounded alike, so what contains stays so
        )
        parts = parts if stencil is None else parts._cut_out(stencil.reshape(-1, 1))
        if count > 1:
            # a hole below a tile is the last layer of the tile before it; after the last tile it has no area
            after = np.append(window[:, 1:], np.zeros((n, 1, 4)), axis=1).reshape(-1, 1, 4)
            own = None if stencil is None else np.roll(stencil, -1, axis=1).reshape(-1, 1)
            parts = parts.with_holes(after, np.roll(interval, -1, axis=1).reshape(-1, 1, 2), own)
        parts = replace(parts, copy=parts.copy + np.tile(copies, n)[:, None] * room(count))
        joined = {name: array.reshape(n, -1, *array.shape[2:]) for name, array in parts._of_layers().items()}
        shown = used.reshape(n, tiles, count).any(2)
        mixed = self.mixed | (shown & (steps != 0)).any(1) | (shown.sum(1) > 1)
        return replace(self, **joined, mixed=mixed)

    def with_holes(
        self,
        rectangles: Floats,
        interval: Floats | None = None,
        stencil: Stencils | None = None,
        image: int = HOLE,
    ) -> Layers:
        """Return these layers under holes, `rectangles` (N, K, 4) XYXY in output pixels.

        `interval` (N, K, 2): what they fill of an average; `stencil` (N, K): which pixels of each they cover; by
        default all. `image`: `HOLE` or `ERASED`.
        """
        (n, count), holes = self.image.shape, rectangles.shape[1]
        copies = np.tile(np.arange(count, count + holes), (n, 1))
        interval = np.tile([0.0, 1.0], (n, holes, 1)) if interval is None else interval
        whole = np.tile(np.eye(3), (n, holes, 1, 1))
        nowhere = np.zeros((n, holes, 2, 2))
        above = Layers(
            np.full((n, holes), image), whole, rectangles, nowhere, interval, copies, self.mixed, stencil=stencil
        )
        below, above = _alike(self, above)
        ours, theirs = below._of_layers(), above._of_layers()
        joined: dict[str, Any] = {name: np.concatenate([ours[name], theirs[name]], axis=1) for name in ours}
        return replace(self, **joined)

    def replace_at(self, images: Ints, other: Layers) -> Layers:
        """Return these layers with those at the indices `images` replaced by `other`, in order."""
        ours, theirs = self.padded_to(other.image.shape[1]), other.padded_to(self.image.shape[1])
        ours, theirs = _alike(ours, theirs)
        values = {name: array.copy() for name, array in vars(ours).items() if array is not None}
        for name, array in values.items():
            array[images] = getattr(theirs, name)[: len(images)]
        return Layers(**values)

    def padded_to(self, count: int) -> Layers:
        """Return these layers with some that are not used after them, so that they are at least `count`."""
        missing = count - self.image.shape[1]
        return self if missing <= 0 else self.with_holes(np.zeros((len(self), missing, 4)))

    def of_source(self, images: Ints) -> Layers:
        """Return layers whose `image` is a position in the source, `NOTHING_SHOWN` or `ERASED_SHOWN`.

        `images`: (N,) that of each view.
        """
        own = np.arange(len(self))[:, None]
        shown = self.image > ERASED
        none = np.where(self.image == ERASED, ERASED_SHOWN, NOTHING_SHOWN)
        return replace(self, image=np.where(shown, images[np.where(shown, own + self.image, 0)], none))

    def clip_region_or_all(self) -> Floats:
        """Return (N, L, V, 2): the clip region, or one so large that nothing is outside."""
        everything = np.tile((polygons.UNIT_SQUARE - 0.5) * 1e7, (*self.image.shape, 1, 1))
        return everything if self.clip_region is None else self.clip_region

    def stencil_or_none(self) -> Stencils:
        """Return (N, L): the stencils, None where there is none."""
        return no_stencils(self.image.shape) if self.stencil is None else self.stencil

    def _moved(self, shift: Floats) -> Layers:
        """Return these layers moved by `shift`, (N, L, 2) (x, y) output pixels."""
        to_source = self.to_source.copy()
        to_source[..., 2] -= to_source[..., 0] * shift[..., :1] + to_source[..., 1] * shift[..., 1:]
        region = None if self.clip_region is None else self.clip_region + shift[:, :, None]
        stencil = self.stencil
        if stencil is not None:
            stencil = stencil.copy()
            for place in places_of(stencil):
                stencil[place] = stencil[place].moved(*shift[place])
        rectangle = self.rectangle + np.tile(shift, 2)
        return replace(self, to_source=to_source, rectangle=rectangle, clip_region=region, stencil=stencil)

    def _cut_out(self, stencil: Stencils) -> Layers:
        """Return these layers with all of each image's cut to its stencil, `stencil` (N, 1)."""
        own = self.stencil_or_none()
        cut = own.copy()
        for image, _ in places_of(stencil):
            cut[image] = [stencil[image, 0].within(own_stencil) for own_stencil in own[image]]
        return replace(self, stencil=cut)

    def _of_layers(self) -> dict[str, Any]:
        """Return the arrays (N, L, ...), by name."""
        return {name: array for name, array in vars(self).items() if array is not None and name != "mixed"}


def room(count: int) -> int:
    """Return how many layers an image of `count` takes when it is pasted."""
    return count if count == 1 else count + 1


class Drawing:
    """The layers of N images, `count` each, worked out when they are asked for."""

    def __init__(self, count: int, make: Callable[[], Layers]) -> None:
        self.count, self._make = count, make

    @cached_property
    def layers(self) -> Layers:
        """Return the layers."""
        return self._make()

    def __getitem__(self, images: slice | Ints) -> Drawing:
        """Return the drawing of some images."""
        return Drawing(self.count, lambda: self.layers[images])

    def __reduce__(self) -> Any:
        # a function cannot be pickled, layers can
        return _drawing_of, (self.layers,)

    def paste(self, images: Ints, source: Floats, target: Floats, **more: Any) -> Drawing:
        """Return the drawing after `Layers.paste`."""
        count = room(self.count) * images.shape[1]
        return Drawing(count, lambda: self.layers.paste(images, source, target, **more))

    def with_holes(self, rectangles: Floats) -> Drawing:
        """Return the drawing after an op erased `rectangles` (N, K, 4) XYXY, output pixels."""
        return Drawing(self.count + rectangles.shape[1], lambda: self.layers.with_holes(rectangles, image=ERASED))

    def replace_at(self, images: Ints, other: Drawing) -> Drawing:
        """Return the drawing after `Layers.replace_at`."""
        return Drawing(max(self.count, other.count), lambda: self.layers.replace_at(images, other.layers))

    def of_source(self, images: Ints) -> Drawing:
        """Return the drawing after `Layers.of_source`."""
        return Drawing(self.count, lambda: self.layers.of_source(images))


def _drawing_of(layers: Layers) -> Drawing:
    return Drawing(layers.image.shape[1], lambda: layers)


def single_layer(matrix: Floats, size: Floats, source_bounds: Floats, clip_region: Floats | None) -> Layers:
    """Return one layer for each of N views: the fields of `Views` with these names."""
    n, sides = len(matrix), size[:, ::-1]
    to_source = matrix.copy()
    to_source[:, :, :2] /= sides[:, None]
    rectangle = np.concatenate([np.zeros((n, 2)), sides], axis=1)
    region = None if clip_region is None else (clip_region * sides[:, None])[:, None]
    return Layers(
        image=np.zeros((n, 1), np.int64),
        to_source=to_source[:, None],
        rectangle=rectangle[:, None],
        source_bounds=source_bounds[:, None],
        interval=np.tile([0.0, 1.0], (n, 1, 1)),
        copy=np.zeros((n, 1), np.int64),
        mixed=np.zeros(n, bool),
        clip_region=region,
    )


def _alike(a: Layers, b: Layers) -> tuple[Layers, Layers]:
    """Return both with what only one of them has: stencils, and clip regions, of as many points."""
    if a.clip_region is not None or b.clip_region is not None:
        ours, theirs = polygons.pad_to_same_length(a.clip_region_or_all(), b.clip_region_or_all())
        a, b = replace(a, clip_region=ours), replace(b, clip_region=theirs)
    if a.stencil is not None or b.stencil is not None:
        a, b = (replace(layers, stencil=layers.stencil_or_none()) for layers in (a, b))
    return a, b


def _take(array: Any, images: slice | Ints) -> Any:
    return None if array is None else array[images]
