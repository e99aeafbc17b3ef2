"""Files that break while a loader runs: `on_error`, `max_skipped`, `loader.skipped`."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from nvidia.dali import fn
from painted_files import Folder, same, settings_file, write_coco
from PIL import Image
from places import HELPERS
from seeds import slow

import detaug as da
from detaug.boxes.views import Views
from detaug.ops.cpu_kernels import CpuKernel
from detaug.pipelines.graph import Node, Nodes

RECIPE = [da.RandomZoomOut(2), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Normalize()]
MIXING = [da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Mosaic(), da.MixUp(), da.Normalize()]
SETTINGS = {"device": "cpu", "max_skipped": 1.0, "on_error": "skip", "pipelines": 2}


def smaller(path: Path) -> None:
    Image.new("RGB", (3, 2)).save(path)


BREAK: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "garbage": lambda path: path.write_bytes(b"no image"),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "smaller": smaller,
    "larger": lambda path: Image.new("RGB", (300, 200)).save(path),
}


def ids(batches: list[da.Batch]) -> list[int]:
    """Positions in the JSON file, which begins with id 10."""
    return [int(i) - 10 for batch in batches for i in batch.image_id]


def one_epoch(loader: Iterable[Any], skips: int) -> list[Any]:
    """The batches, and as many warnings as `skips`."""
    with pytest.warns(UserWarning, match=r"\d\d\.png.*; skipped") if skips else contextlib.nullcontext([]) as caught:
        batches = list(loader)
    assert len(caught) == skips
    return batches


@pytest.mark.parametrize("together", [3, *slow(1)])
@pytest.mark.parametrize("how", ["truncated", "deleted", "smaller", *slow("garbage", "empty", "a folder", "larger")])
def test_evaluation_goes_on_without_a_broken_file(painted: Folder, how: str, together: int, device: str) -> None:
    reader, settings = da.CocoReader(*painted), settings_file(painted, batches_per_group=together)
    whole = list(da.Loader(reader, RECIPE, 4, train=False, device=device))
    BREAK[how](painted[0] / "13.png")
    loader = da.Loader(reader, RECIPE, 4, train=False, **{**SETTINGS, "device": device, "settings": settings})
    batches = one_epoch(loader, skips=1)
    assert ids(batches) == [at for at in range(21) if at != 13]
    assert [len(batch) for batch in batches] == [4, 4, 4, 3, 4, 1]
    assert loader.skipped == (painted[0] / "13.png",)
    assert [same(a, b) for a, b in zip(batches, whole, strict=True)] == [True, True, True, False, True, True]
    assert ids(one_epoch(loader, skips=0)) == ids(batches)


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_what_stood_in_leaves_no_padding(painted: Folder, memory_format: str, device: str) -> None:
    """05, the second of its batch, is broken, and 06 stands in, which is wider than 04."""
    BREAK["truncated"](painted[0] / "05.png")
    recipe = [da.Resize(96), da.Normalize(memory_format=memory_format)]
    options = {"train": False, "device": device, "pad_to_multiple": 1, "return_params": True}
    loader = da.Loader(da.CocoReader(*painted), recipe, 2, **SETTINGS | options)
    batch = one_epoch(loader, skips=1)[2]
    assert ids([batch]) == [4]
    assert batch.images.shape == (1, 3, 128, 96)
    again = loader.replay(batch)
    assert same(batch, again)
    assert batch.images.stride() == again.images.stride()


@pytest.mark.parametrize("recipe", [RECIPE, MIXING], ids=["alone", "mixing"])
@pytest.mark.parametrize("how", ["smaller", *slow("truncated")])
@pytest.mark.parametrize("together", [3, *slow(1)])
def test_training_takes_another_image_of_the_epoch(
    painted: Folder, how: str, together: int, recipe: list[da.Op], device: str
) -> None:
    reader, settings = da.CocoReader(*painted), settings_file(painted, batches_per_group=together)
    intact = da.Loader(reader, recipe, 4, device=device)
    whole = [*intact, *intact]
    for name in ("13.png", "02.png"):
        BREAK[how](painted[0] / name)
    loader = da.Loader(reader, recipe, 4, **{**SETTINGS, "device": device, "settings": settings})
    batches = [*one_epoch(loader, skips=2), *one_epoch(loader, skips=0)]
    assert set(loader.skipped) == {painted[0] / "13.png", painted[0] / "02.png"}
    changed = 0
    for at, (batch, before) in enumerate(zip(batches, whole, strict=True)):
        was, now = ids([before]), ids([batch])
        good = [i for i in was if i not in (2, 13)]
        assert [i for i, old in zip(now, was, strict=True) if old == i] == good
        assert len(batch) == 4
        assert not {2, 13} & set(now)
        assert same(batch, before) == (was == now), at
        changed += was != now
    assert changed >= 3
    assert set(ids(batches[:6])) == set(range(21)) - {2, 13}


@pytest.mark.parametrize(("train", "recipe"), [(True, MIXING), (False, RECIPE), *slow((True, RECIPE))])
def test_the_result_depends_on_what_is_broken_not_on_when_it_is_met(
    painted: Folder, train: bool, recipe: list[da.Op]
) -> None:
    reader = da.CocoReader(*painted)
    for at in (0, 3, 4, 5, 6, 7, 16):  # 4 to 7 are one whole batch of evaluation
        BREAK["garbage"](painted[0] / f"{at:02}.png")
    loaders = []
    for count in (1, 3):
        how = {"pipelines": count, "settings": settings_file(painted, threads=count, batches_per_group=count)}
        loaders.append(da.Loader(reader, recipe, 4, train=train, **{**SETTINGS, **how}))
    first, second = ([*one_epoch(loader, skips=7), *one_epoch(loader, skips=0)] for loader in loaders)
    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    assert all(len(batch) for batch in first)
    assert len(first) == (12 if train else 10)


@pytest.mark.parametrize(("train", "recipe"), [(True, RECIPE), *slow((True, MIXING), (False, RECIPE))])
@pytest.mark.parametrize("stop", [3, *slow(0, 1, 6)])
def test_a_state_carries_what_was_skipped(painted: Folder, stop: int, train: bool, recipe: list[da.Op]) -> None:
    reader = da.CocoReader(*painted)
    for at in (2, 13):
        BREAK["garbage"](painted[0] / f"{at:02}.png")
    whole = da.Loader(reader, recipe, 4, train=train, **SETTINGS)
    batches = [*one_epoch(whole, skips=2), *one_epoch(whole, skips=0)]
    loader = da.Loader(reader, recipe, 4, train=train, **SETTINGS)
    state = loader.state_dict()
    states = one_epoch((loader.state_dict() for _ in loader), skips=2)
    state = states[stop - 1] if stop else state
    resumed = da.Loader(reader, recipe, 4, train=train, **SETTINGS)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    known = len(resumed.skipped)
    assert known == len(state["skipped"])
    rest = one_epoch(resumed, skips=2 - known)
    if 0 < stop < 6:
        rest += one_epoch(resumed, skips=0)
    assert all(same(a, b) for a, b in zip(batches[stop:], rest, strict=stop < 6 and stop > 0))


def test_a_state_that_skipped_is_refused_by_a_loader_that_raises(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    BREAK["deleted"](painted[0] / "02.png")
    loader = da.Loader(reader, RECIPE, 4, **SETTINGS)
    one_epoch(loader, skips=1)
    with pytest.raises(ValueError, match="on_error='skip'"):
        da.Loader(reader, RECIPE, 4, device="cpu").load_state_dict(loader.state_dict())


def test_a_state_of_before_forgets_what_was_skipped_after_it(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    whole = list(da.Loader(reader, RECIPE, 4, train=False, device="cpu"))
    loader = da.Loader(reader, RECIPE, 4, train=False, **SETTINGS)
    state, content = loader.state_dict(), (painted[0] / "02.png").read_bytes()
    BREAK["garbage"](painted[0] / "02.png")
    one_epoch(loader, skips=1)
    (painted[0] / "02.png").write_bytes(content)
    loader.load_state_dict(state)
    assert loader.skipped == ()
    assert all(same(a, b) for a, b in zip(one_epoch(loader, skips=0), whole, strict=True))


def test_a_pipeline_that_has_failed_already_before_its_first_batch_is_taken(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    whole = list(da.Loader(reader, RECIPE, 4, train=False, device="cpu"))
    BREAK["garbage"](painted[0] / "05.png")
    loader = da.Loader(reader, RECIPE, 4, train=False, **{**SETTINGS, "pipelines": 1})
    batches = iter(loader)
    time.sleep(0.3)  # the second batch has failed by now
    assert same(one_epoch(batches, skips=1)[0], whole[0])


def test_a_state_also_decides_on_what_is_in_work_already(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    whole = list(da.Loader(reader, RECIPE, 4, device="cpu"))
    loader = da.Loader(reader, RECIPE, 4, **SETTINGS)
    state = loader.state_dict()
    loader.load_state_dict({**state, "skipped": [2, 3, 4, 5]})
    iter(loader)
    loader.load_state_dict(state)
    assert all(same(a, b) for a, b in zip(loader, whole, strict=True))


@pytest.mark.parametrize(("max_skipped", "refused"), [(0.28, True), (0.29, False)])
def test_max_skipped_counts_the_images_of_the_shard_in_evaluation(
    painted: Folder, max_skipped: float, refused: bool
) -> None:
    reader = da.CocoReader(*painted)
    for at in (3, 13):  # two of the seven images 0 to 3 and 12 to 14
        BREAK["garbage"](painted[0] / f"{at:02}.png")
    settings = {**SETTINGS, "max_skipped": max_skipped, "shard": (0, 3), "pipelines": 1}
    loader = da.Loader(reader, RECIPE, 4, train=False, **settings)
    with pytest.warns(UserWarning, match="skipped") if not refused else pytest.raises(da.DataError, match="2 of 7"):
        list(loader)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.filterwarnings("ignore:.*; skipped")
def test_max_skipped_is_for_each_shard_alone_and_of_all_images_in_training(painted: Folder, rank: int) -> None:
    """In another order each epoch, every broken image comes to every shard sooner or later."""
    reader = da.CocoReader(*painted)
    for at in (3, 9, 12):
        BREAK["garbage"](painted[0] / f"{at:02}.png")
    settings = {**SETTINGS, "shard": (rank, 2)}
    allowed, refused = (da.Loader(reader, RECIPE, 4, **{**settings, "max_skipped": n / 21}) for n in (3, 2))
    assert ids([batch for _ in range(10) for batch in allowed])
    assert len(allowed.skipped) == 3
    with pytest.raises(da.DataError, match="3 of 21 images"):
        ids([batch for _ in range(10) for batch in refused])


def test_too_many_broken_files_are_an_error(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    for at in range(0, 15, 5):
        BREAK["garbage"](painted[0] / f"{at:02}.png")
    one_by_one = settings_file(painted, batches_per_group=1)
    loader = da.Loader(reader, RECIPE, 4, train=False, **{**SETTINGS, "max_skipped": 2 / 21, "settings": one_by_one})
    message = r"3 of 21 images cannot be used, more than max_skipped.*\d\d\.png.*detaug check"
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(da.DataError, match=message):
        list(loader)
    one_pipeline = settings_file(painted, pipelines=1)
    with pytest.raises(da.DataError, match="1 of 21 images"):
        list(da.Loader(reader, RECIPE, 4, device="cpu", on_error="skip", settings=one_pipeline))


def test_a_file_that_only_dali_refuses_is_named_without_good_ones_beside_it(tmp_path: Path) -> None:
    """DALI does not read a lossless WebP with EXIF, if a chunk of it has an odd length."""
    rng, tags = np.random.default_rng(0), Image.Exif()
    tags[0x0112] = 1
    while True:
        content = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (8, 9, 3), np.uint8)).save(content, "WEBP", lossless=True, exif=tags)
        at = content.getvalue().index(b"VP8L") + 4
        if int.from_bytes(content.getvalue()[at : at + 4], "little") % 2:
            break
    (tmp_path / "a.webp").write_bytes(content.getvalue())
    reader = da.CocoReader(*write_coco(tmp_path, [("a.webp", (8, 9), [])]))
    with pytest.raises(da.DataError, match=r"a\.webp: DALI does not decode it"):
        next(iter(da.Loader(reader, [da.Resize((8, 8))], 1, device="cpu")))


def test_an_error_names_three_of_many_files(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    for at in range(8):
        BREAK["deleted"](painted[0] / f"{at:02}.png")
    with pytest.raises(
        da.DataError, match=r"00\.png.*01\.png.*02\.png does not exist any more; and 5 more; detaug check"
    ):
        list(da.Loader(reader, RECIPE, 8, device="cpu", train=False))


def test_all_files_broken(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    for at in range(21):
        BREAK["deleted"](painted[0] / f"{at:02}.png")
    for train in (True, False):
        with pytest.warns(UserWarning, match="skipped"), pytest.raises(da.DataError, match="no image is left"):
            list(da.Loader(reader, RECIPE, 4, train=train, **SETTINGS))


@dataclass(frozen=True)
class Fails(da.PixelOp):
    """Fails in the pipeline."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return fn.reshape(image, shape=[-1, 7])  # 40 x 50 x 3 is not a multiple of 7


def test_an_error_of_an_op_blames_no_file(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), [da.Resize((40, 50)), Fails()], 4, **SETTINGS | {"device": device})
    with pytest.raises(RuntimeError, match=r"Fails .*failed in dali_graph") as caught:
        list(loader)
    assert "detaug check" not in str(caught.value)
    assert "png" not in str(caught.value)
    assert loader.skipped == ()


OUT_OF_MEMORY = """
import resource, sys
import detaug as da

def load(annotations):
    reader = da.CocoReader(sys.argv[1], annotations)
    return da.Loader(reader, [da.Resize((40, 50))], 2, device="cpu", on_error="skip", max_skipped=1)

list(load(sys.argv[2]))  # libraries and compiled loops are loaded then
loader = load(sys.argv[3])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 150_000_000, resource.RLIM_INFINITY))
try:
    list(loader)
except Exception as error:
    print(type(error).__name__, len(loader.skipped))
"""


@pytest.mark.slow
def test_want_of_memory_blames_no_file(tmp_path: Path) -> None:
    jsons = []
    for side in (90, 9000):
        names = [f"{side}-{at}.png" for at in range(2)]
        for name in names:
            Image.new("RGB", (side, side)).save(tmp_path / name)
        _, annotations = write_coco(tmp_path, [(name, (side, side), []) for name in names])
        jsons.append(annotations.rename(tmp_path / f"{side}.json"))
    command = [sys.executable, "-c", OUT_OF_MEMORY, tmp_path, *jsons]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == ["0"], done.stdout + done.stderr
    assert "DataError" not in done.stdout


def test_a_file_that_only_dali_does_not_decode_is_named(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    with Image.open(painted[0] / "13.png") as image:
        image.save(painted[0] / "13.png", format="GIF")
    loader = da.Loader(reader, RECIPE, 4, **SETTINGS | {"device": device})
    one_epoch(loader, skips=1)
    assert loader.skipped == (painted[0] / "13.png",)


@pytest.mark.parametrize("side", [1, 60, 127, *slow(10, 95)])
def test_a_smaller_file_than_the_json_says_does_not_end_the_process(painted: Folder, side: int, device: str) -> None:
    """DALI's resize on the CPU reads beside the image, where a view lies outside of it."""
    for at in range(21):
        Image.new("RGB", (side, side)).save(painted[0] / f"{at:02}.png")
    for how in ("skip", "raise"):
        loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, device=device, on_error=how)
        with pytest.raises(da.DataError, match=f"has {side} x {side} pixels.*says"):
            list(loader)


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("train", [True, False])
def test_good_batches_come_before_the_error_of_a_bad_file(painted: Folder, train: bool, together: int) -> None:
    reader, settings = da.CocoReader(*painted), settings_file(painted, batches_per_group=together)
    whole = list(da.Loader(reader, RECIPE, 4, train=train, device="cpu"))
    at, bad = 2, ids(whole)[9]  # the second image of the third batch
    BREAK["garbage"](painted[0] / f"{bad:02}.png")
    loader, seen = da.Loader(reader, RECIPE, 4, train=train, device="cpu", settings=settings), []
    with pytest.raises(da.DataError, match=rf"{bad:02}\.png: does not decode"):
        seen.extend(loader)  # extends by what came before the error
    assert len(seen) == at
    assert all(same(a, b) for a, b in zip(seen, whole[:at], strict=True))
    Image.new("RGB", (128, 96)).resize(tuple(reader.sizes[bad][::-1].tolist())).save(painted[0] / f"{bad:02}.png")
    assert len(list(loader)) == 6  # repaired


@pytest.mark.parametrize(("train", "cache"), [(True, None), (False, None), (False, "device")])
def test_a_missing_file_is_skipped_or_refused_before_the_first_batch(
    painted: Folder, train: bool, cache: Literal["device"] | None
) -> None:
    (painted[0] / "13.png").unlink()
    reader = da.CocoReader(*painted)
    assert reader.missing.tolist() == [13]
    with pytest.raises(da.AnnotationError, match=r"1 of 21 images are not in .*the first is '13\.png'"):
        da.Loader(reader, RECIPE, 4, device="cpu")
    with pytest.warns(UserWarning, match=r"13\.png does not exist; skipped"):
        loader = da.Loader(reader, RECIPE, 4, train=train, cache=cache, **SETTINGS)
    assert set(ids(list(loader))) == set(range(21)) - {13}
    assert loader.skipped == (painted[0] / "13.png",)
    loader.load_state_dict({**loader.state_dict(), "skipped": []})
    assert loader.skipped == (painted[0] / "13.png",)
    with pytest.raises(da.DataError, match="1 of 21 images cannot be used, more than max_skipped"):
        da.Loader(reader, RECIPE, 4, device="cpu", on_error="skip")


# ---------------------------------------------------------------- a slow disk


@contextlib.contextmanager
def slow(paths: list[Path], seconds: float) -> Iterator[None]:
    """Whoever opens one of them waits."""
    command = [sys.executable, str(HELPERS / "lease_run.py")]
    with contextlib.ExitStack() as stack:
        for path in paths:
            holder = subprocess.Popen(
                [*command, str(path), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            stack.enter_context(holder)
            stack.callback(holder.kill)
            assert holder.stdout
            assert holder.stderr
            if not holder.stdout.readline():
                pytest.skip(f"no leases on this file system: {holder.stderr.read().decode().splitlines()[-1]}")
        yield


def test_a_slow_disk_is_waited_for(painted: Folder) -> None:
    """No hang and no time-out, the same batches; what is dropped or closed meanwhile ends with the disk's answer."""
    reader = da.CocoReader(*painted)
    settings = {"device": "cpu", "pipelines": 2}
    whole = list(da.Loader(reader, RECIPE, 4, train=False, **settings))
    with slow([painted[0] / "02.png", painted[0] / "13.png"], seconds=0.5):
        begin = time.monotonic()
        batches = list(da.Loader(reader, RECIPE, 4, train=False, **settings))
        assert time.monotonic() - begin > 0.5
    assert all(same(a, b) for a, b in zip(batches, whole, strict=True))
    with slow([painted[0] / "05.png"], seconds=0.5), da.Loader(reader, RECIPE, 4, train=False, **settings) as loader:
        assert same(next(iter(loader)), whole[0])


def test_a_file_that_goes_while_the_disk_is_slow_is_named(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    with slow([painted[0] / "02.png"], seconds=0.3):
        loader = da.Loader(reader, RECIPE, 4, train=False, device="cpu")
        (painted[0] / "03.png").unlink()
        with pytest.raises(da.DataError, match=r"03\.png does not exist any more"):
            list(loader)


@dataclass(frozen=True)
class Failing(da.PixelOp):
    """An op whose painter is wrong."""

    def cpu_kernel(self, views: Views) -> CpuKernel:
        def paint(image: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("a mistake of my own")

        return paint


def test_an_op_that_fails_is_not_blamed_on_the_images(painted: Folder) -> None:
    loader = da.Loader(da.CocoReader(*painted), [da.Resize((40, 50)), Failing(), da.Normalize()], 4, device="cpu")
    with pytest.raises(RuntimeError, match="a mistake of my own") as caught:
        next(iter(loader))
    assert "detaug check" not in str(caught.value)
