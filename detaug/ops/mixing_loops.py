"""Numba's loop that moves boxes with the tiles of a mosaic: see `mixing.py`."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled


@compiled
def move_boxes(boxes, labels, images, windows, shift, size, min_visibility):
    """Return the boxes that T tiles of N images show, concatenated: B, by image, then by tile.

    `boxes` (N, M, 4) and `labels` (N, M) of the images that are pasted; `images` (N, T): which of them each tile shows;
    `windows` (N, T, 4): its part of that image; `shift` (N, T, 2): how far it is moved; all relative. `size` (N, 2):
    height and width in pixels. Boxes are clipped to their windows, and stay by the rule of `Views.shrink_boxes`.
    Returns places (B,) among the N * M boxes, the counts (N,) of the images, the moved boxes (B, 4), the shares (B,) of
    their areas that are left, and their tiles (B,).
    """
    real = (labels >= 0).sum(1)
    most = real[images.ravel()].sum()
    places, tiles, counts = np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(len(images), np.int64)
    moved, shares, number = np.empty((most, 4)), np.empty(most), 0
    for image in range(len(images)):
        before = number
        for tile in range(images.shape[1]):
            source = images[image, tile]
            for box in range(boxes.shape[1]):
                if labels[source, box] < 0:
                    continue
                area, whole_area, stays = 1.0, 1.0, True
                for axis in range(2):
                    low, high = boxes[source, box, axis], boxes[source, box, axis + 2]
                    whole, pixels = high - low, size[image, 1 - axis]
                    low, high = max(low, windows[image, tile, axis]), min(high, windows[image, tile, axis + 2])
                    left, shift_by = high - low, shift[image, tile, axis]
                    moved[number, axis], moved[number, axis + 2] = low + shift_by, high + shift_by
                    sliver = left * pixels < 1 - 1e-6 and left * pixels < whole * pixels - 1e-6
                    stays &= left * pixels > 1e-6 and not sliver
                    area, whole_area = area * left, whole_area * whole
                if stays and area >= (min_visibility - 1e-9) * whole_area:
                    places[number], tiles[number] = source * boxes.shape[1] + box, tile
                    shares[number] = area / whole_area
                    number += 1
        counts[image] = number - before
    return places[:number], counts, moved[:number], shares[:number], tiles[:number]
