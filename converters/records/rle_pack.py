"""The RLE of thi.ng/rle-pack, in which Label Studio's brush has masks.

Source: converter/brush.py of label-studio-sdk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.coco.outlines import ends_of_runs
from detaug.converters.records.record import ObjectError, list_of

_LARGEST = 1 << 30  # values of 4 channels


def unpack_mask(rle: Any, size: tuple[float, float] | None) -> NDArray[np.bool_]:
    """Return a mask (H, W) of an image of size (width, height). Raises ObjectError.

    The bits of the bytes are the number of values, the size of a word and four sizes of counts; then, each with a bit
    before it, runs of one word or rows of words. The values are red, green, blue and alpha of each pixel.
    """
    try:
        data = bytes(list_of(rle, "rle"))
    except (ValueError, TypeError):
        raise ObjectError("rle must be bytes, numbers from 0 to 255") from None
    position = 0

    def skip(count: int) -> int:
        nonlocal position
        position += count
        if position > 8 * len(data):
            raise ObjectError("rle is cut off")
        # a number may begin at any bit of a byte
        return position - count

    def read(count: int) -> int:
        start = skip(count)
        return int.from_bytes(data[start >> 3 : (position + 7) >> 3], "big") >> (-position & 7) & ((1 << count) - 1)

    total, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    width, height = size or (0, 0)
    if total != width * height * 4 or total > _LARGEST:
        raise ObjectError(f"rle must have 4 values for each of {width} x {height} pixels, it has {total}")
    values = np.zeros(total, bool)
    done = 0
    while done < total:
        is_run, end = read(1), min(done + 1 + read(sizes[read(2)]), total)
        if is_run:
            values[done:end] = read(word) > 0
        else:
            start = skip((end - done) * word)
            bits = np.unpackbits(np.frombuffer(data, np.uint8, (position + 7) // 8 - start // 8, start // 8))
            first = start % 8
            values[done:end] = bits[first : first + position - start].reshape(-1, word).any(1)
        done = end
    return np.asarray(values.reshape(int(height), int(width), 4)[..., 3])


_WORD, _SIZES = 8, (3, 4, 8, 16)
"""Bits of a value, and of the counts of values."""


def pack_mask(mask: NDArray[np.bool_]) -> list[int]:
    """Return the bytes of a mask (H, W), as runs of one value, of which all four channels have the same."""
    ends = ends_of_runs(mask.T) * 4
    bits = f"{mask.size * 4:032b}{_WORD - 1:05b}" + "".join(f"{size - 1:04b}" for size in _SIZES)
    parts, start = [bits], 0
    for number, end in enumerate(ends.tolist()):
        while start < end:
            count = min(end - start, 1 << _SIZES[-1])
            kind = next(index for index, size in enumerate(_SIZES) if count <= 1 << size)
            parts.append(f"1{kind:02b}{count - 1:0{_SIZES[kind]}b}{255 * (number % 2):08b}")
            start += count
    bits = "".join(parts)
    whole = int(bits + "0" * (-len(bits) % 8), 2)
    return list(whole.to_bytes((len(bits) + 7) // 8, "big"))
