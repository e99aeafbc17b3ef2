"""A fault at any call that reads, writes, allocates, or starts a thread or a pipeline does no lasting harm.

No file is half-written, no batch is wrong, and a loader goes on with the batch that comes next.
"""

from __future__ import annotations

import errno
import faulthandler
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import object_server
import pytest
import torch
from benchmark_scripts import BENCHMARKS
from faults import EXPECTED, Faults
from painted_files import Folder, paint_files, settings_file
from places import HELPERS, REPOSITORY

import detaug as da
from detaug import converters
from detaug.demo import make_mot
from detaug.storage import object_store

CONVERTERS: dict[str, Callable[[Path, Path], Any]] = {
    "to VOC": lambda source, out: converters.coco_to_voc(source / "annotations.json", out),
    "to YOLO": lambda source, out: converters.coco_to_yolo(source / "annotations.json", out),
    "merge": lambda source, out: converters.merge_coco(
        [source / "annotations.json", source / "more/annotations.json"], out / "a.json", on_error="skip"
    ),
    "split": lambda source, out: converters.split_coco(
        source / "annotations.json", [out / "a.json", out / "b.json"], (1, 1)
    ),
    "webdataset": lambda source, out: converters.pack_coco(source / "annotations.json", source, out),
    "tfrecord": lambda source, out: converters.pack_coco(source / "annotations.json", source, out, format="tfrecord"),
    "from VOC": lambda source, out: converters.voc_to_coco(source / "voc", out / "a.json", images=source),
    "from YOLO": lambda source, out: converters.yolo_to_coco(source / "yolo", out / "a.json"),
    "from MOT": lambda source, out: converters.mot_to_coco(source / "mot", out / "a.json"),
    "from TFRecord": lambda source, out: converters.tfrecord_to_coco(
        [*source.glob("tfrecord/*.tfrecord")], out / "a.json", extract=new(out, "images"), jobs=1
    ),
    "from WebDataset": lambda source, out: converters.webdataset_to_coco(
        [*source.glob("tar/*.tar")], out / "a.json", extract=new(out, "images"), jobs=1
    ),
}


RECIPE = [da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Normalize()]
EPOCHS = 2

Read = Callable[[], da.CocoReader]


@contextmanager
def watched() -> Iterator[None]:
    """End the process, with all tracebacks, if the block takes more than 30 s."""
    faulthandler.dump_traceback_later(30, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def chosen(faults: Faults, known: Set[str] = frozenset()) -> list[tuple[int, str]]:
    """Return faults at the first and the last call of each point, but for those that are `known`.

    The kinds of faults of a point take turns at these calls; each kind comes at least once.
    """
    calls: dict[str, list[int]] = {}
    for at, call in enumerate(faults.calls):
        calls.setdefault(call.point, []).append(at)
    picked = set()
    for each in (each for point, each in calls.items() if point not in known):
        places, kinds = sorted({each[0], each[-1]}), faults.calls[each[0]].kinds
        for turn in range(max(len(places), len(kinds))):
            at, kind = places[turn % len(places)], kinds[turn % len(kinds)]
            picked.add((at if kind in faults.calls[at].kinds else each[0], kind))
    return sorted(picked)


def inject(run: Callable[[], Any], at: int, kind: str) -> BaseException | None:
    """Run with one fault; return the exception that came out of it. Raises any other one."""
    with watched(), Faults(at, kind).active():
        try:
            run()
        except EXPECTED as error:
            return error
    return None


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def try_converters(folder: Path) -> None:
    """Try each converter, and print its counts. Raises AssertionError."""
    source = folder / "source"
    paint_source(source)
    for name in CONVERTERS:
        print(try_converter(name, source, new(folder, name)), flush=True)


def try_converter(name: str, source: Path, folder: Path) -> str:
    """Inject at all points of a converter; return the counts. Raises AssertionError."""
    convert, before = CONVERTERS[name], files(source)
    with Faults().active() as faults:
        convert(source, new(folder, "whole"))
    whole, points = files(folder / "whole"), chosen(faults)
    for number, (at, kind) in enumerate(points):
        out, where = new(folder, str(number)), f"{name}: {kind} in {faults.calls[at].point}"
        error = inject(lambda out=out: convert(source, out), at, kind)  # type: ignore[misc]
        left = files(out)
        assert all(whole.get(path) == content for path, content in left.items()), f"{where}: {sorted(left)}"
        assert error or left == whole, f"{where}: no error, and not all files"
        convert(source, out)
        assert files(out) == whole, f"{where}: the next run differs"
        assert files(source) == before, f"{where}: the source changed"
    return f"{name}: {len({call.point for call in faults.calls})} points, {len(points)} injections"


def paint_source(source: Path) -> None:
    """Write images and their boxes in each form that a converter reads."""
    source.mkdir()
    _, coco = paint_files(source, count=4)
    paint_files(new(source, "more"), count=4)
    converters.coco_to_voc(coco, source / "voc", images=source)
    converters.coco_to_yolo(coco, source / "yolo", images=source, with_images="copy")
    make_mot(source / "mot", frames=2)
    for form, folder in (("tfrecord", "tfrecord"), ("webdataset", "tar")):
        converters.pack_coco(coco, source, new(source, folder), format=form)


def new(folder: Path, name: str) -> Path:
    (folder / name).mkdir(exist_ok=True)
    return folder / name


def try_loaders(folder: Path) -> None:
    """Try a loader of each source at the points that those before it do not have; print the counts."""
    known: set[str] = set()
    for form in SOURCES:
        faults, points = try_loader(form, new(folder, form), known)
        print(
            f"{form}: {len({faults.calls[at].point for at, _ in points})} points, {len(points)} injections", flush=True
        )
        known |= {call.point for call in faults.calls}


def try_loader(form: str, folder: Path, known: Set[str]) -> tuple[Faults, list[tuple[int, str]]]:
    """Inject at all points of two epochs of a loader, but for those `known`. Raises AssertionError."""
    with SOURCES[form](*paint_files(folder)) as read:
        expected = take_epochs(make_loader(read), EPOCHS + 1)
        with Faults().active() as faults:
            take_epochs(make_loader(read), EPOCHS)
        points, resumed = chosen(faults, known), set[str]()
        for at, kind in points:
            try_fault_in_loader(read, expected, resumed, at, kind, f"{form}: {kind} in {faults.calls[at].point}")
    return faults, points


@contextmanager
def from_files(folder: Path, annotations: Path) -> Iterator[Read]:
    yield lambda: da.CocoReader(folder, annotations)


@contextmanager
def from_shards(folder: Path, annotations: Path) -> Iterator[Read]:
    converters.pack_coco(annotations, folder, packed := new(folder, "packed"))
    yield lambda: da.CocoReader(packed, next(packed.glob("*.json")))


@contextmanager
def from_bucket(folder: Path, annotations: Path) -> Iterator[Read]:
    """Read from an S3 server, with an empty cache each time."""
    with object_server.running_server() as port:
        os.environ.update(object_server.environment(f"http://127.0.0.1:{port}"))
        address = object_server.upload(folder, "bucket")
        caches = map(str, count())
        yield lambda: da.CocoReader(address, f"{address}/{annotations.name}", cache_folder=new(folder, next(caches)))


SOURCES = {"files": from_files, "shards": from_shards, "bucket": from_bucket}


def make_loader(read: Read) -> da.Loader:
    return da.Loader(read(), RECIPE, 8, device="cpu", pipelines=2, threads=1)


def take_epochs(loader: da.Loader, count: int) -> list[torch.Tensor]:
    with loader:
        return [batch.images for _ in range(count) for batch in loader]


def try_fault_in_loader(
    read: Read, expected: list[torch.Tensor], resumed: set[str], at: int, kind: str, where: str
) -> None:
    """Break a loader with a fault. What it yielded is right; so is what it, or a new loader, yields from its state.

    `resumed`: the states from which new loaders went on before; they need not do it again.
    """
    loaders: list[da.Loader] = []
    seen: list[torch.Tensor] = []

    def run() -> None:
        loaders.append(make_loader(read))
        for _ in range(EPOCHS):
            seen.extend(batch.images for batch in loaders[0])

    error = inject(run, at, kind)
    assert error or len(seen) * (EPOCHS + 1) == len(expected) * EPOCHS, f"{where}: no error, and {len(seen)} batches"
    assert all(map(torch.equal, seen, expected)), f"{where}: a wrong batch"
    with watched():
        broken = loaders[0] if loaders else make_loader(read)
        state, steps = broken.state_dict(), len(broken)
        known = json.dumps(state)
        for loader in (broken,) if known in resumed else (make_loader(read), broken):
            loader.load_state_dict(state)
            check_next(take_epochs(loader, 1), expected, len(seen), steps, where)
        resumed.add(known)


def check_next(batches: list[torch.Tensor], expected: list[torch.Tensor], start: int, epoch: int, where: str) -> None:
    """Check that these are the batches from `start` on, to the end of their epoch of `epoch` batches."""
    wanted = expected[start : start - start % epoch + epoch]
    assert len(batches) == len(wanted), f"{where} has {len(batches)} batches instead of {len(wanted)} after {start}"
    assert all(map(torch.equal, batches, wanted)), f"{where} differs"


def run_alone(*arguments: object) -> list[str]:
    """Run this file as a script; return its lines. A hang, or a fault in a native library, ends that process only."""
    command = [sys.executable, __file__, *map(str, arguments)]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
    done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert all(re.fullmatch(r".*: [1-9]\d* points, [1-9]\d* injections", line) for line in lines), lines
    return lines


LOOKS_AT_IMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "check": lambda source, out: converters.check_coco(source / "annotations.json", source, clean=out / "clean.json"),
    "to VOC": lambda source, out: converters.coco_to_voc(source / "annotations.json", out, images=source),
    "pack": lambda source, out: converters.pack_coco(source / "annotations.json", source, out),
    "reader": lambda source, out: da.CocoReader(source, source / "annotations.json"),
}


def failing(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function, but with an I/O error for files of this name."""

    def call(path: Any, *arguments: Any, **others: Any) -> Any:
        if str(path).endswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return function(path, *arguments, **others)

    return call


@pytest.mark.parametrize("name", LOOKS_AT_IMAGES)
def test_an_image_that_the_system_cannot_look_at_is_not_missing(
    name: str, painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """os.path.isfile returns False for it, and a cleaned JSON file would lose the image."""
    monkeypatch.setattr(os, "stat", failing(os.stat, "08.png"))
    with pytest.raises(OSError, match=r"Input/output error: '.*08\.png'"):
        LOOKS_AT_IMAGES[name](painted[0], new(tmp_path, "out"))
    assert not files(tmp_path / "out")


def test_a_yolo_label_on_a_broken_disk_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without a label file has no boxes; os.path.lexists returns False for one on a broken disk."""
    paint_source(tmp_path / "source")

    for module, name in ((io, "open"), (os, "lstat"), (os, "stat")):
        monkeypatch.setattr(module, name, failing(getattr(module, name), "02.txt"))
    with pytest.raises(converters.InputError, match=r"02\.txt.*cannot be read: Input/output error"):
        converters.yolo_to_coco(tmp_path / "source" / "yolo", tmp_path / "a.json")


@pytest.mark.slow
def test_a_fault_in_a_converter_leaves_whole_files(tmp_path: Path) -> None:
    assert [line.split(":")[0] for line in run_alone("converters", tmp_path)] == [*CONVERTERS]


@pytest.mark.slow
def test_a_fault_in_a_loader_changes_no_batch(tmp_path: Path) -> None:
    assert [line.split(":")[0] for line in run_alone("loaders", tmp_path)] == [*SOURCES]


@pytest.mark.slow
def test_a_training_killed_at_each_step_has_equal_losses() -> None:
    done = subprocess.run(
        [sys.executable, HELPERS / "killed_training.py", "--steps", "10"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10 kills, equal losses\n"


def shifted(clock: Callable[[], float], seconds: float) -> Callable[[], float]:
    return lambda: clock() + seconds


@pytest.mark.slow
@pytest.mark.parametrize("years", [1, -1])
def test_a_clock_that_jumps_changes_no_batch(
    years: int, painted: Folder, s3: object_server.FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that programs read, and the dates of half of the cache, which has room for a third of the images."""
    expected = take_epochs(make_loader(lambda: da.CocoReader(*painted)), 3)
    address, jump = object_server.upload(painted[0], f"clock{years}"), years * 365 * 86400
    room = sum(path.stat().st_size for path in painted[0].glob("*.png")) // 3
    options: dict[str, Any] = {"cache_folder": tmp_path / "cache", "cache_size": room}
    loader = make_loader(lambda: da.CocoReader(address, f"{address}/annotations.json", **options))
    found = [batch.images for batch in loader]
    for module, name in ((time, "time"), (time, "monotonic"), (object_store, "monotonic")):
        monkeypatch.setattr(module, name, shifted(getattr(module, name), jump))
    for path in sorted((tmp_path / "cache").glob("??/*"))[::2]:
        with suppress(FileNotFoundError):  # the cache may still make room
            os.utime(path, (time.time(), time.time()))
    found += take_epochs(loader, 2)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


@pytest.mark.gpu
@pytest.mark.alone
def test_a_gpu_without_memory_blames_no_file(painted: Folder) -> None:
    """torch may take no more memory than it has; a batch of 46 MB needs more, and is made when it is asked for."""
    big = [da.RandomHorizontalFlip(), da.Resize((800, 600)), da.Normalize()]
    one_by_one = settings_file(painted, batches_per_group=1)
    options: dict[str, Any] = {"device": "cuda", "on_error": "skip", "max_skipped": 1.0, "settings": one_by_one}
    undisturbed, loader = (da.Loader(da.CocoReader(*painted), big, 8, **options) for _ in range(2))
    expected = [batch.images.cpu() for _ in range(2) for batch in undisturbed]
    undisturbed.close()
    batches = iter(loader)
    seen = [next(batches).images]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.0)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            seen.extend(batch.images for batch in batches)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert not loader.skipped
    loader.load_state_dict(loader.state_dict())
    seen += [batch.images for _ in range(2) for batch in loader]
    assert len(seen) == len(expected)
    assert all(torch.equal(images.cpu(), wanted) for images, wanted in zip(seen, expected, strict=True))


@pytest.mark.slow
def test_loaders_hold_no_more_after_many_faults_and_restarts() -> None:
    """The least memory, file descriptors and threads in rounds 31 to 40 are the most in 11 to 20, but for 60 MB."""
    command = [sys.executable, BENCHMARKS / "soak.py", "--minutes", "0", "--rounds", "40", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "40 rounds" in done.stdout


@pytest.mark.slow
def test_nothing_is_left_of_loaders_that_ctrl_c_meets_anywhere() -> None:
    """By real signals at random moments: those of the other tests come at the calls that they know."""
    command = [sys.executable, BENCHMARKS / "interrupts.py", "--interrupts", "30", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.slow
def test_a_long_run_prints_tables_and_ends_when_it_is_told_to() -> None:
    command = [sys.executable, BENCHMARKS / "soak.py", "--minutes", "60", "--report", "0.01", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout
        assert any(line.startswith("| threads") for line in run.stdout)
        run.terminate()
        rest = run.stdout.read()
    assert re.search(r"\d+ rounds.*in the last \d+ \|.*\| threads", rest, re.DOTALL)


if __name__ == "__main__":
    which, where = sys.argv[1:]
    {"converters": try_converters, "loaders": try_loaders}[which](Path(where))
