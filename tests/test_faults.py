"""A fault at any call that reads, writes, allocates, or starts a thread or a pipeline does no lasting harm.

No file is half-written, no batch is wrong, and a loader goes on with the batch that comes next.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import EXPECTED, Faults
from painted_files import Folder, paint_files

import detaug as da
from detaug import converters

HERE = Path(__file__).parent

CONVERTERS: dict[str, Callable[[Path, Path], Any]] = {
    "to VOC": lambda source, out: converters.coco_to_voc(source / "annotations.json", out),
    "to YOLO": lambda source, out: converters.coco_to_yolo(source / "annotations.json", out),
    "merge": lambda source, out: converters.merge_coco(
        [source / "annotations.json", source / "more/annotations.json"], out / "a.json", on_error="skip"
    ),
    "webdataset": lambda source, out: converters.pack_coco(source / "annotations.json", source, out),
    "tfrecord": lambda source, out: converters.pack_coco(source / "annotations.json", source, out, format="tfrecord"),
}


RECIPE = [da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Normalize()]
EPOCHS = 2


@contextmanager
def watched() -> Iterator[None]:
    """End the process, with all tracebacks, if the block takes more than 30 s."""
    faulthandler.dump_traceback_later(30, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def chosen(faults: Faults) -> list[tuple[int, str]]:
    """Return the first, middle and last call of each point, with each kind of fault."""
    calls: dict[str, list[int]] = {}
    for at, call in enumerate(faults.calls):
        calls.setdefault(call.point, []).append(at)
    some = {each[at] for each in calls.values() for at in (0, len(each) // 2, -1)}
    return [(at, kind) for at in sorted(some) for kind in faults.calls[at].kinds]


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


def try_converter(name: str, folder: Path) -> str:
    """Inject at all points of a converter; return the counts. Raises AssertionError."""
    convert, source = CONVERTERS[name], folder / "source"
    source.mkdir()
    paint_files(source, count=4)
    paint_files(new(source, "more"), count=4)
    before = files(source)
    with Faults().active() as faults:
        convert(source, new(folder, "whole"))
    whole, points = files(folder / "whole"), chosen(faults)
    for number, (at, kind) in enumerate(points):
        out, where = new(folder, str(number)), f"{kind} in {faults.calls[at].point}"
        error = inject(lambda out=out: convert(source, out), at, kind)  # type: ignore[misc]
        left = files(out)
        assert all(whole.get(name) == content for name, content in left.items()), f"{where}: {sorted(left)}"
        assert error or left == whole, f"{where}: no error, and not all files"
        convert(source, out)
        assert files(out) == whole, f"{where}: the next run differs"
        assert files(source) == before, f"{where}: the source changed"
    return f"{name}: {len({call.point for call in faults.calls})} points, {len(points)} injections"


def new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def try_loader(form: str, folder: Path) -> str:
    """Inject at all points of two epochs of a loader; return the counts. Raises AssertionError."""
    painted = paint_files(folder)
    if form == "shards":
        converters.pack_coco(painted[1], painted[0], folder / "packed")
        painted = (folder / "packed", next((folder / "packed").glob("*.json")))
    expected = take_epochs(make_loader(painted), EPOCHS + 1)
    with Faults().active() as faults:
        take_epochs(make_loader(painted), EPOCHS)
    points = chosen(faults)
    for at, kind in points:
        try_fault_in_loader(painted, expected, at, kind, f"{kind} in {faults.calls[at].point}")
    return f"{form}: {len({call.point for call in faults.calls})} points, {len(points)} injections"


def make_loader(painted: tuple[Path, Path]) -> da.Loader:
    return da.Loader(da.CocoReader(*painted), RECIPE, 8, device="cpu", pipelines=2, threads=1)


def take_epochs(loader: da.Loader, count: int) -> list[torch.Tensor]:
    with loader:
        return [batch.images for _ in range(count) for batch in loader]


def try_fault_in_loader(
    painted: tuple[Path, Path], expected: list[torch.Tensor], at: int, kind: str, where: str
) -> None:
    """Break a loader with a fault. What it yielded is right; so is what a new loader yields from its state."""
    loaders: list[da.Loader] = []
    seen: list[torch.Tensor] = []

    def run() -> None:
        loaders.append(make_loader(painted))
        for _ in range(EPOCHS):
            seen.extend(batch.images for batch in loaders[0])

    error = inject(run, at, kind)
    assert error or len(seen) * (EPOCHS + 1) == len(expected) * EPOCHS, f"{where}: no error, and {len(seen)} batches"
    assert all(map(torch.equal, seen, expected)), f"{where}: a wrong batch"
    with watched():
        go_on(loaders, make_loader(painted), expected, len(seen), where)


def go_on(loaders: list[da.Loader], resumed: da.Loader, expected: list[torch.Tensor], start: int, where: str) -> None:
    """Check the rest of the epoch by a new loader, and by the broken one, if there is one, from its own state."""
    steps = len(resumed)
    state = loaders[0].state_dict() if loaders else resumed.state_dict()
    for loader in (resumed, *loaders):
        loader.load_state_dict(state)
        check_next(take_epochs(loader, 1), expected, start, steps, where)


def check_next(batches: list[torch.Tensor], expected: list[torch.Tensor], start: int, epoch: int, where: str) -> None:
    """Check that these are the batches from `start` on, to the end of their epoch of `epoch` batches."""
    wanted = expected[start : start - start % epoch + epoch]
    assert len(batches) == len(wanted), f"{where} has {len(batches)} batches instead of {len(wanted)} after {start}"
    assert all(map(torch.equal, batches, wanted)), f"{where} differs"


def run_alone(*arguments: str) -> str:
    """Run this file as a script: a hang, or a fault in a native library, ends that process only."""
    done = subprocess.run([sys.executable, __file__, *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


LOOKS_AT_IMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "check": lambda source, out: converters.check_coco(source / "annotations.json", source, clean=out / "clean.json"),
    "to VOC": lambda source, out: converters.coco_to_voc(source / "annotations.json", out, images=source),
    "pack": lambda source, out: converters.pack_coco(source / "annotations.json", source, out),
    "reader": lambda source, out: da.CocoReader(source, source / "annotations.json"),
}


@pytest.mark.parametrize("name", LOOKS_AT_IMAGES)
def test_an_image_that_the_system_cannot_look_at_is_not_missing(
    name: str, painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """os.path.isfile returns False for it, and a cleaned json would lose the image."""
    stat = os.stat

    def fails(path: Any, *arguments: Any, **others: Any) -> os.stat_result:
        if str(path).endswith("08.png"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return stat(path, *arguments, **others)

    monkeypatch.setattr(os, "stat", fails)
    with pytest.raises(OSError, match=r"Input/output error: '.*08\.png'"):
        LOOKS_AT_IMAGES[name](painted[0], new(tmp_path, "out"))
    assert not files(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVERTERS)
def test_a_fault_in_a_converter_leaves_whole_files(name: str, tmp_path: Path) -> None:
    assert "injections" in run_alone(name, str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["files", "shards"])
def test_a_fault_in_a_loader_changes_no_batch(form: str, tmp_path: Path) -> None:
    assert "injections" in run_alone(form, str(tmp_path))


@pytest.mark.slow
def test_a_training_killed_at_each_step_has_equal_losses() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "killed_training.py", "--steps", "10"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10 kills, equal losses\n"


if __name__ == "__main__":
    which, where = sys.argv[1:]
    print((try_converter if which in CONVERTERS else try_loader)(which, Path(where)))
