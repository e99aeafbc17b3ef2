"""The result of `detaug bench` as a table and as a chart."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

from detaug.bench.measure import Result
from detaug.drawing.images import save_picture
from detaug.findings.finding import rate_text

# ---------------------------------------------------------------- table


def format_table(result: Result) -> str:
    """Return a table: medians over the turns, the range of the rates, and the median ratio to the first row."""
    rows, job = result["rows"], result["job"]
    first = next(iter(rows))
    where = _where(result["machine"])
    lines = [f"{job['preset']}, batch {job['batch_size']}, {result['turns']} turns of {job['seconds']:g} s, {where}"]
    columns = ("images/s", "range", f"{first}/this", "CPU s/1000", "p50 ms", "p99 ms", "first s", "GPU MB")
    lines.append(f"{'':24}" + "".join(f"{name:>{_width(name)}}" for name in columns))
    for name, turns in rows.items():
        values = _values(turns, rows[first], has_gpu=result["machine"]["gpu"] is not None)
        cells = "".join(f"{value:>{_width(column)}}" for value, column in zip(values, columns, strict=True))
        lines.append(f"{name:24}{cells}")
    return "\n".join(lines)


def _where(machine: Result) -> str:
    if not machine["gpu"]:
        return str(machine["cpu"])
    return f"{machine['gpu']} {'with' if machine.get('jpeg_engine', True) else 'without'} JPEG engine"


def _values(turns: list[Result], first: list[Result], *, has_gpu: bool) -> list[str]:
    rates = [turn["images_per_s"] for turn in turns]
    ratio = statistics.median(a["images_per_s"] / b for a, b in zip(first, rates, strict=True))
    return [
        rate_text(_median(turns, "images_per_s")),
        f"{rate_text(min(rates))}..{rate_text(max(rates))}",
        f"{ratio:.2f}",
        f"{_median(turns, 'cpu_s_per_1000'):.2f}",
        f"{_median(turns, 'p50_ms'):.1f}",
        f"{_median(turns, 'p99_ms'):.1f}",
        f"{_median(turns, 'first_batch_s'):.2f}",
        f"{_median(turns, 'gpu_mb'):,.0f}" if has_gpu else "-",
    ]


def _median(turns: list[Result], name: str) -> float:
    return float(statistics.median(turn[name] for turn in turns))


def _width(column: str) -> int:
    return 18 if column == "range" else max(9, len(column) + 2)


# ---------------------------------------------------------------- chart


WIDTH, ROW, TOP, LEFT, RIGHT = 1040, 44, 84, 230, 330
INK, GRAY, FIRST, OTHER, PALE = (20, 20, 20), (110, 110, 110), (0, 114, 178), (170, 178, 186), (240, 242, 244)

LIMIT = "decode"
"""The row without a rival's color: a loader that decodes cannot be faster. Its bar is an outline."""

TITLES = {"loader": "detaug", "cached": "detaug, images cached", LIMIT: "decoding alone", "by hand": "DALI by hand"}
"""Names of rows in the chart; the others keep theirs."""


class Scale(NamedTuple):
    """The name and the rate of the first row, and the pixels of one image per second."""

    name: str
    first: float
    pixels: float


def draw_chart(result: Result, output: str | Path) -> None:
    """Draw a bar for each row: the median of its images per second, the range as a line, the first row in color."""
    rows, job, machine = result["rows"], result["job"], result["machine"]
    image = Image.new("RGB", (WIDTH, TOP + ROW * len(rows) + 20), "white")
    draw = ImageDraw.Draw(image)
    where = _where(machine)
    draw.text((20, 16), f"{job['preset']}, batch {job['batch_size']}: images per second", INK, _font(24))
    draw.text((20, 48), f"{where}, {machine['cores']} cores; {machine['date']}; detaug bench", GRAY, _font(15))
    rates = {name: [turn["images_per_s"] for turn in turns] for name, turns in rows.items()}
    name, first = next(iter(rates.items()))
    scale = Scale(_title(name), statistics.median(first), (WIDTH - LEFT - RIGHT) / max(map(max, rates.values())))
    for index, (name, own_rates) in enumerate(rates.items()):
        _bar(draw, TOP + index * ROW, name, own_rates, scale, OTHER if index else FIRST)
    save_picture(image, output)


def _title(name: str) -> str:
    return TITLES.get(name, name)


def _bar(draw: ImageDraw.ImageDraw, y: int, name: str, rates: list[float], scale: Scale, color: Any) -> None:
    middle, median = y + ROW // 2 - 4, statistics.median(rates)
    low, high = (LEFT + rate * scale.pixels for rate in (min(rates), max(rates)))
    draw.text((20, middle), _title(name), INK, _font(17), anchor="lm")
    style = {"fill": PALE, "outline": GRAY} if name == LIMIT else {"fill": color}
    draw.rectangle((LEFT, y, LEFT + median * scale.pixels, y + ROW - 10), **style)
    draw.line((low, middle, high, middle), fill=INK, width=2)
    draw.text((high + 10, middle), _comparison(name, median, scale), INK, _font(17), anchor="lm")


def _comparison(name: str, median: float, scale: Scale) -> str:
    """Return the rate, and how the first row compares with it: how close it is to the limit, how much faster it is."""
    if median == scale.first:
        return f"{median:,.0f}"
    if name == LIMIT:
        return f"{median:,.0f}, the limit: {scale.name} is at {scale.first / median:.0%}"
    if median > scale.first:
        return f"{median:,.0f}, {median / scale.first:,.2f} x {scale.name}"
    return f"{median:,.0f}, {scale.name} is {scale.first / median:,.2f} x faster"


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
