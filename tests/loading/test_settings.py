"""The loader's settings: defaults, the file of `detaug tune`, and that they change no batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from band_files import data_set, encode, values
from painted_files import Folder

import detaug as da
from detaug.loading.devices import choose_device
from detaug.loading.settings import (
    Settings,
    choose_settings,
    decoded_bytes,
    large_source,
    pixels_in_flight,
    write_settings,
)
from detaug.recipes.kernel_chain import chain_of
from detaug.recipes.recipe import make_recipe


def test_settings_change_no_batch(painted: Folder, tmp_path: Path, device: str) -> None:
    write_settings(tmp_path / "s.json", Settings(pipelines=2, threads=1, depth=3, hw_decoder_load=0.5))
    reader = da.CocoReader(*painted)
    plain, tuned = (
        [batch.boxes.cpu() for batch in da.Loader(reader, da.presets.ssd300(), 6, device=device, settings=file)]
        for file in (None, tmp_path / "s.json")
    )
    assert len(plain) == 4
    assert all(torch.equal(a, b) for a, b in zip(plain, tuned, strict=True))


@pytest.mark.parametrize(
    ("batch_size", "pixels", "batches", "depth", "depth_alone"),
    [
        (32, 300 * 300, 8, 3, 8),
        (64, 300 * 300, 4, 3, 6),
        (128, 300 * 300, 2, 3, 3),
        (256, 300 * 300, 1, 2, 2),
        (32, 640 * 640, 4, 3, 6),
        (16, 800 * 1088, 4, 3, 8),
        (2, 4000 * 4000, 1, 5, 5),
        (1, 8000 * 8000, 1, 2, 2),
        (4, 300 * 300, 8, 3, 8),
        (1, 1, 8, 3, 8),
    ],
)
def test_a_gpu_gets_many_small_batches_or_few_large_ones(
    batch_size: int, pixels: int, batches: int, depth: int, depth_alone: int
) -> None:
    cuda = torch.device("cuda", 0)
    assert choose_settings(cuda, batch_size, pixels) == Settings(2, 2, depth, batches_per_group=batches)
    assert choose_settings(cuda, batch_size, pixels, can_group=False) == Settings(2, 2, depth_alone)


@pytest.mark.parametrize(
    ("cores", "ranks", "pipelines", "threads"),
    [(16, 1, 4, 4), (16, 4, 4, 1), (8, 1, 4, 2), (4, 1, 4, 1), (2, 1, 2, 1), (1, 1, 1, 1), (2, 4, 1, 1), (64, 1, 4, 8)],
)
def test_without_a_jpeg_engine_all_cores_of_the_process_decode(
    monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int, pipelines: int, threads: int
) -> None:
    monkeypatch.setenv("DETAUG_JPEG_ENGINE", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr("detaug.loading.settings.available_cores", lambda: cores)
    chosen = choose_settings(torch.device("cuda", 0), 32, 300 * 300)
    assert (chosen.pipelines, chosen.threads, chosen.hw_decoder_load) == (pipelines, threads, 0)
    monkeypatch.setenv("DETAUG_JPEG_ENGINE", "1")
    with_engine = choose_settings(torch.device("cuda", 0), 32, 300 * 300)
    assert (with_engine.pipelines, with_engine.threads, with_engine.hw_decoder_load) == (2, 2, 1)


def test_images_that_the_cpu_decodes_for_a_gpu_take_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JPEG engine does nothing for them."""
    monkeypatch.setenv("DETAUG_JPEG_ENGINE", "1")
    monkeypatch.setattr("detaug.loading.settings.available_cores", lambda: 16)
    chosen = choose_settings(torch.device("cuda", 0), 32, 300 * 300, decodes_on_host=True)
    assert (chosen.pipelines, chosen.threads, chosen.hw_decoder_load) == (4, 4, 0)


def test_bands_count_by_their_memory(tmp_path: Path) -> None:
    """Six bands of 16 bits: 12 bytes of a file's pixel, 24 as float32, and 24 of a rendered one."""
    pixels = da.PixelFormat(6, "uint16")
    files = {"0.tif": encode(values(6, "uint16", (600, 800)), "tif")}
    reader = da.CocoReader(*data_set(tmp_path, files, (600, 800)), channels=6, dtype="uint16")
    small, large = (make_recipe([da.Resize((side, side))], pixels) for side in (30, 1000))
    gpu = torch.device("cuda", 0)
    assert large_source(reader) * 3 == 600 * 800 * (12 + 24)
    assert pixels_in_flight(reader, small, chain_of(small, gpu)) * 12 == 600 * 800 * (12 + 24)
    assert pixels_in_flight(reader, large, chain_of(large, gpu)) * 12 == 1000 * 1000 * 24
    assert pixels_in_flight(reader, large, None) == 1000 * 1000
    settings = Settings(pipelines=2, threads=1, depth=2)
    held = 2 * (3 * 4 + 2.5 * 4)  # images: two pipelines with three jobs of four, and what a decoder holds
    assert decoded_bytes(reader, settings, [large], 4, gpu) == held * 600 * 800 * (12 + 24)


def test_another_value_for_the_jpeg_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETAUG_JPEG_ENGINE", "yes")
    with pytest.raises(da.InputError, match="DETAUG_JPEG_ENGINE must be 0 or 1, got 'yes'"):
        choose_settings(torch.device("cuda", 0), 32, 300 * 300)


@pytest.mark.gpu
def test_a_gpu_says_whether_it_has_a_jpeg_engine(painted: Folder) -> None:
    """H100 and H200 have one."""
    expected = "with JPEG engine" if torch.cuda.get_device_capability() == (9, 0) else "JPEG engine"
    assert expected in repr(da.Loader(da.CocoReader(*painted), da.presets.ssd300(), 4, device="cuda"))


@pytest.mark.parametrize(
    ("batch_size", "pixels", "batches"), [(4, 1, 8), (32, 90000, 4), (100, 90000, 1), (16, 640 * 640, 2)]
)
def test_the_cpu_gets_groups_of_small_batches(batch_size: int, pixels: int, batches: int) -> None:
    cpu, threads = torch.device("cpu"), len(os.sched_getaffinity(0))
    assert choose_settings(cpu, batch_size, pixels) == Settings(1, threads, batches_per_group=batches)
    assert choose_settings(cpu, batch_size, pixels, can_group=False) == Settings(1, threads)


def test_arguments_override_the_file_and_the_file_overrides_the_defaults(tmp_path: Path) -> None:
    write_settings(tmp_path / "s.json", Settings(pipelines=4, threads=5, depth=6, batches_per_group=8))
    device = torch.device("cpu")
    assert choose_settings(device, 32, 90000).threads == len(os.sched_getaffinity(0))
    assert choose_settings(device, 32, 90000, tmp_path / "s.json", threads=7) == Settings(4, 7, 6, batches_per_group=8)
    assert choose_settings(device, 32, 90000, tmp_path / "s.json", can_group=False) == Settings(4, 5, 6)
    (tmp_path / "depth.json").write_text('{"settings": {"depth": 8}}')  # of a version without groups
    assert choose_settings(torch.device("cuda", 0), 32, 90000, tmp_path / "depth.json") == Settings(
        2, 2, 8, batches_per_group=1
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", r"s\.json: not a file of settings; detaug tune .* -o .*s\.json writes one"),
        ('{"rows": 1}', "not a file of settings; detaug tune"),
        ('{"settings": {"pipes": 1}}', "no settings of this version: pipes"),
        ('{"settings": {"pipelines": 0}}', "pipelines must be a whole number of at least 1, got 0"),
        ('{"settings": {"hw_decoder_load": 2}}', "hw_decoder_load must be a fraction in 0..1, got 2"),
    ],
)
def test_a_file_that_holds_no_settings(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ValueError, match=says):
        choose_settings(torch.device("cpu"), 32, 90000, tmp_path / "s.json")


def test_a_missing_file_of_settings(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"s\.json: no such file of settings; detaug tune .* -o .*s\.json"):
        choose_settings(torch.device("cpu"), 32, 90000, tmp_path / "s.json")
    with pytest.raises(ValueError, match="not a file of settings; detaug tune"):
        choose_settings(torch.device("cpu"), 32, 90000, tmp_path)


@pytest.mark.parametrize(
    ("count", "local_rank", "rank", "device"),
    [(4, "3", 0, 3), (4, "0", 7, 0), (4, None, 6, 2), (1, "5", 5, 0), (4, "", 1, 1)],
)
def test_each_process_of_a_machine_has_its_gpu(count: int, local_rank: str | None, rank: int, device: int) -> None:
    assert choose_device(count, local_rank, rank) == device


@pytest.mark.parametrize("local_rank", ["5", "4", "-1", "one"])
def test_a_local_rank_without_a_gpu_is_refused(local_rank: str) -> None:
    with pytest.raises(da.InputError, match=f"LOCAL_RANK is {local_rank}, but this process sees 4 CUDA devices"):
        choose_device(4, local_rank, 0)
