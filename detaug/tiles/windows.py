"""The windows of tiles: a grid over each source image."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from detaug.arguments import check, is_number, is_whole, is_wholes
from detaug.arrays import Bools, Ints

Size = int | tuple[int, int]


class TileWindows(NamedTuple):
    """T tiles of source images: those of one are consecutive, row by row, and then the one that shows all of it."""

    image: Ints
    """(T,): the position of each one's source image."""
    windows: Ints
    """(T, 4): x, y, width, height, in pixels of the source image."""
    sizes: Ints
    """(T, 2): (height, width) of the tile in its own pixels; other than the window's if it is scaled."""
    grids: Bools
    """(T, G): in which of the grids it is."""

    def some(self, chosen: Ints | slice) -> TileWindows:
        """Return some of the tiles."""
        return TileWindows(self.image[chosen], self.windows[chosen], self.sizes[chosen], self.grids[chosen])

    @property
    def is_scaled(self) -> Bools:
        """Return (T,): whether a tile's pixels are not the source image's."""
        return np.asarray((self.sizes[:, ::-1] != self.windows[:, 2:]).any(1))


def check_grid(size: Size, overlap: float, whole: int | None = None, grids: int = 1, align: int = 1) -> tuple[int, int]:
    """Return the height and width of tiles. Raises InputError for arguments of `plan_tiles` that are wrong."""
    sides = (size, size) if is_whole(size) else size
    check("size", size, is_wholes(sides, 2, 1), "one number of pixels of at least 1, or (height, width)")
    check(
        "overlap", overlap, is_number(overlap, 0) and overlap < 1, "a fraction of the tile's side, at least 0, below 1"
    )
    check("whole", whole, whole is None or is_whole(whole, 1), "None, or pixels of the longer side, at least 1")
    check("grids", grids, is_whole(grids, 1), "a whole number of at least 1")
    check("align", align, is_whole(align, 1, min(sides)), "pixels, at least 1 and at most a side")  # type: ignore
    height, width = sides  # type: ignore[misc]
    return int(height), int(width)


def plan_tiles(
    image_sizes: Ints, size: Size, overlap: float, whole: int | None = None, grids: int = 1, align: int = 1
) -> TileWindows:
    """Return the tiles of source images, (n, 2) (height, width) each.

    `size`: pixels of a side, or (height, width). `overlap`: the fraction of a side that neighbors have in common; the
    last window of a row and of a column is moved inwards, so that it is as large as the others, as SAHI does. A source
    image that is smaller than a tile is one window. `whole`: also show all of each source image that has several
    windows, its longer side scaled down to this many pixels. `grids`: lay several grids over each source image, each
    moved by a fraction of the step; a window may be in several. `align`: begin windows at multiples of this many
    pixels; the last of a row and of a column are then smaller by less than that. Raises InputError.
    """
    height, width = check_grid(size, overlap, whole, grids, align)
    of_size: dict[tuple[int, int], tuple[Ints, Ints, Bools]] = {}
    rows = []
    for index, image_size in enumerate(map(tuple, image_sizes.tolist())):
        if image_size not in of_size:
            of_size[image_size] = _windows(image_size, (height, width), overlap, whole, grids, align)
        rows.append((np.full(len(of_size[image_size][0]), index), *of_size[image_size]))
    nothing = (*(np.zeros((0, *shape), np.int64) for shape in ((), (4,), (2,))), np.zeros((0, grids), bool))
    return TileWindows(*(np.concatenate(columns) for columns in zip(nothing, *rows, strict=True)))


def _windows(
    image_size: tuple[int, int], size: tuple[int, int], overlap: float, whole: int | None, grids: int, align: int
) -> tuple[Ints, Ints, Bools]:
    corners: dict[tuple[int, int], list[int]] = {}
    for grid in range(grids):
        y, x = (_starts(side, tile, overlap, grid / grids, align) for side, tile in zip(image_size, size, strict=True))
        for corner in product(y, x):
            corners.setdefault(corner, []).append(grid)
    sizes = [(min(size[0], image_size[0] - top), min(size[1], image_size[1] - left)) for top, left in corners]
    windows = [(left, top, width, height) for (top, left), (height, width) in zip(corners, sizes, strict=True)]
    if whole is not None and len(windows) > 1:
        scale = min(1.0, whole / max(image_size))
        windows.append((0, 0, image_size[1], image_size[0]))
        sizes.append((max(1, round(image_size[0] * scale)), max(1, round(image_size[1] * scale))))
    in_grid = np.array([[grid in own_grids for grid in range(grids)] for own_grids in corners.values()])
    in_grid = np.concatenate([in_grid, np.ones((len(windows) - len(in_grid), grids), bool)])
    return np.array(windows, np.int64), np.array(sizes, np.int64), in_grid


def _starts(side: int, tile: int, overlap: float, phase: float, align: int) -> list[int]:
    """Return where the windows along a side begin. `phase`: the fraction of a step by which they are moved back."""
    if side <= tile:
        return [0]
    step = max((tile - int(overlap * tile)) // align, 1) * align
    first, last = -int(phase * step) // align * align, -(-(side - tile) // align) * align
    # those beyond the last one become the last one, once
    return list(dict.fromkeys(min(max(start, 0), last) for start in range(first, last + step, step)))


def covers(windows: Ints, height: int, width: int) -> bool:
    """Return whether windows (T, 4) x, y, width, height show every pixel of a source image."""
    start, end = windows[:, :2], windows[:, :2] + windows[:, 2:]
    x, y = (np.unique([0, side, *start[:, axis], *end[:, axis]]) for axis, side in ((0, width), (1, height)))
    shown = np.zeros((len(y) - 1, len(x) - 1), bool)
    for (left, top), (right, bottom) in zip(start, end, strict=True):
        shown[np.searchsorted(y, top) : np.searchsorted(y, bottom), slice(*np.searchsorted(x, [left, right]))] = True
    return bool(shown.all())
