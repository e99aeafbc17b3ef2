"""Charts of the html report as SVG: histograms, a map of positions, a bar for each class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.check.boxes import usable_boxes
from detaug.coco.table import Table
from detaug.pages.frame import data_uri, shorten

Array = NDArray[Any]

MOST_CLASSES = 40
MOST_LETTERS = 200  # of a class name
RESIZED = 640  # pixels, the side of a square that images are resized to in one chart
LEAST_COLUMN = 2  # pixels high, so that a single box is visible beside thousands
CELLS = 32  # of the map, in each direction
PALE, DARK = np.array([238, 243, 248]), np.array([0, 60, 110])  # of the map: light to dark, for any eye


def charts(table: Table, class_counts: Mapping[str, int]) -> Iterator[str]:
    """Draw the sizes, shapes, numbers, positions and classes of the boxes to train on; nothing without boxes."""
    rows = np.flatnonzero(usable_boxes(table) & (table.image_index >= 0))
    if not len(rows):
        return
    boxes, sizes = table.boxes[rows], table.sizes[table.image_index[rows], ::-1]
    sides = boxes[:, 2:] - boxes[:, :2]
    per_image = np.bincount(table.image_index[rows], minlength=len(table.file_names))
    yield '<h2 id="boxes">Boxes to train on</h2><div class="row">'
    yield _histogram("Box size: square root of area, pixels", np.sqrt(sides.prod(1)), 2.0)
    resized = f"Box size when images are {RESIZED} x {RESIZED}, pixels"
    yield _histogram(resized, RESIZED * np.sqrt((sides / sizes).prod(1)), 2.0)
    yield _histogram("Width : height", sides[:, 0] / sides[:, 1], math.sqrt(2))
    yield _counts_chart(per_image)
    yield _map(boxes / np.tile(sizes, 2))
    yield "</div>"
    yield _class_chart(class_counts)


def _histogram(title: str, values: Array, base: float) -> str:
    """Draw a histogram with bins whose edges are powers of `base`."""
    powers = np.floor(np.log(values) / math.log(base) + 1e-9).astype(int)
    low, high = int(powers.min()), int(powers.max())
    counts = np.bincount(powers - low, minlength=high - low + 1)
    edges = [base**power for power in range(low, high + 2)]
    labels = [f"{edge:.0f}" if edge >= 10 else f"{edge:.2g}" for edge in edges]
    return _columns(title, labels, [f"{a} to {b}" for a, b in pairwise(labels)], counts, one=-low)


def _counts_chart(per_image: Array) -> str:
    """Draw a column for each number of boxes, or for a range of numbers, so that there are at most about 20."""
    step = int(per_image.max()) // 20 + 1
    counts = np.bincount(per_image // step)
    firsts = [at * step for at in range(len(counts))]
    spans = [f"{first} to {first + step - 1}" if step > 1 else str(first) for first in firsts]
    return _columns("Boxes in an image: number of images", list(map(str, firsts)), spans, counts)


def _columns(title: str, labels: Sequence[str], spans: Sequence[str], counts: Array, one: int = 0) -> str:
    """Draw an SVG column chart.

    labels: of the columns, or of their edges, one more. spans: the range that each column counts.
    one: the position of a label that is always written; of the others, as many as have room.
    """
    width, height, left = 320, 120, 30
    step, most, bottom = (width - 2 * left) / len(counts), max(int(counts.max()), 1), 134
    parts = [f"<figure style='width:{width}px'><h3>{escape(title)}</h3>"]
    size = f'width="{width}" height="{bottom + 22}" viewBox="0 0 {width} {bottom + 22}"'
    parts.append(f'<svg {size} role="img" aria-label="{escape(title)}">')
    parts.append(f'<line x1="{left}" y1="{bottom + 0.5}" x2="{width - left}" y2="{bottom + 0.5}"/>')
    for at, (count, span) in enumerate(zip(counts.tolist(), spans, strict=True)):
        tall = max(height * count / most, LEAST_COLUMN) if count else 0
        position = f'x="{left + at * step:.1f}" y="{bottom - tall:.1f}" width="{max(step - 1.5, 1):.1f}"'
        parts.append(f'<rect {position} height="{tall:.1f}"><title>{escape(span)}: {count:,}</title></rect>')
    shift = 0 if len(labels) > len(counts) else step / 2
    room = 12 + math.ceil(7.6 * max(map(len, labels)))  # a digit of the font takes 7.6 pixels
    every = math.ceil(room / step)
    for at in range(one % every, len(labels), every):
        x = left + at * step + shift
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(labels[at])}</text>')
    parts.append(f'<text x="{left}" y="10">most: {most:,}</text></svg></figure>')
    return "".join(parts)


def _map(relative: Array) -> str:
    """Draw where boxes lie: for each cell of the image, the share of boxes that cover it."""
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
    covered = steps.cumsum(0).cumsum(1)[:CELLS, :CELLS] / len(relative)
    shade = (covered / max(covered.max(), 1e-9))[:, :, None]
    pixels = np.rint(PALE + shade * (DARK - PALE)).astype(np.uint8)
    source = data_uri(Image.fromarray(pixels), "PNG")
    caption = f"the darker, the more boxes; darkest: {covered.max():.0%} of them"
    image = f'<img class="map" width="170" height="170" alt="map of the positions of boxes" src="{source}">'
    return f"<figure><h3>Where boxes are</h3>{image}{caption}</figure>"


def _class_chart(counts: Mapping[str, int]) -> str:
    """Draw a bar for each of the most frequent classes."""
    shown = dict(sorted(counts.items(), key=lambda item: -item[1])[:MOST_CLASSES])
    most = max([*shown.values(), 1])
    parts = ["<h2>Classes</h2><table>"]
    for name, count in shown.items():
        bar = f'<rect width="{400 * count / most:.1f}" height="13"/>'
        bar = f'<svg viewBox="0 0 400 13" preserveAspectRatio="none">{bar}</svg>'
        cell = escape(shorten(name, MOST_LETTERS))
        parts.append(f"<tr><td><bdi>{cell}</bdi></td><td>{bar}</td><td>{count:,}</td></tr>")
    parts.append("</table>")
    if len(counts) > len(shown):
        parts.append(f"<p>and {len(counts) - len(shown):,} classes more</p>")
    return "".join(parts)
