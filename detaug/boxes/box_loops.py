"""Numba's loops over the boxes of views: see `views.py`. Arrays are (N, M, ...); places with a label below 0 are passed
over."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled


@compiled
def crop(boxes, labels, start, end):
    """Return boxes (N, M, 4) relative to the parts start..end, (N, 2) each, which mirror where start > end."""
    out = np.zeros(boxes.shape)
    for image in range(len(boxes)):
        for box in range(boxes.shape[1]):
            if labels[image, box] < 0:
                continue
            for axis in range(2):
                low = start[image, axis]
                length = end[image, axis] - low
                one, other = (boxes[image, box, axis] - low) / length, (boxes[image, box, axis + 2] - low) / length
                out[image, box, axis], out[image, box, axis + 2] = min(one, other), max(one, other)
    return out


@compiled
def clip(boxes, labels):
    """Return boxes (N, M, 4) clipped to the unit square; the fraction of their areas left, (N, M); where any is.

    The fraction is 1 for boxes without an area.
    """
    clipped, share, seen = np.zeros(boxes.shape), np.ones(labels.shape), np.zeros(labels.shape, np.bool_)
    for image in range(len(boxes)):
        for box in range(boxes.shape[1]):
            if labels[image, box] < 0:
                continue
            for side in range(4):
                clipped[image, box, side] = min(max(boxes[image, box, side], 0.0), 1.0)
            whole, left = _area(boxes, image, box), _area(clipped, image, box)
            if whole > 0:
                share[image, box] = min(left / whole, 1.0)
            wide = clipped[image, box, 0] < clipped[image, box, 2]
            seen[image, box] = wide and clipped[image, box, 1] < clipped[image, box, 3]
    return clipped, share, seen


@compiled
def _area(boxes, image, box):
    return (boxes[image, box, 2] - boxes[image, box, 0]) * (boxes[image, box, 3] - boxes[image, box, 1])


@compiled
def unpad(boxes, labels, size):
    """Return boxes (B, 4) in pixels, labels (B,) and the counts (N,) of images. `size`: (N, 2) height and width."""
    counts = np.zeros(len(labels), np.int64)
    for image in range(len(labels)):
        for box in range(labels.shape[1]):
            counts[image] += labels[image, box] >= 0
    total = counts.sum()
    out, out_labels, place = np.empty((total, 4)), np.empty(total, labels.dtype), 0
    for image in range(len(labels)):
        for box in range(labels.shape[1]):
            if labels[image, box] >= 0:
                for side in range(4):
                    out[place, side] = boxes[image, box, side] * size[image, 1 - side % 2]
                out_labels[place] = labels[image, box]
                place += 1
    return out, out_labels, counts
