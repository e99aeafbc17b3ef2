"""A fault at any call that reads, writes, allocates or starts a thread leaves no half-written file."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import Faults
from painted_files import paint_files

from detaug import converters

HERE = Path(__file__).parent
EXPECTED = (OSError, MemoryError, RuntimeError, KeyboardInterrupt, converters.InputError)

CONVERTERS: dict[str, Callable[[Path, Path], Any]] = {
    "to VOC": lambda source, out: converters.coco_to_voc(source / "annotations.json", out),
    "to YOLO": lambda source, out: converters.coco_to_yolo(source / "annotations.json", out),
    "merge": lambda source, out: converters.merge_coco(
        [source / "annotations.json", source / "more/annotations.json"], out / "a.json", on_error="skip"
    ),
    "webdataset": lambda source, out: converters.pack_coco(source / "annotations.json", source, out),
    "tfrecord": lambda source, out: converters.pack_coco(source / "annotations.json", source, out, format="tfrecord"),
}


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


def run_alone(*arguments: str) -> str:
    """Run this file as a script: a hang, or a fault in a native library, ends that process only."""
    done = subprocess.run([sys.executable, __file__, *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVERTERS)
def test_a_fault_in_a_converter_leaves_whole_files(name: str, tmp_path: Path) -> None:
    assert "injections" in run_alone(name, str(tmp_path))


@pytest.mark.slow
def test_a_training_killed_at_each_step_has_equal_losses() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "killed_training.py", "--steps", "10"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10 kills, equal losses\n"


if __name__ == "__main__":
    which, where = sys.argv[1:]
    print(try_converter(which, Path(where)))
