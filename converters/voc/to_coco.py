"""Pascal VOC to COCO json. Decisions are numbered as in the README's last section.

from detaug.converters import voc_to_coco
summary = voc_to_coco("VOC2012", "train.json", split="train")
"""

from __future__ import annotations

import os
import signal
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from detaug.converters.coco.writer import Row, whole, write_coco
from detaug.converters.conversion.choices import OnError
from detaug.converters.conversion.outputs import output_files
from detaug.converters.conversion.summary import Summary, report_and_stop
from detaug.converters.files.digests import digest
from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import list_files, stem_of
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding
from detaug.converters.voc.files import (
    Folders,
    ImageNames,
    Pair,
    find_folders,
    find_split,
    known_stem,
    pair_by_stem,
    pair_split,
    read_split,
    settle_claims,
)
from detaug.converters.voc.pairs import (
    DIFFICULT,
    OCCLUDED,
    TRUNCATED,
    Difficult,
    Origin,
    Outcome,
    Unlabelled,
    VocRules,
    read_pair,
)

Progress = Callable[[int, int], None]

_PAIRS_AT_ONCE = 64


def read_class_names(text: str) -> list[str]:
    """Class names from "a,b,c" or from a text file that holds one a line, in its order.

    >>> from detaug.converters import read_class_names
    >>> read_class_names("cat, dog, zebra")
    ['cat', 'dog', 'zebra']
    """
    path = Path(text)
    if path.is_file():
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    elif path.suffix == ".txt" or "/" in text:
        raise ConversionError(f"classes file {text} does not exist")
    else:
        lines = text.split(",")
    return [line.strip() for line in lines if line.strip()]


VocSummary = Summary


def voc_to_coco(
    root: str | os.PathLike[str],
    output: str | os.PathLike[str],
    split: str | None = None,
    classes: Sequence[str] | None = None,
    *,
    origin: Origin = "one",
    difficult: Difficult = "keep",
    unlabelled: Unlabelled = "keep",
    on_error: OnError = "stop",
    images: str | os.PathLike[str] | None = None,
    annotations: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    report: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> VocSummary:
    """Convert a Pascal VOC data set into one COCO json file.

    root: the devkit's folder (Annotations, JPEGImages, ImageSets/Main), or a folder with images beside their
    XML, subfolders included. images, annotations: other folders for either. split: a file of ImageSets/Main,
    without .txt. classes: the class names in the order of their category ids, objects of others are dropped
    and reported; without it all classes, sorted.

    origin: "one" for pixels counted from 1 and boxes that include their last pixel, the devkit's rule
    (decision 1), "zero" for corners counted from 0 with an exclusive end. difficult: keep as an attribute,
    make a crowd (iscrowd 1), or drop (decision 5). unlabelled: keep an image that has no XML as an image
    without boxes, or skip it. on_error: "stop" at files that cannot be used, after looking at all of them, or
    "skip" these. jobs: processes to read with. report: a json file for every finding (see findings.KINDS).
    progress: called with (files done, files in all).

    Boxes are pixels, COCO's [x, y, width, height], of the image as displayed, with EXIF orientation applied
    (decision 2), and lie inside it. The same input gives the same bytes, whatever the jobs (decision 4). The
    file is written whole or not at all.

    Raises ConversionError, a ValueError, for input that cannot be converted, and ValueError for arguments.

    >>> from detaug.converters import voc_to_coco
    >>> summary = voc_to_coco("demo/VOC", "val.json", split="val")
    >>> print(summary)
    12 images (0 without boxes), 49 boxes in 6 classes
      ball          13
      car            4
      fish          13
      house          6
      mug            5
      tree           8
    written: val.json
    load it: da.CocoReader("demo/VOC/JPEGImages", "val.json")
    """
    if isinstance(classes, str):
        raise ValueError(f"classes must be a list of names, got the text {classes!r}; use [{classes!r}]")
    rules = VocRules(origin, difficult, unlabelled, on_error, None if classes is None else tuple(classes))
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    paths = output_files({"output": output, "report": report})
    folders = find_folders(Path(root), _optional_path(images), _optional_path(annotations))
    findings, outcomes = _read_all(_Run(folders, rules, jobs, progress), split)
    report_and_stop(findings, rules.on_error, paths.get("report"))
    return _write(outcomes, tuple(findings), rules, folders, paths)


def _optional_path(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)


# ----------------------------------------------------------------------------------------------------------
# All pairs


class _Run(NamedTuple):
    folders: Folders
    rules: VocRules
    jobs: int
    progress: Progress | None


def _read_all(run: _Run, split: str | None) -> tuple[list[Finding], list[Outcome]]:
    """Every finding, and the outcomes that can be used, in the order of the image ids."""
    folders = run.folders
    images = ImageNames(list_files(folders.images, IMAGE_EXTENSIONS))
    xmls = list_files(folders.annotations, (".xml",))
    if not xmls:
        raise ConversionError(f"{folders.annotations} has no XML files; give the folder that holds the VOC data set")
    pairs, findings = _pairs(folders, split, xmls, images)
    outcomes = _read_pairs(pairs, run, total=len(pairs))
    outcomes = _by_filename(outcomes, images, run)
    _refuse_other_folder(outcomes, folders)
    outcomes = _refuse_shared(outcomes, pairs, pair_by_stem(xmls, images), folders)
    if split is None:
        outcomes += _unlabelled(outcomes, pairs, images, run)
        outcomes.sort(key=lambda outcome: (outcome.image or "", outcome.xml or ""))
    for outcome in outcomes:
        findings.extend(outcome.findings)
    usable = [outcome for outcome in outcomes if not outcome.failed and _wanted(outcome, run.rules)]
    findings.extend(_identical_images(usable, folders))
    findings.extend(_class_findings(usable, run.rules))
    return findings, usable


def _wanted(outcome: Outcome, rules: VocRules) -> bool:
    return outcome.xml is not None or rules.unlabelled == "keep"


def _pairs(
    folders: Folders, split: str | None, xmls: list[str], images: ImageNames
) -> tuple[list[Pair], list[Finding]]:
    if split is None:
        return pair_by_stem(xmls, images), []
    by_stem = {stem_of(xml): xml for xml in reversed(xmls)}
    path = find_split(folders, split)
    entries = read_split(path, lambda name: known_stem(name, by_stem, images) is not None)
    return pair_split(entries, f"ImageSets/Main/{path.name}", by_stem, images)


def _read_pairs(pairs: Sequence[Pair], run: _Run, total: int) -> list[Outcome]:
    read = partial(_read_chunk, folders=run.folders, rules=run.rules)
    chunks = [pairs[start : start + _PAIRS_AT_ONCE] for start in range(0, len(pairs), _PAIRS_AT_ONCE)]
    outcomes: list[Outcome] = []
    for chunk in _in_order(read, chunks, run.jobs):
        outcomes.extend(_interned(outcome) for outcome in chunk)
        if run.progress:
            run.progress(len(outcomes), total)
    return outcomes


def _read_chunk(pairs: Sequence[Pair], folders: Folders, rules: VocRules) -> list[Outcome]:
    return [read_pair(pair, folders, rules) for pair in pairs]


def _in_order(
    read: Callable[[Sequence[Pair]], list[Outcome]], chunks: list[Sequence[Pair]], jobs: int
) -> Iterator[list[Outcome]]:
    if jobs == 1 or len(chunks) < 2:
        yield from map(read, chunks)
        return
    # Forked, since a spawned process would import the caller's script again; the children only read files.
    with ProcessPoolExecutor(
        min(jobs, len(chunks)), get_context("fork"), signal.signal, (signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        try:
            yield from pool.map(read, chunks)
        except BrokenProcessPool as error:
            raise ConversionError("a reading process was killed (out of memory?); run with fewer --jobs") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _interned(outcome: Outcome) -> Outcome:
    """Share equal class names and poses, which arrive from another process as copies."""
    return outcome._replace(names=tuple(map(sys.intern, outcome.names)), poses=tuple(map(sys.intern, outcome.poses)))


def _by_filename(outcomes: list[Outcome], images: ImageNames, run: _Run) -> list[Outcome]:
    """Find the images of the XML whose stem no image has (decision 3)."""
    found = {}
    for outcome in outcomes:
        if outcome.image is None and outcome.xml is not None:
            candidates = images.with_filename(outcome.filename, outcome.xml.rpartition("/")[0])
            pair = Pair(outcome.xml, candidates, 3)
            found[outcome.xml] = (
                read_pair(pair, run.folders, run.rules) if candidates else _missing(outcome, run.folders)
            )
    return [found.get(outcome.xml or "", outcome) for outcome in outcomes]


def _missing(outcome: Outcome, folders: Folders) -> Outcome:
    assert outcome.xml is not None
    label = folders.xml_prefix + outcome.xml
    note = f"no image in {folders.images} has its stem or its <filename> {outcome.filename!r}"
    finding = Finding(label, "image-missing", before=outcome.filename, note=note)
    return outcome._replace(image="", findings=(finding,))


def _refuse_other_folder(outcomes: list[Outcome], folders: Folders) -> None:
    """Not one XML of several has its image: this is a wrong argument, not a data set without images."""
    missing = [finding for outcome in outcomes for finding in outcome.findings if finding.kind == "image-missing"]
    if len(missing) > 1 and len(missing) == sum(outcome.xml is not None for outcome in outcomes):
        raise ConversionError(
            f"{folders.images} has the image of none of the {len(missing):,} XML files, the first is "
            f"{missing[0].before}; give the folder of the images: --images",
            missing,
        )


def _refuse_shared(
    outcomes: list[Outcome], pairs: list[Pair], all_pairs: list[Pair], folders: Folders
) -> list[Outcome]:
    """An image belongs to one XML, the one with the better claim to it, be that in the split or not."""
    ranks = {pair.xml: pair.rank if pair.images else 3 for pair in pairs}
    claims = [Pair(o.xml, (o.image,), ranks.get(o.xml, 0)) for o in outcomes if o.xml and o.image]
    losers = settle_claims([*claims, *(pair for pair in all_pairs if pair.xml not in ranks)])
    return [_shared(outcome, folders) if outcome.xml in losers else outcome for outcome in outcomes]


def _shared(outcome: Outcome, folders: Folders) -> Outcome:
    assert outcome.xml is not None
    note = f"its image {outcome.image} belongs to another XML"
    finding = Finding(folders.xml_prefix + outcome.xml, "image-shared", after=outcome.image, note=note)
    return outcome._replace(findings=(*outcome.findings, finding))


def _unlabelled(outcomes: list[Outcome], pairs: list[Pair], images: ImageNames, run: _Run) -> list[Outcome]:
    """The images that no XML claims; of several images with one stem, the others count as claimed."""
    claimed = {image for pair in pairs for image in pair.images} | {outcome.image for outcome in outcomes}
    rest = [Pair(None, (name,)) for name in images.names if name not in claimed]
    return _read_pairs(rest, run._replace(progress=None), total=len(rest))


def _identical_images(outcomes: list[Outcome], folders: Folders) -> Iterator[Finding]:
    """Images with the same bytes. Only files of one size and one beginning are read to the end."""
    groups: dict[tuple[int, int], list[str]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.fingerprint, []).append(outcome.image or "")
    for names in groups.values():
        first: dict[bytes, str] = {}
        for name in names if len(names) > 1 else ():
            same = first.setdefault(digest(folders.images / name), name)
            if same != name:
                yield Finding(folders.image_prefix + name, "image-identical", after=same)


def _class_findings(outcomes: Iterable[Outcome], rules: VocRules) -> Iterator[Finding]:
    found = {name for outcome in outcomes for name in outcome.names}
    for name in rules.classes or ():
        if name not in found:
            yield Finding("", "class-unused", before=name)
    alike: dict[str, str] = {}
    for name in sorted(found):
        other = alike.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
        if other != name:
            yield Finding("", "class-alike", before=name, after=other)


# ----------------------------------------------------------------------------------------------------------
# The result


def _write(
    outcomes: list[Outcome], findings: tuple[Finding, ...], rules: VocRules, folders: Folders, paths: dict[str, Path]
) -> VocSummary:
    if not outcomes:
        raise ConversionError(f"{folders.root}: no image is left to write; nothing was written", findings)
    counts = Counter(name for outcome in outcomes for name in outcome.names)
    class_names = rules.classes or tuple(sorted(counts))
    write_coco(
        paths["output"],
        _image_rows(outcomes),
        _annotation_rows(outcomes, class_names, rules),
        ({"id": category_id, "name": name} for category_id, name in enumerate(class_names, 1)),
        {
            "description": "Pascal VOC, converted by detaug",
            "origin": rules.origin,
            "difficult": rules.difficult,
        },
    )
    return VocSummary(
        paths["output"],
        folders.images,
        len(outcomes),
        sum(not outcome.names for outcome in outcomes),
        {name: counts[name] for name in class_names},
        findings,
        paths.get("report"),
    )


def _image_rows(outcomes: Iterable[Outcome]) -> Iterator[Row]:
    for image_id, outcome in enumerate(outcomes, 1):
        yield {"id": image_id, "file_name": outcome.image, "width": outcome.width, "height": outcome.height}


def _annotation_rows(outcomes: Iterable[Outcome], class_names: Sequence[str], rules: VocRules) -> Iterator[Row]:
    category_ids = {name: category_id for category_id, name in enumerate(class_names, 1)}
    annotation_id = 0
    for image_id, outcome in enumerate(outcomes, 1):
        boxes = zip(*[iter(outcome.xywh)] * 4, strict=True)
        for name, (x, y, width, height), bits, pose in zip(
            outcome.names, boxes, outcome.flags, outcome.poses, strict=True
        ):
            annotation_id += 1
            yield {
                "id": annotation_id,
                "image_id": image_id,
                "category_id": category_ids[name],
                "bbox": [whole(x), whole(y), whole(width), whole(height)],
                "area": whole(width * height),
                "iscrowd": int(rules.difficult == "crowd" and bool(bits & DIFFICULT)),
                "difficult": int(bool(bits & DIFFICULT)),
                "truncated": int(bool(bits & TRUNCATED)),
                "occluded": int(bool(bits & OCCLUDED)),
                "pose": pose,
            }
