"""Draw images that a recipe has made in their true colours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from detaug.drawing.images import to_image
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op


def in_true_colors(image: NDArray[Any], ops: Iterable[Op]) -> Image.Image:
    """Convert the result of `ops` to a picture: (H, W, 3) in 0..255, or (3, H, W) whose Normalize is undone."""
    normalize = find_normalize(ops)
    if normalize is None:
        return to_image(image, white=255, layout="HWC")
    return to_image(image, mean=normalize.mean, std=normalize.std, layout="CHW")


def find_normalize(ops: Iterable[Op]) -> Normalize | None:
    """Return the Normalize of a recipe, if it has one."""
    return next((op for op in ops if isinstance(op, Normalize)), None)
