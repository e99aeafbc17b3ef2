"""Color changes as DALI graphs, for GPUs: nodes of uint8 images (H, W, 3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.boxes.views import Fill
from detaug.gpu import color_steps
from detaug.ops import cpu_colors
from detaug.ops import cpu_kernels as on_cpu
from detaug.pipelines.graph import Node, Nodes, apply_where, keep_type


def only_in_image(image: Node, numbers: Node, corners: Node, change: Callable[[Node, Node], Node], fill: Fill) -> Node:
    """Return the image with `change(window, numbers)` in the window of the image, and fill around that.

    `corners`: (2, 2), its first and last corner (y, x).
    """
    sides = corners[1] - corners[0]
    nodes = {"numbers": numbers, "start": corners[0], "sides": sides}

    def within(image: Node, nodes: Nodes) -> Node:
        start = fn.cast(nodes["start"], dtype=types.INT32)
        window = fn.slice(image, start, fn.cast(nodes["sides"], dtype=types.INT32), axes=[0, 1])
        changed, size = change(window, nodes["numbers"]), fn.cast(image.shape()[:2], dtype=types.INT32)
        around = {"out_of_bounds_policy": "pad", "fill_values": np.round(fill).tolist()}
        return fn.slice(changed, -start, size, axes=[0, 1], **around)

    return apply_where(sides[0] * sides[1], image, nodes, keep_type(within))


def change_in_steps(image: Node, steps: Node) -> Node:
    """Change colors as `cpu_colors.change_in_steps` does."""
    if image.device == "cpu":
        return on_cpu.apply_kernels(image, [(cpu_colors.change_in_steps, {"steps": steps})])
    image = fn.cast(image, dtype=types.UINT8)
    for step in range(color_steps.STEPS):
        for kind, change in _CHANGES.items():
            nodes = {"amount": steps[2 * step + 1]}
            image = apply_where(steps[2 * step] == float(kind), image, nodes, keep_type(change))
    return _permuted(image, steps)


def _permuted(image: Node, steps: Node) -> Node:
    """Return the image with its channels in the order at the end of the steps."""
    order = [steps[2 * color_steps.STEPS + index] for index in range(3)]
    rows = [
        fn.stack(*(fn.cast(source == float(channel), dtype=types.FLOAT) for channel in range(3))) for source in order
    ]
    return fn.coord_transform(image, M=fn.stack(*rows), dtype=types.UINT8)


def _gray(image: Node) -> Node:
    """Return (H, W, 1) in whole numbers."""
    red, green, blue = (_channel(image, index) for index in range(3))
    return dali_math.floor(red * 0.2989 + green * 0.587 + blue * 0.114)


def _channel(image: Node, index: int) -> Node:
    return fn.cast(image[:, :, index : index + 1], dtype=types.FLOAT)


def _blended(image: Node, other: Node, factor: Node) -> Node:
    blend = image * factor + other * (1.0 - factor)
    return dali_math.floor(dali_math.min(dali_math.max(blend, 0.0), 255.0))


def _brightness(image: Node, nodes: Nodes) -> Node:
    return dali_math.floor(dali_math.min(image * nodes["amount"], 255.0))


def _contrast(image: Node, nodes: Nodes) -> Node:
    return _blended(image, fn.reductions.mean(_gray(image), axes=[0, 1], keep_dims=True), nodes["amount"])


def _saturation(image: Node, nodes: Nodes) -> Node:
    return _blended(image, _gray(image), nodes["amount"])


def _hue(image: Node, nodes: Nodes) -> Node:
    """See `cpu_colors`."""
    red, green, blue = (_channel(image, index) for index in range(3))
    value = dali_math.max(dali_math.max(red, green), blue)
    chroma = value - dali_math.min(dali_math.min(red, green), blue)
    per_chroma = 1.0 / dali_math.max(chroma, 0.5)
    not_red, not_green = dali_math.min(value - red, 1.0), dali_math.min(value - green, 1.0)  # 0 or 1
    at_green, at_blue = (blue - red) * per_chroma + 2.0, (red - green) * per_chroma + 4.0
    others = at_green + (at_blue - at_green) * not_green
    angle = (green - blue) * per_chroma * (1.0 - not_red) + others * not_red + nodes["amount"] * 6.0
    angle -= dali_math.floor(angle / 6.0) * 6.0
    shares = 2.0 - dali_math.abs(angle - 3.0), dali_math.abs(angle - 2.0) - 1.0, dali_math.abs(angle - 4.0) - 1.0
    value, chroma = value * color_steps.TO_BYTES, chroma * color_steps.TO_BYTES
    channels = [value - chroma * dali_math.min(dali_math.max(share, 0.0), 1.0) for share in shares]
    return dali_math.floor(fn.cat(*channels, axis=2))


_CHANGES: dict[int, Callable[[Node, Nodes], Node]] = {
    color_steps.BRIGHTNESS: _brightness,
    color_steps.CONTRAST: _contrast,
    color_steps.SATURATION: _saturation,
    color_steps.HUE: _hue,
}
