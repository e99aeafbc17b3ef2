"""Untrusted files: `check --decode --isolated`, and what damaged files do to the loader."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark_scripts import BENCHMARKS
from command import usage_error
from painted_files import Folder, write_coco
from PIL import Image
from voc_files import exif, image_bytes, with_segment

import detaug as da
from detaug.check.decode import Fault, Limits, find_undecodable
from detaug.converters import check_coco
from detaug.report import check_to_html

RECIPE = [da.Resize((40, 50)), da.Normalize()]


def data_set(folder: Path, contents: list[bytes], size: tuple[int, int] = (80, 100)) -> Folder:
    """Write images of one size (height, width), and their JSON file."""
    for at, content in enumerate(contents):
        (folder / f"{at}.jpg").write_bytes(content)
    return write_coco(folder, [(f"{at}.jpg", size, []) for at in range(len(contents))])


def test_isolated_needs_decode_and_draws_no_pictures(painted: Folder, tmp_path: Path) -> None:
    arguments = ("check", painted[1], painted[0], "--isolated")
    assert "--isolated is about how images are decoded; give --decode, too" in usage_error(*arguments)
    with pytest.raises(da.InputError, match="html shows images, which this process decodes"):
        check_to_html(painted[1], painted[0], tmp_path / "a.html", decode=True, isolated=True)


@pytest.mark.slow
def test_isolated_finds_what_decode_finds(painted: Folder) -> None:
    content = (painted[0] / "04.png").read_bytes()
    at = content.index(b"IDAT") + 20
    (painted[0] / "04.png").write_bytes(content[:at] + bytes(40) + content[at + 40 :])
    found, expected = (
        [
            (each.kind, each.entry, each.message)
            for each in check_coco(*painted[::-1], decode=True, isolated=how).findings
        ]
        for how in (True, False)
    )
    assert found == expected
    assert [kind for kind, *_ in found] == ["image-broken"]


@pytest.mark.slow
def test_an_image_that_takes_too_much_memory_is_named_alone(tmp_path: Path) -> None:
    for name, side in (("a", 100), ("large", 16_000), ("b", 100)):
        Image.new("L", (side, side)).save(tmp_path / f"{name}.png", compress_level=1)
    paths = [tmp_path / f"{name}.png" for name in ("a", "large", "b")]
    fault = Fault("image-unsafe", "takes more than 0.4 GB of memory to decode")
    assert find_undecodable(paths, limits=Limits(600, 400_000_000, 100, 10**9)) == {1: fault}


def rotated_for_dali_only() -> bytes:
    """Return a JPEG of 100 x 80 whose EXIF block begins with neither II nor MM: DALI reads it, Pillow raises."""
    return with_segment(image_bytes(), b"Exif\0\0" + exif(6, ">").replace(b"MM", b"\xcdM", 1))


@pytest.mark.slow
def test_an_image_that_dali_rotates_and_its_header_does_not_is_found(tmp_path: Path) -> None:
    folder, path = data_set(tmp_path, [image_bytes(), rotated_for_dali_only(), image_bytes()])
    summary = check_coco(path, folder, decode=True)
    broken = [(each.entry, each.message) for each in summary.findings if each.kind == "image-broken"]
    assert broken == [("images[1]", "DALI finds (height, width) (100, 80), its header has (80, 100)")]


def test_an_image_whose_exif_block_is_damaged_is_skipped(tmp_path: Path) -> None:
    folder, path = data_set(tmp_path, [image_bytes(), rotated_for_dali_only(), image_bytes()])
    loader = da.Loader(
        da.CocoReader(folder, path), RECIPE, 3, train=False, device="cpu", on_error="skip", max_skipped=1.0
    )
    with pytest.warns(UserWarning, match=r"1\.jpg: DALI does not decode it .*; skipped"):
        assert [batch.image_id.tolist() for batch in loader] == [[10, 12]]


@pytest.mark.slow
def test_mutated_images_kill_nothing() -> None:
    command = [sys.executable, BENCHMARKS / "mutated_images.py", "--images", "200", "--seed", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-5000:]
    found = re.search(r"epoch: (\d+) of 200 images", run.stdout)
    assert found
    assert 30 < int(found[1]) < 150


@pytest.mark.slow
def test_mutated_videos_kill_nothing() -> None:
    command = [sys.executable, BENCHMARKS / "mutated_videos.py", "--videos", "48", "--piece", "24", "--seed", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-5000:]
    found = re.findall(r"(\d+) of 24 videos have an index; (\d+) clips", run.stdout)
    assert len(found) == 2
    assert 12 < sum(int(videos) for videos, _ in found) < 36
    assert sum(int(clips) for _, clips in found) > 40
