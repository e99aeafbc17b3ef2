"""The masks that Label Studio's brush paints.

Source: converter/brush.py of label-studio-sdk; the run lengths are those of thi.ng/rle-pack.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.converters.records.record import ObjectError, list_of

_LARGEST = 1 << 30  # values of 4 channels


def read_brush(rle: Any, size: tuple[float, float] | None) -> NDArray[np.bool_]:
    """Return a mask (H, W) of an image of size (width, height). Raises ObjectError.

    The bits of the bytes are the number of values, the size of a word and four sizes of counts; then, each with a bit
    before it, runs of one word or rows of words. The values are red, green, blue and alpha of each pixel.
    """
    try:
        bits = np.unpackbits(np.array(list_of(rle, "rle"), np.uint8))
        powers = 1 << np.arange(63, -1, -1, dtype=np.uint64)
    except (ValueError, OverflowError, TypeError):
        raise ObjectError("rle must be bytes, numbers from 0 to 255") from None
    at = 0

    def read(count: int) -> int:
        nonlocal at
        at += count
        if at > len(bits):
            raise ObjectError("rle is cut off")
        return int(bits[at - count : at] @ powers[64 - count :])

    total, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    width, height = size or (0, 0)
    if total != width * height * 4 or total > _LARGEST:
        raise ObjectError(f"rle must have 4 values for each of {width} x {height} pixels, it has {total}")
    values = np.zeros(total, np.uint8)
    done = 0
    while done < total:
        is_run, end = read(1), done + 1 + read(sizes[read(2)])
        if is_run:
            values[done:end] = min(read(word), 255)
        else:
            for place in range(done, min(end, total)):
                values[place] = min(read(word), 255)
        done = end
    return np.asarray(values.reshape(int(height), int(width), 4)[..., 3] > 0)
