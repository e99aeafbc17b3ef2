"""Undocumented parts of DALI, each with the reason to use it."""

from __future__ import annotations

import atexit
import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from numpy.typing import NDArray
from nvidia import dali
from nvidia.dali import Pipeline, backend, fn, tensors, types
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from detaug.errors import InputError, OpError
from detaug.ops.op import Node, Nodes, name_op_in_errors
from detaug.ops.python_functions import errors_of

_conditional = fn._conditional  # type: ignore[attr-defined]


def apply_where(condition: Node, image: Node, planned: Nodes, change: Callable[[Node, Nodes], Node]) -> Node:
    """Return `change(image, planned)` where `condition`, a number per image, is not 0, else the image itself.

    Only the images that meet the condition cost anything. A pipeline with `enable_conditionals` makes the same
    graph of an `if`, but it rewrites the Python code for that.
    """
    return either(
        condition, {**planned, "": image}, lambda nodes: change(nodes.pop(""), nodes), lambda nodes: nodes[""]
    )


def either(condition: Node, nodes: Nodes, then: Callable[[Nodes], Node], otherwise: Callable[[Nodes], Node]) -> Node:
    """Return `then(nodes)` where `condition`, a number per image, is not 0, else `otherwise(nodes)`."""
    chosen = fn.cast(condition, dtype=types.BOOL)
    parts = {name: _conditional.split(node, predicate=chosen) for name, node in nodes.items()}
    results = [make({name: part[side] for name, part in parts.items()}) for side, make in enumerate((then, otherwise))]
    return _conditional.merge(*results, predicate=chosen)


def keep_type(change: Callable[[Node, Nodes], Node]) -> Callable[[Node, Nodes], Node]:
    """Return `change` with its result cast to the image's type: both branches of a merge need the same one."""
    return lambda image, nodes: fn.reshape(fn.cast_like(change(image, nodes), image), layout="HWC")


def name_nodes(label: str, graph: Callable[..., Node]) -> Callable[..., Node]:
    """Return the `dali_graph` of an op such that errors name the op: those in it, and DALI's of its nodes.

    DALI's error of a node has the traceback of where the node was made. It names functions by their code, so a function
    with the label as the name of its code is a line of that traceback, which `failed_op` finds.
    """

    def call(*arguments: Any) -> Node:
        with name_op_in_errors(label, "dali_graph"):
            image = graph(*arguments)
            if image is None:
                raise TypeError("dali_graph must return the image, got None")
            return image

    return FunctionType(call.__code__.replace(co_name=label), call.__globals__, label, None, call.__closure__)


def failed_op(pipeline: Pipeline, error: Exception) -> Exception | None:
    """Return the error of the op, or of the Python function, that made a pipeline fail with DALI's `error`.

    None where DALI's own operators failed, and for errors of memory and of the device, whatever op they met.
    """
    ours = [each for each in errors_of(pipeline) if isinstance(each, InputError | RuntimeError)]
    if recorded := next((each for each in ours if str(each) in str(error)), None):
        return recorded
    labels = re.findall(r", in (\w+ \(\d+\w\w op .+\))$", str(error), re.MULTILINE)
    if not labels or is_of_device(error):
        return None
    operator = re.search(r"operator `nvidia\.dali\.([\w.]+)`", str(error))
    method = f"dali_graph, in {operator[1]}" if operator else "dali_graph"
    failed = OpError(f"{': '.join(labels)} failed in {method}: {reason_of(error)}")
    failed.__cause__ = error
    return failed


def is_of_device(error: Exception) -> bool:
    """Return whether DALI failed for want of memory, or by a fault of the device."""
    return isinstance(error, MemoryError) or bool(_OF_DEVICE.search(reason_of(error)))


_OF_DEVICE = re.compile("cuda|alloc|out of memory", re.IGNORECASE)


def reason_of(error: Exception) -> str:
    """Return the line of DALI's long message that says what happened."""
    lines = [line.strip() for line in str(error).partition("encountered:")[2].splitlines() or str(error).splitlines()]
    return next((line for line in lines if line), "no reason given")


def tensor_list(array: NDArray[Any]) -> Any:
    """Return an array (N, ...) as a DALI tensor list, which `feed_input` takes in half the time of an array."""
    return tensors.TensorListCPU(array)


def to_torch(tensor: Any, device: torch.device) -> Tensor:
    """Return a DALI tensor on `device` as a torch tensor that shares its memory.

    The current stream must wait for the tensor already, as it does after `pipeline.outputs(cuda_stream=...)`: DLPack
    without a stream would make it wait once more, which costs ten times the rest.
    """
    return from_dlpack(tensor.__dlpack__(stream=-1) if device.type == "cuda" else tensor)


def build_copy(pipeline: Pipeline) -> bool:
    """Build a copy of a pipeline that stays until the process ends. Returns whether that was possible.

    `Pipeline.build` keeps Python's lock, so that no other thread goes on; DALI's C library (dali.h) does not.
    """
    library = ctypes.CDLL(str(Path(dali.__file__).with_name("libdali.so")))
    serialized, handle, no_overrides = pipeline.serialize(), ctypes.c_void_p(), bytes(1024)
    size = ctypes.c_size_t(len(serialized))
    if library.daliPipelineDeserialize(ctypes.byref(handle), serialized, size, no_overrides):
        return False
    atexit.register(library.daliPipelineDestroy, handle)
    return not library.daliPipelineBuild(handle)


def shut_down(pipeline: Pipeline) -> None:
    """End a pipeline and its threads now. DALI does it when the pipeline is garbage-collected, in any thread."""
    pipeline._shutdown()


def release_unused_memory() -> None:
    """Give back the GPU memory that DALI keeps from deleted pipelines for the next ones."""
    backend.ReleaseUnusedMemory()  # type: ignore[attr-defined]
