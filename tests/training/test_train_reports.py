"""What a training writes for people: events of TensorBoard, and the page of curves."""

from __future__ import annotations

import json
import math
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from painted_files import Folder
from train_run import options, tiny

from detaug.errors import InputError
from detaug.pages.line_chart import round_up
from detaug.training import train
from detaug.training.curves import write_curves


def run(painted: Folder, output: Path, **others: Any) -> None:
    train(options(*painted, output, **others), make_model=tiny(), say=lambda _: None)


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


class Writer:
    """Takes the place of TensorBoard's SummaryWriter."""

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.scalars = Path(folder), purge_step, dict[tuple[str, int], float]()
        written.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars[name, step] = value

    def flush(self) -> None:
        pass


written: list[Writer] = []


@pytest.mark.slow
def test_tensorboard_gets_the_metrics(painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = type(sys)("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    written.clear()
    settings = {"epochs": 2, "eval_every": 1, "tensorboard": True}
    run(painted, tmp_path / "run", **settings)
    run(painted, tmp_path / "run", **settings, resume=True)
    first, resumed = written
    assert first.folder == tmp_path / "run/tensorboard"
    assert (first.purge_step, resumed.purge_step) == (1, 13)
    for line in lines(tmp_path / "run"):
        if "loss" in line:
            assert first.scalars["train/loss", line["step"]] == line["loss"]
            assert first.scalars["train/lr", line["step"]] == line["lr"]
        else:
            evaluation = line["evaluation"]
            assert first.scalars["evaluation/AP", line["step"]] == evaluation["AP"]
            assert first.scalars["evaluation/AP_by_class/class 2", line["step"]] == evaluation["AP_by_class"]["class 2"]
    assert not {name for name, _ in first.scalars if name.endswith(("step", "epoch"))}


@pytest.mark.slow
def test_events_are_those_that_tensorboard_reads(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_tensorflow = type(sys)("tensorboard.compat.notf")  # TensorBoard's own switch; the import takes seconds
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", without_tensorflow)
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(painted, tmp_path / "run", epochs=1, eval_every=1, tensorboard=True)
    events = accumulator.EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    read = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert read == [(line["step"], pytest.approx(line["loss"])) for line in lines(tmp_path / "run") if "loss" in line]


def test_without_tensorboard_one_sentence_and_no_folder(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"^writing .* needs the package tensorboard: pip install tensorboard$"):
        run(painted, tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- the page of curves


class Page(HTMLParser):
    """Collects the texts, and the lines of the charts as points (N, 2) in pixels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts, self.lines, self.sources = list[str](), list[np.ndarray](), list[str]()
        self.markers = list[tuple[float, float]]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        attributes = dict(attrs)
        if tag == "polyline":
            self.lines.append(np.array([each.split(",") for each in attributes["points"].split()], float))
        if tag == "circle":
            self.markers.append((float(attributes["cx"]), float(attributes["cy"])))
        self.sources += [attributes[name] for name in ("src", "href") if name in attributes]
        assert tag not in ("script", "link", "iframe")

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []


def drawn(values: Any, highest: float, last: float, at: Any) -> np.ndarray:
    """Return where a chart has points: 240 pixels per side from (56, 264) to the right and up."""
    return np.stack([56 + 240 * np.array(at, float) / last, 264 - 240 * np.array(values) / highest], axis=1)


@pytest.mark.slow
def test_the_page_draws_what_the_metrics_say(painted: Folder, tmp_path: Path) -> None:
    said: list[str] = []
    settings = options(*painted, tmp_path / "run", epochs=3, eval_every=1)
    train(settings, make_model=tiny(), say=said.append)
    assert f"written: {tmp_path / 'run/curves.html'}" in said
    text = (tmp_path / "run/curves.html").read_text()
    page, entries = Page(text), lines(tmp_path / "run")
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    rates = [entry["lr"] for entry in entries if "lr" in entry]
    scores = [entry["evaluation"] for entry in entries if "evaluation" in entry]
    (loss, _, _, rate), steps = page.lines[:4], range(1, 19)
    assert 0.6 < max(losses) < 1
    assert loss == pytest.approx(drawn(losses, 1, 18, steps), abs=0.051)
    assert 0.04 < max(rates) < 0.06
    assert rate == pytest.approx(drawn(rates, 0.06, 18, steps), abs=0.051)
    assert len(page.lines) == 4 + 2 + 3 + 1  # AP and AP50; each class, and all
    by_class = np.array([[*each["AP_by_class"].values()] for each in scores])
    top = round_up(by_class.max())
    for line, values in zip(page.lines[6:9], by_class.T, strict=True):
        assert line == pytest.approx(drawn(values, top, 3, (1, 2, 3)), abs=0.051)
    for name, score in scores[-1]["AP_by_class"].items():
        at = page.texts.index(name)
        assert page.texts[at + 1] == f"{score:.3f}"
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.sources)
    assert len(page.sources) == 2


def test_the_page_is_written_after_each_evaluation(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detaug.training.loop.QUICK", math.inf)
    page, found = tmp_path / "run/curves.html", list[str]()

    def say(line: str) -> None:
        if line.startswith("epoch "):
            found.append(page.read_text() if page.exists() else "")

    settings = options(*painted, tmp_path / "run", epochs=3, eval_every=1, log_every=6)
    train(settings, make_model=tiny(), say=say)
    first, *others = found
    assert first == ""
    assert ["6 steps;" in others[0], "12 steps;" in others[1]] == [True, True]


def test_a_page_that_takes_long_is_written_less_often(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And always at the end."""
    clock, written = [0.0], list[float]()

    def slow(*_: Any) -> Path:
        written.append(clock[0])
        clock[0] += 2
        return tmp_path

    def say(line: str) -> None:
        clock[0] += 10 * line.startswith("evaluation ")

    monkeypatch.setattr("detaug.training.loop.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("detaug.training.loop.write_curves", slow)
    train(options(*painted, tmp_path / "run", epochs=7, eval_every=1), make_model=tiny(), say=say)
    assert written == [10, 52, 74]  # not at 22, 32, 42; not at 64, 74, but as the last page


def test_a_single_evaluation_has_a_marker(painted: Folder, tmp_path: Path) -> None:
    run(painted, tmp_path / "run", epochs=1, eval_every=1)
    page = Page((tmp_path / "run/curves.html").read_text())
    (score,) = [entry["evaluation"] for entry in lines(tmp_path / "run") if "evaluation" in entry]
    scores = [score["AP"], score["AP50"]]
    expected = drawn(scores, round_up(max(scores)), 1, (1, 1))
    assert page.markers[-6:-4] == [pytest.approx(point, abs=0.051) for point in expected]  # four of the other chart


def test_a_training_without_evaluation_has_a_page_too(painted: Folder, tmp_path: Path) -> None:
    run(painted, tmp_path / "run", val=None, epochs=1)
    page = Page((tmp_path / "run/curves.html").read_text())
    assert len(page.lines) == 4
    assert "Evaluations" not in page.texts


def test_the_best_of_each_class_is_the_highest_and_no_object_is_no_score(tmp_path: Path) -> None:
    """-1 says that there is no object to find: no point, and never the best."""
    by_class = {"cat": (0.2, 0.6, 0.4), "dog": (-1, -1, 0.1), "cow": (0.3, -1, -1), "owl": (-1, -1, -1)}
    rows: list[dict[str, Any]] = [{"step": 1, "lr": 0.1, "loss": 2.0}]
    for at, mean in enumerate((0.2, 0.6, -1)):
        of_classes = {name: values[at] for name, values in by_class.items()}
        evaluation = {"AP": mean, "AP50": 0.8, "AP_by_class": of_classes}
        rows.append({"step": 10 * (at + 1), "epoch": 5 * (at + 1), "evaluation": evaluation})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = Page(write_curves(tmp_path, "a").read_text())
    cells = {name: page.texts[(at := page.texts.index(name)) + 1 : at + 4] for name in by_class}
    assert cells["cat"] == ["0.400", "0.600", "10"]
    assert cells["dog"] == ["0.100", "0.100", "15"]
    assert cells["cow"] == ["-", "0.300", "5"]
    assert cells["owl"] == ["-", "-", "-"]
    mean, half = page.lines[2:4]
    assert mean == pytest.approx(drawn([0.2, 0.6], 1, 15, (5, 10)), abs=0.051)
    assert half == pytest.approx(drawn([0.8] * 3, 1, 15, (5, 10, 15)), abs=0.051)
    assert [len(line) for line in page.lines[4:8]] == [3, 1, 1, 0]


def test_names_are_text_and_gaps_are_left_out(tmp_path: Path) -> None:
    rows = [{"step": 1, "lr": 0.1, "loss": 2.0}, {"step": 2, "lr": 0.1, "loss": math.nan}]
    rows += [{"step": 2, "epoch": 1, "evaluation": {"AP": -1, "AP50": -1, "AP_by_class": {"<b>&": -1}}}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = Page(write_curves(tmp_path, "a <title>").read_text())
    assert {"a <title>", "<b>&", "-"} <= {*page.texts}
    assert np.isfinite(np.concatenate([line.reshape(-1, 2) for line in page.lines if line.size])).all()


@pytest.mark.parametrize(("value", "end"), [(0, 1), (0.013, 0.02), (0.4, 0.4), (0.61, 1), (57, 60), (7e4, 1e5)])
def test_the_end_of_an_axis(value: float, end: float) -> None:
    assert round_up(value) == pytest.approx(end)
