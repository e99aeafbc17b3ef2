from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock
from places import SHARED_DATA

if TYPE_CHECKING:
    from object_server import FaultyProxy
    from painted_files import Folder

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks PyPI for the newest version when it is imported

LONGEST = ("tests/training/", "tests/workflow/", "tests/project/")
"""Rooms whose slow tests train, or run documents: up to half a minute each."""

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def pytest_configure(config: pytest.Config) -> None:
    """Prepare a process that runs tests.

    The process that starts the others imports neither torch nor DALI, here and in the fixtures: they wait for it.
    """
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    if config.getoption("numprocesses", None) and not parallel:
        return
    gc.disable()  # until pytest_collection_finish
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # before any test imports Triton, for test_fused_kernel.py
    if parallel:  # the processes share the cores: with more threads they wait for each other
        torch.set_num_threads(1)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start
        compile_once()


def pytest_collection_finish() -> None:
    """Take the modules and the tests out of the garbage collector's lists: each full collection would visit them all.

    They are a million objects, for which it takes half a second, also where a test calls it.
    """
    gc.freeze()
    gc.enable()


def pytest_runtest_teardown() -> None:
    """Give the other processes their fraction again: where root encodes, SVT-AV1 makes the thread a real-time one."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def compile_once() -> None:
    """Let one process compile a loop or a kernel, while those that need it too wait and load it.

    Processes that start together need the same ones, and each would compile all of them.
    """
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    compile_loop = Dispatcher.compile

    def compile_loop_once(self: Any, signature: Any) -> Any:
        loop = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        with global_compiler_lock, _lock_of(loop):  # in one order: compiling a loop compiles those that it calls
            return compile_loop(self, signature)

    Dispatcher.compile = compile_loop_once
    if "TRITON_INTERPRET" in os.environ:
        return
    import triton.compiler as compiler

    compile_kernel = compiler.compile

    def compile_kernel_once(source: Any, *arguments: Any, **options: Any) -> Any:
        with _lock_of(f"kernel.{source.fn.__name__}"):
            return compile_kernel(source, *arguments, **options)

    compiler.compile = compile_kernel_once


def _lock_of(name: str) -> FileLock:
    """Return the lock of all processes for a loop or a kernel."""
    folder = Path(tempfile.gettempdir(), f"detaug-tests-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    return FileLock(folder / f"{name}.lock", is_singleton=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests for a GPU where there is none, and there the slow ones, unless -m names them.

    Tests that need the GPU for themselves come last: they wait for the other processes' tests.
    """
    slow = "slow" in config.option.markexpr
    config.hook.pytest_deselected(items=[item for item in items if not runs_here(item, slow)])
    items[:] = [item for item in items if runs_here(item, slow)]
    if slow:  # else the longest begin last, and one process waits for the other
        items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    items.sort(key=lambda item: item.get_closest_marker("alone") is not None)


def runs_here(item: pytest.Item, slow: bool) -> bool:
    """Return whether a test runs on this machine."""
    if not item.get_closest_marker("gpu"):
        return True
    import torch

    return torch.cuda.is_available() and (slow or not item.get_closest_marker("slow"))


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpret Triton's kernels in blocks as large as most images: they take little longer than small ones."""
    import torch

    if torch.cuda.is_available():
        return
    from interpreter import interpret_quickly

    interpret_quickly(monkeypatch)
    monkeypatch.setattr("detaug.gpu.streams.BLOCK", (64, 128))


@pytest.fixture(scope="session")
def bccd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(image folder, JSON) of the 205 images of BCCD's train split."""
    root = SHARED_DATA / "bccd"
    if not root.is_dir():
        pytest.skip(f"the BCCD images are not at {root}")
    from detaug.converters import voc_to_coco

    json = tmp_path_factory.mktemp("bccd") / "train.json"
    voc_to_coco(root, json, split="train")
    return root / "JPEGImages", json


@pytest.fixture(scope="session", autouse=True)
def few_decoders() -> Iterator[None]:
    """Keep a decoder on the GPU, also for tests without a loader, which does it too; a loader makes one more.

    The driver makes one at a time, in half a second, for all processes. Tests of several pipelines say how many.
    """
    import torch

    if not torch.cuda.is_available():
        yield
        return
    from detaug.loading import stages
    from detaug.pipelines.jpeg_engine import keep_decoder

    keep_decoder(torch.device("cuda", 0)).join()
    choose = stages.settings_for

    def with_one_pipeline(*given: Any, pipelines: int | None, file: object, **options: Any) -> Any:
        few = 1 if pipelines is None and file is None else pipelines
        return choose(*given, pipelines=few, file=file, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "settings_for", with_one_pipeline)
        yield


@pytest.fixture(autouse=True)
def gpu_lock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share the GPU with the tests of other processes, or keep them from it while a test marked alone runs."""
    if not request.node.get_closest_marker("gpu"):
        yield
        return
    with open(tmp_path_factory.getbasetemp().parent / "gpu.lock", "w") as file:
        flock(file, LOCK_EX if request.node.get_closest_marker("alone") else LOCK_SH)
        yield


@pytest.fixture(scope="session")
def memory_limit() -> list[int]:
    """The bytes from which on `freed_memory` returns memory: one number."""
    return [2 << 30]


@pytest.fixture(scope="module", autouse=True)
def freed_memory(memory_limit: list[int]) -> Iterator[None]:
    """Return free memory to the system: glibc keeps what other threads have freed, gigabytes after many pipelines.

    It takes most of a second, so the process may grow by one gigabyte before it is done again.
    """
    yield
    if resident() > memory_limit[0]:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        memory_limit[0] = max(memory_limit[0], resident() + (1 << 30))


def resident() -> int:
    """Return the bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="session", autouse=True)
def cached_pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Draw each image of the demo once in a run: that takes 0.3 s. test_shapes.py checks that it is always the same."""
    from drawn_once import drawn_once

    from detaug.demo import people, shapes, ships

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "drawn"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "paint", drawn_once(shapes.paint, folder))
        patch.setattr(people, "paint_people", drawn_once(people.paint_people, folder))
        patch.setattr(ships, "paint_ships", drawn_once(ships.paint_ships, folder))
        yield


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the README's first two commands leave: demo and train.json. Not to be written into.

    The processes of pytest-xdist share it.
    """
    parallel = os.environ.get("PYTEST_XDIST_WORKER")
    folder = tmp_path_factory.getbasetemp().parent / "demo_folder" if parallel else tmp_path_factory.mktemp("reader")
    with FileLock(f"{folder}.lock"):
        if not (folder / "train.json").exists():
            from detaug.converters import voc_to_coco
            from detaug.demo.demo import demo

            folder.mkdir(exist_ok=True)
            demo(folder / "demo", device="cpu", seconds=0, steps=1, say=lambda _: None)
            voc_to_coco(folder / "demo/VOC", folder / "train.json", split="train")
    return folder


@pytest.fixture(scope="module")
def workplace(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of that folder, and this process in it."""
    folder = shutil.copytree(demo_folder, tmp_path_factory.mktemp("workplace"), dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a GPU: outputs in the documents are the CPU's."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def painted(tmp_path: Path) -> Folder:
    """21 painted PNG files of three sizes, and their JSON file; the last one has no boxes."""
    from painted_files import paint_files

    return paint_files(tmp_path)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[int]:
    import object_server

    with object_server.running_server() as port:
        yield port


@pytest.fixture
def s3(s3_server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """An S3 server, in the environment, behind a proxy that may fail."""
    import object_server

    proxy = object_server.FaultyProxy(s3_server)
    for name, value in object_server.environment(proxy.address).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("detaug.storage.object_store.RETRY_SECONDS", 3)
    yield proxy
    proxy.close()


@pytest.fixture
def browser(tmp_path: Path) -> Callable[..., str]:
    """Runs a headless browser and returns what it prints."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no chromium or google-chrome on the PATH")

    def run(*arguments: str) -> str:
        command = [found, f"--user-data-dir={tmp_path / 'profile'}", "--headless", "--no-sandbox", "--disable-gpu"]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300, check=True).stdout

    return run
