"""Color changes in steps, as kernels of a GPU and loops of the CPU number them."""

from __future__ import annotations

STEPS = 4
"""Changes of an image, one after the other, each of another kind."""

NOTHING, BRIGHTNESS, CONTRAST, SATURATION, HUE = range(STEPS + 1)
"""Kinds of steps."""

TO_BYTES = 255.999 / 255
"""torchvision converts 0..1 to uint8 times 255.999, cut off: whole numbers in 0..255 stay."""
