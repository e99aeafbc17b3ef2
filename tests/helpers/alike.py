"""Compare images of documents."""

from __future__ import annotations

import numpy as np
from PIL import Image

SQUARE = 32  # pixels
MEAN, MOST = 2, 35  # of 255: over the whole image, and in any square; machines round differently


def alike(one: Image.Image, other: Image.Image) -> bool:
    """Do two images show the same? A new box or label changes one square, not the mean of a large image."""
    if one.size != other.size:
        return False
    difference = np.abs(np.asarray(one.convert("RGB"), float) - np.asarray(other.convert("RGB"), float)).mean(2)
    height, width = difference.shape
    padded = np.pad(difference, ((0, -height % SQUARE), (0, -width % SQUARE)))
    squares = padded.reshape(len(padded) // SQUARE, SQUARE, -1, SQUARE).mean((1, 3))
    return bool(difference.mean() < MEAN and squares.max() < MOST)
