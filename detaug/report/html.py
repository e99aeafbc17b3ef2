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
    row = CHECK_KINDS[kind]
    if row.remedy:
        return row.remedy
    if row.effect == "warning":
        return "look at it; training runs with it. Correct the annotations where it is a mistake."
    if row.is_kept:
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
