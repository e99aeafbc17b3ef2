"""DALI pipelines from a function that returns their nodes, and the arrays that come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn

Array = NDArray[Any]
Samples = list[Array]
"""An array for each sample of a batch."""


def make(nodes: Callable[[], Any], batch_size: int = 4, device: str = "cpu", **arguments: Any) -> Pipeline:
    """Return a pipeline with these nodes as outputs."""
    device_id = 0 if device == "cuda" else None
    pipe = Pipeline(**{"batch_size": batch_size, "num_threads": 2, "device_id": device_id, **arguments})
    with pipe:
        pipe.set_outputs(*nodes())
    return pipe


def outputs(pipe: Pipeline) -> list[Samples]:
    """Return the arrays of each output of one batch."""
    return [[np.array(each) for each in output.as_cpu()] for output in pipe.run()]


def given(samples: Samples) -> Any:
    """Return a node that yields these samples in each batch."""
    return fn.external_source(lambda: samples, layout="HWC" if samples[0].ndim == 3 else "")
