"""What the Triton kernels share: blocks of pixels, loading and storing them, linear maps of colors.

A program changes three bands: R, G and B, or of images of other bands those of its place along the second axis of the
launch. Images of bytes are 8-bit RGB; those of float32 have values of any size, which are not rounded.
"""

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
    image, top, left = corner_of(number, height, width, ROWS, COLUMNS)
    return image, top + tl.arange(0, ROWS), left + tl.arange(0, COLUMNS)


@triton.jit
def corner_of(number, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the image of a block of pixels, and the block's first row and column."""
    down, across = tl.cdiv(height, ROWS), tl.cdiv(width, COLUMNS)
    image = number // (down * across)
    in_image = number - image * (down * across)
    row = in_image // across
    return image.to(tl.int64), row * ROWS, (in_image - row * across) * COLUMNS


@triton.jit
def bands_of(BANDS: tl.constexpr):
    """Return the three bands of a program; where the image has no more, its last band again."""
    if BANDS == 3:
        first, second, third = 0, 1, 2
    else:
        first = 3 * tl.program_id(1).to(tl.int64)
        second, third = tl.minimum(first + 1, BANDS - 1), tl.minimum(first + 2, BANDS - 1)
    return first, second, third


@triton.jit
def position(image, y, x, height, width, BANDS: tl.constexpr = 3):
    """Return the positions of pixels in memory."""
    return ((image * height + y[:, None]) * width + x[None, :]) * BANDS


@triton.jit
def inside(y, x, height, width):
    return (y < height)[:, None] & (x < width)[None, :]


@triton.jit
def reflected(pixel, side):
    """Return positions in 0..side - 1 for any, mirrored at the middles of the first and the last pixel."""
    period = tl.maximum(2 * (side - 1), 1)
    pixel = tl.abs(pixel) % period
    return tl.minimum(tl.minimum(pixel, tl.abs(period - pixel)), tl.maximum(side - 1, 0))


@triton.jit
def load_pixels(images, offset, mask, BANDS: tl.constexpr = 3):
    """Return three bands as float32."""
    first, second, third = bands_of(BANDS)
    r, g = tl.load(images + offset + first, mask, 0), tl.load(images + offset + second, mask, 0)
    b = tl.load(images + offset + third, mask, 0)
    return r.to(tl.float32), g.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_pixels(out, offset, mask, r, g, b, BANDS: tl.constexpr = 3):
    """Write three bands, which are whole numbers where `out` has bytes."""
    first, second, third = bands_of(BANDS)
    mask_second, mask_third = masks_of_others(mask, BANDS)
    tl.store(out + offset + first, r.to(out.dtype.element_ty), mask)
    tl.store(out + offset + second, g.to(out.dtype.element_ty), mask_second)
    tl.store(out + offset + third, b.to(out.dtype.element_ty), mask_third)


@triton.jit
def masks_of_others(mask, BANDS: tl.constexpr):
    """Return the masks for writing the second and the third band of a program, so that no band is written twice."""
    mask_second, mask_third = mask, mask
    if BANDS % 3 != 0:
        first, second, third = bands_of(BANDS)
        mask_second, mask_third = mask & (second > first), mask & (third > second)
    return mask_second, mask_third


@triton.jit
def map_channel(color, r, g, b):
    red, green, blue, added = tl.load(color), tl.load(color + 1), tl.load(color + 2), tl.load(color + 3)
    return round_to_bytes(red * r + green * g + blue * b + added)


@triton.jit
def color_of(row, length, red, green, blue, to, BANDS: tl.constexpr):
    """Return the color for `to`: that which is given, or for float32 the numbers for each band at the row's end."""
    if to.dtype.element_ty != tl.uint8:
        first, second, third = bands_of(BANDS)
        values = row + length - BANDS
        red, green, blue = tl.load(values + first), tl.load(values + second), tl.load(values + third)
    return red, green, blue


@triton.jit
def rounded(value, to):
    """Return a value as `to` takes it: rounded and clipped where that has bytes."""
    return round_to_bytes(value) if to.dtype.element_ty == tl.uint8 else value


@triton.jit
def round_to_bytes(value):
    """Round, and clip to 0..255."""
    return tl.minimum(tl.maximum(tl.floor(value + 0.5), 0.0), 255.0)
