"""Compile the Triton kernels for generations of GPUs, such as 75 and 90, without one: python compile_kernels.py 90 75.

All variants of them for the first generation, and one of each for the others: it takes a second.
The interpreter, in which tests run them, takes code that the compiler refuses.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from detaug.gpu import (
    clahe_kernels,
    distortion_kernels,
    grids,
    map_kernels,
    maps,
    mask_kernels,
    masks,
    pixel_kernels,
    triton_kernel,
    weather_kernels,
)
from detaug.gpu.streams import BLOCK, OPTIONS
from detaug.ops.weather import FOG_CELLS
from detaug.recipes.fused_kernel import REGISTERS

POINTERS = {"decoded": "*u8", "copied": "*u8", "parameters": "*fp32", "starts": "*i64", "grays": "*i64"} | {
    "images_at": "*i64",
    "source": "*u8",
    "numbers": "*fp32",
    "pixels": "*u8",
    "control": "*fp32",
    "counts": "*i32",
    "tables": "*u8",
    "colors": "*i32",
    "seeds": "*i32",
    **dict.fromkeys(("red", "green", "blue", "brightness", "thickness", "blur"), "fp32"),
}
WHOLE = "annotations layer_of placed hulls starts first_point first_ring runs first_run heights"
WHOLE += " objects grid_y grid_x images places at_points ranks first_object labels"
POINTERS_OF_MASKS = dict.fromkeys(WHOLE.split(), "*i32") | {
    "layers": "*fp64",
    "borders": "*fp64",
    "stencils": "*u8",
    "points": "*fp32",
    "numbers": "*fp64",
    "control": "*fp32",
    "run_boxes": "*fp32",
}
POINTERS_OF_BANDS = dict.fromkeys(("decoded", "source", "pixels"), "*fp32")
IN_BLOCKS_OF_MASKS = {"ROWS": masks.ROWS, "COLUMNS": masks.COLUMNS}
IN_MOVED_BLOCKS = {"ROWS": grids.MOVED_ROWS, "COLUMNS": grids.MOVED_COLUMNS}
POINTERS_OF_MAPS = {"layers": "*fp64", "borders": "*fp64", "places": "*fp64", "stencils": "*u8", "filled": "*i64"} | {
    "maps": "*i64",
    "lengths": "*fp32",
    "fraction": "*fp32",
    **dict.fromkeys(("shown", "first_table", "tables", "images", "grid_y", "grid_x"), "*i32"),
}
MAPS = {"ROWS": maps.ROWS, "COLUMNS": maps.COLUMNS, "AVERAGED": 1, "HAS_TABLES": 0, "LINEAR": 0, "KEEPS_ERASED": 0}
MAPS |= {"POINTS": 0, "PAIR": 0}
IN_BLOCKS = dict(zip(("ROWS", "COLUMNS"), BLOCK, strict=True))

BANDS = {**IN_BLOCKS, "BANDS": 4}

VIEWS = triton_kernel.STRAIGHT, triton_kernel.ROTATED, triton_kernel.READY
COLORS = triton_kernel.KEPT, triton_kernel.MAPPED, triton_kernel.IN_STEPS

KERNELS: list[tuple[Any, dict[str, Any], str]] = [
    *(
        (triton_kernel.render, {**IN_BLOCKS, "VIEW": view, "COLORS": colors}, out)
        for view, colors, out in product(VIEWS, COLORS, ("*fp32", "*u8"))
    ),
    *((triton_kernel.sum_grays, {**IN_BLOCKS, "VIEW": view}, "") for view in VIEWS),
    (pixel_kernels.count_levels, IN_BLOCKS, ""),
    (pixel_kernels.make_tables, {}, ""),
    (pixel_kernels.change, IN_BLOCKS, "*u8"),
    *((pixel_kernels.blur, {**IN_BLOCKS, "DOWN": down}, out) for down, out in ((0, "*fp32"), (1, "*u8"))),
    *((pixel_kernels.add_noise, {**IN_BLOCKS, "SALT": salt}, "*u8") for salt in (0, 1)),
    (pixel_kernels.fill_rectangles, IN_BLOCKS, "*u8"),
    (pixel_kernels.convolve, {**IN_BLOCKS, "SIDE": 5}, "*u8"),
    (pixel_kernels.take_median, {**IN_BLOCKS, "REACH": 2}, "*u8"),
    (pixel_kernels.coarsen, IN_BLOCKS, "*u8"),
    (weather_kernels.add_shadows, {**IN_BLOCKS, "CORNERS": 5}, "*u8"),
    (weather_kernels.add_fog, {**IN_BLOCKS, "CELLS": FOG_CELLS}, "*u8"),
    (weather_kernels.add_rain, IN_BLOCKS, "*u8"),
    *((distortion_kernels.resample, {**IN_BLOCKS, "SHIFTS": shifts}, "*u8") for shifts in (0, 1)),
    (clahe_kernels.make_tables, {"PIXELS": clahe_kernels.PIXELS}, ""),
    (clahe_kernels.equalize, IN_BLOCKS, "*u8"),
    (triton_kernel.copy_images, {"BLOCK": 1024}, "*i64"),
    (mask_kernels.place, {"VERTICES": masks.VERTICES}, ""),
    *((mask_kernels.sample, {**IN_BLOCKS_OF_MASKS, "COUNT": count}, out) for count, out in ((0, "*i1"), (1, "*i32"))),
    *(
        (mask_kernels.undistort, {**IN_MOVED_BLOCKS, "SHIFTS": shifts, "RIM": rim}, "*i32")
        for shifts, rim in ((0, 0.0), (1, 0.5))
    ),
    *(
        (map_kernels.sample, MAPS | {"POINTS": points, "PAIR": points, "KEEPS_ERASED": points} | of_kind, out)
        for points in (0, 1)
        for of_kind, out in (({}, "*u8"), ({"HAS_TABLES": 1}, "*i32"), ({"LINEAR": 1}, "*fp32"))
    ),
    (mask_kernels.sample_points, IN_BLOCKS_OF_MASKS, "*i1"),
    (mask_kernels.label, IN_BLOCKS_OF_MASKS, "*i32"),
    *((triton_kernel.render, {**BANDS, "VIEW": view, "COLORS": triton_kernel.KEPT}, "*fp32") for view in VIEWS),
    *(
        (triton_kernel.render, {**IN_BLOCKS, "BANDS": bands, "VIEW": view, "COLORS": triton_kernel.KEPT}, "*fp16")
        for bands, view in ((1, triton_kernel.STRAIGHT), (3, triton_kernel.ROTATED), (6, triton_kernel.STRAIGHT))
    ),
    (pixel_kernels.change, BANDS, "*fp32"),
    *((pixel_kernels.blur, {**BANDS, "DOWN": down}, "*fp32") for down in (0, 1)),
    (pixel_kernels.convolve, {**BANDS, "SIDE": 5}, "*fp32"),
    (pixel_kernels.coarsen, BANDS, "*fp32"),
    *((pixel_kernels.add_noise, {**BANDS, "SALT": salt}, "*fp32") for salt in (0, 1)),
    (pixel_kernels.fill_rectangles, BANDS, "*fp32"),
    (weather_kernels.add_shadows, {**BANDS, "CORNERS": 5}, "*fp32"),
    *((distortion_kernels.resample, {**BANDS, "SHIFTS": shifts}, "*fp32") for shifts in (0, 1)),
]
"""Each kernel, its constants, and the type of `out`. With BANDS among the constants images are float32."""


def compile_kernel(kernel: Any, constants: dict[str, Any], out: str, generation: int) -> None:
    """Compile a kernel to machine code. Other arguments than pointers and constants are numbers of 4 bytes."""
    of_masks, of_maps = (kernel.fn.__module__ == each.__name__ for each in (mask_kernels, map_kernels))
    options = OPTIONS | (grids.OPTIONS | {"num_warps": masks.WARPS} if of_masks else {})
    options |= grids.OPTIONS | {"num_warps": maps.WARPS} if of_maps else {}
    options |= {"maxnreg": REGISTERS} if kernel in (triton_kernel.render, triton_kernel.sum_grays) else {}
    types = POINTERS_OF_MAPS | {"second": out, "empty": out[1:] if out == "*fp32" else "i32"}
    types = types if of_maps else POINTERS_OF_MASKS if of_masks else POINTERS
    types = types | (POINTERS_OF_BANDS if "BANDS" in constants else {})
    constants = {"BANDS": 3} | constants if "BANDS" in kernel.arg_names else constants
    types |= {"out": out} | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", generation, 32), options=options)
    print(f"{kernel.fn.__module__}.{kernel.__name__}", out, generation, f"{len(compiled.asm['cubin'])} bytes")


if __name__ == "__main__":
    first, *others = map(int, sys.argv[1:])
    for each in KERNELS:
        compile_kernel(*each, first)
    for wanted in others:
        for each in {kernel.fn: (kernel, *how) for kernel, *how in reversed(KERNELS)}.values():
            compile_kernel(*each, wanted)
