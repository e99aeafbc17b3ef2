"""Write the findings of `detaug check` as one page for a browser: counts, histograms, a picture of each finding.

See `frame` for what the page is made of.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from detaug.check.check import check_coco
from detaug.check.clean import REPAIRED
from detaug.check.summary import CheckFinding, CheckSummary
from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.findings.finding import counted
from detaug.findings.kinds import CHECK_KINDS
from detaug.outputs.guards import PAGE, output_files
from detaug.pages.frame import END, data_uri, head, shorten
from detaug.report.charts import charts
from detaug.report.finding_picture import ImageTooLargeError, finding_picture, image_of

PathLike = str | os.PathLike[str]

MOST_PICTURES = 12  # of a kind of finding
MOST_LETTERS = 200  # of a file name

_PIXELS = "write pixels: multiply x and widths by the image's width, y and heights by its height."
_FOLDER = "check that IMAGES is the right folder, or convert again; --clean FILE.json writes a json without it."
_CONVERT = "convert the data set again, with all its files and classes."
_DELETE = "delete one of the two boxes where they are one object."
_RENAME = "if they are one class, give its objects one label in the labelling tool, and convert again; else leave it."

REMEDIES = {
    "image-missing": _FOLDER,
    "size-wrong": _FOLDER,
    "size-unrotated": _FOLDER,
    "images-empty": _CONVERT,
    "categories-empty": _CONVERT,
    "objects-none": _CONVERT,
    "crowds-only": "write iscrowd 0 where an annotation is a single object.",
    "box-relative": _PIXELS,
    "segmentation-relative": _PIXELS,
    "corners-relative": _PIXELS,
    "keypoints-relative": _PIXELS,
    "box-corners": "write [x, y, width, height]: width is x1 - x0, height is y1 - y0.",
    "categories-differ": "give both the same classes in the same order: detaug merge FILE.json -o OUT.json "
    "--classes a,b,c",
    "image-leaked": "take the image out of one of the two splits; --clean FILE.json takes it out of this one.",
    "group-leaked": "put all images of the group into one split: detaug split does.",
    "image-not-decoded": "make it smaller, or see in the loader whether it decodes in the memory that you have.",
    "image-unreferenced": "if it belongs to another split, give its json with --against OTHER.json; "
    "otherwise annotate it, or leave it: training does not read it.",
    "image-identical": "delete one of the two, or merge their boxes; else the image counts twice.",
    "box-clipped": "nothing, as a rule: training cuts the box at the edge.",
    "box-tiny": "delete what is no object, or train at a larger size; --size HxW checks one.",
    "box-repeated": _DELETE,
    "box-nearly-repeated": _DELETE,
    "segmentation-repeated": "delete one of the two where they are one object, or correct the segmentation.",
    "segmentation-missing": "outline it, or train without masks.",
    "box-two-classes": "decide which class it is, and delete the other box.",
    "box-unusual": "look whether the box fits its object and has the right class.",
    "class-empty": "annotate it, or take it out: --clean FILE.json --drop-class CLASS; a detector cannot learn it.",
    "category-alike": _RENAME,
    "category-similar": _RENAME,
    "class-imbalance": "collect more of the rare class, or give the loader a sampler: da.ClassBalancedSampler.",
    "image-alpha": "nothing where the picture is opaque; else look at the colours below the transparent parts.",
    "palette-small": "save the image as RGB.",
    "orientation-unclear": "look whether the boxes fit the image as it is displayed.",
}
"""What to do about a kind of finding; for other kinds it depends on the severity alone."""


def check_to_html(annotations: PathLike, images: PathLike, html: PathLike, **options: Any) -> CheckSummary:
    """Run `check_coco` and write its summary as a page to `html`, a path that ends in .html.

    options: those of `check_coco`, which also lists the errors raised; not isolated.
    """
    path = Path(html)
    if options.get("isolated"):
        raise InputError("html shows pictures, which this process decodes; give isolated without it")
    output_files({"html": path}, annotations, images, *options.get("against", ()), extensions=PAGE)
    summary = check_coco(annotations, images, **options)
    write_page(summary, path)
    return summary


def write_page(summary: CheckSummary, path: PathLike) -> None:
    """Write the page of a summary, whole or not at all."""
    write_atomically(path, ["\n".join(page(summary))])


def page(summary: CheckSummary) -> Iterator[str]:
    """Yield the page in pieces."""
    counts = f"{counted(summary.errors, 'error')}, {counted(summary.warnings, 'warning')}"
    title = f"{summary.annotations.name}: {counts}"
    yield head(title, "check")
    boxes, classes = sum(summary.class_counts.values()), len(summary.class_counts)
    images = f"{counted(summary.images, 'image')}, {summary.images_without_boxes:,} of them without boxes"
    yield f"<p>{images}; {counted(boxes, 'box', 'boxes')} in {counted(classes, 'class', 'classes')}.</p>"
    yield from _contents(summary)
    yield from charts(summary.table, summary.class_counts)
    for kind, findings in groupby(summary.findings, lambda finding: finding.kind):
        yield from _section(summary, kind, findings)
    yield END


def _contents(summary: CheckSummary) -> Iterator[str]:
    if not summary.kind_counts:
        limit = "" if summary.decoded else "; images not decoded (--decode)"
        yield f"<p>Nothing was found: ready for training{limit}.</p>"
        return
    yield "<ul>"
    for kind, count in summary.kind_counts.items():
        yield f'<li><a href="#{kind}">{kind}</a> ({count:,}), {CHECK_KINDS[kind].effect}</li>'
    yield "</ul>"


# ---------------------------------------------------------------- findings


def _section(summary: CheckSummary, kind: str, findings: Iterable[CheckFinding]) -> Iterator[str]:
    severity, count = CHECK_KINDS[kind].effect, summary.kind_counts[kind]
    yield f'<h2 id="{kind}"><span class="{severity}">{severity}</span> {kind} ({count:,})</h2>'
    yield f"<p>{escape(CHECK_KINDS[kind].meaning)}. <b>What to do:</b> {escape(_remedy(kind))}</p>"
    yield '<div class="row">'
    for finding in islice(findings, MOST_PICTURES):
        yield _figure(summary, finding)
    yield "</div>"
    if count > MOST_PICTURES:
        yield f'<p class="faint">and {count - MOST_PICTURES:,} more; detaug check --report FILE.json lists them all</p>'


def _remedy(kind: str) -> str:
    if kind in REMEDIES:
        return REMEDIES[kind]
    if CHECK_KINDS[kind].effect == "warning":
        return "look at it; training runs with it. Correct the annotations where it is a mistake."
    if kind in REPAIRED:
        return "detaug check --clean FILE.json repairs it and loses no box."
    return "correct it, or train with the json of detaug check --clean FILE.json, which leaves it out."


def _figure(summary: CheckSummary, finding: CheckFinding) -> str:
    text = escape(shorten(finding.message, 300))
    where = ", ".join(filter(None, [finding.file_name, finding.entry, finding.origin]))
    picture = _thumbnail(summary, finding) if image_of(finding) else ""
    location = f"<bdi>{escape(shorten(where, MOST_LETTERS))}</bdi><br>" if where else ""
    return f'<figure>{picture}{location}<span class="faint">{text}</span></figure>'


def _thumbnail(summary: CheckSummary, finding: CheckFinding) -> str:
    try:
        picture = finding_picture(summary, finding)
    except (OSError, SyntaxError, ValueError, OverflowError) as error:
        return f'<div class="none">no picture: {_reason(error)}</div>'
    source = data_uri(picture, "JPEG", quality=80)
    return f'<img width="{picture.width}" height="{picture.height}" alt="" src="{source}">'


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file is not there"
    return "too many pixels" if isinstance(error, ImageTooLargeError) else "the file does not decode"
