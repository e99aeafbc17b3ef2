"""White noise in a DALI graph, from numbers that were drawn with NumPy.

DALI's own random ops draw from a stream of their pipeline, so that an image's noise would depend on how many
pipelines there are. Here it is a hash of the pixel's place and of the image's seed, equal on the CPU and a GPU.
"""

from __future__ import annotations

import numpy as np
from nvidia.dali import fn, types

from detaug.ops.op import Node

LARGEST = 1 << 14
"""Pixels a side, at most."""


def ramp(device: str) -> Node:
    """0, 1, 2 ...: what `random_bits` counts pixels with."""
    return types.Constant(np.arange(LARGEST, dtype=np.uint32), device=device)


def random_bits(image: Node, ramp: Node, seed: Node, channels: int) -> Node:
    """(H, W, channels) uint32, for an image (H, W, C) and a scalar uint32 seed.

    Multiplying and xoring by turns; constants of xxHash (Collet) and of Wellons' hash prospector, "lowbias32".
    """
    height, width = (fn.cast(image.shape()[axis], dtype=types.INT32) for axis in (0, 1))
    y, x, c = (fn.slice(ramp, start=0, shape=length, axes=[0]) for length in (height, width, channels))
    y, x, c = fn.expand_dims(y, axes=[1, 2]), fn.expand_dims(x, axes=[0, 2]), fn.expand_dims(c, axes=[0, 1])
    bits = y * _number(0x9E3779B1) + x * _number(0x85EBCA77) + c * _number(0xC2B2AE3D)
    bits = bits + (seed.gpu() if image.device == "gpu" else seed)
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        bits = (bits ^ (bits // _number(1 << shift))) * _number(factor)
    return bits ^ (bits // _number(1 << 15))


def uniform(bits: Node) -> Node:
    """float32 above 0 and at most 1."""
    return (fn.cast(bits // _number(1 << 8), dtype=types.FLOAT) + 1.0) / float(1 << 24)


def _number(value: int) -> Node:
    return types.Constant(np.uint32(value))
