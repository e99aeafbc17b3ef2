"""The result of `detaug bench` as a picture."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

WIDTH, ROW, TOP, LEFT, RIGHT = 960, 44, 84, 230, 250
INK, GRAY, BAR, OTHER = (20, 20, 20), (110, 110, 110), (0, 114, 178), (170, 178, 186)


def draw_chart(result: dict[str, Any], output: str | Path) -> None:
    """A bar for each row: the median of its images a second, the range as a line, the first row's bar in colour."""
    rows, job, machine = result["rows"], result["job"], result["machine"]
    image = Image.new("RGB", (WIDTH, TOP + ROW * len(rows) + 20), "white")
    draw = ImageDraw.Draw(image)
    where = machine["gpu"] or machine["cpu"]
    draw.text((20, 16), f"{job['preset']}, batch {job['batch_size']}: images a second", INK, _font(24))
    draw.text((20, 48), f"{where}, {machine['cores']} cores; {machine['date']}; detaug bench", GRAY, _font(15))
    rates = {name: [turn["images_per_s"] for turn in turns] for name, turns in rows.items()}
    scale = (WIDTH - LEFT - RIGHT) / max(map(max, rates.values()))
    first = statistics.median(next(iter(rates.values())))
    for at, (name, each) in enumerate(rates.items()):
        _bar(draw, TOP + at * ROW, name, each, scale, first, BAR if at == 0 else OTHER)
    image.save(output)


def _bar(
    draw: ImageDraw.ImageDraw, y: int, name: str, rates: list[float], scale: float, first: float, color: Any
) -> None:
    middle, median = y + ROW // 2 - 4, statistics.median(rates)
    low, high = (LEFT + each * scale for each in (min(rates), max(rates)))
    cost = f"{median:,.0f}" if median == first else f"{median:,.0f}  ({first / median:,.2f} x slower)"
    if median > first:
        cost = f"{median:,.0f}  ({median / first:,.2f} x faster)"
    draw.text((20, middle), name, INK, _font(17), anchor="lm")
    draw.rectangle((LEFT, y, LEFT + median * scale, y + ROW - 10), fill=color)
    draw.line((low, middle, high, middle), fill=INK, width=2)
    draw.text((high + 10, middle), cost, INK, _font(17), anchor="lm")


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
