"""`Loader(cache="device")`: images decoded once."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from painted_files import Folder, paint_files, same, write_coco
from PIL import Image
from seeds import slow

import detaug as da
from detaug.loading import image_cache
from detaug.loading.image_cache import ImageCache

RECIPE = [da.RandomZoomOut(2), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Normalize()]
TURNED = [da.RandomRotation(20, fill=(0, 0, 0)), da.Resize((40, 50)), da.ColorJitter(0.5), da.Normalize()]


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> list[ImageCache]:
    """The caches that loaders make, in their order."""
    made: list[ImageCache] = []

    class Recorded(ImageCache):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("detaug.loading.loader.ImageCache", Recorded)
    return made


def ids(batches: list[da.Batch]) -> list[int]:
    return [int(i) - 10 for batch in batches for i in batch.image_id]


@pytest.mark.parametrize("recipe", [RECIPE, TURNED], ids=["upright", "turned"])
@pytest.mark.parametrize("train", [True, *slow(False)])
def test_batches_are_those_without_a_cache(painted: Folder, train: bool, recipe: list[da.Op], device: str) -> None:
    reader = da.CocoReader(*painted)
    read, kept = (da.Loader(reader, recipe, 4, train=train, device=device, cache=cache) for cache in (None, "device"))
    for _ in range(3):
        assert all(same(a, b) for a, b in zip(read, kept, strict=True))


def test_no_file_is_read_after_it_was_made(painted: Folder, device: str) -> None:
    with da.Loader(da.CocoReader(*painted), RECIPE, 4, device=device, cache="device") as loader:
        for path in painted[0].iterdir():
            path.unlink()
        assert [len(list(loader)) for _ in range(2)] == [6, 6]
    with pytest.raises(da.DataError, match="does not exist any more"):
        iter(loader)  # closed, it kept nothing


class Breaks(da.RandomHorizontalFlip):
    """After some draws."""

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray[np.generic]]:
        type(self).draws += 1
        if type(self).draws > 2:
            raise ZeroDivisionError
        return super().draw(rng, n)

    draws: ClassVar[int] = 0


def test_an_exception_that_is_kept_does_not_hold_the_images(
    painted: Folder, caches: list[ImageCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detaug.loading.planner.BLOCK_IMAGES", 8)
    loader = da.Loader(da.CocoReader(*painted), [Breaks(), da.Resize((40, 50))], 4, device="cpu", cache="device")
    images = weakref.ref(caches.pop().memory())
    with pytest.raises(RuntimeError, match="failed in draw: ZeroDivisionError") as error:
        list(loader)
    loader.close()
    assert error.traceback
    assert images() is None


def test_shards_keep_what_they_evaluate(painted: Folder, caches: list[ImageCache], device: str) -> None:
    reader = da.CocoReader(*painted)
    shards = [
        da.Loader(reader, RECIPE, 4, train=False, shard=(rank, 2), device=device, cache="device") for rank in (0, 1)
    ]
    assert sorted(ids([batch for shard in shards for batch in shard])) == list(range(21))
    assert [(cache.offsets >= 0).sum() for cache in caches] == [11, 10]


@pytest.mark.parametrize("train", [True, *slow(False)])
def test_broken_files_are_skipped(painted: Folder, train: bool, device: str) -> None:
    for name in ("13.png", "02.png"):
        (painted[0] / name).write_bytes(b"no image")
    reader, how = da.CocoReader(*painted), {"device": device, "train": train, "on_error": "skip", "max_skipped": 1.0}
    with pytest.warns(UserWarning, match="skipped"):
        kept = da.Loader(reader, RECIPE, 4, cache="device", **how)
    assert kept.skipped == (painted[0] / "02.png", painted[0] / "13.png")
    batches = list(kept)
    with pytest.warns(UserWarning, match="skipped"):
        assert all(same(a, b) for a, b in zip(da.Loader(reader, RECIPE, 4, **how), batches, strict=True))
    assert set(ids(batches)) == set(range(21)) - {2, 13}


def test_a_state_taken_without_a_cache_goes_on_with_it(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    whole, first = (da.Loader(reader, RECIPE, 4, device=device) for _ in range(2))
    steps = iter(first)
    for _ in range(2):
        next(steps)
    second = da.Loader(reader, RECIPE, 4, device=device, cache="device")
    second.load_state_dict(first.state_dict())
    assert all(same(a, b) for a, b in zip(list(whole)[2:], second, strict=True))


def test_a_broken_file_is_an_error_at_once(painted: Folder, device: str) -> None:
    (painted[0] / "13.png").write_bytes(b"no image")
    with pytest.raises(da.DataError, match=r"13\.png: does not decode"):
        da.Loader(da.CocoReader(*painted), RECIPE, 4, device=device, cache="device")


def test_files_of_another_size_among_many_are_skipped(tmp_path: Path, device: str) -> None:
    reader = da.CocoReader(*paint_files(tmp_path, 140))
    for row in (5, 70, 130):
        Image.new("RGB", (500, 500)).save(reader.path(row))
    with pytest.warns(UserWarning, match="has 500 x 500 pixels"):
        kept = da.Loader(reader, RECIPE, 4, device=device, cache="device", on_error="skip", max_skipped=1)
    assert kept.skipped == tuple(reader.path(row) for row in (5, 70, 130))


def test_an_image_that_is_not_kept_cannot_be_replayed(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    of_rank = [
        da.Loader(reader, RECIPE, 4, train=False, shard=(rank, 2), device="cpu", cache="device", return_params=True)
        for rank in (0, 1)
    ]
    batch = next(iter(of_rank[0]))
    assert same(of_rank[0].replay(batch), batch)
    with pytest.raises(
        ValueError, match=r"image 0 of the json is not in the cache: .* another shard; cache=None reads it"
    ):
        of_rank[1].replay(batch)


def test_images_of_odd_sizes_begin_where_memory_of_their_own_would(
    tmp_path: Path, caches: list[ImageCache], device: str
) -> None:
    sizes = [(97, 131), (1, 7), (33, 5), (61, 61)]
    for at, (height, width) in enumerate(sizes):
        noise = np.random.default_rng(at).integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{at}.png")
    folder = write_coco(tmp_path, [(f"{at}.png", size, [(0, 0, 1, 1)]) for at, size in enumerate(sizes)])
    for recipe in (RECIPE, TURNED):
        reader = da.CocoReader(*folder)
        read, kept = (da.Loader(reader, recipe, 4, device=device, cache=cache) for cache in (None, "device"))
        (cache,) = caches
        caches.clear()
        assert ((cache.memory().data_ptr() + cache.offsets) % 64 == 0).all()
        assert all(same(a, b) for a, b in zip(read, kept, strict=True))


def test_what_does_not_fit_is_refused(painted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_cache, "_free_memory", lambda device: 1000)
    with pytest.raises(ValueError, match=r"needs 0\.0 GB for 21 decoded images, cpu has 0\.0 GB left; leave cache out"):
        da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", cache="device")


def test_cache_is_a_known_word(painted: Folder) -> None:
    with pytest.raises(ValueError, match="cache must be None or 'device', got 'disk'"):
        da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", cache="disk")  # type: ignore[arg-type]


@pytest.mark.gpu
def test_memory_is_what_the_pixels_take_and_is_given_back(painted: Folder, tmp_path: Path) -> None:
    reader, before = da.CocoReader(*painted), torch.cuda.memory_allocated()
    loader = da.Loader(reader, RECIPE, 4, device="cuda", cache="device")
    list(loader)
    pixels = int(reader.sizes.prod(1).sum()) * 3
    assert 0 <= torch.cuda.memory_allocated() - before - pixels < 1 << 20
    loader.close()
    assert torch.cuda.memory_allocated() == before


def test_what_torch_holds_in_reserve_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 500)
    assert image_cache._free_memory(torch.device("cuda", 0)) == 3500
