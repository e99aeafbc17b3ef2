"""The measurement itself: what it counts, what it refuses, and that other settings change nothing but speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import detaug as da
from detaug.bench import bench as measuring
from detaug.bench.bench import check_alike, cpu_seconds, looks, measure, table
from detaug.bench.chart import draw_chart
from detaug.bench.contestants import Job, Made, by_hand, cached, decode, loader
from detaug.cli.main import main
from detaug.converters import voc_to_coco
from detaug.demo.shapes import make_voc
from detaug.loading.settings import Settings, choose_settings, write_settings

LOOKS = {"shape": [2, 3, 300, 300], "dtype": "torch.float32", "low": 0.0, "high": 1.0, "boxes": 3, "wrong_boxes": 0}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(json, image folder) of seven images."""
    root = make_voc(tmp_path_factory.mktemp("bench") / "VOC", images=7)
    voc_to_coco(root, root / "all.json")
    return str(root / "all.json"), str(root / "JPEGImages")


@pytest.mark.parametrize("preset", ["ssd300", "retinanet"])
@pytest.mark.parametrize("make", [loader, by_hand, decode, cached])
def test_an_epoch_counts_each_image_once(files: tuple[str, str], make: object, preset: str, device: str) -> None:
    batches = make(Job(*files, batch_size=3, device=device, preset=preset))  # type: ignore[operator]
    assert [next(batches).real for _ in range(6)] == [3, 3, 1, 3, 3, 1]


@pytest.mark.parametrize("preset", ["ssd300", "retinanet"])
def test_what_is_compared_is_alike(files: tuple[str, str], preset: str, device: str) -> None:
    job = Job(*files, batch_size=7, device=device, preset=preset)
    check_alike({each.__name__: looks(next(each(job))) for each in (loader, by_hand, decode, cached)}, preset)


@pytest.mark.parametrize(
    "other",
    [
        {"shape": [2, 3, 512, 512]},
        {"dtype": "torch.uint8"},
        {"high": 255.0},
        {"low": -2.0},
        {"wrong_boxes": 1},
        {"boxes": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_batches_that_differ_are_refused(other: dict[str, object]) -> None:
    check_alike({"loader": LOOKS, "decode": {}, "other": LOOKS}, "ssd300")
    with pytest.raises(ValueError, match="makes other batches"):
        check_alike({"loader": LOOKS, "decode": {}, "other": LOOKS | other}, "ssd300")


def test_looks_reads_the_batch() -> None:
    images = torch.linspace(0, 1, 2 * 3 * 4 * 6).reshape(2, 3, 4, 6)
    boxes = torch.tensor([[[0.0, 0, 6, 4], [5, 1, 2, 3], [0, 0, 7, 1]], [[0, 0, 0, 0]] * 3])
    labels = torch.tensor([[1, 2, 3], [-1, -1, -1]])
    seen = looks(Made(images, boxes, labels, 2))
    assert seen == LOOKS | {"shape": [2, 3, 4, 6], "wrong_boxes": 2}


def slow(job: Job) -> Iterator[Made]:
    """Ten images in ten milliseconds, of which six are real; its child works for as long as it sleeps."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        while True:
            time.sleep(0.01)
            yield Made(None, None, None, 6)
    finally:
        child.kill()
        child.wait()


def test_measure_counts_real_images_and_the_work_of_children() -> None:
    found = measure(slow, Job("", "", seconds=0.6))
    assert 0 < found["images_per_s"] < 600
    assert 10 <= found["p50_ms"] <= found["p99_ms"]
    busy = found["cpu_s_per_1000"] / 1000 * found["images_per_s"]
    assert 0.05 < busy < 1.3  # of the child; this process sleeps


def test_cpu_seconds_grow_with_work() -> None:
    before, start = cpu_seconds(), time.process_time()
    while time.process_time() - start < 0.1:
        pass
    assert 0.08 < cpu_seconds() - before < 0.3


def result() -> dict[str, object]:
    def turn(rate: float) -> dict[str, float]:
        rest = ("cpu_s_per_1000", "p50_ms", "p99_ms", "first_batch_s", "gpu_mb")
        return {"images_per_s": rate, **dict.fromkeys(rest, 1.0)}

    rows = {"loader": [turn(400), turn(800)], "by hand": [turn(100), turn(100)], "decode": [turn(2000), turn(1600)]}
    machine = {"cpu": "a CPU", "gpu": None, "cores": 2, "date": "2026-01-01"}
    return {"job": Job("", "").as_dict(), "machine": machine, "turns": 2, "rows": rows}


def test_the_table_has_medians_ranges_and_ratios_turn_by_turn() -> None:
    rows = {line[:24].strip(): line[24:].split() for line in table(result()).splitlines()[2:]}
    assert rows["loader"][:3] == ["600", "400..800", "1.00"]
    assert rows["by hand"][:3] == ["100", "100..100", "6.00"]
    assert rows["decode"][:3] == ["1,800", "1,600..2,000", "0.35"]


def test_the_chart_has_bars_as_long_as_the_rates(tmp_path: Path) -> None:
    draw_chart(result(), tmp_path / "chart.png")
    pixels = np.asarray(Image.open(tmp_path / "chart.png")).astype(int)
    lengths = [
        (pixels[84 + 44 * at + 3] == color).all(1).sum()
        for at, color in enumerate([(0, 114, 178)] + [(170, 178, 186)] * 2)
    ]
    assert lengths[0] / lengths[2] == pytest.approx(600 / 1800, abs=0.01)
    assert lengths[1] / lengths[2] == pytest.approx(100 / 1800, abs=0.01)


def test_the_command(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "cpu", "--seconds", "0.1", "--turns", "1", "--batch-size", "2", "--only", "loader"]
    outputs = ["--json", str(tmp_path / "b.json"), "--chart", str(tmp_path / "b.png")]
    assert main(["bench", *files, *options, *outputs]) == 0
    assert "images/s" in capsys.readouterr().out
    written = json.loads((tmp_path / "b.json").read_text())
    assert written["rows"]["loader"][0]["images_per_s"] > 0
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_a_contestant_that_fails_is_named(files: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"detaug.bench.contestants:loader failed: .*no such file"):
        measuring.bench("no.json", files[1], device="cpu", only=("loader",))


# ------------------------------------------------------------------------------------------------ tune


def test_tune_writes_what_the_loader_takes(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "settings.json"
    assert main(["tune", *files, "--device", "cpu", "--batch-size", "2", "--seconds", "1", "-o", str(output)]) == 0
    assert f"settings={str(output)!r}" in capsys.readouterr().out
    found = da.Loader(da.CocoReader(*files[::-1]), da.presets.ssd300(), 2, device="cpu", settings=output).settings
    assert found == Settings(**json.loads(output.read_text())["settings"])


def test_settings_change_no_batch(files: tuple[str, str], tmp_path: Path, device: str) -> None:
    write_settings(tmp_path / "s.json", Settings(pipelines=2, threads=1, depth=3, hw_decoder_load=0.5))
    reader = da.CocoReader(*files[::-1])
    plain, tuned = (
        [batch.boxes.cpu() for batch in da.Loader(reader, da.presets.ssd300(), 2, device=device, settings=file)]
        for file in (None, tmp_path / "s.json")
    )
    assert len(plain) == 4
    assert all(torch.equal(a, b) for a, b in zip(plain, tuned, strict=True))


def test_settings_are_compared_in_turns(files: tuple[str, str]) -> None:
    options = ["--batch-size", "2", "3", "--settings", "2,1,1,1,0.5", "--cores", "1"]
    options += ["--seconds", "0.05", "--turns", "1", "--device", "cpu"]
    command = [sys.executable, str(Path(__file__).parents[1] / "benchmarks/settings.py"), *files, *options]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in printed.splitlines() if line.startswith("batch")]
    assert [line[:7] for line in lines] == ["batch 2"] * 4 + ["batch 3"] * 4
    assert lines[1].endswith(" cores, 2 pipelines, 1 threads, 1 times 1, engine 0.5:")
    assert lines[3] == "batch 2, 1 cores, 2 pipelines, 1 threads, 1 times 1, engine 0.5:"
    assert printed.count("loader / decode ") == 8


@pytest.mark.parametrize(
    ("batch_size", "pixels", "together", "depth", "depth_one_by_one"),
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
    batch_size: int, pixels: int, together: int, depth: int, depth_one_by_one: int
) -> None:
    cuda = torch.device("cuda", 0)
    assert choose_settings(cuda, batch_size, pixels) == Settings(2, 2, depth, batches_per_group=together)
    assert choose_settings(cuda, batch_size, pixels, may_join=False) == Settings(2, 2, depth_one_by_one)


@pytest.mark.parametrize(
    ("batch_size", "pixels", "together"), [(4, 1, 8), (32, 90000, 4), (100, 90000, 1), (16, 640 * 640, 2)]
)
def test_the_cpu_gets_small_batches_together(batch_size: int, pixels: int, together: int) -> None:
    cpu, threads = torch.device("cpu"), len(os.sched_getaffinity(0))
    assert choose_settings(cpu, batch_size, pixels) == Settings(1, threads, batches_per_group=together)
    assert choose_settings(cpu, batch_size, pixels, may_join=False) == Settings(1, threads)


def test_what_is_given_goes_before_the_file_and_the_file_before_the_defaults(tmp_path: Path) -> None:
    write_settings(tmp_path / "s.json", Settings(pipelines=4, threads=5, depth=6, batches_per_group=8))
    device = torch.device("cpu")
    assert choose_settings(device, 32, 90000).threads == len(os.sched_getaffinity(0))
    assert choose_settings(device, 32, 90000, tmp_path / "s.json", threads=7) == Settings(4, 7, 6, batches_per_group=8)
    assert choose_settings(device, 32, 90000, tmp_path / "s.json", may_join=False) == Settings(4, 5, 6)
    (tmp_path / "depth.json").write_text('{"settings": {"depth": 8}}')  # of a version that made no batches together
    assert choose_settings(torch.device("cuda", 0), 32, 90000, tmp_path / "depth.json") == Settings(2, 2, 8, batches_per_group=1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", r"s\.json: not a file of settings; detaug tune .* -o .*s\.json writes one"),
        ('{"rows": 1}', "not a file of settings; detaug tune"),
        ('{"settings": {"pipes": 1}}', "no settings of this version: pipes"),
        ('{"settings": {"pipelines": 0}}', "pipelines must be a whole number of at least 1, got 0"),
        ('{"settings": {"hw_decoder_load": 2}}', "hw_decoder_load must be a share in 0..1, got 2"),
    ],
)
def test_a_file_of_settings_that_is_none(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ValueError, match=says):
        choose_settings(torch.device("cpu"), 32, 90000, tmp_path / "s.json")


def test_a_file_of_settings_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"s\.json: no such file of settings; detaug tune .* -o .*s\.json"):
        choose_settings(torch.device("cpu"), 32, 90000, tmp_path / "s.json")
    with pytest.raises(ValueError, match="not a file of settings; detaug tune"):
        choose_settings(torch.device("cpu"), 32, 90000, tmp_path)
