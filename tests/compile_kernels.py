"""Compile the Triton kernels for generations of GPUs, such as 75 and 90, without one: python compile_kernels.py 75 90.

The interpreter, in which tests run them, takes code that the compiler refuses.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from detaug.gpu import triton_kernel
from detaug.gpu.fused_kernel import BLOCK, OPTIONS

POINTERS = {"decoded": "*u8", "copied": "*u8", "parameters": "*fp32", "starts": "*i64", "grays": "*i64"} | {
    "images_at": "*i64"
}
IN_BLOCKS = dict(zip(("ROWS", "COLUMNS"), BLOCK, strict=True))

KERNELS: list[tuple[Any, dict[str, Any], str]] = [
    *(
        (triton_kernel.render, {**IN_BLOCKS, "TURNED": turned, "IN_STEPS": steps}, out)
        for turned, steps, out in product((0, 1), (0, 1), ("*fp32", "*u8"))
    ),
    *((triton_kernel.sum_grays, {**IN_BLOCKS, "TURNED": turned}, "") for turned in (0, 1)),
    (triton_kernel.copy_images, {"BLOCK": 1024}, "*i64"),
]
"""Each kernel, its constants, and the type of `out`."""


def compile_kernel(kernel: Any, constants: dict[str, Any], out: str, generation: int) -> None:
    """Compile a kernel to machine code. Other arguments than pointers and constants are numbers of 4 bytes."""
    types = POINTERS | {"out": out} | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", generation, 32), options=OPTIONS)
    print(kernel.__name__, out, generation, f"{len(compiled.asm['cubin'])} bytes")


if __name__ == "__main__":
    for wanted in map(int, sys.argv[1:]):
        for each in KERNELS:
            compile_kernel(*each, wanted)
