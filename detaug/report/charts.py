"""Charts of the html report as SVG: histograms, a map of positions, a bar for each class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from detaug.arrays import Array
from detaug.check.boxes import usable_boxes
from detaug.check.maps import MapSummary, percent
from detaug.coco.table import Table
from detaug.pages.frame import data_uri, render
from detaug.pages.line_chart import round_up

MOST_CLASSES = 40
MOST_LETTERS = 200  # of a class name
RESIZED = 640  # pixels, the side of a square that images are resized to in one chart
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 340, 120, 54, 16, 146  # of a column chart: its size, the columns' sides and foot
PLOT = WIDTH - LEFT - RIGHT
LEAST_COLUMN = 2  # pixels high, so that a single box is visible beside thousands
CELLS = 32  # of the map, in each direction
PALE, DARK = np.array([238, 243, 248]), np.array([0, 60, 110])  # of the map: light to dark, for any eye


class ColumnChart(NamedTuple):
    """A column chart, in pixels."""

    title: str
    x: str
    """Names of the axes."""
    y: str
    ticks: Sequence[tuple[float, str]]
    """y of the line, text."""
    bars: Sequence[tuple[float, float, float, float, str, int]]
    """x, y, width, height, the range that the column counts, and its count."""
    labels: Sequence[tuple[float, str]]
    """x of the middle, text."""


def charts(table: Table, class_counts: Mapping[str, int]) -> Markup:
    """Draw the sizes, shapes, numbers, positions and classes of the boxes to train on; nothing without boxes."""
    rows = np.flatnonzero(usable_boxes(table) & (table.image_index >= 0))
    if not len(rows):
        return Markup()
    boxes, sizes = table.boxes[rows], table.sizes[table.image_index[rows], ::-1]
    sides = boxes[:, 2:] - boxes[:, :2]
    side = "square root of area, pixels"
    resized = f"Box size when images are {RESIZED} x {RESIZED}"
    columns = (
        _histogram("Box size", side, np.sqrt(sides.prod(1)), 2.0),
        _histogram(resized, side, RESIZED * np.sqrt((sides / sizes).prod(1)), 2.0),
        _histogram("Box shape", "width : height", sides[:, 0] / sides[:, 1], math.sqrt(2)),
        _counts_chart(np.bincount(table.image_index[rows], minlength=len(table.file_names))),
    )
    covered = _covered(boxes / np.tile(sizes, 2))
    shade = (covered / max(covered.max(), 1e-9))[:, :, None]
    classes = dict(sorted(class_counts.items(), key=lambda item: -item[1])[:MOST_CLASSES])
    return render(
        "report/charts.html",
        columns=columns,
        width=WIDTH,
        bottom=BOTTOM,
        left=LEFT,
        right=RIGHT,
        plot=PLOT,
        map=data_uri(Image.fromarray(np.rint(PALE + shade * (DARK - PALE)).astype(np.uint8)), "PNG"),
        covered=f"{covered.max():.0%}",
        classes=classes,
        most=max([*classes.values(), 1]),
        others=len(class_counts) - len(classes),
        letters=MOST_LETTERS,
    )


def chart_of_maps(maps: Sequence[MapSummary]) -> Markup:
    """Draw the fraction of the pixels of each class, a table for each map; nothing without maps."""
    if not maps:
        return Markup()
    return render("report/maps.html", maps=maps, percent=percent, most=MOST_CLASSES, letters=MOST_LETTERS)


def _histogram(title: str, x: str, values: Array, base: float) -> ColumnChart:
    """Draw a histogram with bins whose edges are powers of `base`."""
    powers = np.floor(np.log(values) / math.log(base) + 1e-9).astype(int)
    low, high = int(powers.min()), int(powers.max())
    counts = np.bincount(powers - low, minlength=high - low + 1)
    edges = [base**power for power in range(low, high + 2)]
    labels = [f"{edge:.0f}" if edge >= 10 else f"{edge:.2g}" for edge in edges]
    return _columns((title, x, "boxes"), labels, [f"{a} to {b}" for a, b in pairwise(labels)], counts, one=-low)


def _counts_chart(per_image: Array) -> ColumnChart:
    """Draw a column for each number of boxes, or for a range of numbers, so that there are at most about 20."""
    per_column = int(per_image.max()) // 20 + 1
    counts = np.bincount(per_image // per_column)
    firsts = [number * per_column for number in range(len(counts))]
    spans = [f"{first} to {first + per_column - 1}" if per_column > 1 else str(first) for first in firsts]
    return _columns(("Boxes per image", "boxes", "images"), list(map(str, firsts)), spans, counts)


def _columns(
    names: tuple[str, str, str], labels: Sequence[str], spans: Sequence[str], counts: Array, one: int = 0
) -> ColumnChart:
    """Place the columns and labels of a chart.

    names: its title, and those of its axes. labels: of the columns, or of their edges, one more.
    spans: the range that each column counts.
    one: the position of a label that is always written; of the others, as many as have room.
    """
    column_width, top = PLOT / len(counts), round(round_up(int(counts.max())))
    bars = []
    for index, (count, span) in enumerate(zip(counts.tolist(), spans, strict=True)):
        tall = max(HEIGHT * count / top, LEAST_COLUMN) if count else 0
        bars.append((LEFT + index * column_width, BOTTOM - tall, max(column_width - 1.5, 1), tall, span, count))
    shift = 0 if len(labels) > len(counts) else column_width / 2
    room = 12 + math.ceil(7.6 * max(map(len, labels)))  # a digit of the font takes 7.6 pixels
    every = math.ceil(room / column_width)
    written = range(one % every, len(labels), every)
    values = (0, top // 2, top) if top > 1 else (0, 1)  # round_up gives even numbers beside 1
    ticks = [(BOTTOM - HEIGHT * value / top, f"{value:,}") for value in values]
    return ColumnChart(*names, ticks, bars, [(LEFT + index * column_width + shift, labels[index]) for index in written])


def _covered(relative: Array) -> Array:
    """Return for each cell of the image the fraction of boxes that cover it."""
    low = np.floor(relative[:, :2].clip(0, 1) * CELLS).astype(int)
    high = np.ceil(relative[:, 2:].clip(0, 1) * CELLS).astype(int)
    steps = np.zeros((CELLS + 1, CELLS + 1))
    for x, y, sign in (
        (low[:, 0], low[:, 1], 1),
        (high[:, 0], low[:, 1], -1),
        (low[:, 0], high[:, 1], -1),
        (high[:, 0], high[:, 1], 1),
    ):
        np.add.at(steps, (y, x), sign)
    return steps.cumsum(0).cumsum(1)[:CELLS, :CELLS] / len(relative)
