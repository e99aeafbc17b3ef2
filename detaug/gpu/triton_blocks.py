"""What the Triton kernels share: blocks of pixels, loading and storing them, linear maps of colours."""

from __future__ import annotations

import triton
import triton.language as tl

batch_kernel = triton.jit(
    do_not_specialize=["images", "length", "height", "rows", "columns", "image_stride", "points_down", "points_across"],
    do_not_specialize_on_alignment=["parameters", "starts", "numbers", "seeds"],
)
"""For kernels of a batch: else Triton compiles them again for other sizes, or rows of parameters at other addresses."""


@triton.jit
def blocks(images, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the number of blocks of pixels in all images."""
    return images * tl.cdiv(height, ROWS) * tl.cdiv(width, COLUMNS)


@triton.jit
def block_of(number, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the image of a block of pixels, and the block's rows and columns."""
    down, across = tl.cdiv(height, ROWS), tl.cdiv(width, COLUMNS)
    image = (number // (down * across)).to(tl.int64)
    y, x = number // across % down * ROWS + tl.arange(0, ROWS), number % across * COLUMNS + tl.arange(0, COLUMNS)
    return image, y, x


@triton.jit
def position(image, y, x, height, width):
    """Return the positions of pixels in memory."""
    return ((image * height + y[:, None]) * width + x[None, :]) * 3


@triton.jit
def inside(y, x, height, width):
    return (y < height)[:, None] & (x < width)[None, :]


@triton.jit
def mirrored(at, side):
    """Return positions in 0..side - 1 for any, mirrored at the middles of the first and the last pixel."""
    period = tl.maximum(2 * (side - 1), 1)
    at = tl.abs(at) % period
    return tl.minimum(tl.minimum(at, tl.abs(period - at)), tl.maximum(side - 1, 0))


@triton.jit
def load_pixels(images, at, mask):
    """Return R, G and B as float32."""
    r, g, b = tl.load(images + at, mask, 0), tl.load(images + at + 1, mask, 0), tl.load(images + at + 2, mask, 0)
    return r.to(tl.float32), g.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_pixels(out, at, mask, r, g, b):
    """Write R, G and B, which are whole numbers where `out` has bytes."""
    tl.store(out + at, r.to(out.dtype.element_ty), mask)
    tl.store(out + at + 1, g.to(out.dtype.element_ty), mask)
    tl.store(out + at + 2, b.to(out.dtype.element_ty), mask)


@triton.jit
def map_channel(color, r, g, b):
    red, green, blue, added = tl.load(color), tl.load(color + 1), tl.load(color + 2), tl.load(color + 3)
    return round_to_bytes(red * r + green * g + blue * b + added)


@triton.jit
def round_to_bytes(value):
    """Round, and clip to 0..255."""
    return tl.minimum(tl.maximum(tl.floor(value + 0.5), 0.0), 255.0)
