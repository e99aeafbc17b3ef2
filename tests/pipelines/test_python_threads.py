"""Python functions on the threads of a pipeline: torch's settings, and errors of samples and of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, active_count
from time import sleep

import numpy as np
import pytest
import torch
from faults import Faults
from nvidia.dali import Pipeline, fn

from detaug.arrays import Array
from detaug.pipelines.threads import apply_in_threads, make_thread_pool


def torch_threads_in_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(torch.get_num_threads).result()


def test_pools_made_at_once_leave_torchs_number_of_threads() -> None:
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(20):
            together = [Thread(target=make_thread_pool, args=(3,)) for _ in range(6)]
            for thread in together:
                thread.start()
            for thread in together:
                thread.join()
            assert torch_threads_in_a_new_thread() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)


@pytest.mark.parametrize(("kind", "error"), [("Ctrl-C", KeyboardInterrupt), ("thread", RuntimeError)])
@pytest.mark.parametrize("at", [0, 1, 2, 7])
def test_no_thread_is_left_where_one_does_not_start(at: int, kind: str, error: type[BaseException]) -> None:
    """Those that started before it must not wait for it: the process could not end."""
    threads, of_torch = active_count(), torch.get_num_threads()
    with Faults(at, kind).active(), pytest.raises(error):
        make_thread_pool(8)
    assert (active_count(), torch.get_num_threads()) == (threads, of_torch)


def test_no_sample_is_computed_after_the_error_of_another() -> None:
    """DALI frees the memory of a batch that failed."""
    begun, done = Event(), list[int]()

    def sample(number: Array) -> Array:
        if not number[0]:
            begun.wait()
            raise ValueError("the first sample fails")
        begun.set()
        sleep(0.3)
        done.append(int(number[0]))
        return number

    pipeline = Pipeline(2, num_threads=2, device_id=None)
    with pipeline:
        pipeline.set_outputs(apply_in_threads(sample, fn.external_source(name="number")))
    pipeline.feed_input("number", np.arange(2)[:, None])
    with pytest.raises(RuntimeError, match="the first sample fails"):
        pipeline.run()
    assert done == [1]
