"""Triton kernels of what lies over images: shadows. They change whole batches, as those of `pixel_kernels`."""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.gpu.triton_blocks import (
    batch_kernel,
    block_of,
    blocks,
    inside,
    load_pixels,
    position,
    round_to_bytes,
    store_pixels,
)


@batch_kernel
def add_shadows(
    out, numbers, images, length, height, width, CORNERS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Darken polygons of `out`.

    A row of `numbers`: height, width, whether the image changes, then for each polygon the share of the light that it
    takes, and its corners x, y.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            at, mask = position(image, y, x, height, width), inside(y, x, height, width)
            left = tl.full([ROWS, COLUMNS], 1.0, tl.float32)
            for polygon in range((length - 3) // (1 + 2 * CORNERS)):
                share = own + 3 + polygon * (1 + 2 * CORNERS)
                left = tl.where(_in_polygon(share + 1, y, x, CORNERS), left * (1 - tl.load(share)), left)
            r, g, b = load_pixels(out, at, mask)
            store_pixels(out, at, mask, round_to_bytes(r * left), round_to_bytes(g * left), round_to_bytes(b * left))


@triton.jit
def _in_polygon(corners, y, x, CORNERS: tl.constexpr):
    """Return whether the middles of pixels are in a polygon: an odd number of sides is left of them."""
    middle, across = y.to(tl.float32)[:, None] + 0.5, x.to(tl.float32)[None, :] + 0.5
    odd = (middle + across) < 0
    x0, y0 = tl.load(corners + 2 * CORNERS - 2), tl.load(corners + 2 * CORNERS - 1)
    for side in range(CORNERS):
        x1, y1 = tl.load(corners + 2 * side), tl.load(corners + 2 * side + 1)
        crosses = (y0 <= middle) != (y1 <= middle)
        crossing = x0 + (middle - y0) * (x1 - x0) / tl.where(y0 == y1, 1.0, y1 - y0)
        odd = odd ^ (crosses & (crossing <= across))
        x0, y0 = x1, y1
    return odd
