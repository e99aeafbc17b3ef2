"""Cut and scale parts of source images of other bands than 8-bit RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from detaug.arrays import Ints


def part_of_bands(image: NDArray[Any], window: Ints, size: Ints) -> NDArray[Any]:
    """Return a tile of a source image (H, W, bands): `window` x, y, width, height; `size` (height, width).

    Scaled as `Resize` does, bilinear with antialiasing, and rounded to the values of the type.
    """
    x, y, width, height = window.tolist()
    part = image[y : y + height, x : x + width]
    if part.shape[:2] == tuple(size.tolist()):
        return np.array(part)
    values = torch.from_numpy(part.astype(np.float32)).permute(2, 0, 1)[None]
    scaled = interpolate(values, size.tolist(), mode="bilinear", antialias=True)[0].permute(1, 2, 0).numpy()
    whole = scaled if part.dtype.kind == "f" else scaled.round()
    return np.ascontiguousarray(whole.astype(part.dtype))
