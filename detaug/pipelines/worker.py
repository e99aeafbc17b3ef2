"""Run a DALI pipeline by hand: feed each batch, and collect its outputs."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from threading import Thread, main_thread
from typing import Any

import numpy as np
import torch
from nvidia.dali import Pipeline

from detaug.pipelines.errors import DALI_ERRORS, failed_op
from detaug.pipelines.graph import Node
from detaug.pipelines.internals import shut_down, tensor_list
from detaug.pipelines.threads import end_threads


class PipelineWorker:
    """A pipeline that processes up to `depth` batches in the background, in order: `start` them, then `finish`."""

    def __init__(
        self, graph: Callable[[], list[Node]], batch_size: int, threads: int, device: torch.device, depth: int = 1
    ) -> None:
        self.device, self.depth = device, depth
        device_id = device.index if device.type == "cuda" else None
        self.pipeline = Pipeline(batch_size, threads, device_id, seed=0, prefetch_queue_depth=depth)
        with self.pipeline:
            self.pipeline.set_outputs(*graph())
        self._finalizer = weakref.finalize(self, _end_in_thread, self.pipeline)
        self._finalizer.atexit = False  # DALI ends what is left
        self.pipeline.build()
        self._last_inputs: dict[str, Any] = {}
        self._is_real: deque[bool] = deque()  # for each batch in the pipeline: is it one that was started?
        self._unused_inputs: set[str] = set()
        self._runs = False

    def start(self, inputs: dict[str, Any]) -> None:
        """Feed one batch, by input name an array whose first axis is the batch or a list, and let it run."""
        self._feed(inputs, real=True)
        self._last_inputs = inputs

    def finish(self) -> list[Any]:
        """Wait for the batch that was started first; its outputs are DALI tensor lists that own their memory."""
        while not self._runs:  # the first run of DALI takes `depth` batches at once: fill up with dummy batches
            self._feed(self._last_inputs, real=False)
        while not self._is_real.popleft():
            self._outputs()
        return self._outputs()

    def close(self) -> None:
        """End the pipeline, and wait until it has ended."""
        if detached := self._finalizer.detach():
            _, _, arguments, _ = detached
            _end(*arguments)

    def _feed(self, inputs: dict[str, Any], *, real: bool) -> None:
        for name in [name for name in inputs if name not in self._unused_inputs]:
            data = inputs[name]
            try:
                data = tensor_list(data) if isinstance(data, np.ndarray) else data
                self.pipeline.feed_input(name, data, use_copy_kernel=True)  # one kernel copies all samples
            except KeyError:  # DALI removed the input, since no output depends on it
                self._unused_inputs.add(name)
        self._is_real.append(real)
        if self._runs or len(self._is_real) == self.depth:
            self.pipeline.schedule_run()
            self._runs = True

    def _outputs(self) -> list[Any]:
        stream = torch.cuda.current_stream(self.device.index) if self.device.type == "cuda" else None
        try:
            return list(self.pipeline.outputs(cuda_stream=stream))
        except DALI_ERRORS as error:
            if failed := failed_op(self.pipeline, error):
                raise failed from failed.__cause__
            raise


def _end(pipeline: Pipeline) -> None:
    """End a pipeline, and wait until it has ended."""
    end_threads(pipeline)
    shut_down(pipeline)


def _end_in_thread(pipeline: Pipeline) -> None:
    """End a pipeline that was dropped, without waiting, whatever thread the garbage collector runs in.

    Left to DALI, it would be ended in that thread, since DALI keeps Python functions in a reference cycle. If it is a
    thread that computes for another pipeline, it waits forever: that pipeline's Python function holds DALI's one lock
    for them, and a function of the dropped pipeline may be waiting for it. While the interpreter exits, no thread can
    be started.
    """
    if main_thread().is_alive():
        Thread(target=_end, args=(pipeline,)).start()
    else:
        _end(pipeline)
