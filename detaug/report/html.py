"""Write the findings of `detaug check` as one page for a browser: counts, histograms, an image of each finding."""

from __future__ import annotations

from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from PIL import Image

from detaug.check.check import check_coco
from detaug.check.summary import CheckFinding, CheckSummary
from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.files.paths import PathLike
from detaug.findings.finding import counted
from detaug.findings.kinds import CHECK_KINDS
from detaug.outputs.guards import PAGE, output_files
from detaug.pages.frame import render
from detaug.report.charts import chart_of_maps, charts
from detaug.report.finding_picture import ImageTooLargeError, finding_picture, image_of

MOST_IMAGES = 12  # of a kind of finding
MOST_LETTERS = 200  # of a file name


def check_to_html(annotations: PathLike, images: PathLike, html: PathLike, **options: Any) -> CheckSummary:
    """Run `check_coco` and write its summary as a page to `html`, a path that ends in .html.

    options: those of `check_coco`, which also lists the errors raised; not isolated.
    """
    path = Path(html)
    if options.get("isolated"):
        raise InputError("html shows images, which this process decodes; give isolated without it")
    output_files({"html": path}, annotations, images, *options.get("against", ()), extensions=PAGE)
    summary = check_coco(annotations, images, **options)
    write_page(summary, path)
    return summary


def write_page(summary: CheckSummary, path: PathLike) -> None:
    """Write the page of a summary, whole or not at all."""
    counts = f"{counted(summary.errors, 'error')}, {counted(summary.warnings, 'warning')}"
    page = render(
        "report/check.html",
        title=f"{summary.annotations.name}: {counts}",
        command="check",
        summary=summary,
        images=counted(summary.images, "image"),
        boxes=counted(sum(summary.class_counts.values()), "box", "boxes"),
        classes=counted(len(summary.class_counts), "class", "classes"),
        charts=charts(summary.table, summary.class_counts) + chart_of_maps(summary.maps),
        kinds=CHECK_KINDS,
        sections=[
            (kind, [*islice(findings, MOST_IMAGES)])
            for kind, findings in groupby(summary.findings, lambda finding: finding.kind)
        ],
        remedy=_remedy,
        image_of=image_of,
        thumbnail=partial(_thumbnail, summary),
        most_pictures=MOST_IMAGES,
        letters=MOST_LETTERS,
    )
    write_atomically(path, [page])


def _remedy(kind: str) -> str:
    row = CHECK_KINDS[kind]
    if row.remedy:
        return row.remedy
    if row.effect == "warning":
        return "look at it; training runs with it. Correct the annotations where it is a mistake."
    if row.is_kept:
        return "detaug check --clean FILE.json repairs it and loses no box."
    return "correct it, or train with the JSON file of detaug check --clean FILE.json, which leaves it out."


def _thumbnail(summary: CheckSummary, finding: CheckFinding) -> tuple[Image.Image | None, str]:
    """Return the image, or None and why there is none."""
    try:
        return finding_picture(summary, finding), ""
    except FileNotFoundError:
        return None, "the file is not there"
    except ImageTooLargeError:
        return None, "too many pixels"
    except (OSError, SyntaxError, ValueError, OverflowError):
        return None, "the file does not decode"
