"""Batches that are decoded in parts are what they are whole; and the memory that this bounds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from painted_files import Folder, same, settings_file
from PIL import Image
from seeds import slow

import detaug as da
from detaug.loading.plans import Grouping
from detaug.loading.settings import Settings, choose_settings

GEOMETRY = [da.RandomZoomOut(max_ratio=2, fill=(0, 0, 0)), da.RandomIoUCrop(), da.RandomHorizontalFlip()]
RECIPES = {
    "mixing": [*GEOMETRY, da.Resize((60, 80)), da.Mosaic(), da.MixUp(), da.CutMix(), da.CopyPaste()],
    "several sizes": [*GEOMETRY, da.Resize([(60, 80), (90, 40)]), da.RandomPhotometricDistort()],
    "channels last": [da.Resize((60, 80)), da.Normalize(memory_format="channels_last")],
}


def loaders(
    painted: Folder, recipe: str, batch_size: int, parts: int, device: str, **options: object
) -> list[da.Loader]:
    """Return one that takes whole batches, and one that takes parts."""
    reader = da.CocoReader(*painted)
    return [
        da.Loader(
            reader,
            RECIPES[recipe],
            batch_size,
            device=device,
            settings=settings_file(painted, parts_per_batch=count),
            **options,  # type: ignore[arg-type]
        )
        for count in (1, parts)
    ]


@pytest.mark.parametrize(
    ("recipe", "batch_size", "parts"),
    [
        ("mixing", 20, 2),
        *slow(*(("mixing", *sizes) for sizes in ((17, 9), (16, 2), (5, 3), (2, 8)))),
        *slow(*(("several sizes", *sizes) for sizes in ((17, 9), (5, 3)))),
        *slow(*(("channels last", *sizes) for sizes in ((20, 2), (2, 8)))),
    ],
)
@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_parts_change_no_batch(
    painted: Folder, recipe: str, batch_size: int, parts: int, cache: str | None, device: str
) -> None:
    """Nor what a resumed loader yields, or one that makes a batch again."""
    whole, in_parts = loaders(painted, recipe, batch_size, parts, device, return_params=True, cache=cache)
    batches = [*whole, *whole]
    found = [*in_parts, *in_parts]
    assert all(same(a, b) for a, b in zip(found, batches, strict=True))
    assert found[0].images.stride() == batches[0].images.stride()
    in_parts.load_state_dict({**whole.state_dict(), "epoch": 0, "step": 1})
    assert all(same(a, b) for a, b in zip(in_parts, batches[1 : len(whole)], strict=True))
    assert same(in_parts.replay(batches[0]), batches[0])


@pytest.mark.parametrize("train", [False, *slow(True)])
def test_a_bad_file_in_a_part_is_skipped_as_in_a_batch(painted: Folder, train: bool, device: str) -> None:
    (painted[0] / "13.png").write_bytes(b"")
    options = {"train": train, "on_error": "skip", "max_skipped": 0.5}
    both = loaders(painted, "mixing" if train else "several sizes", 16, 2, device, **options)
    found = []
    for loader in both:
        with pytest.warns(UserWarning, match=r"13\.png"):
            found.append(list(loader))
        assert [path.name for path in loader.skipped] == ["13.png"]
    assert all(same(a, b) for a, b in zip(*found, strict=True))


def test_images_that_ops_mix_are_in_one_part() -> None:
    """The last group of a batch takes the rest, so it may have up to 15 images."""
    for length in range(1, 50):
        for parts in range(1, 9):
            grouping = Grouping(1, parts, mixed=8)
            slots = grouping.slots([length])
            starts = np.flatnonzero(slots == 0)
            assert set(starts) <= {8 * group for group in range(max(1, length // 8))}
            assert len(starts) == min(parts, max(1, length // 8))
            assert slots.max() < grouping.most_images(length)


@pytest.mark.parametrize(
    ("batch_size", "megapixels", "batches", "parts"),
    [(16, 0.2, 8, 1), (16, 2, 2, 1), (16, 4, 1, 1), (16, 12, 1, 4), (16, 48, 1, 8), (1, 48, 2, 1)],
)
def test_the_cpu_decodes_so_many_at_once_as_memory_has_room_for(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, megapixels: float, batches: int, parts: int
) -> None:
    """An image for each thread at least."""
    monkeypatch.setattr("detaug.loading.settings.available_cores", lambda: 2)
    chosen = choose_settings(torch.device("cpu"), batch_size, 300 * 300, source_pixels=int(megapixels * 1e6))
    assert chosen == Settings(1, 2, batches_per_group=batches, parts_per_batch=parts)


def test_images_that_memory_has_no_room_for_are_decoded_by_one_pipeline() -> None:
    chosen = choose_settings(torch.device("cpu"), 16, 300 * 300, source_pixels=2_000_000_000, threads=2)
    threads = len(os.sched_getaffinity(0))
    assert chosen == Settings(1, 2, depth=1, parts_per_batch=-(-16 // threads))


def test_pipelines_that_are_given_stay() -> None:
    """Also where one pipeline would be chosen for images so large."""
    cpu, options = torch.device("cpu"), {"source_pixels": 2_000_000_000, "threads": 2}
    assert choose_settings(cpu, 16, 300 * 300, pipelines=3, **options).pipelines == 3
    assert choose_settings(cpu, 16, 300 * 300, pipelines=3, memory=10**6, **options).pipelines == 3
    assert choose_settings(cpu, 16, 300 * 300, memory=10**6, **options).pipelines == 1


@pytest.mark.parametrize(
    ("megapixels", "memory", "settings"),
    [
        (0.2, 2e9, Settings(2, 2, depth=3, batches_per_group=8)),
        (0.2, 1e9, Settings(2, 2, depth=3, batches_per_group=6)),
        (2, 2e9, Settings(2, 2, depth=3)),
        (12, 2e9, Settings(2, 2, depth=2, parts_per_batch=7)),
        (48, 2e9, Settings(2, 2, depth=2, parts_per_batch=32)),
        (48, 8e9, Settings(2, 2, depth=2, parts_per_batch=7)),
        (12, 2.92e9, Settings(2, 2, depth=2, parts_per_batch=5)),  # with 2 for each image: 4; with 3: 6
        (12, 5.2e9, Settings(2, 2, depth=2, parts_per_batch=2)),  # with at most 33: 3
        (12, 7.96e9, Settings(2, 2, depth=2, parts_per_batch=2)),  # with at most 13: 1
        (48, 0.5e9, Settings(1, 2, depth=1, parts_per_batch=32)),
        (48, 0.1e9, Settings(1, 2, depth=1, parts_per_batch=32)),
    ],
)
def test_a_gpu_keeps_to_a_limit(monkeypatch: pytest.MonkeyPatch, megapixels: float, memory: float, settings: Settings):
    """Images of 3 bytes per pixel: three times a job of each pipeline, and what the decoder holds."""
    monkeypatch.setenv("DETAUG_JPEG_ENGINE", "1")
    pixels = int(megapixels * 1e6)
    chosen = choose_settings(torch.device("cuda", 0), 32, 300 * 300, source_pixels=pixels, memory=int(memory))
    assert chosen == settings
    job = Grouping(chosen.batches_per_group, chosen.parts_per_batch, 1).most_images(32)
    held = chosen.pipelines * ((chosen.depth + 1) * job + min(2.5 * job, 23))
    assert held * 3 * pixels <= max(memory, 4.5 * 3 * pixels)


@pytest.mark.parametrize("recipe", ["several sizes", *slow("mixing")])
def test_a_loader_keeps_to_a_limit_and_its_batches(painted: Folder, recipe: str, device: str) -> None:
    """A large painted image has 68 kB; 8 that ops mix are in memory twice."""
    reader = da.CocoReader(*painted)
    whole = da.Loader(reader, RECIPES[recipe], 16, device=device, memory="100MB")
    parts = da.Loader(reader, RECIPES[recipe], 16, device=device, memory=1.1e6)
    assert whole.settings.parts_per_batch == 1 < parts.settings.parts_per_batch
    assert all(same(a, b) for a, b in zip(parts, whole, strict=True))
    assert 0 < float(re.search(r"([\d.e-]+) GB of decoded images\)", repr(parts))[1]) <= 1.1e-3  # type: ignore[index]


def test_a_limit_that_cannot_be_kept_is_said(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    says = r"decoded images take .* GB, more than memory=30000 allows: one takes .* GB, and ops that mix images keep 8"
    with pytest.warns(UserWarning, match=says) as found:
        da.Loader(reader, RECIPES["mixing"], 16, device="cpu", memory=30_000)
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match="more than memory=0 allows"):
        da.Loader(reader, RECIPES["mixing"], 16, device="cpu", memory=0)
    with pytest.raises(da.InputError, match=r"memory is 9000000\.0 GB, main memory has .* GB left: give less"):
        da.Loader(reader, RECIPES["mixing"], 16, device="cpu", memory="9000TB")
    with pytest.raises(da.InputError, match="memory must be bytes such as 256MB"):
        da.Loader(reader, RECIPES["mixing"], 16, device="cpu", memory="much")


def test_pipelines_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detaug.loading.settings.available_cores", lambda: 2)
    chosen = choose_settings(torch.device("cpu"), 16, 300 * 300, source_pixels=4_000_000, pipelines=2)
    assert chosen == Settings(2, 2, parts_per_batch=2)


CHILD = """
import sys
from pathlib import Path
import detaug as da

da.keep_freed_memory()
folder = Path(sys.argv[1])
loader = da.Loader(da.CocoReader(folder, folder / "train.json"), da.presets.ssd300(), 16, device="cpu", threads=2)
def most():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e6
print(*[(most(), len(batch))[0] for batch in loader][-1:])
"""


@pytest.mark.slow
def test_photographs_of_12_megapixels_take_at_most_1_5_gigabytes(tmp_path: Path) -> None:
    """In batches of 16, of which one has 0.6 GB of pixels. In groups of 128 images they took 5.9 GB."""
    coarse = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8))
    coarse.resize((4000, 3000)).save(tmp_path / "0.jpg", quality=90)
    for at in range(1, 48):
        os.link(tmp_path / "0.jpg", tmp_path / f"{at}.jpg")
    images = [{"id": at, "file_name": f"{at}.jpg", "width": 4000, "height": 3000} for at in range(48)]
    boxes = [{"id": at, "image_id": at, "category_id": 1, "bbox": [900, 900, 1500, 1200]} for at in range(48)]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (tmp_path / "train.json").write_text(json.dumps(document))
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    assert 0.3 < float(done.stdout) < 1.5
