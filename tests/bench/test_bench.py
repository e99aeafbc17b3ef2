"""`detaug bench` and `detaug tune`: the counts, the checks, the report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder
from PIL import Image, ImageDraw
from places import REPOSITORY
from seeds import slow

import detaug as da
from detaug.bench import bench, draw_chart, format_table, measure, tune, tuning
from detaug.bench.compare import check_alike
from detaug.bench.loaders import by_hand, cached, decode, loader
from detaug.bench.measure import BatchMaker, BenchJob, MadeBatch, Result, cpu_seconds, describe_batch
from detaug.cli.main import main
from detaug.converters import voc_to_coco
from detaug.demo.shapes import make_voc
from detaug.loading.settings import Settings

BATCH = {"shape": [2, 3, 300, 300], "dtype": "torch.float32", "low": 0.0, "high": 1.0, "boxes": 3, "wrong_boxes": 0}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(JSON, image folder) of seven images."""
    root = make_voc(tmp_path_factory.mktemp("bench") / "VOC", images=7)
    voc_to_coco(root, root / "all.json")
    return str(root / "all.json"), str(root / "JPEGImages")


@pytest.mark.parametrize("preset", ["retinanet", *slow("ssd300")])
@pytest.mark.parametrize("make", [loader, by_hand, decode, cached])
def test_an_epoch_counts_each_image_once(files: tuple[str, str], make: BatchMaker, preset: str, device: str) -> None:
    batches = make(BenchJob(*files, batch_size=3, device=device, preset=preset))
    assert [next(batches).new for _ in range(6)] == [3, 3, 1, 3, 3, 1]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["ssd300", "retinanet"])
def test_loaders_make_the_same_kind_of_batches(files: tuple[str, str], preset: str, device: str) -> None:
    job = BenchJob(*files, batch_size=7, device=device, preset=preset)
    check_alike({each.__name__: describe_batch(next(each(job))) for each in (loader, by_hand, decode, cached)}, preset)


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
    several = BATCH | {"boxes": 30}
    check_alike({"loader": several, "decode": {}, "other": several}, "ssd300")
    with pytest.raises(ValueError, match="makes other batches"):
        check_alike({"loader": several, "decode": {}, "other": several | other}, "ssd300")


@pytest.mark.parametrize("change", [{"boxes": 0}, {"high": 0.1}, {"shape": [1, 3, 300, 300]}])
def test_data_sets_may_be_small_dark_or_without_boxes(change: dict[str, object]) -> None:
    check_alike({"loader": BATCH | change, "by hand": BATCH | change}, "ssd300")
    check_alike({"loader": BATCH, "other": BATCH | {"shape": [1, 3, 300, 300]}}, "ssd300")  # fewer images than a batch


def test_a_row_that_the_preset_does_not_have_is_refused(files: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"only names torchvision, which ssd300 and retinanet have.*yolo640"):
        bench(*files, preset="yolo640", only=("loader", "torchvision"), device="cpu", seconds=0.1)


def test_the_description_of_a_batch() -> None:
    images = torch.linspace(0, 1, 2 * 3 * 4 * 6).reshape(2, 3, 4, 6)
    boxes = torch.tensor([[[0.0, 0, 6, 4], [5, 1, 2, 3], [0, 0, 7, 1]], [[0, 0, 0, 0]] * 3])
    labels = torch.tensor([[1, 2, 3], [-1, -1, -1]])
    found = describe_batch(MadeBatch(images, boxes, labels, 2))
    assert found == BATCH | {"shape": [2, 3, 4, 6], "wrong_boxes": 2}


def ten_ms_a_batch(job: BenchJob) -> Iterator[MadeBatch]:
    """Make batches of six new images, one in ten milliseconds or more."""
    while True:
        time.sleep(0.01)
        yield MadeBatch(None, None, None, 6)


def test_measure_counts_new_images_and_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "cpu_seconds", iter([1.0, 4.0]).__next__)
    found = measure.measure(ten_ms_a_batch, BenchJob("", "", seconds=0.2))
    assert 0 < found["images_per_s"] < 600
    assert 10 <= found["p50_ms"] <= found["p99_ms"]
    assert found["images"] % 6 == 0
    assert found["cpu_s_per_1000"] == pytest.approx(3000 / found["images"])


WORK = """
import time
while time.process_time() < 0.3:
    pass
print(time.process_time(), flush=True)
input()
"""


def test_cpu_seconds_include_a_child_that_runs() -> None:
    """Measured in CPU time, which does not depend on how busy the machine is."""
    before, own = cpu_seconds(), time.process_time()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WORK], text=True, **pipes) as child:  # type: ignore[call-overload]
        used = float(child.stdout.readline())
        while time.process_time() - own < 0.1:
            pass
        expected = used + time.process_time() - own
        assert cpu_seconds() - before == pytest.approx(expected, abs=0.06)
        child.communicate("\n")


def result() -> Result:
    def turn(rate: float) -> dict[str, float]:
        rest = ("cpu_s_per_1000", "p50_ms", "p99_ms", "first_batch_s", "gpu_mb")
        return {"images_per_s": rate, **dict.fromkeys(rest, 1.0)}

    rows = {"loader": [turn(400), turn(800)], "by hand": [turn(100), turn(100)], "decode": [turn(2000), turn(1600)]}
    machine = {"cpu": "a CPU", "gpu": None, "cores": 2, "date": "2026-01-01"}
    return {"job": asdict(BenchJob("", "")), "machine": machine, "turns": 2, "rows": rows}


def test_the_table_has_medians_ranges_and_ratios_turn_by_turn() -> None:
    rows = {line[:24].strip(): line[24:].split() for line in format_table(result()).splitlines()[2:]}
    assert rows["loader"][:3] == ["600", "400..800", "1.00"]
    assert rows["by hand"][:3] == ["100", "100..100", "6.00"]
    assert rows["decode"][:3] == ["1,800", "1,600..2,000", "0.35"]


@pytest.mark.parametrize("engine", [True, False])
def test_the_table_says_whether_the_gpu_has_a_jpeg_engine(engine: bool) -> None:
    measured = result()
    machine = {**measured["machine"], "gpu": "a GPU", "jpeg_engine": engine}
    first = format_table({**measured, "machine": machine}).splitlines()[0]
    assert first.endswith("a GPU with JPEG engine" if engine else "a GPU without JPEG engine")


def test_the_chart_has_bars_as_long_as_the_rates(tmp_path: Path) -> None:
    draw_chart(result(), tmp_path / "chart.png")
    pixels = np.asarray(Image.open(tmp_path / "chart.png")).astype(int)
    colors = [(0, 114, 178), (170, 178, 186), (240, 242, 244)]  # the limit has an outline
    lengths = [(pixels[84 + 44 * at + 3] == color).all(1).sum() for at, color in enumerate(colors)]
    assert lengths[0] / lengths[2] == pytest.approx(600 / 1800, abs=0.01)
    assert lengths[1] / lengths[2] == pytest.approx(100 / 1800, abs=0.01)


def texts_of_the_chart(of: Result, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is written on the chart, by the font that writes it."""
    written: list[str] = []
    draw_text = ImageDraw.ImageDraw.text

    def text(draw: ImageDraw.ImageDraw, xy: Any, text: str, *arguments: Any, **options: Any) -> None:
        written.append(text)
        draw_text(draw, xy, text, *arguments, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    draw_chart(of, path)
    return written[2:]


def test_the_chart_names_detaug_and_takes_decoding_for_the_limit(tmp_path: Path, monkeypatch: Any) -> None:
    assert texts_of_the_chart(result(), tmp_path / "chart.png", monkeypatch) == [
        *("detaug", "600"),
        *("DALI by hand", "100, detaug is 6.00 x faster"),
        *("decoding alone", "1,800, the limit: detaug is at 33%"),
    ]


@pytest.mark.parametrize(
    "command",
    [
        "bench {files} --chart {folder}/no/b.png",
        "bench {files} --json {folder}/no/b.json",
        "bench {files} --chart b.gif",
        "bench {files} --json {folder}",
        "tune {files} -o {folder}/no/s.json",
        "tune {files} -o {folder}",
    ],
)
def test_an_output_that_cannot_be_written_is_found_before_anything_is_measured(
    files: tuple[str, str], tmp_path: Path, command: str, capsys: Any
) -> None:
    assert main(command.format(files=" ".join(files), folder=tmp_path).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert any(text in line for text in ("does not exist", "is a directory", "must end in"))


@pytest.mark.slow
def test_the_command(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "cpu", "--seconds", "0.1", "--turns", "1", "--batch-size", "2", "--only", "loader"]
    outputs = ["--json", str(tmp_path / "b.json"), "--chart", str(tmp_path / "b.png")]
    assert main(["bench", *files, *options, *outputs]) == 0
    assert "images/s" in capsys.readouterr().out
    written = json.loads((tmp_path / "b.json").read_text())
    assert written["rows"]["loader"][0]["images_per_s"] > 0
    assert (tmp_path / "b.png").stat().st_size > 1000


@pytest.mark.slow
def test_wrong_input_of_a_loader_is_one_line(files: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert main(["bench", str(tmp_path / "broken.json"), files[1], "--device", "cpu", "--only", "loader", "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "broken.json" in line


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, True])
def test_a_time_that_never_ends_is_refused(files: tuple[str, str], seconds: float) -> None:
    rule = "seconds must be a finite number above 0, got"
    with pytest.raises(da.InputError, match=rule):
        bench(*files, device="cpu", seconds=seconds)
    with pytest.raises(da.InputError, match=rule):
        tune(*files, device="cpu", seconds=seconds)
    for wrong in ({"turns": 0}, {"turns": 1.5}, {"workers": (0,)}, {"workers": (2.5,)}):
        with pytest.raises(da.InputError, match=r"must be (an integer|integers) of at least 1, got"):
            bench(*files, device="cpu", **wrong)  # type: ignore[arg-type]


def test_rows_that_do_not_exist(files: tuple[str, str], capsys: Any) -> None:
    assert main(["bench", *files, "--device", "cpu", "--only", "nosuch"]) == 2
    message = "--only must be among loader, decode, cached, by hand, torchvision, got 'nosuch'"
    assert capsys.readouterr().err == f"detaug: {message}\n"


def test_workers_of_rows_without_any(files: tuple[str, str]) -> None:
    for more in ({"only": ("decode",)}, {"preset": "yolo640"}):
        with pytest.raises(da.InputError, match=r"workers must be left out for rows without any, .*, got \(3,\)"):
            bench(*files, device="cpu", workers=(3,), **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_bug_in_a_loader_keeps_its_traceback(files: tuple[str, str], tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "my_loaders.py").write_text("def wrong(job):\n    raise ValueError('a bug in line 2')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError) as raised:
        bench(*files, device="cpu", others={"mine": "my_loaders:wrong"}, only=("mine",))
    assert "my_loaders:wrong failed with exit code 1" in str(raised.value)
    assert 'my_loaders.py", line 2, in wrong' in str(raised.value)


# ------------------------------------------------------------------------------------------------ tune


@pytest.mark.slow
def test_tune_writes_settings_for_the_loader(
    painted: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, annotations = painted
    output = tmp_path / "settings.json"
    assert (
        main(
            [
                "tune",
                str(annotations),
                str(images),
                "--device",
                "cpu",
                "--batch-size",
                "2",
                "--seconds",
                "1",
                "-o",
                str(output),
            ]
        )
        == 0
    )
    assert f"settings={str(output)!r}" in capsys.readouterr().out
    found = da.Loader(da.CocoReader(*painted), da.presets.ssd300(), 2, device="cpu", settings=output).settings
    assert found == Settings(**json.loads(output.read_text())["settings"])


@pytest.mark.parametrize(("gain", "is_worth_it"), [(1.02, False), (1.04, True)])
def test_a_gain_within_the_noise_keeps_the_defaults(
    gain: float, is_worth_it: bool, painted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, annotations = painted
    default = da.Loader(da.CocoReader(*painted), da.presets.ssd300(), 2, device="cpu").settings
    faster = replace(default, pipelines=3)
    monkeypatch.setattr(tuning, "_rate", lambda loader, settings, seconds: 100 * gain ** (settings == faster))
    found = tuning.tune(annotations, images, batch_size=2, device="cpu", seconds=9)
    assert found.settings == (faster if is_worth_it else default)


@pytest.fixture
def compare_settings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program benchmarks/settings.py."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return import_module("settings")


@pytest.mark.slow
def test_settings_are_compared(painted: Folder, compare_settings: Any, capsys: Any) -> None:
    images, annotations = painted
    options = ["--batch-size", "2", "3", "--settings", "2,1,1,1,0.5", "--cores", "1"]
    options += ["--seconds", "0.05", "--turns", "1", "--device", "cpu"]
    compare_settings.main([str(annotations), str(images), *options])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("batch")]
    assert [line[:7] for line in lines] == ["batch 2"] * 4 + ["batch 3"] * 4
    assert lines[1].endswith(" cores, 2 pipelines, 1 threads, 1 times 1, engine 0.5:")
    assert lines[3] == "batch 2, 1 cores, 2 pipelines, 1 threads, 1 times 1, engine 0.5:"
    assert printed.count("loader / decode ") == 8
