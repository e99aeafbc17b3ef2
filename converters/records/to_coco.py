"""Convert records to one COCO JSON file: find the images and their sizes, put the objects into them, count, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from detaug.coco.boxes import BoxNumbers, joined_numbers
from detaug.coco.classes_and_images import joined_splits
from detaug.coco.how_to_load import how_to_load
from detaug.coco.parts import part_head, write_part
from detaug.coco.writer import write_coco
from detaug.converters.records.data_set import DataSet, data_set_of
from detaug.converters.records.images import Images
from detaug.converters.records.json_rows import (
    annotation_rows,
    category_rows_of,
    image_rows,
    region_rows,
    video_rows,
    videos_of,
)
from detaug.converters.records.reading import RecordReader, chunks_of, header_of, placed_objects
from detaug.converters.records.record import Contents, Record, unread_elements
from detaug.converters.records.record_image import RecordImage, StoredObjects, values_of
from detaug.errors import ConversionError, InputError
from detaug.files.matching import ImageNames, Pair, settle_claims, similar_names
from detaug.files.paths import PathLike
from detaug.findings.finding import Finding, counted, has_error, shown
from detaug.findings.kinds import KINDS
from detaug.machine.parallel import Progress, map_in_jobs
from detaug.maps.named import python_text
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
    """Only the images of this part of the folder's, whose JSON `merge_coco` joins with the others; videos whole."""
    jobs: int = 1
    """Processes to read with."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")
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
    """Write the records of a dataset as one COCO JSON file.

    images: the folder that the images are below, if the contents do not say it; the JSON file's file names are relative
    to the deepest folder that holds all of them: Summary.image_folder. inputs: every file and folder that is read.
    title: of the format. is_whole: there is a record for each image that has objects, if the format has a file for each
    image; images without one have no boxes. Otherwise, and in other formats, they are left out and counted. Images are
    sorted by name, frames by video. Raises ConversionError and InputError.
    """
    title, finder = contents.title or title, contents.finder or Images(images)
    images = finder.folder
    paths = output_files({"output": output, "report": options.report}, *inputs, images)
    report, is_part = paths.get("report"), options.part is not None
    # of parts alone: a format may read its file once more for them
    videos = contents.video_names() if contents.video_names and is_part else ()
    with closing(StoredObjects(paths["output"].parent)) as stored:
        usable, numbers, findings = _usable_images(contents, finder, stored, options, title, videos, is_whole=is_whole)
        dataset, without_boxes, about_classes = data_set_of(
            usable, stored, contents, finder, options.classes, findings, videos, is_part=is_part
        )
        findings += [*about_classes, *joined_splits((image.name for image in usable), images)]
        stop_on_errors(findings, options.on_error, report)
        class_counts = {name: dataset.counts[name] for name in dataset.class_names}
        if options.part is None:
            refuse_nothing_left(len(usable), inputs[0], findings, report)
            refuse_other_classes(class_counts, inputs[0], findings, report)
            refuse_no_object_left(len(dataset.counts), inputs[0], findings, report)
        fault = numbers.fault()
        if contents.fault and "masks" in dataset.shapes:
            fault = fault or contents.fault(_shapes_of(dataset))
        refuse_other_numbers(fault, inputs[0], findings, report)
        keeps_folder = is_part or contents.keeps_folder
        folder = "" if keeps_folder else finder.deepest_folder(image.name for image in usable)
        info = {"description": f"{title}, converted by detaug", **contents.info}
        rows = image_rows(dataset, folder), annotation_rows(dataset), category_rows_of(dataset)
        with reported(findings, report):
            if options.part is None:
                write_coco(paths["output"], *rows, info, video_rows(dataset))
            else:
                listed, left_out = dataset.class_names[: dataset.listed], left_out_classes(findings)
                head = part_head(
                    options.part,
                    finder.names,
                    listed,
                    left_out,
                    from_top=not contents.keeps_folder,
                    keeps_unused=contents.keeps_unused or options.classes is not None,
                    last_track=dataset.last_track,
                )
                own_videos = video_rows(dataset) if videos else None
                write_part(paths["output"], head, info, rows, region_rows(dataset), own_videos)
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
        other_splits=tuple(contents.other_splits),
        map=contents.map,
        next_step=how_to_load(
            paths["output"],
            image_folder,
            [contents.videos.get(name, {}) for name in videos_of(dataset.images)],
            [*dataset.shapes, *(["keypoints"] if any(dataset.key_points.values()) else [])],
            "" if contents.map is None else f', maps={{"semantic": {python_text(contents.map)}}}',
        ),
    )


def _shapes_of(dataset: DataSet) -> Iterator[tuple[tuple[int, int], Mapping[str, Any]]]:
    for image in dataset.images:
        row = dataset.stored.about(image).row
        yield from (((row["height"], row["width"]), item.keys) for item in dataset.stored.objects(image))


def _usable_images(
    contents: Contents,
    finder: Images,
    stored: StoredObjects,
    options: Options,
    title: str,
    videos: Sequence[str],
    *,
    is_whole: bool,
) -> tuple[list[RecordImage], BoxNumbers, list[Finding]]:
    """Return the images that can be written, in their order, what boxes look like, and findings.

    videos: the names of those of all parts; none for a whole.
    """
    names, wanted = finder.names if contents.images is None else contents.images, None
    if options.part and not videos:
        names = options.part.items(names)
        wanted = frozenset(names)
    own_videos = {*options.part.items(videos)} if options.part and videos else None
    numbers, unread, images, alike, seen = BoxNumbers(), Counter[str](), list[RecordImage](), set[str](), 0

    def own_records() -> Iterator[Record]:
        nonlocal seen
        for record in contents.records:  # files of other parts are not opened
            seen += 1
            if own_videos is not None:
                is_own = not record.video or record.video in own_videos
            elif wanted is not None:
                same = [record.image] if record.image else finder.with_stem(record.stem)
                is_own = not same or not wanted.isdisjoint(same)
            else:
                is_own = True
            if is_own:
                yield record

    told = 0
    rules = contents.place or placed_objects, contents.find or Images.find
    reader = RecordReader(finder, contents.read, wanted, contents.files or 1, *rules)
    for chunk in map_in_jobs(reader, chunks_of(own_records()), options.jobs):
        for image, values in chunk.images:
            if values:
                stored.add(image, values)
            image.name = finder.own_copy(image.name)
            images.append(image)
        unread += chunk.unread
        alike |= chunk.alike
        numbers = joined_numbers((numbers, chunk.numbers))
        if options.progress and len(images) // 64 > told // 64:
            told = len(images)
            options.progress(told, max(told, 0 if options.part else contents.total))
    if options.progress and told != len(images):
        options.progress(len(images), len(images))
    findings = [*contents.findings, *unread_elements(unread)]  # complete now that all records are read
    if len(images) == seen:  # none is of another part
        _refuse_other_folder(images, finder, title)
    _settle(images, stored)
    _note_other_sizes(images)
    named, rest = ImageNames(image.name for image in images), []
    alike = alike if contents.images is None else set()
    unnamed = [name for name in names if name not in named and name not in alike] if own_videos is None else []
    if contents.read and options.part is None:
        _note_similar(images, unnamed)
    if is_whole and contents.read:
        rest = [_image_without_record(name, finder, stored, contents.unlabeled) for name in unnamed]
    elif unnamed and contents.images is None:
        note = f"{counted(len(unnamed), 'image')} left out, such as {unnamed[0]}: no annotations are of it"
        findings.append(Finding("", "image-unlisted", note=note, count=len(unnamed)))
    findings += [finding for image in (*images, *rest) for finding in image.findings]
    usable = [image for image in (*images, *rest) if image.start >= 0 and not has_error(image.findings)]
    usable.sort(key=attrgetter("name"))  # by what is in memory, not by a tuple for each
    if any(image.video for image in usable):
        usable.sort(key=lambda image: (image.video, -1 if image.frame is None else image.frame))
    elif contents.images is not None:
        order = {name: index for index, name in enumerate(contents.images)}
        usable.sort(key=lambda image: order[image.name])
    _refuse_mixed(usable, videos, title)
    return usable, numbers, findings


def _note_other_sizes(images: Sequence[RecordImage]) -> None:
    """Append an error to each frame that has not the size of the first one of its video, which has one size."""
    first: dict[str, tuple[int, int]] = {}
    for image in sorted((image for image in images if image.size), key=lambda image: image.frame or 0):
        assert image.size
        width, height = size = first.setdefault(image.video, image.size)
        if image.size != size:
            note = "has {} x {} pixels, the first frame of its video {} x {}".format(*image.size, width, height)
            image.findings = [*image.findings, Finding(image.name, "frame-size", note=note)]


def _refuse_other_folder(images: Sequence[RecordImage], finder: Images, title: str) -> None:
    """Raise ConversionError where no image is found: the folder is wrong, rather than every image missing."""
    kinds = ("image-missing", "label-unused")
    last = (finding for image in images for finding in [*image.findings][-1:])
    missing = [finding for finding in last if finding.kind in kinds]
    if images and len(missing) == len(images):
        usual = f"no image in {finder.folder} has the name {shown(missing[0].before)}; "
        own = missing[0].note.removeprefix(usual) if missing[0].note.startswith(usual) else ""
        raise ConversionError(
            f"{finder.folder} has the image of none of the {len(images):,} entries of {title}, the first is "
            f"{shown(missing[0].before)}; give the folder of the images: --images of convert, "
            "convert-voc and train, IMAGES of convert-dota" + (f"; or {own}" if own else ""),
            missing,
        )


def _refuse_mixed(images: Sequence[RecordImage], videos: Sequence[str], title: str) -> None:
    """Raise ConversionError for images and frames of videos in one JSON file: its reader would not know the images.

    videos: those of all parts.
    """
    first = {True: videos[0]} if videos else {}
    # reversed, so that the first of either kind stays
    first |= {bool(image.video): image.name for image in reversed(images)}
    if len(first) > 1:
        note = f"{first[True]} is a frame of a video and {first[False]} is not"
        raise ConversionError(f"{title}: {note}; convert the files of images and of videos one by one")


def _settle(images: Sequence[RecordImage], stored: StoredObjects) -> None:
    """Append a finding to each record whose image belongs to another one."""

    def claims() -> Iterator[Pair]:
        return (Pair(f"{index:09}", (image.name,), image.rank) for index, image in enumerate(images) if image.name)

    for index in map(int, settle_claims(claims)):
        image = images[index]
        file = stored.about(image).file if image.start >= 0 else image.name
        note = f"its image {image.name} belongs to an earlier entry, or to one with a better name"
        image.findings = [*image.findings, Finding(file, "image-shared", after=image.name, note=note)]


def _note_similar(images: Sequence[RecordImage], unnamed: Sequence[str]) -> None:
    """Say of records without an image which one has nearly the name of their file, and no record."""
    lost: dict[str, RecordImage] = {}
    for record in images:
        last = None if record.name else next(reversed([*record.findings]), None)
        if last and last.kind == "image-missing":
            lost[last.file] = record
    for image, file in similar_names(lost, unnamed).items() if lost else ():
        *others, last = lost[file].findings
        note = f"{last.note}; {image} has nearly its name and no annotations: rename one of them"
        lost[file].findings = [*others, replace(last, note=note)]


def _image_without_record(name: str, finder: Images, stored: StoredObjects, kind: str) -> RecordImage:
    findings: list[Finding] = []
    image, file = RecordImage(name, findings), finder.prefix + name
    if header := header_of(name, finder, findings):
        findings.append(Finding(file, kind))
        if KINDS[kind].effect != "dropped":
            row = {"width": header.width, "height": header.height}
            stored.add(image, values_of(row, (file, file), [], [], header.fingerprint))
    return image
