"""Run Python functions of images inside DALI's graph, on as many threads as the pipeline has."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Barrier, Lock
from weakref import WeakKeyDictionary

import torch
from nvidia.dali import Pipeline, fn

from detaug.arrays import Array
from detaug.machine.threads import Threads
from detaug.pipelines.graph import Node
from detaug.pipelines.python_functions import current_pipeline, running_in


def apply_in_threads(sample: Callable[..., Array], *nodes: Node, layout: str = "HWC") -> Node:
    """Return the node of what a function returns for each image, computed by as many threads as the pipeline has."""
    return fn.python_function(*nodes, function=_on_threads(sample), batch_processing=True, output_layouts=layout)


def _on_threads(sample: Callable[..., Array]) -> Callable[..., list[Array]]:
    """Run samples on as many threads as the pipeline has: torch releases the GIL while it computes."""
    pipeline = Pipeline.current()
    pool = _pools[pipeline] = _pools.get(pipeline) or make_thread_pool(pipeline.num_threads)
    reference = current_pipeline()

    def batch(*columns: list[Array]) -> list[Array]:
        with running_in(reference):
            futures = list[Future[Array]]()
            try:
                futures.extend(pool.submit(sample, *inputs) for inputs in zip(*columns, strict=True))
                return [future.result() for future in futures]
            finally:  # DALI frees the columns after an error: no sample may still read them
                wait([future for future in futures if not future.cancel()])

    return batch


_pools: WeakKeyDictionary[Pipeline, Threads] = WeakKeyDictionary()


def end_threads(pipeline: Pipeline) -> None:
    """End a pipeline's threads now: DALI keeps Python functions in a reference cycle, until garbage is collected."""
    if pool := _pools.pop(pipeline, None):
        pool.close(wait=False)


def make_thread_pool(count: int) -> Threads:
    """Return a pool in which torch is single-threaded; else each thread would start others that wait for each other."""
    pool, all_started = Threads(count), Barrier(count)

    def set_to_one(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # a thread adopts the number when it first asks for it, and keeps it
        all_started.wait()

    with _torch_threads_lock:
        before = torch.get_num_threads()
        try:
            pool.map(set_to_one, range(count))
        except BaseException:  # Ctrl-C: threads that wait for each other would keep the process from ending
            all_started.abort()
            pool.close()
            raise
        finally:
            torch.set_num_threads(before)
    return pool


_torch_threads_lock = Lock()
"""torch's number of threads is global: pools that are made at the same time change it one at a time."""
