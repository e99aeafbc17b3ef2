"""Check a COCO JSON file and its images for everything that training would stop at or learn wrongly from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from detaug.check import decode as decoding
from detaug.check.boxes import check_boxes, class_counts, usable_boxes
from detaug.check.clean import Cleaned, NotCleaned, write_clean
from detaug.check.decode import USUAL_LIMITS, Fault, Limits, limits_for_strangers
from detaug.check.from_files import with_files
from detaug.check.images import (
    Header,
    OtherSplit,
    check_image_classes,
    check_images,
    find_changed,
    find_cut_off,
    read_headers,
    refuse_other_folder,
)
from detaug.check.maps import MapSummary, check_maps
from detaug.check.near import check_near
from detaug.check.shapes import check_shapes
from detaug.check.split_groups import check_groups
from detaug.check.summary import CheckSummary, report_document
from detaug.check.videos import check_videos
from detaug.coco.examine import examine_file
from detaug.coco.groups import GroupRule
from detaug.coco.parts import refuse_part
from detaug.coco.table import Table
from detaug.errors import InputError
from detaug.files.atomic import write_json
from detaug.files.image_headers import ImageHeader
from detaug.files.paths import PathLike
from detaug.files.pixel_types import DTYPES, RGB8
from detaug.findings.entries import Findings, count_findings, from_messages
from detaug.findings.finding import shown
from detaug.findings.kinds import CHECK_KINDS
from detaug.machine.parallel import Progress
from detaug.maps.kinds import MapKind
from detaug.named_options import option
from detaug.outputs.guards import IMAGES_ORDER, check_json_and_folder, output_files
from detaug.outputs.part import Part, check_part
from detaug.packages import require

_ORDER = {kind: rank for rank, kind in enumerate(CHECK_KINDS)}
_TOO_LARGE = "{:,} pixels, and --decode tries at most {:,}; make it smaller, or try a batch with it in the loader"


def check_coco(
    annotations: PathLike,
    images: PathLike,
    *,
    decode: bool = False,
    isolated: bool = False,
    part: tuple[int, int] | None = None,
    against: Sequence[PathLike] = (),
    group_key: str | None = None,
    group_name: str | None = None,
    size: tuple[int, int] | None = None,
    clean: PathLike | None = None,
    drop_classes: Sequence[str] = (),
    channels: int = 3,
    dtype: str = "uint8",
    maps: Mapping[str, MapKind] | None = None,
    near: bool = False,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> CheckSummary:
    """Check a COCO JSON file and its images.

    Writes only `clean` and `report`. Follows symbolic links in the image folder.

    Raises AnnotationError, an InputError, for a file that is not a COCO JSON file and for a folder without its images.

    Args:
        annotations: The JSON file.
        images: The folder that its file names are relative to.
        decode: Decode every image, with DALI, on the CUDA device if there is one, and open every video file.
        isolated: For untrusted files, decode in processes with limits of memory and time, images of any size; no video
            is opened.
        part: (number, of), such as (1, 3), to decode only the first third of the images, in the JSON file's order; all
            else is checked whole, and `clean` is refused.
        against: JSON files of other splits; images that are in one of them too are errors, and so are videos, images
            whose tiles are in both, and groups of `group_key` and `group_name`, see `split_coco`. Their images are
            beside them or in `images`.
        group_key: See `split_coco`; of the groups that must not be in two splits.
        group_name: See `split_coco`.
        size: The (H, W) pixels that training resizes to, which decide what boxes are tiny; None for the images' own.
        clean: A JSON file to write without the entries that have errors, or with these repaired; it is not written
            where no object would be left, or boxes are corners, and the summary says so.
        drop_classes: Names of classes without objects that `clean` leaves out.
        channels, dtype: Those of the reader, see `CocoReader`; images that have others are errors.
        maps: As those of `CocoReader`, {"semantic": ClassMap("masks")}; each file is decoded.
        near: Also compare the pixels of all images, those of `against` too, and find images that are the same but for
            size, format, a crop of some per cent, a flip or brightness; not with isolated: they are decoded without its
            limits.
        report: A JSON file for every finding.
        progress: Called with (images done, images in all), for their headers, their maps, and then, with decode, for
            their pixels.

    >>> from detaug.converters import check_coco
    >>> summary = check_coco("train.json", "demo/VOC/JPEGImages")
    >>> print(summary.errors, "errors,", summary.warnings, "warnings:", summary.kind_counts)
    0 errors, 0 warnings: {}
    """
    check_json_and_folder(annotations, images, IMAGES_ORDER)
    if decode:
        require(f"decoding every image ({option('decode')})", "torch", "nvidia.dali")
    if isolated and not decode:
        raise InputError(f"{option('isolated')} is about how images are decoded; give {option('decode')}, too")
    if drop_classes and clean is None:
        name = option("drop_classes", command="drop-class")
        raise InputError(f"{name} is about the JSON file that is written; give {option('clean')}, too")
    if isolated and near:
        two = option("near"), option("isolated")
        raise InputError(f"{two[0]} decodes images in processes without limits; give {two[1]} without it")
    own = check_part(part)
    if own and not decode:
        raise InputError(f"{option('part')} is about which images are decoded; give {option('decode')}, too")
    if own and clean is not None:
        two = option("part"), option("clean")
        raise InputError(f"{two[0]} decodes only some images, and {two[1]} must know all; leave one of them out")
    if channels < 1 or dtype not in DTYPES:
        rule = f"channels must be at least 1, and dtype one of {', '.join(DTYPES)}"
        raise InputError(f"{rule}; got {channels} and {dtype!r}")
    annotations, folder = Path(annotations), Path(images)
    if clean is not None:
        refuse_part(annotations)
    if not (group_key is None and group_name is None) and not against:
        raise InputError(f"groups are looked for in other splits; give {option('against')}, too")
    groups = GroupRule(group_key, group_name)
    paths = output_files({"clean": clean, "report": report}, annotations, folder, *against)
    others = [_other_split(path, folder) for path in against]
    table, headers = _read(annotations, folder, progress)
    bands = channels, dtype
    findings = [
        *table.findings,
        *check_images(table, folder, headers, others, bands),
        *check_boxes(table, size, [other.table for other in others]),
    ]
    findings += [*check_shapes(table), *check_image_classes(table)]
    for other in others:
        findings += check_groups(table, other.table, groups, one_folder=other.folder == folder)
    of_files, of_maps = check_maps(table, folder, headers, maps or {}, progress)
    findings += of_files
    if near:
        findings += check_near(table, folder, headers, others, findings, progress)
    only_maps = bool(maps) and not len(table.boxes)  # what is learned is in them
    if only_maps:
        of_boxes = ("objects-none", "class-empty", "class-elsewhere")
        findings = [finding for finding in findings if finding.kind not in of_boxes]
    limits = (limits_for_strangers() if isolated else USUAL_LIMITS) if decode else None
    findings += _check_pixels(table, folder, headers, progress, limits, own, bands)
    if opened := decode and not isolated:  # videos are opened in this process
        findings += check_videos(table, folder, headers, _own_rows(headers, own))
    findings = sorted(filter(len, findings), key=lambda finding: _ORDER[finding.kind])
    _check_dropped(table, drop_classes)
    cleaned = None
    if clean is not None:
        cleaned = write_clean(table, findings, paths["clean"], drop_classes, only_maps=only_maps)
    summary = _summary(
        table, folder, findings, cleaned, paths.get("report"), of_maps, decoded=decode, opened=opened, part=own
    )
    if report is not None:
        write_json(paths["report"], report_document(summary))
    return summary


def _read(annotations: Path, folder: Path, progress: Progress | None) -> tuple[Table, list[Header]]:
    """Return the JSON file, repaired where its image files tell how, and the images' headers.

    Raises AnnotationError for a folder without its images, unless there are errors in the JSON file, which may be the
    cause.
    """
    table = examine_file(annotations)
    headers = read_headers(table, folder, progress)
    refuse_other_folder(table, folder, headers, surely=True)
    repaired = with_files(table, folder, headers)
    if repaired is not table:
        return repaired, read_headers(repaired, folder)
    refuse_other_folder(table, folder, headers, surely=any(finding.severity == "error" for finding in table.findings))
    return table, headers


def _summary(
    table: Table,
    folder: Path,
    findings: Sequence[Findings],
    cleaned: Cleaned | NotCleaned | None,
    report: Path | None,
    maps: Sequence[MapSummary],
    *,
    decoded: bool,
    opened: bool,
    part: Part | None,
) -> CheckSummary:
    names = list(table.categories.values())
    unique_names = {
        number: name if names.count(name) == 1 else f"{name} (id {number})" for number, name in table.categories.items()
    }
    return CheckSummary(
        annotations=table.path,
        image_folder=folder,
        images=len(table.file_names),
        images_without_boxes=len(table.file_names) - len(np.unique(table.image_index[usable_boxes(table)])),
        class_counts={unique_names[number]: count for number, count in class_counts(table).items()},
        kind_counts=count_findings(findings),
        decoded=decoded,
        part=str(part or ""),
        opened=opened,
        cleaned=cleaned,
        report=report,
        table=table,
        groups=tuple(findings),
        maps=tuple(maps),
    )


def _check_dropped(table: Table, names: Sequence[str]) -> None:
    """Raise InputError for names that are not classes, or have objects."""
    used = {table.categories[number] for number in table.category_ids[table.has_category].tolist()}
    used |= {table.categories[number] for number in table.image_categories.tolist() if number >= 0}
    for name in names:
        if name not in table.categories.values() or name in used:
            unused = ", ".join(shown(other) for other in table.categories.values() if other not in used) or "none"
            fault = "has objects" if name in used else "is not a class of the JSON file"
            raise InputError(f"drop_classes must be classes without objects, which are {unused}; {shown(name)} {fault}")


def _other_split(path: PathLike, folder: Path) -> OtherSplit:
    """Return another split with the folder of its images: beside its JSON file, or this one, where more of them are."""
    other = examine_file(Path(path))

    def images_in(there: Path) -> int:
        return sum(
            bool(name) and other.image_file(there, index).exists() for index, name in enumerate(other.file_names)
        )

    there = max(other.path.parent, folder, key=images_in)  # with as many in both, beside its JSON file
    return OtherSplit(with_files(other, there, read_headers(other, there)), there)


def _check_pixels(
    table: Table,
    folder: Path,
    headers: Sequence[Header],
    progress: Progress | None,
    limits: Limits | None,
    part: Part | None,
    bands: tuple[int, str],
) -> Iterator[Findings]:
    """Yield findings about images that changed or are cut off; with limits, also about those that do not decode."""
    changed = find_changed(table, folder, headers)
    cut_off = {index: reason for index, reason in find_cut_off(table, folder, headers).items() if index not in changed}
    messages = {"image-changed": changed, "image-broken": cut_off}
    if limits:
        readable = {index: header for index, header in enumerate(headers) if isinstance(header, ImageHeader)}
        pixels = {
            index: header.width * header.height for index, header in readable.items() if not header.pixels.fault(*bands)
        }
        own = _own_rows(headers, part)
        rest = {
            index: area
            for index, area in pixels.items()
            if index in own and index not in changed and index not in cut_off
        }
        dtype = None if bands == RGB8 else bands[1]
        for index, fault in _decoding_faults(table, folder, rest, progress, limits, dtype).items():
            messages.setdefault(fault.kind, {})[index] = fault.reason
    for kind, of_kind in messages.items():
        if of_kind:
            yield from_messages(kind, "images", of_kind)


def _own_rows(headers: Sequence[Header], part: Part | None) -> Sequence[int]:
    """Return the positions of the images of the part."""
    return range(len(headers)) if part is None else part.items(range(len(headers)))


def _decoding_faults(
    table: Table, folder: Path, pixels: dict[int, int], progress: Progress | None, limits: Limits, dtype: str | None
) -> dict[int, Fault]:
    """Return why images do not decode, by position. pixels: of the images to decode. dtype: see `find_undecodable`."""
    rows = [index for index, area in pixels.items() if area <= limits.pixels]
    too_large = {index: area for index, area in pixels.items() if area > limits.pixels}
    all_faults = {
        index: Fault("image-not-decoded", _TOO_LARGE.format(area, limits.pixels)) for index, area in too_large.items()
    }
    if rows:
        files = [table.image_file(folder, row) for row in rows]
        faults = decoding.find_undecodable(files, progress, limits, dtype)
        all_faults |= {rows[n]: fault for n, fault in faults.items()}
    return all_faults
