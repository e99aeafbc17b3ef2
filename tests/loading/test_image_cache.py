"""`Loader(cache=...)`: as many decoded images as fit are kept."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from painted_files import Folder, same, write_coco
from PIL import Image
from seeds import slow

import detaug as da
from detaug.loading import image_cache
from detaug.loading.image_cache import CacheSizes

RECIPE = [da.RandomZoomOut(2), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((40, 50)), da.Normalize()]
TURNED = [da.RandomRotation(20, fill=(0, 0, 0)), da.Resize((40, 50)), da.ColorJitter(0.5), da.Normalize()]


CACHES = ["device", {"device": "100kB", "host": "250kB"}, *slow("host", {"device": "150kB"}, {"host": "200kB"})]
"""All images are 0.9 MB."""

EPOCHS = 5
"""The first ones are planned before any image is stored: no pixel of them comes from the cache."""


def ids(batches: list[da.Batch]) -> list[int]:
    return [int(i) - 10 for batch in batches for i in batch.image_id]


@pytest.mark.parametrize("cache", CACHES, ids=repr)
@pytest.mark.parametrize("recipe", [RECIPE, TURNED], ids=["upright", "turned"])
@pytest.mark.parametrize("train", [True, *slow(False)])
def test_batches_are_those_without_a_cache(
    painted: Folder, train: bool, recipe: list[da.Op], cache: CacheSizes, device: str
) -> None:
    reader = da.CocoReader(*painted)
    read, kept = (da.Loader(reader, recipe, 4, train=train, device=device, cache=each) for each in (None, cache))
    for _ in range(EPOCHS):
        assert all(same(a, b) for a, b in zip(read, kept, strict=True))
    assert kept.cached_images == 21 if isinstance(cache, str) else 0 < kept.cached_images < 21


@pytest.mark.parametrize("recipe", [RECIPE, TURNED], ids=["upright", "turned"])
def test_what_is_kept_is_not_read_again(painted: Folder, recipe: list[da.Op], device: str) -> None:
    with da.Loader(da.CocoReader(*painted), recipe, 4, device=device, cache="device") as loader:
        for _ in range(EPOCHS):
            list(loader)
        for path in painted[0].iterdir():
            path.unlink()
        assert [len(list(loader)) for _ in range(2)] == [6, 6]
    with pytest.raises(da.DataError, match="does not exist any more"):
        list(loader)  # closed, it kept nothing


def test_the_memory_is_as_large_as_it_may_be(painted: Folder, device: str) -> None:
    """Images lie at multiples of 256 bytes, so that a room of 100 kB has no more than that of them."""
    reader = da.CocoReader(*painted)
    lengths = np.sort(3 * reader.pixels)
    for room in (1e5, 3e5, 5e5):
        with da.Loader(reader, RECIPE, 4, device=device, cache={"device": room}) as loader:
            list(loader)
            least, most = (np.searchsorted(np.cumsum(each), room) for each in (lengths[::-1] + 512, lengths))
            assert least <= loader.cached_images <= most
        assert loader.cached_images == 0


class Breaks(da.RandomHorizontalFlip):
    """After some draws."""

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, NDArray[np.generic]]:
        type(self).draws += 1
        if type(self).draws > 2:
            raise ZeroDivisionError
        return super().draw(rng, n)

    draws: ClassVar[int] = 0


def test_an_exception_that_is_kept_does_not_hold_the_images(painted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detaug.loading.planner.BLOCK_IMAGES", 8)
    made: list[weakref.ref[torch.Tensor]] = []
    allocate = torch.empty

    def recorded(*args: Any, **options: Any) -> torch.Tensor:
        made.append(weakref.ref(memory := allocate(*args, **options)))
        return memory

    monkeypatch.setattr("detaug.loading.image_cache.torch.empty", recorded)
    loader = da.Loader(da.CocoReader(*painted), [Breaks(), da.Resize((40, 50))], 4, device="cpu", cache="device")
    with pytest.raises(RuntimeError, match="failed in draw: ZeroDivisionError") as error:
        list(loader)
    loader.close()
    assert error.traceback
    assert made
    assert all(each() is None or not len(each()) for each in made)


def test_shards_keep_what_they_evaluate(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    shards = [
        da.Loader(reader, RECIPE, 4, train=False, shard=(rank, 2), device=device, cache="device") for rank in (0, 1)
    ]
    assert sorted(ids([batch for shard in shards for batch in shard])) == list(range(21))
    assert [shard.cached_images for shard in shards] == [11, 10]


@pytest.mark.parametrize("train", [True, *slow(False)])
def test_broken_files_are_skipped(painted: Folder, train: bool, device: str) -> None:
    for name in ("13.png", "02.png"):
        (painted[0] / name).write_bytes(b"no image")
    reader, how = da.CocoReader(*painted), {"device": device, "train": train, "on_error": "skip", "max_skipped": 1.0}
    for cache in ("device", {"host": "300kB"}):
        kept, read = da.Loader(reader, RECIPE, 4, cache=cache, **how), da.Loader(reader, RECIPE, 4, **how)
        for _ in range(EPOCHS):
            with pytest.warns(UserWarning, match="skipped") if not kept.skipped else nullcontext():
                assert all(same(a, b) for a, b in zip(read, kept, strict=True))
        assert set(kept.skipped) == {painted[0] / "02.png", painted[0] / "13.png"}
        assert set(ids(list(kept))) == set(range(21)) - {2, 13}


def test_a_file_that_breaks_when_others_are_kept_is_named(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), RECIPE, 4, train=False, device=device, cache={"device": "300kB"})
    assert len(list(loader)) == 6
    for path in painted[0].glob("1[5-9].png"):  # there was no room for these
        path.write_bytes(b"no image")
    batches = iter(loader)
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(da.DataError, match=r"15\.png: does not decode"):
        list(batches)


def test_a_state_taken_without_a_cache_goes_on_with_it(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    whole, first = (da.Loader(reader, RECIPE, 4, device=device) for _ in range(2))
    steps = iter(first)
    for _ in range(2):
        next(steps)
    second = da.Loader(reader, RECIPE, 4, device=device, cache="device")
    second.load_state_dict(first.state_dict())
    assert all(same(a, b) for a, b in zip(list(whole)[2:], second, strict=True))
    for _ in range(EPOCHS):
        assert all(same(a, b) for a, b in zip(whole, second, strict=True))


def test_an_image_of_another_shard_can_be_replayed(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    of_rank = [
        da.Loader(reader, RECIPE, 4, train=False, shard=(rank, 2), device=device, cache="device", return_params=True)
        for rank in (0, 1)
    ]
    batch = next(iter(of_rank[0]))
    assert same(of_rank[0].replay(batch), batch)
    assert same(of_rank[1].replay(batch), batch)


def test_images_of_odd_sizes_begin_where_memory_of_their_own_would(tmp_path: Path, device: str) -> None:
    sizes = [(97, 131), (1, 7), (33, 5), (61, 61)]
    for at, (height, width) in enumerate(sizes):
        noise = np.random.default_rng(at).integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{at}.png")
    folder = write_coco(tmp_path, [(f"{at}.png", size, [(0, 0, 1, 1)]) for at, size in enumerate(sizes)])
    for recipe in (RECIPE, TURNED):
        reader = da.CocoReader(*folder)
        read, kept = (da.Loader(reader, recipe, 4, device=device, cache=cache) for cache in (None, "device"))
        for _ in range(3 * EPOCHS):  # of so few images, more epochs are planned ahead
            assert all(same(a, b) for a, b in zip(read, kept, strict=True))
        assert kept.cached_images == 4


def test_more_than_is_free_is_refused(painted: Folder, device: str) -> None:
    says = r"cache\['device'\] is 900000\.0 GB, (main memory|cuda:0) has .* GB left: give less"
    with pytest.raises(ValueError, match=says):
        da.Loader(da.CocoReader(*painted), RECIPE, 4, device=device, cache={"device": "900TB"})


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("disk", r"cache must be \"device\", \"host\", or sizes such as .*, got 'disk'"),
        ({"disk": 0.5}, "cache must be"),
        (0.5, "cache must be"),
        ({"device": "much"}, r"cache\['device'\] must be bytes such as .*, got 'much'"),
        ({"host": -1}, r"cache\['host'\] must be bytes such as .*, got '-1'"),
    ],
)
def test_a_wrong_cache_is_explained(painted: Folder, cache: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", cache=cache)


def test_sizes_are_bytes_or_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, plenty = torch.device("cpu"), 10**15
    monkeypatch.setattr("detaug.loading.memory_sizes.available_memory", lambda: 64 * 10**9)
    assert image_cache.room_for({"device": "20GB"}, cpu, plenty) == (20 * 10**9, 0)
    assert image_cache.room_for({"device": 20e9, "host": 0.25}, cpu, plenty) == (20 * 10**9, 16 * 10**9)
    assert image_cache.room_for("host", cpu, plenty) == (0, 32 * 10**9)
    assert image_cache.room_for({"device": "20GB", "host": 1}, cpu, 30 * 10**9) == (20 * 10**9, 10 * 10**9)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert image_cache.room_for("host", cpu, plenty) == (0, 8 * 10**9)


@pytest.mark.gpu
@pytest.mark.parametrize("place", ["device", "host"])
def test_memory_is_what_the_pixels_take_and_is_given_back(painted: Folder, place: str) -> None:
    reader, before = da.CocoReader(*painted), torch.cuda.memory_allocated()
    loader = da.Loader(reader, RECIPE, 4, device="cuda", cache={place: 1.0})
    batches = [len(list(loader)) for _ in range(2)]
    assert batches == [6, 6]
    pixels = int(reader.sizes.prod(1).sum()) * 3 if place == "device" else 0
    in_flight = 8 << 20  # batches, and copies of the images for the next ones
    assert 0 <= torch.cuda.memory_allocated() - before - pixels < in_flight
    loader.close()
    assert torch.cuda.memory_allocated() == before


def test_what_torch_holds_in_reserve_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 500)
    assert image_cache.room_for({"device": 1.0}, torch.device("cuda", 0), 10**6) == (3500, 0)
