"""Convert records to one COCO json: find the images and their sizes, put the objects into them, count, write."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from detaug.coco.classes_and_images import header_findings, joined_splits
from detaug.coco.how_to_load import how_to_load
from detaug.coco.parts import part_head, write_part
from detaug.coco.writer import ANNOTATION_FILE, write_coco
from detaug.converters.records.data_set import data_set_of
from detaug.converters.records.images import Images
from detaug.converters.records.json_rows import (
    annotation_rows,
    category_rows_of,
    image_rows,
    region_rows,
    video_rows,
    videos_of,
)
from detaug.converters.records.placing import Place, Placed, columns_of
from detaug.converters.records.record import Contents, Record
from detaug.converters.records.record_image import RecordImage, StoredObjects
from detaug.errors import ConversionError, InputError
from detaug.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.files.matching import ImageNames, Pair, settle_claims
from detaug.files.paths import PathLike, last_part, stem_of
from detaug.files.text import is_utf8, joined_spaces
from detaug.findings.finding import Finding, counted, has_error, shown
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, check_choice, check_classes, output_files
from detaug.outputs.part import Part
from detaug.outputs.summary import (
    Summary,
    left_out_classes,
    refuse_no_object_left,
    refuse_nothing_left,
    refuse_other_classes,
    refuse_other_numbers,
    reported,
    stop_on_errors,
)


@dataclass(frozen=True)
class Options:
    """The options that all formats have."""

    classes: Sequence[str] | None = None
    on_error: OnError = "stop"
    report: PathLike | None = None
    progress: Progress | None = None
    part: Part | None = None
    """Only the images of this part of the folder's, whose json `merge_coco` joins with the others."""

    def __post_init__(self) -> None:
        check_choice("on_error", self.on_error, OnError)
        check_classes(self.classes)


def records_to_coco(
    contents: Contents,
    images: Path,
    output: PathLike,
    inputs: Sequence[PathLike],
    options: Options,
    title: str,
    *,
    is_whole: bool = True,
) -> Summary:
    """Write the records of a data set as one COCO json file.

    images: the folder that the images are below; the json's file names are relative to the deepest folder that holds
    all of them: Summary.image_folder. inputs: every file and folder that is read. title: of the format.
    is_whole: there is a record for each image that has objects, if the format has a file for each image; images without
    one have no boxes. Otherwise, and in other formats, they are left out and counted. Images are sorted by name, frames
    by video. Raises ConversionError and InputError.
    """
    paths = output_files({"output": output, "report": options.report}, *inputs, images)
    report, found = paths.get("report"), Images(images)
    with closing(StoredObjects(paths["output"].parent)) as stored:
        usable, findings = _usable_images(contents, found, stored, options, title, is_whole=is_whole)
        dataset, without_boxes, about_classes = data_set_of(usable, stored, contents, options.classes, findings)
        findings += [*about_classes, *joined_splits((each.name for each in usable), images)]
        stop_on_errors(findings, options.on_error, report)
        class_counts = {name: dataset.counts[name] for name in dataset.class_names}
        if options.part is None:
            refuse_nothing_left(len(usable), inputs[0], findings, report)
            refuse_other_classes(class_counts, inputs[0], findings, report)
            refuse_no_object_left(len(dataset.counts), inputs[0], findings, report)
        refuse_other_numbers(stored.numbers.fault(), inputs[0], findings, report)
        folder = "" if options.part else found.deepest_folder(each.name for each in usable)
        info = {"description": f"{title}, converted by detaug"}
        rows = image_rows(dataset, folder), annotation_rows(dataset), category_rows_of(dataset)
        with reported(findings, report):
            if options.part is None:
                write_coco(paths["output"], *rows, info, video_rows(dataset))
            else:
                listed, left_out = dataset.class_names[: dataset.listed], left_out_classes(findings)
                head = part_head(options.part, found.names, listed, left_out, from_top=True)
                write_part(paths["output"], head, info, rows, region_rows(dataset))
    image_folder = images / folder if folder else images
    return Summary(
        output=paths["output"],
        image_folder=image_folder,
        images=len(usable),
        images_without_boxes=without_boxes,
        class_counts=class_counts,
        crowds=dataset.crowds,
        findings=tuple(findings),
        report=report,
        next_step=how_to_load(
            paths["output"],
            image_folder,
            [{}] if videos_of(dataset.images) else (),  # their frames are files
            [*dataset.shapes, *(["keypoints"] if any(dataset.key_points.values()) else [])],
        ),
    )


def _usable_images(
    contents: Contents, found: Images, stored: StoredObjects, options: Options, title: str, *, is_whole: bool
) -> tuple[list[RecordImage], list[Finding]]:
    """Return the images that can be written, in their order, and findings."""
    names = found.names if options.part is None else options.part.items(found.names)
    read, by_stem = _read(contents, found, names, stored, options)
    findings = [*contents.findings]  # complete now that all records are read
    if options.part is None:
        _refuse_other_folder(read, found, title)
    _settle(read, stored)
    named, rest = ImageNames(each.name for each in read), []
    unnamed = [name for name in names if name not in named]
    if is_whole and by_stem:
        rest = [_image_without_record(name, found, stored) for name in unnamed]
    elif unnamed:
        note = f"{counted(len(unnamed), 'image')} left out, such as {unnamed[0]}: no annotations are of it"
        findings.append(Finding("", "image-unlisted", note=note, count=len(unnamed)))
    findings += [finding for each in (*read, *rest) for finding in each.findings]
    usable = [each for each in (*read, *rest) if each.start >= 0 and not has_error(each.findings)]
    usable.sort(key=attrgetter("name"))  # by what is in memory, not by a tuple for each
    if any(each.video for each in usable):
        usable.sort(key=lambda each: (each.video, -1 if each.frame is None else each.frame))
    _refuse_mixed(usable, title)
    return usable, findings


def _read(
    contents: Contents, found: Images, names: Sequence[str], stored: StoredObjects, options: Options
) -> tuple[list[RecordImage], bool]:
    """Return the images of records, of these names or "" where there is none, and whether each has its own file."""
    done, images, by_stem = 0, [], False
    wanted = None if options.part is None else frozenset(names)
    for done, record in enumerate(contents.records, 1):
        if record.video and wanted is not None:
            raise InputError(f"part is for images, and {record.file} has frames of a video; leave it out")
        by_stem |= bool(record.stem)
        if image := _image_of(record, found, wanted, stored, contents.files):
            images.append(image)
        if options.progress and done % 64 == 0:
            options.progress(done, max(done, contents.total))
    if options.progress:
        options.progress(done, done)
    return images, by_stem


def _image_of(
    record: Record, found: Images, wanted: Collection[str] | None, stored: StoredObjects, files: int
) -> RecordImage | None:
    """Return the image of a record, and store its objects in pixels; None for one that is not wanted."""
    if wanted is not None and (same := found.with_stem(record.stem)) and not any(name in wanted for name in same):
        return None
    if record.read:
        record.read(record)
    name, rank = found.find(record)
    if wanted is not None and name and name not in wanted:
        return None
    header = _header_of(name, found, record.findings) if name else None
    image = RecordImage(name or "", record.findings or (), rank, video=sys.intern(record.video), frame=record.frame)
    if not name or not header:
        return image
    size = header.width, header.height
    if record.size and record.size != size:
        kind = "size-unrotated" if record.size == header.stored_size else "size-conflict"
        record.findings.append(Finding(record.file, kind, before=[*record.size], after=[*size]))
    scale = (size[0] / record.unit[0], size[1] / record.unit[1]) if record.unit else (1.0, 1.0)
    place = Place(size[::-1], scale, record)
    if not record.unit:
        boxes = [item.edges for item in record.objects if item.edges]
        stored.numbers.add(boxes, (ring for item in record.objects for ring in (*item.rings, item.corners)), size[::-1])
    seen: dict[tuple[Any, ...], list[Placed]] = {}
    objects: list[Placed] = []
    regions: list[Placed] = []
    for item in record.objects:
        class_name = joined_spaces(item.class_name)
        if class_name != item.class_name:
            place.note("name-spaces", item, item.class_name, class_name)
            item.class_name = class_name
        placed = place.put(item)
        if placed is None:
            continue
        if item.is_ignored:
            place.note("region-ignored", item, after=[*placed.box])
            regions.append(placed)
            continue
        earlier = seen.setdefault((class_name, placed.box), [])
        if earlier and any(placed.keys == other.keys and placed.key_points == other.key_points for other in earlier):
            place.note("box-repeated", item, after=[*placed.box])
        earlier.append(placed)
        objects.append(placed)
    image.findings = record.findings or ()
    origin = {} if files < 2 or _is_named_as(record.file, name) else {ANNOTATION_FILE: record.file}
    row = {"width": size[0], "height": size[1], **origin, **columns_of(record.columns, record.tool_id)}
    stored.add(image, row, (record.file, record.about(None)), objects, regions)
    return image


def _is_named_as(file: str, image: str) -> bool:
    """Return whether the name of an image tells which annotation file it was read from."""
    name = last_part(image)
    return stem_of(last_part(file)) in (name, stem_of(name))


def _header_of(name: str, found: Images, findings: list[Finding]) -> ImageHeader | None:
    """Read the header of an image; return None if it cannot be used."""
    if not is_utf8(name):
        findings.append(Finding(name, "file-name-not-utf8"))
        return None
    try:
        header = read_image_header(os.path.join(found.folder, name))
    except ImageError as error:
        findings.append(Finding(name, error.kind, note=str(error)))
        return None
    findings.extend(header_findings(name, name, header))
    return header


def _refuse_other_folder(read: Sequence[RecordImage], found: Images, title: str) -> None:
    """Raise ConversionError where no image is found: the folder is wrong, rather than every image missing."""
    kinds = ("image-missing", "label-unused")
    last = (finding for each in read for finding in [*each.findings][-1:])
    missing = [finding for finding in last if finding.kind in kinds]
    if read and len(missing) == len(read):
        usual = f"no image in {found.folder} has the name {shown(missing[0].before)}"
        raise ConversionError(
            f"{found.folder} has the image of none of the {len(read):,} entries of {title}, the first is "
            f"{shown(missing[0].before)}; give the folder of the images: --images of convert, IMAGES of convert-dota"
            + (f"; or {own}" if (own := missing[0].note.removeprefix(usual).removeprefix("; ")) else ""),
            missing,
        )


def _refuse_mixed(images: Sequence[RecordImage], title: str) -> None:
    """Raise ConversionError for images and frames of videos in one json: its reader would not know the images."""
    first = {bool(each.video): each.name for each in reversed(images)}
    if len(first) > 1:
        note = f"{first[True]} is a frame of a video and {first[False]} is not"
        raise ConversionError(f"{title}: {note}; convert the files of images and of videos one by one")


def _settle(read: Sequence[RecordImage], stored: StoredObjects) -> None:
    """Append a finding to each record whose image belongs to another one."""

    def claims() -> Iterator[Pair]:
        return (Pair(f"{at:09}", (each.name,), each.rank) for at, each in enumerate(read) if each.name)

    for at in map(int, settle_claims(claims)):
        image = read[at]
        file = stored.about(image).file if image.start >= 0 else image.name
        note = f"its image {image.name} belongs to an earlier entry, or to one with a better name"
        image.findings = [*image.findings, Finding(file, "image-shared", after=image.name, note=note)]


def _image_without_record(name: str, found: Images, stored: StoredObjects) -> RecordImage:
    findings: list[Finding] = []
    image = RecordImage(name, findings)
    if header := _header_of(name, found, findings):
        findings.append(Finding(name, "label-missing"))
        stored.add(image, {"width": header.width, "height": header.height}, (name, name), [], [])
    return image
