"""The life of a loader: closed, dropped, broken off, beside another; what it holds, and what it leaves behind."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from nvidia.dali import Pipeline, fn
from painted_files import Folder, same, settings_file
from PIL import Image
from seeds import slow

import detaug as da
from detaug.loading import engine
from detaug.loading.batch_targets import Targets
from detaug.pipelines.internals import build_copy
from detaug.pipelines.worker import PipelineWorker

RECIPE = [da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Normalize()]


def held() -> tuple[int, int, float]:
    """File handles and threads of this process, and its memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), pages * os.sysconf("SC_PAGESIZE") / 1e6


def wait_until(holds: Callable[[], bool]) -> None:
    """Fail if it does not hold within a minute, which is long on a busy machine too."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def use(reader: da.CocoReader, device: str, how: str) -> None:
    """Take two batches, and leave it in the middle of an epoch."""
    loader = da.Loader(reader, RECIPE, 4, device=device, pipelines=2)
    batches = iter(loader)
    next(batches)
    next(batches)
    if how == "closed":
        loader.close()


def test_other_pipelines_than_the_first_are_made_after_the_first_batch(
    painted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(engine, "PipelineWorker", lambda *args: made.append(args) or PipelineWorker(*args))
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", pipelines=3)
    for _ in range(2):  # and again after `close`
        batches = (batch for _ in range(4) for batch in loader)
        next(batches)
        assert len(made) == 1
        deque(batches, maxlen=0)
        assert len(made) == 3
        loader.close()
        made.clear()


def test_an_evaluation_that_one_pipeline_has_room_for_makes_one(
    painted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(engine, "PipelineWorker", lambda *args: made.append(args) or PipelineWorker(*args))
    for batch_size, pipelines in ((2, 1), (1, 2)):  # two and three jobs, of eight batches each
        loader = da.Loader(da.CocoReader(*painted), RECIPE, batch_size, device="cpu", train=False, pipelines=3)
        assert len(list(loader)) == len(loader)
        assert len(made) == pipelines
        loader.close()
        made.clear()


def test_a_copy_of_a_pipeline_is_built_or_left_out(tmp_path: Path) -> None:
    def reads(folder: Path) -> Pipeline:
        pipeline = Pipeline(1, 1, None)
        with pipeline:
            pipeline.set_outputs(fn.readers.file(file_root=str(folder))[0])
        return pipeline

    (tmp_path / "of a class").mkdir()
    (tmp_path / "of a class/image.jpg").touch()
    assert build_copy(reads(tmp_path))
    assert not build_copy(reads(tmp_path / "none"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_fifty_loaders_leave_nothing_behind(painted: Folder, how: str) -> None:
    reader = da.CocoReader(*painted)
    for _ in range(5):
        use(reader, "cpu", how)
    gc.collect()
    handles, threads, memory = held()
    gc.disable()  # they must not wait for it
    try:
        for _ in range(50):
            use(reader, "cpu", how)
    finally:
        gc.enable()
    wait_until(lambda: held()[0] <= handles and held()[1] <= threads)  # they end in threads of their own
    assert held()[2] < memory + 150


def test_eager_images_leave_no_threads_behind() -> None:
    samples = da.batch([np.zeros((30, 40, 3), np.uint8)])
    assert samples.then(da.RandomRotation(20), *RECIPE).images  # starts a thread that the process keeps
    gc.collect()
    threads = held()[1]
    gc.disable()  # they must not wait for it
    try:
        for _ in range(10):
            samples.then(da.RandomRotation(20), *RECIPE).images  # noqa: B018
    finally:
        gc.enable()
    wait_until(lambda: held()[1] <= threads)


@pytest.mark.gpu
@pytest.mark.alone
def test_loaders_leave_no_device_memory_behind(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    for _ in range(2):
        use(reader, "cuda", "dropped")
    free = torch.cuda.mem_get_info()[0]
    for _ in range(4):
        use(reader, "cuda", "dropped")
    assert torch.cuda.mem_get_info()[0] > free - 100e6


def photographs(folder: Path, count: int) -> da.CocoReader:
    """JPEG files of VOC's usual size, a box in each."""
    rows = [{"id": at, "file_name": f"{at}.jpg", "width": 500, "height": 375} for at in range(count)]
    boxes = [{"id": at + 1, "image_id": at, "category_id": 1, "bbox": [50, 50, 200, 200]} for at in range(count)]
    for row in rows:
        Image.effect_noise((500, 375), 40).convert("RGB").save(folder / row["file_name"])
    document = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "all.json").write_text(json.dumps(document))
    return da.CocoReader(folder, folder / "all.json")


@pytest.mark.gpu
@pytest.mark.alone
def test_two_loaders_of_the_ssd_recipe_hold_what_the_documents_say(tmp_path: Path) -> None:
    """Train and evaluation, batch 128, default settings; given back at the end."""
    reader = photographs(tmp_path, 256)
    use(reader, "cuda", "closed")  # what CUDA and DALI take for the process
    free = torch.cuda.mem_get_info()[0]
    loaders = [
        da.Loader(reader, da.presets.ssd300(), 128, device="cuda"),
        da.Loader(reader, da.presets.evaluation((300, 300)), 128, device="cuda", train=False),
    ]
    for _ in range(10):
        deque(zip(*loaders, strict=True), maxlen=0)
    held = free - torch.cuda.mem_get_info()[0]
    print(f"two loaders hold {held / 1e9:.2f} GB of GPU memory")
    assert held < 3.4e9
    for loader in loaders:
        loader.close()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > free - 100e6


COLLECT = """
import gc, sys
from dataclasses import dataclass
import detaug as da

@dataclass(frozen=True)
class CollectGarbage(da.PixelOp):
    def cpu_kernel(self, views):
        def kernel(image):
            gc.collect()
            return image
        return kernel

gc.disable()
reader = da.CocoReader(*sys.argv[1:])
for _ in range(3):
    dropped = da.Loader(reader, [da.Resize((40, 50)), da.Normalize()], 4, device="cpu", pipelines=3)
    iter(dropped)  # batches are in flight
    dropped.cycle = dropped
    del dropped
    next(iter(da.Loader(reader, [da.Resize((40, 50)), CollectGarbage(), da.Normalize()], 4, device="cpu")))
"""


@pytest.mark.slow
def test_garbage_may_be_collected_in_a_thread_of_a_pipeline(painted: Folder) -> None:
    """A dropped loader's pipelines end there, though DALI waits for them and they for the one that collects."""
    subprocess.run([sys.executable, "-c", COLLECT, *map(str, painted)], check=True, timeout=120)


@pytest.mark.slow
def test_a_closed_loader_holds_nothing_of_batches_to_come(painted: Folder) -> None:
    def held_of_batches() -> int:
        gc.collect()
        return sum(type(each) is Targets for each in gc.get_objects())

    before = held_of_batches()
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu")
    next(iter(loader))
    assert held_of_batches() > before
    loader.close()
    assert held_of_batches() == before
    assert len(list(loader)) == 6


def test_a_dropped_loader_is_gone_at_once(painted: Folder) -> None:
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu")
    gone = weakref.ref(loader)
    batches = iter(loader)
    next(batches)
    gc.disable()
    try:
        del loader, batches
        assert gone() is None
    finally:
        gc.enable()


def test_replay_leaves_a_closed_loader_closed(painted: Folder) -> None:
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", cache="device", return_params=True)
    batch = next(iter(loader))
    loader.close()
    gc.collect()
    threads = held()[1]
    assert same(loader.replay(batch), batch)
    wait_until(lambda: held()[1] <= threads)


def test_stop_iteration_in_collate_is_an_error(painted: Folder) -> None:
    numbers = iter(range(2))
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", collate=lambda _: next(numbers))
    with pytest.raises(RuntimeError, match="collate raised StopIteration"):
        list(loader)


def test_an_iterator_ends_after_its_error(painted: Folder) -> None:
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu")
    first, _ = iter(loader), iter(loader)
    with pytest.raises(RuntimeError, match="went on to another epoch"):
        next(first)
    assert list(first) == []


@pytest.mark.slow
def test_a_loader_may_be_dropped_while_the_interpreter_exits(painted: Folder) -> None:
    run = subprocess.run([sys.executable, "-c", DROPPED_AT_EXIT, *map(str, painted)], capture_output=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, b"")


FORKED = """
import os, signal, sys
import detaug as da

RECIPE = [da.Resize((40, 40)), da.RandomPhotometricDistort(), da.Normalize()]
reader = da.CocoReader(sys.argv[1], sys.argv[2])
loader = da.Loader(reader, RECIPE, 4, device="cpu")
iterator = iter(loader)
next(iterator)
child = os.fork()
if not child:
    signal.alarm(60)  # kills a child that hangs
    try:
        next(iterator)
    except RuntimeError as error:
        print(error, flush=True)
    del iterator
    loader.close()
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert len(list(iterator)) == len(loader) - 1
"""


@pytest.mark.slow
def test_a_forked_process_ends_and_cannot_use_the_loader(painted: Folder) -> None:
    """Its copies of the parent's pipelines have no threads; DALI would wait for them at its exit for ever."""
    ignored = ["-W", "ignore:.*multi-threaded:DeprecationWarning"]  # of fork, from Python 3.12 on
    run = subprocess.run(
        [sys.executable, *ignored, "-c", FORKED, *map(str, painted)], capture_output=True, text=True, timeout=120
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("DALI does not work in a forked process: make the loader in the process that uses it")


IN_A_THREAD = """
import concurrent.futures.thread as pools
import sys, threading
import detaug as da

RECIPE = [da.Resize((40, 40)), da.RandomPhotometricDistort(), da.Normalize()]
loader = da.Loader(da.CocoReader(sys.argv[1], sys.argv[2]), RECIPE, 4, device="cpu")
daemon, first = sys.argv[3] == "daemon", threading.Event()

def work():
    while daemon or not pools._shutdown:  # which is set when the main thread has ended
        for _ in loader:
            first.set()
    print(sum(len(batch) for batch in loader))

threading.Thread(target=work, daemon=daemon).start()
first.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "printed"), [("daemon", ""), ("joined", "24\n")])
def test_a_loader_in_a_thread_outlives_the_main_thread_in_silence(painted: Folder, kind: str, printed: str) -> None:
    command = [sys.executable, "-c", IN_A_THREAD, *map(str, painted), kind]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", printed)


def test_after_close_the_next_epoch_comes(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    whole = da.Loader(reader, RECIPE, 4, device=device)
    epochs = [list(whole), list(whole)]
    with da.Loader(reader, RECIPE, 4, device=device) as loader:
        assert same(next(iter(loader)), epochs[0][0])
    loader.close()
    assert all(same(a, b) for a, b in zip(loader, epochs[1], strict=True))


def test_a_closed_loader_that_is_iterated_says_so(painted: Folder) -> None:
    loader = da.Loader(
        da.CocoReader(*painted), RECIPE, 4, device="cpu", settings=settings_file(painted, batches_per_group=2)
    )
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(batches)


def test_a_state_taken_after_close_goes_on(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    whole = list(da.Loader(reader, RECIPE, 4, device="cpu"))
    loader = da.Loader(reader, RECIPE, 4, device="cpu")
    next(iter(loader))
    loader.close()
    loader.load_state_dict(loader.state_dict())
    assert all(same(a, b) for a, b in zip(loader, whole[1:], strict=True))


def test_an_exception_in_the_loop_does_no_harm(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    whole = da.Loader(reader, RECIPE, 4, device=device)
    epochs = [list(whole), list(whole)]
    loader = da.Loader(reader, RECIPE, 4, device=device, pipelines=2)

    def train() -> None:
        for step, _ in enumerate(loader):
            if step == 2:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert all(same(a, b) for a, b in zip(loader, epochs[1], strict=True))


def test_two_loaders_side_by_side(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)

    def loaders() -> list[da.Loader]:
        settings = [{"train": True}, {"train": False}, {"train": True, "seed": 5}]
        return [da.Loader(reader, RECIPE, 4, device=device, pipelines=2, **each) for each in settings]

    alone = [[*loader, *loader] for loader in loaders()]
    together = loaders()
    beside = [list(zip_longest(*together)) for _ in range(2)]
    for at, batches in enumerate(alone):
        seen = [step[at] for epoch in beside for step in epoch]
        assert all(same(a, b) for a, b in zip(batches, seen, strict=True))


def test_a_state_is_small_and_can_be_pickled(tmp_path: Path, painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    recipe = [*da.presets.ssd300()]
    settings = {"sampler": da.RepeatFactorSampler(), "aspect_ratio_grouping": True, "on_error": "skip"}
    loader = da.Loader(reader, recipe, 4, device="cpu", **settings)
    next(iter(loader))
    state = {**loader.state_dict(), "skipped": list(range(100_000, 110_000))}  # 1 % of a million
    assert len(pickle.dumps(state)) < 100_000
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    again = da.Loader(reader, recipe, 4, device="cpu", **settings)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert same(next(iter(again)), list(da.Loader(reader, recipe, 4, device="cpu", **settings))[1])


DROPPED_AT_EXIT = """
import atexit, sys
import detaug as da

loader = da.Loader(da.CocoReader(*sys.argv[1:]), [da.Resize((40, 50))], 4, device="cpu", pipelines=3)
batches = iter(loader)
next(batches)
atexit.register(globals().clear)
"""


FAULTS = """
import ctypes, resource, sys, threading
import detaug as da

if sys.argv[1] == "keep":
    da.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, size = ctypes.c_void_p, [ctypes.c_void_p], 30 << 20

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    blocks = [libc.malloc(size) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)

def measure():
    use()
    before = faults()
    for _ in range(10):
        use()
    print(faults() - before)

measure()
thread = threading.Thread(target=measure)
thread.start()
thread.join()
"""


def page_faults(memory: str, **environment: str) -> list[int]:
    """Of using and freeing 90 MB ten times, on the main thread and on another. memory: "keep", or as glibc has it."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    command = [sys.executable, "-c", FAULTS, memory]
    output = subprocess.run(command, env=usual | environment, capture_output=True, check=True, text=True).stdout
    return [*map(int, output.split())]


@pytest.mark.slow
def test_freed_memory_is_kept_only_on_request_and_if_the_environment_does_not_say_otherwise() -> None:
    """Returned memory faults again for each of its pages: 76,800 times or more, with pages of 2 MB 150 times."""
    assert max(page_faults("keep")) < 100
    assert min(page_faults("as it is")) > 140
    assert min(page_faults("keep", MALLOC_ARENA_TEST="8")) > 140
    assert min(page_faults("keep", GLIBC_TUNABLES="glibc.malloc.arena_test=8")) > 140


def take(batches: Iterable[da.Batch], seen: list[da.Batch], errors: list[Exception]) -> None:
    try:
        seen.extend(batches)
    except RuntimeError as error:
        errors.append(error)


@pytest.mark.parametrize("one_iterator", [True, *slow(False)])
def test_threads_get_whole_batches(painted: Folder, one_iterator: bool) -> None:
    """Threads share the batches of one iterator; with one iterator each, all but the last are told to stop."""
    reader = da.CocoReader(*painted)
    whole = da.Loader(reader, RECIPE, 4, device="cpu")
    expected = [batch for _ in range(8) for batch in whole]
    for _ in range(5):
        loader, seen, errors = da.Loader(reader, RECIPE, 4, device="cpu", pipelines=2), [], []
        source = iter(loader) if one_iterator else loader
        threads = [Thread(target=take, args=(source, seen, errors)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all("went on to another epoch" in str(error) for error in errors)
        assert all(any(same(batch, each) for each in expected) for batch in seen)
        assert len(seen) == 6 or not one_iterator
        assert not (one_iterator and errors)
        loader.close()
