"""Change colors in one pass over the pixels: loops that Numba compiles, kept on disk for the next process.

Pixels are flat arrays of red, green, blue, red and so on: an index of one dimension is what LLVM vectorizes. Blocks of
them are converted to planes of float32 that stay in the first cache. All numbers are float32; a Python number among
them would make them float64, so that constants are typed.
"""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled
from detaug.gpu import color_steps
from detaug.gpu.color_steps import BRIGHTNESS, CONTRAST, HUE, SATURATION, STEPS

BLOCK = 1024
"""Pixels of a block: three planes have 12 kB."""

ZERO, HALF, ONE, TWO, THREE, FOUR, SIX, TOP = (np.float32(number) for number in (0, 0.5, 1, 2, 3, 4, 6, 255))
RED, GREEN, BLUE = (np.float32(weight) for weight in (0.2989, 0.587, 0.114))  # as torchvision's rgb_to_grayscale
TO_BYTES = np.float32(color_steps.TO_BYTES)


@compiled
def change_in_steps(image, steps, out):
    """Change colors as `color.steps` says, (11,), as torchvision does for uint8. `image`, `out`: (3 P,) uint8.

    Contrast is about the mean gray of what the steps before it make, so that these are a pass of their own.
    """
    start, mean = 0, ZERO
    in_order = np.arange(3)
    for step in range(STEPS):
        if steps[2 * step] == CONTRAST:
            total = _run(image, out, steps, start, step, mean, in_order, True)
            image, start, mean = out, step, np.float32(total / (len(out) // 3))
    _run(image, out, steps, start, STEPS, mean, steps[2 * STEPS :].astype(np.int64), False)


@compiled
def _run(image, out, steps, start, end, mean, channels, sum_up):
    """Run the steps from `start` to `end`, and put the channels in order. Returns the sum of the grays, if wanted."""
    planes = np.empty((3, BLOCK), np.float32)
    total = 0
    for first in range(0, len(image), 3 * BLOCK):
        count = min(BLOCK, (len(image) - first) // 3)
        r, g, b = planes[0, :count], planes[1, :count], planes[2, :count]
        load_planes(image[first : first + 3 * count], r, g, b)
        for step in range(start, end):
            kind, amount = steps[2 * step], np.float32(steps[2 * step + 1])
            if kind == BRIGHTNESS:
                _brightness(r, g, b, amount)
            elif kind == CONTRAST:
                _contrast(r, g, b, amount, mean * (ONE - amount))
            elif kind == SATURATION:
                _saturation(r, g, b, amount)
            elif kind == HUE:
                _hue(r, g, b, amount * SIX)
        if sum_up:
            total += _sum_of_grays(r, g, b)
        r, g, b = planes[channels[0], :count], planes[channels[1], :count], planes[channels[2], :count]
        store_planes(r, g, b, out[first : first + 3 * count])
    return total


@compiled
def map_colors(image, color, out):
    """Apply a linear map of RGB, (3, 4) float32, round and clip. `image`, `out`: (3 P,) uint8."""
    planes = np.empty((3, BLOCK), np.float32)
    for first in range(0, len(image), 3 * BLOCK):
        count = min(BLOCK, (len(image) - first) // 3)
        r, g, b = planes[0, :count], planes[1, :count], planes[2, :count]
        load_planes(image[first : first + 3 * count], r, g, b)
        _map(r, g, b, color[0], color[1], color[2])
        store_planes(r, g, b, out[first : first + 3 * count])


# -------------------------------------------- a block: values in 0..255, whole numbers except inside of a function


@compiled
def load_planes(image, r, g, b):
    for pixel in range(len(r)):
        r[pixel], g[pixel], b[pixel] = image[3 * pixel], image[3 * pixel + 1], image[3 * pixel + 2]


@compiled
def store_planes(r, g, b, out):
    for pixel in range(len(r)):
        out[3 * pixel], out[3 * pixel + 1], out[3 * pixel + 2] = (
            np.int32(r[pixel]),
            np.int32(g[pixel]),
            np.int32(b[pixel]),
        )


@compiled
def _whole(value):
    """Cut off what is not whole."""
    return np.float32(np.int32(value))


@compiled
def _clip(value, most):
    return min(max(value, ZERO), most)


@compiled
def _gray(r, g, b):
    return np.int32(r * RED + g * GREEN + b * BLUE)


@compiled
def _sum_of_grays(r, g, b):
    total = np.int32(0)
    for pixel in range(len(r)):
        total += _gray(r[pixel], g[pixel], b[pixel])
    return total


@compiled
def _brightness(r, g, b, factor):
    for pixel in range(len(r)):
        r[pixel] = _whole(min(r[pixel] * factor, TOP))
        g[pixel] = _whole(min(g[pixel] * factor, TOP))
        b[pixel] = _whole(min(b[pixel] * factor, TOP))


@compiled
def _contrast(r, g, b, factor, added):
    for pixel in range(len(r)):
        r[pixel] = _whole(_clip(r[pixel] * factor + added, TOP))
        g[pixel] = _whole(_clip(g[pixel] * factor + added, TOP))
        b[pixel] = _whole(_clip(b[pixel] * factor + added, TOP))


@compiled
def _saturation(r, g, b, factor):
    for pixel in range(len(r)):
        added = np.float32(_gray(r[pixel], g[pixel], b[pixel])) * (ONE - factor)
        r[pixel] = _whole(_clip(r[pixel] * factor + added, TOP))
        g[pixel] = _whole(_clip(g[pixel] * factor + added, TOP))
        b[pixel] = _whole(_clip(b[pixel] * factor + added, TOP))


@compiled
def _hue(r, g, b, turn):
    """Turn the hue in HSV by `turn` sixths of the circle; value and chroma stay.

    The angle goes from red = 0 by way of green = 2 and blue = 4, in sixths; it is 0 for grays. A channel is
    value - chroma * share. Its share goes from 0 to 1 and back over the circle, each channel's a third of the circle
    after the one before.
    """
    for pixel in range(len(r)):
        red, green, blue = r[pixel], g[pixel], b[pixel]
        value = max(max(red, green), blue)
        chroma = value - min(min(red, green), blue)
        per_chroma = ONE / max(chroma, HALF)
        if value == red:
            angle = (green - blue) * per_chroma
        elif value == green:
            angle = (blue - red) * per_chroma + TWO
        else:
            angle = (red - green) * per_chroma + FOUR
        angle += turn
        angle -= SIX * np.floor(angle / SIX)
        value *= TO_BYTES
        chroma *= TO_BYTES
        r[pixel] = _whole(value - chroma * _clip(TWO - abs(angle - THREE), ONE))
        g[pixel] = _whole(value - chroma * _clip(abs(angle - TWO) - ONE, ONE))
        b[pixel] = _whole(value - chroma * _clip(abs(angle - FOUR) - ONE, ONE))


@compiled
def _map(r, g, b, to_red, to_green, to_blue):
    for pixel in range(len(r)):
        red, green, blue = r[pixel], g[pixel], b[pixel]
        r[pixel] = _clip(np.rint(_product(red, green, blue, to_red)), TOP)
        g[pixel] = _clip(np.rint(_product(red, green, blue, to_green)), TOP)
        b[pixel] = _clip(np.rint(_product(red, green, blue, to_blue)), TOP)


@compiled
def _product(red, green, blue, factors):
    return red * factors[0] + green * factors[1] + blue * factors[2] + factors[3]
