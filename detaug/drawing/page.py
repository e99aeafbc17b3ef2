"""Lay out images in rows and columns, with headings and captions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import NamedTuple

from PIL import Image, ImageDraw

from detaug.drawing.colors import Color
from detaug.drawing.text import cut, typeset, wrap

INK: Color = (28, 30, 34)
FAINT: Color = (92, 96, 104)
PAPER: Color = (255, 255, 255)
MARGIN = 16
GAP = 12
TITLE, HEADING, LEGEND, CAPTION = 20, 15, 14, 13  # text heights
SWATCH = 20  # pixels from a color of the legend to its name
MOST_LINES = 6  # of a caption


def lay_out(
    images: Sequence[Sequence[Image.Image]],
    captions: Sequence[Sequence[str]],
    title: str,
    columns: Sequence[str],
    legend: Sequence[tuple[str, Color]] = (),
) -> Image.Image:
    """Draw a page: a heading above each column, a caption below each image, wrapped to the width of its column.

    legend: names and their colors, below the title.
    """
    widths = [max(p.width for p in column if p) for column in zip_longest(*images)]
    lines = [[_lines(text, width) for text, width in zip(row, widths, strict=False)] for row in captions]
    heights = [_row_height(row, texts) for row, texts in zip(images, lines, strict=True)]
    lefts = _starts(MARGIN, widths, GAP, first_gap=2 * GAP)
    inside = lefts[-1] - GAP - MARGIN
    entries = _place_legend(legend, inside)
    legend_top = MARGIN + strip(bool(title), TITLE)
    headings_top = legend_top + strip(max((entry.line + 1 for entry in entries), default=0), LEGEND)
    tops = _starts(headings_top + strip(any(columns), HEADING), heights, GAP)
    page = Image.new("RGB", (inside + 2 * MARGIN, tops[-1] - GAP + MARGIN), PAPER)
    draw = ImageDraw.Draw(page)
    _write(draw, (MARGIN, MARGIN), title, TITLE, INK, inside)
    for entry in entries:
        _draw_entry(draw, entry, legend_top, inside)
    height = _heading_height(columns, widths)
    for left, width, heading in zip(lefts, widths, columns, strict=False):
        _write(draw, (left, headings_top), heading, height, INK, width)
    for top, row, texts in zip(tops, images, lines, strict=False):
        for left, width, image, caption in zip(lefts, widths, row, texts, strict=False):
            page.paste(image, (left, top))
            for number, line in enumerate(caption):
                _write(draw, (left, top + image.height + 3 + number * leading(CAPTION)), line, CAPTION, FAINT, width)
    return page


class _Entry(NamedTuple):
    """An entry of the legend: its name and color, and its place: pixels from the left margin, and the line."""

    name: str
    color: Color
    left: int
    line: int


def _place_legend(legend: Sequence[tuple[str, Color]], width: int) -> list[_Entry]:
    """Place the entries in lines of at most `width`; a wider one has a line of its own."""
    entries, left, line = list[_Entry](), 0, 0
    for name, color in legend:
        text, font = typeset(name, LEGEND)
        needed = SWATCH + round(font.getlength(text)) + GAP
        if left and left + needed > width:
            left, line = 0, line + 1
        entries.append(_Entry(name, color, left, line))
        left += needed
    return entries


def _draw_entry(draw: ImageDraw.ImageDraw, entry: _Entry, top: int, width: int) -> None:
    left, top = MARGIN + entry.left, top + entry.line * leading(LEGEND)
    draw.rectangle((left, top + 2, left + SWATCH - 7, top + SWATCH - 5), fill=entry.color, outline=INK)
    _write(draw, (left + SWATCH, top), entry.name, LEGEND, INK, width - entry.left - SWATCH)


def _heading_height(headings: Sequence[str], widths: Sequence[int]) -> int:
    """Return the largest text height, from `HEADING` down to `CAPTION`, at which no heading is cut."""

    def fits(height: int) -> bool:
        texts = (typeset(heading, height) for heading in headings)
        return all(font.getlength(text) <= width for (text, font), width in zip(texts, widths, strict=False))

    return next(filter(fits, range(HEADING, CAPTION, -1)), CAPTION)


def _row_height(images: Sequence[Image.Image], captions: Sequence[Sequence[str]]) -> int:
    """Return the height of a row of images with their captions."""
    return max((p.height + strip(len(lines), CAPTION) for p, lines in zip(images, captions, strict=True)), default=0)


def strip(lines: int, text_height: int) -> int:
    """Return the height of some lines of text with the space around them."""
    return lines * leading(text_height) + 8 if lines else 0


def leading(text_height: int) -> int:
    """Return the distance from one line of text to the next, in pixels."""
    return round(text_height * 1.3)


def _lines(text: str, width: int) -> list[str]:
    """Break a caption into lines of at most `width`; the last of `MOST_LINES` takes the rest and is cut."""
    lines = [line for part in text.split("\n") if part for line in wrap(*typeset(part, CAPTION), width)]
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], " ".join(lines[MOST_LINES - 1 :])]


def _starts(start: int, lengths: Sequence[int], gap: int, first_gap: int | None = None) -> list[int]:
    """Return the start of each of some lengths with `gap` between them, and the start of one more."""
    gaps = [gap if first_gap is None or len(lengths) == 1 else first_gap] + [gap] * len(lengths)
    steps = (length + space for length, space in zip(lengths, gaps, strict=False))
    return list(accumulate(steps, initial=start))


def _write(
    draw: ImageDraw.ImageDraw, xy: tuple[int, int], text: str, height: int, color: Color, max_width: int
) -> None:
    """Write one line of text with its top at `xy`, cut to `max_width`."""
    text, font = typeset(text, height)
    line = cut(text, font, max_width)
    draw.text((xy[0], xy[1] + round(0.95 * height)), line, color, font, anchor="ls")
