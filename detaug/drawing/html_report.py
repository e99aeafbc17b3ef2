"""What `detaug check` found, as one page for a browser: counts, histograms, and a picture of each finding.

The page is one file that loads nothing: SVG for charts, small JPEGs inside, no scripts. Names are escaped.
"""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from detaug.converters.check.boxes import usable_boxes
from detaug.converters.check.check import CheckFinding, CheckSummary, check_coco
from detaug.converters.coco.table import Table
from detaug.converters.conversion.outputs import output_files
from detaug.converters.files.atomic import write_atomically
from detaug.converters.findings.kinds import CHECK_KINDS
from detaug.converters.findings.text import counted
from detaug.drawing.boxes import draw_boxes

Array = NDArray[Any]
PathLike = str | os.PathLike[str]

MOST_PICTURES = 12  # of a kind of finding
MOST_CLASSES = 40
MOST_PIXELS = 64_000_000  # a larger image is not decoded for its thumbnail
SIDE = 240  # of a thumbnail, in pixels
CLOSE_UP = 0.25  # a box with both sides under this part of its image is shown with its surroundings only
LEAST_COLUMN = 2  # pixels high, so that a single box is seen beside thousands
CELLS = 32  # of the map, in each direction
PALE, DARK = np.array([238, 243, 248]), np.array([0, 60, 110])  # of the map: light to dark, for any eye

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e22; --paper: #fff; --faint: #5a5f68; --line: #c8ccd2; --box: #f1f2f4;
  --bar: #0072b2; } @media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16181c; --faint: #a4aab4;
  --line: #4a4f58; --box: #24272d; --bar: #56b4e9; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2em auto;
  max-width: 1080px; padding: 0 1em; } h1 { font-size: 1.5em; overflow-wrap: anywhere; }
h2 { font-size: 1.15em; margin: 2em 0 .3em; } h3 { font-size: 1em; margin: 0 0 .3em; }
.row { display: flex; flex-wrap: wrap; gap: 22px; } td { padding: 0 10px 0 0; }
td:first-child { overflow-wrap: anywhere; min-width: 8em; } td + td + td { text-align: right; }
td svg { display: block; width: min(400px, 40vw); height: 13px; }
figure { margin: 0; width: 242px; overflow-wrap: anywhere; font-size: 13px; line-height: 1.35; }
figure img { display: block; border: 1px solid var(--line); margin-bottom: 4px; }
.none { width: 240px; padding: 30px 12px; box-sizing: border-box; background: var(--box); margin-bottom: 4px; }
.error, .warning { font-weight: 600; padding: 1px 7px; border-radius: 3px; color: #fff; font-size: 13px; }
.error { background: #a8320a; } .warning { background: #00588f; } .faint { color: var(--faint); }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg rect { fill: var(--bar); }
svg line { stroke: var(--line); } .map { image-rendering: pixelated; }
"""

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

REPAIRED = {"annotation-id", "annotation-id-repeated", "file-name-repeated"}


def check_to_html(annotations: PathLike, images: PathLike, html: PathLike, **options: Any) -> CheckSummary:
    """`check_coco`, and its summary as a page at `html`, a path that ends in .html. Raises what `check_coco` does."""
    path = Path(html)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"html must end in .html, got {path}")
    outputs = {"html": path, "clean": options.get("clean"), "report": options.get("report")}
    output_files(outputs, annotations, *options.get("against", ()))
    summary = check_coco(annotations, images, **options)
    write_page(summary, path)
    return summary


def write_page(summary: CheckSummary, path: PathLike) -> None:
    """Write the page, whole or not at all."""
    text = "\n".join(page(summary))
    write_atomically(Path(path), [text.encode("utf-8", "backslashreplace").decode()])


def page(summary: CheckSummary) -> Iterator[str]:
    """The page, in pieces."""
    counts = f"{counted(summary.errors, 'error')}, {counted(summary.warnings, 'warning')}"
    title = f"{summary.annotations.name}: {counts}"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head><body>'
    yield f"<h1><bdi>{escape(title)}</bdi></h1>"
    boxes, classes = sum(summary.class_counts.values()), len(summary.class_counts)
    images = f"{counted(summary.images, 'image')}, {summary.images_without_boxes:,} of them without boxes"
    yield f"<p>{images}; {counted(boxes, 'box', 'boxes')} in {counted(classes, 'class', 'classes')}.</p>"
    yield from _contents(summary)
    yield from _charts(summary)
    for kind, findings in groupby(summary.findings, lambda finding: finding.kind):
        yield from _section(summary, kind, findings)
    yield "</body></html>\n"


def _contents(summary: CheckSummary) -> Iterator[str]:
    if not summary.kind_counts:
        yield "<p>Nothing was found: ready for training.</p>"
        return
    yield "<ul>"
    for kind, count in summary.kind_counts.items():
        yield f'<li><a href="#{kind}">{kind}</a> ({count:,}), {CHECK_KINDS[kind].severity}</li>'
    yield "</ul>"


# ---------------------------------------------------------------- charts


def _charts(summary: CheckSummary) -> Iterator[str]:
    table = summary.table
    rows = np.flatnonzero(usable_boxes(table) & (table.image_at >= 0))
    if not len(rows):
        return
    boxes, sizes = table.boxes[rows], table.sizes[table.image_at[rows], ::-1]
    sides = boxes[:, 2:] - boxes[:, :2]
    per_image = np.bincount(table.image_at[rows], minlength=len(table.file_names))
    yield '<h2 id="boxes">Boxes to train on</h2><div class="row">'
    yield _histogram("Box size: square root of area, pixels", np.sqrt(sides.prod(1)), 2.0)
    yield _histogram(
        "Box size: square root of share of the image", 100 * np.sqrt((sides / sizes).prod(1)), 2.0, unit=" %"
    )
    yield _histogram("Width : height", sides[:, 0] / sides[:, 1], math.sqrt(2))
    yield _counts_chart(per_image)
    yield _map(boxes / np.tile(sizes, 2))
    yield "</div>"
    yield _class_chart(summary.class_counts)


def _histogram(title: str, values: Array, base: float, unit: str = "") -> str:
    """Bins whose edges are powers of `base`."""
    powers = np.floor(np.log(values) / math.log(base) + 1e-9).astype(int)
    low, high = int(powers.min()), int(powers.max())
    counts = np.bincount(powers - low, minlength=high - low + 1)
    edges = [base**power for power in range(low, high + 2)]
    labels = [(f"{edge:.0f}" if edge >= 10 else f"{edge:.2g}") + unit for edge in edges]
    return _columns(title, labels, [f"{a} to {b}" for a, b in pairwise(labels)], counts, one=-low)


def _counts_chart(per_image: Array) -> str:
    """One column for each number of boxes, or for as many numbers as 20 columns need."""
    step = int(per_image.max()) // 20 + 1
    counts = np.bincount(per_image // step)
    firsts = [at * step for at in range(len(counts))]
    spans = [f"{first} to {first + step - 1}" if step > 1 else str(first) for first in firsts]
    return _columns("Boxes in an image: number of images", list(map(str, firsts)), spans, counts)


def _columns(title: str, labels: Sequence[str], spans: Sequence[str], counts: Array, one: int = 0) -> str:
    """An SVG column chart. labels: of the columns, or of their edges, one more. spans: what each column counts.

    one: the position of a label that is to be written; of the others as many as have room.
    """
    width, height, left = 320, 120, 30
    step, most, bottom = (width - 2 * left) / len(counts), max(int(counts.max()), 1), 134
    parts = [f"<figure style='width:{width}px'><h3>{escape(title)}</h3>"]
    parts.append(f'<svg width="{width}" height="{bottom + 22}" role="img" aria-label="{escape(title)}">')
    parts.append(f'<line x1="{left}" y1="{bottom + 0.5}" x2="{width - left}" y2="{bottom + 0.5}"/>')
    for at, (count, span) in enumerate(zip(counts.tolist(), spans, strict=True)):
        tall = max(height * count / most, LEAST_COLUMN) if count else 0
        place = f'x="{left + at * step:.1f}" y="{bottom - tall:.1f}" width="{max(step - 1.5, 1):.1f}"'
        parts.append(f'<rect {place} height="{tall:.1f}"><title>{escape(span)}: {count:,}</title></rect>')
    shift, every = 0 if len(labels) > len(counts) else step / 2, math.ceil(_label_width(labels) / step)
    for at in range(one % every, len(labels), every):
        x = left + at * step + shift
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(labels[at])}</text>')
    parts.append(f'<text x="{left}" y="10">most: {most:,}</text></svg></figure>')
    return "".join(parts)


def _label_width(labels: Sequence[str]) -> int:
    """Pixels from a label of an axis to the next, at least: a digit of the font takes 7.6."""
    return 12 + math.ceil(7.6 * max(map(len, labels)))


def _map(relative: Array) -> str:
    """Where boxes are: of each cell of the image, the share of boxes that cover it."""
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
    source = _data_uri(Image.fromarray(pixels), "PNG")
    caption = f"the darker, the more boxes; darkest: {covered.max():.0%} of them"
    image = f'<img class="map" width="170" height="170" alt="map of the positions of boxes" src="{source}">'
    return f"<figure><h3>Where boxes are</h3>{image}{caption}</figure>"


def _class_chart(counts: dict[str, int]) -> str:
    shown = dict(sorted(counts.items(), key=lambda item: -item[1])[:MOST_CLASSES])
    most = max([*shown.values(), 1])
    parts = ["<h2>Classes</h2><table>"]
    for name, count in shown.items():
        bar = f'<rect width="{400 * count / most:.1f}" height="13"/>'
        bar = f'<svg viewBox="0 0 400 13" preserveAspectRatio="none">{bar}</svg>'
        parts.append(f"<tr><td><bdi>{escape(_cut(name))}</bdi></td><td>{bar}</td><td>{count:,}</td></tr>")
    parts.append("</table>")
    if len(counts) > len(shown):
        parts.append(f"<p>and {len(counts) - len(shown):,} classes more</p>")
    return "".join(parts)


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


# ---------------------------------------------------------------- findings


def _section(summary: CheckSummary, kind: str, findings: Iterable[CheckFinding]) -> Iterator[str]:
    severity, count = CHECK_KINDS[kind].severity, summary.kind_counts[kind]
    yield f'<h2 id="{kind}"><span class="{severity}">{severity}</span> {kind} ({count:,})</h2>'
    yield f"<p>{escape(CHECK_KINDS[kind].meaning)}. <b>What to do:</b> {escape(_remedy(kind))}</p>"
    yield '<div class="row">'
    for finding in islice(findings, MOST_PICTURES):
        yield _figure(summary, finding)
    yield "</div>"
    if count > MOST_PICTURES:
        yield f'<p class="faint">and {count - MOST_PICTURES:,} more; detaug check --report FILE.json lists them all</p>'


def _remedy(kind: str) -> str:
    if CHECK_KINDS[kind].severity == "warning":
        return "look at it; training runs with it. Correct the annotations where it is a mistake."
    if kind in REPAIRED:
        return "detaug check --clean FILE.json repairs it and loses no box."
    if kind in ("image-missing", "size-wrong", "size-unrotated"):
        return "see that IMAGES is the right folder, or convert again; --clean FILE.json writes a json without it."
    if kind in ("images-empty", "categories-empty", "categories-differ", "objects-none"):
        return "convert the data set again, with all its files and classes."
    return "correct it, or train with what detaug check --clean FILE.json writes, which is without it."


def _figure(summary: CheckSummary, finding: CheckFinding) -> str:
    text = escape(_cut(finding.message, 300))
    where = ", ".join(filter(None, [finding.file_name, finding.entry]))
    picture = _thumbnail(summary, finding) if _file_of(finding) else ""
    place = f"<bdi>{escape(_cut(where))}</bdi><br>" if where else ""
    return f'<figure>{picture}{place}<span class="faint">{text}</span></figure>'


def _file_of(finding: CheckFinding) -> str:
    """The image in the folder; a file that the json does not name is known by its message, a quoted name."""
    return finding.file_name or (finding.message[1:-1] if finding.kind == "image-unreferenced" else "")


def _thumbnail(summary: CheckSummary, finding: CheckFinding) -> str:
    try:
        picture = finding_picture(summary, finding)
    except (OSError, SyntaxError, ValueError, OverflowError, Image.DecompressionBombError) as error:
        return f'<div class="none">no picture: {_reason(error)}</div>'
    source = _data_uri(picture, "JPEG", quality=80)
    return f'<img width="{picture.width}" height="{picture.height}" alt="" src="{source}">'


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file is not there"
    return "too many pixels" if str(error) == "too large" else "the file does not decode"


def finding_picture(summary: CheckSummary, finding: CheckFinding) -> Image.Image:
    """The finding's image with its boxes, or the surroundings of its box if that is small; longer side 240 pixels.

    Raises OSError or ValueError where the image cannot be opened or the finding is about none.
    """
    picture, full = _opened(summary.image_folder / _file_of(finding))
    boxes, names, difficult = _boxes(summary.table, finding)
    left, top, right, bottom = _window(boxes, full) if finding.entry.startswith("annotations") else (0, 0, *full)
    factors = np.array(picture.size) / full
    cut = np.array([left, top, right, bottom]) * np.tile(factors, 2)
    picture = picture.crop(tuple(np.rint(cut).astype(int).tolist()))
    moved = boxes - np.tile([left, top], 2)
    zoom = SIDE / max(right - left, bottom - top)
    size = (max(1, round((bottom - top) * zoom)), max(1, round((right - left) * zoom)))
    picture = picture.resize(size[::-1], Image.Resampling.LANCZOS)
    return draw_boxes(picture, moved * zoom, names, difficult=difficult)


def _opened(path: Path) -> tuple[Image.Image, tuple[int, int]]:
    """The image upright, and its (width, height)."""
    with Image.open(path) as file:
        if file.width * file.height > MOST_PIXELS:
            raise ValueError("too large")
        picture = ImageOps.exif_transpose(file).convert("RGB")
    return picture, picture.size


def _boxes(table: Table, finding: CheckFinding) -> tuple[Array, list[str], list[bool]]:
    """The box of the finding as the json has it, or all boxes of its image; their names; are they difficult?"""
    where, _, at = finding.entry.rstrip("]").partition("[")
    if where == "annotations":
        rows = [int(at)]
    else:
        rows = np.flatnonzero(table.image_at == int(at)).tolist() if where == "images" else []
    found = [(box, row) for row in rows if (box := _xyxy(table.row("annotations", row).get("bbox"))) is not None]
    names = [_cut(table.categories.get(int(table.category_ids[row]), ""), 30) for _, row in found]
    difficult = [bool(table.row("annotations", row).get("difficult")) for _, row in found]
    return np.array([box for box, _ in found]).reshape(-1, 4), names, difficult


def _xyxy(bbox: Any) -> list[float] | None:
    try:
        x, y, width, height = (float(value) for value in bbox)
    except (TypeError, ValueError, OverflowError):
        return None
    return [x, y, x + width, y + height] if all(map(math.isfinite, (x, y, width, height))) else None


def _window(boxes: Array, full: tuple[int, int]) -> tuple[int, int, int, int]:
    """What to show: the image, or, of a box that is small in it, its surroundings."""
    size = np.array(full)
    if not len(boxes):
        return 0, 0, *full
    inside = boxes[0].clip(0, np.tile(size, 2))
    sides = inside[2:] - inside[:2]
    if (sides >= CLOSE_UP * size).any():
        return 0, 0, *full
    span = np.minimum(np.maximum(3 * sides.max(), 48), size)
    start = ((inside[:2] + inside[2:] - span) / 2).clip(0, size - span)
    left, top = np.floor(start).astype(int).tolist()
    right, bottom = np.ceil(start + span).astype(int).tolist()
    return left, top, min(right, full[0]), min(bottom, full[1])


def _data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    encoded = io.BytesIO()
    picture.save(encoded, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(encoded.getvalue()).decode()}"
