"""Convert records to one COCO json: find the images and their sizes, put the objects into them, count, write."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from detaug.converters.coco.writer import (
    ANNOTATION_FILE,
    OWN_KEYS,
    PREFIX,
    TOOL_ID,
    Row,
    annotation_row,
    category_rows,
    write_coco,
)
from detaug.converters.conversion.arguments import OnError, check_choice, output_files
from detaug.converters.conversion.classes_and_images import alike_classes, header_findings, unused_classes
from detaug.converters.conversion.summary import Summary, refuse_nothing_left, reported, stop_on_errors
from detaug.converters.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.converters.files.matching import Pair, settle_claims
from detaug.converters.files.parallel import Progress
from detaug.converters.files.paths import PathLike, last_part, stem_of
from detaug.converters.files.text import is_utf8, joined_spaces
from detaug.converters.findings.finding import Finding, counted, has_error
from detaug.converters.records.images import Images
from detaug.converters.records.placing import Place, Placed
from detaug.converters.records.record import Contents, Record
from detaug.errors import ConversionError, InputError

_DEEPEST = 50
"""Of values in values, in a column."""


@dataclass(frozen=True)
class Options:
    """The options that all formats have."""

    classes: Sequence[str] | None = None
    on_error: OnError = "stop"
    report: PathLike | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_choice("on_error", self.on_error, OnError)
        if isinstance(self.classes, str):
            raise InputError(f"classes must be a list of names, got the text {self.classes!r}; use [{self.classes!r}]")


@dataclass(slots=True)
class _Image:
    """One image with its objects in pixels."""

    name: str
    header: ImageHeader | None = None
    objects: list[Placed] = field(default_factory=list)
    ignored: list[Placed] = field(default_factory=list)
    """Regions that become crowds of each class."""
    findings: list[Finding] = field(default_factory=list)
    record: Record | None = None
    rank: int = 0


class _DataSet(NamedTuple):
    """What is written."""

    images: list[_Image]
    class_names: list[str]
    key_points: dict[str, list[str]]
    """By class."""
    contents: Contents


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
    report = paths.get("report")
    found = Images(images)
    read = [*_read(contents, found, options)]
    findings = [*contents.findings]
    _refuse_other_folder(read, found, title)
    _settle(read)
    rest = []
    if unnamed := _unnamed(read, found):
        if is_whole and any(each.record and each.record.stem for each in read):
            rest = [_image_without_record(name, found) for name in unnamed]
        else:
            note = f"{counted(len(unnamed), 'image')} left out, such as {unnamed[0]}: no annotations are of it"
            findings.append(Finding("", "image-unlisted", note=note, count=len(unnamed)))
    findings += [finding for each in (*read, *rest) for finding in each.findings]
    usable = sorted((each for each in (*read, *rest) if each.header and not has_error(each.findings)), key=_order)
    _refuse_mixed(usable, title)
    dataset, about_classes = _with_classes(usable, contents, options.classes, findings)
    findings += about_classes
    stop_on_errors(findings, options.on_error, report)
    refuse_nothing_left(len(usable), inputs[0], findings, report)
    folder = found.deepest_folder([each.name for each in usable])
    info = {"description": f"{title}, converted by detaug"}
    with reported(findings, report):
        write_coco(
            paths["output"],
            _image_rows(dataset, folder),
            _annotation_rows(dataset),
            _category_rows(dataset),
            info,
            _video_rows(dataset),
        )
    counts = Counter(item.class_name for each in usable for item in each.objects)
    return Summary(
        output=paths["output"],
        image_folder=images / folder if folder else images,
        images=len(usable),
        images_without_boxes=sum(not each.objects for each in usable),
        class_counts={name: counts[name] for name in dataset.class_names},
        findings=tuple(findings),
        report=report,
        next_step=_next_step(dataset, images / folder if folder else images, paths["output"]),
    )


def _order(image: _Image) -> tuple[str, int, str]:
    frame = image.record.frame if image.record else None
    return image.record.video if image.record else "", -1 if frame is None else frame, image.name


def _read(contents: Contents, found: Images, options: Options) -> Iterator[_Image]:
    """Yield the image of each record; its name is "" where there is none."""
    done = 0
    for done, record in enumerate(contents.records, 1):
        yield _image_of(record, found)
        record.objects = []  # the image has them now, in pixels
        if options.progress and done % 64 == 0:
            options.progress(done, max(done, contents.total))
    if options.progress:
        options.progress(done, done)


def _image_of(record: Record, found: Images) -> _Image:
    name, rank = found.find(record)
    image = _Image(name or "", record=record, rank=rank, findings=record.findings)
    if not name or not _read_header(image, found):
        return image
    assert image.header is not None
    size = image.header.width, image.header.height
    if record.size and record.size != size:
        kind = "size-unrotated" if record.size == image.header.stored_size else "size-conflict"
        image.findings.append(Finding(record.file, kind, before=[*record.size], after=[*size]))
    scale = (size[0] / record.unit[0], size[1] / record.unit[1]) if record.unit else (1.0, 1.0)
    place = Place(size[::-1], scale, record)
    seen: dict[tuple[Any, ...], list[Placed]] = {}
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
            image.ignored.append(placed)
            continue
        earlier = seen.setdefault((class_name, placed.box), [])
        if any(placed.keys == other.keys and placed.key_points == other.key_points for other in earlier):
            place.note("box-repeated", item, after=[*placed.box])
        earlier.append(placed)
        image.objects.append(placed)
    return image


def _read_header(image: _Image, found: Images) -> bool:
    """Read the header of an image; return whether it can be used."""
    if not is_utf8(image.name):
        image.findings.append(Finding(image.name, "file-name-not-utf8"))
        return False
    try:
        image.header = read_image_header(os.path.join(found.folder, image.name))
    except ImageError as error:
        image.findings.append(Finding(image.name, error.kind, note=str(error)))
        return False
    image.findings.extend(header_findings(image.name, image.name, image.header))
    return True


def _refuse_other_folder(read: Sequence[_Image], found: Images, title: str) -> None:
    """Raise ConversionError where no image is found: the folder is wrong, rather than every image missing."""
    kinds = ("image-missing", "label-unused")
    missing = [each.findings[-1] for each in read if each.findings and each.findings[-1].kind in kinds]
    if read and len(missing) == len(read):
        raise ConversionError(
            f"{found.folder} has the image of none of the {len(read):,} entries of {title}, the first is "
            f"{missing[0].before!r}; give the folder of the images: --images",
            missing,
        )


def _refuse_mixed(images: Sequence[_Image], title: str) -> None:
    """Raise ConversionError for images and frames of videos in one json: its reader would not know the images."""
    with_video = [each for each in images if each.record and each.record.video]
    if 0 < len(with_video) < len(images):
        first = next(each.name for each in images if not (each.record and each.record.video))
        note = f"{with_video[0].name} is a frame of a video and {first} is not"
        raise ConversionError(f"{title}: {note}; convert the files of images and of videos one by one")


def _settle(read: Sequence[_Image]) -> None:
    """Append a finding to each record whose image belongs to another one."""
    losers = settle_claims(Pair(f"{at:09}", (each.name,), each.rank) for at, each in enumerate(read) if each.name)
    for at in map(int, losers):
        record = read[at].record
        assert record is not None
        note = f"its image {read[at].name} belongs to an earlier entry, or to one with a better name"
        read[at].findings.append(Finding(record.file, "image-shared", after=read[at].name, note=note))


def _image_without_record(name: str, found: Images) -> _Image:
    image = _Image(name)
    if _read_header(image, found):
        image.findings.append(Finding(name, "label-missing"))
    return image


def _unnamed(read: Sequence[_Image], found: Images) -> list[str]:
    named = {each.name for each in read}
    return [name for name in found.names if name not in named]


def _with_classes(
    images: list[_Image], contents: Contents, classes: Sequence[str] | None, earlier: Sequence[Finding]
) -> tuple[_DataSet, list[Finding]]:
    """Return the data set with the objects of its classes, and findings about classes."""
    findings = []
    if classes is not None:
        for each in images:
            for item in each.objects:
                if item.class_name not in classes:
                    file = each.record.about(item.line) if each.record else each.name
                    findings.append(
                        Finding(file, "class-not-listed", item.object_index, item.line, before=item.class_name)
                    )
            each.objects = [item for item in each.objects if item.class_name in classes]
    counts = Counter(item.class_name for each in images for item in each.objects)
    listed = [*map(joined_spaces, contents.class_names)] if classes is None else [*classes]
    names = [*dict.fromkeys(listed), *sorted(counts.keys() - set(listed))]
    key_points = {name: [*points] for name, points in contents.key_points.items()}
    for each in images:
        for item in each.objects:
            if item.key_points:
                known = key_points.setdefault(item.class_name, [])
                known += [name for name in item.key_points if name not in known]
    left_out = {str(finding.before) for finding in (*earlier, *findings) if finding.kind == "class-not-listed"}
    findings += [*unused_classes((name for name in names if not counts[name]), left_out), *alike_classes(names)]
    return _DataSet(images, names, key_points, contents), findings


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{PREFIX}{name}" if name in OWN_KEYS else name: _plain(value) for name, value in columns.items()}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value without NaN and infinity, which json does not have, and without what is nested endlessly."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    return [_plain(each, depth + 1) for each in value] if isinstance(value, list) else value


def _videos(dataset: _DataSet) -> dict[str, int]:
    """Return the id of each video."""
    names = (each.record.video for each in dataset.images if each.record and each.record.video)
    return {name: number for number, name in enumerate(dict.fromkeys(names), 1)}


def _video_rows(dataset: _DataSet) -> Iterator[Row]:
    first = {each.record.video: each.header for each in reversed(dataset.images) if each.record}
    for name, number in _videos(dataset).items():
        header = first[name]
        assert header is not None
        yield {"id": number, "name": name, "width": header.width, "height": header.height}


def _image_rows(dataset: _DataSet, folder: str) -> Iterator[Row]:
    videos = _videos(dataset)
    for image_id, each in enumerate(dataset.images, 1):
        assert each.header is not None
        name = each.name.removeprefix(folder)
        row = {"id": image_id, "file_name": name, "width": each.header.width, "height": each.header.height}
        if each.record:
            row |= _origin(each, dataset.contents.files) | _columns(each.record.columns)
            if each.record.video:
                row |= {"video_id": videos[each.record.video], "frame_id": each.record.frame}
        yield row


def _origin(image: _Image, files: int) -> dict[str, Any]:
    """Return the keys that say where the annotations of an image come from, if its name does not."""
    assert image.record is not None
    file, found = image.record.file, dict[str, Any]()
    if files > 1 and stem_of(last_part(file)) != stem_of(last_part(image.name)):
        found[ANNOTATION_FILE] = file
    return found if image.record.tool_id is None else found | {TOOL_ID: image.record.tool_id}


def _annotation_rows(dataset: _DataSet) -> Iterator[Row]:
    ids = {name: number for number, name in enumerate(dataset.class_names, 1)}
    objects = [(image_id, item) for image_id, each in enumerate(dataset.images, 1) for item in each.objects]
    tracks = [item.track for _, item in objects if item.track is not None]
    free = count(max(tracks, default=0) + 1)  # either all annotations of a json have a track_id, or none has
    regions = [(image_id, item) for image_id, each in enumerate(dataset.images, 1) for item in each.ignored]
    objects += [(image_id, item._replace(class_name=name, is_crowd=True)) for image_id, item in regions for name in ids]
    for annotation_id, (image_id, item) in enumerate(objects, 1):
        row = annotation_row(annotation_id, image_id, ids[item.class_name], item.box, iscrowd=item.is_crowd)
        row |= item.keys
        if item.key_points:
            points = [item.key_points.get(name, (0, 0, 0)) for name in dataset.key_points[item.class_name]]
            row["keypoints"] = [number for point in points for number in point]
            row["num_keypoints"] = sum(visible > 0 for _, _, visible in points)
        if tracks:
            row["track_id"] = next(free) if item.track is None else item.track
        if item.tool_id is not None:
            row[TOOL_ID] = item.tool_id
        yield row | _columns(item.columns)


def _category_rows(dataset: _DataSet) -> Iterator[Row]:
    for row in category_rows(dataset.class_names):
        names = dataset.key_points.get(str(row["name"]))
        pairs = dataset.contents.skeletons.get(str(row["name"]))
        more: dict[str, object] = {"keypoints": names} if names else {}
        yield {**row, **more, **({"skeleton": [[*pair] for pair in pairs]} if names and pairs else {})}


def _next_step(dataset: _DataSet, folder: Path, output: Path) -> str:
    if _videos(dataset):
        return f'load it: da.ClipReader("{folder}", "{output}")'
    shapes = [item.keys for each in dataset.images for item in each.objects]
    reads = {
        "masks": any("segmentation" in keys and "corners" not in keys for keys in shapes),
        "keypoints": any(dataset.key_points.values()),
        "rotated": any("corners" in keys for keys in shapes),
    }
    given = "".join(f", {name}=True" for name, wanted in reads.items() if wanted)
    return f'load it: da.CocoReader("{folder}", "{output}"{given})'
