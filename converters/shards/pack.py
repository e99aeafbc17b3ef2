"""Pack a COCO JSON file and its images into shards, WebDataset or TFRecord."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from detaug.arguments import parse_size
from detaug.coco.how_to_load import how_to_load, shapes_of
from detaug.coco.parts import part_head, refuse_keys_of_parts, refuse_part
from detaug.coco.rows import CocoRows, leave_out, read_coco_rows
from detaug.coco.writer import document_text
from detaug.converters.shards.formats import TAR, TFRECORD
from detaug.converters.shards.layout import Layout, Shard, ShardFormat, image_extension, write_samples
from detaug.errors import ConversionError
from detaug.files.atomic import replacing
from detaug.files.image_file import ImageFile, load_crc32c
from detaug.files.image_headers import ImageError, read_image_header
from detaug.files.paths import PathLike, identity, regular_status
from detaug.findings.finding import Finding, counted, shown
from detaug.machine.parallel import Progress, map_ahead
from detaug.outputs.folder import check_folder, check_with_images, made_folder, refuse_other_content
from detaug.outputs.guards import (
    IMAGES_ORDER,
    OnError,
    check_choice,
    check_json_and_folder,
    output_files,
)
from detaug.outputs.part import Part, check_part
from detaug.outputs.summary import (
    Summary,
    refuse_no_object_left,
    refuse_nothing_left,
    reported,
    stop_on_errors,
)

# The layout of the shards that `detaug pack` writes. `detaug convert-webdataset` and `detaug convert-tfrecord` turn
# them into the same JSON file again, but for `shard`, `offset`, `length` and `crc32c` of the images.
#
# Each image is one sample with one JSON text:
#
#   {"image": {...},        the image's entry of the JSON file, unchanged: id, file_name, width, height, any further key
#    "annotations": [...],  the image's entries of the JSON file, unchanged, in their order: id, image_id, category_id,
# bbox,
#                           any further key; and "category", the name of the category, which converting takes out again
#    "dataset": {...}}      only in the first sample of each shard: the JSON file without its images and annotations, so
# that
#                           info, licenses and all categories with their ids (also those without an object) come back
#
# Without "dataset", such as after shuffling into other shards, the categories are those of the annotations.
#
# WebDataset: KEY.EXT, the image's bytes, and then KEY.json, the text. KEY has no dot, and only the characters
# A-Z a-z 0-9 _ - and / for folders. It is made from file_name, which the text has in full.
# TFRecord: TensorFlow's object-detection features, and the text as the bytes feature image/coco. Labels are category
# ids, image/source_id is the image id in decimal. Features of objects are in the order of the annotations.
#
# offset and length of an image in DIR/NAME.json are those of the image's bytes: of the tar member's data, or of the
# value of image/encoded.

PackFormat = Literal["webdataset", "tfrecord"]

_FORMATS: Mapping[str, ShardFormat] = {"webdataset": TAR, "tfrecord": TFRECORD}
_THREADS = 2  # one lays out the next shard meanwhile; copying to the disk waits for the system, not for Python
_Place = dict[str, str | int]
"""shard, offset, length, crc32c: where an image lies (decision 13), and its checksum."""


def pack_coco(
    annotations: PathLike,
    images: PathLike,
    output: PathLike,
    *,
    format: PackFormat = "webdataset",
    shard_size: str | int = "256MB",
    on_error: OnError = "stop",
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Pack a COCO JSON file and its images into shards that webdataset and DALI's readers read.

    Writes output/NAME-00000.tar, or .tfrecord, and so on, with the name of the JSON file; beside each its index for
    DALI, NAME-00000.idx, the same as wds2idx or tfrecord2idx write; and output/NAME.json: the JSON file with "shard",
    "offset", "length" (bytes of the image in that shard) and "crc32c" (of these bytes) in each image. The bytes of the
    images, all ids, categories and further keys stay. The same input gives the same bytes. Images may also be in
    shards; `images` is then their folder. Needs google-crc32c (`pip install 'detaug[shards]'`).

    Existing files with other content are an error. All files appear at the end, NAME.json last. One image at a time is
    in memory. An annotation's own key "category" is replaced by the category's name.

    Raises ConversionError, an InputError, for input that cannot be packed, InputError for arguments, and OSError.

    Args:
        annotations: The COCO JSON file.
        images: The folder of the images.
        output: The folder for the shards.
        format: "webdataset": members KEY.jpg (or another extension) and KEY.json, with "image", "annotations", and in
            the first sample of a shard "dataset": info and all categories. KEY is the file name's stem with _ for
            characters other than A-Z a-z 0-9 _ - /. "tfrecord": TensorFlow's object-detection features, labels being
            category ids, and the same JSON file as the bytes feature image/coco.
        shard_size: The most bytes of a shard, such as "256MB", "1GB", "64MiB" or a number; a larger image has a shard
            of its own.
        on_error: "stop" at missing images and entries that cannot be used, after looking at all of them, or "skip"
            these.
        part: (number, of), such as (1, 3), to write only each third shard, from the first, and NAME-part-1-of-3.json
            instead of NAME.json; merge_coco joins the JSON files of all parts to the same bytes as one run writes.
        report: A JSON file for every finding.
        progress: Called with (images done, images in all) after each shard.

    >>> from detaug.converters import pack_coco
    >>> print(pack_coco("train.json", "demo/VOC/JPEGImages", "shards"))
    48 images (4 without boxes), 167 boxes in 6 classes
      ball          47
      car           20
      fish          32
      house         20
      mug           28
      tree          20
    written: shards
    load it: da.CocoReader("shards", "shards/train.json")
    """
    check_choice("format", format, PackFormat)
    check_choice("on_error", on_error, OnError)
    limit, own = parse_size("shard_size", shard_size), check_part(part)
    source, image_folder, folder = Path(annotations), Path(images), Path(output)
    paths = _check_paths(source, image_folder, folder, report)
    load_crc32c()  # its error before the work
    refuse_part(source)
    rows, findings = _read(source, image_folder)
    if own:
        refuse_keys_of_parts(source, rows.table.coco.document)
    stop_on_errors(findings, on_error, paths.get("report"))
    refuse_nothing_left(len(rows.images), source, findings, paths.get("report"))
    objects = len(rows.boxes) + int((rows.table.image_categories[rows.images] >= 0).sum())
    refuse_no_object_left(objects, source, findings, paths.get("report"))
    layout = Layout(rows, image_folder, _FORMATS[format], limit)
    document = folder / f"{source.stem}{f'-part-{own.number}-of-{own.of}' if own else ''}.json"
    with reported(findings, paths.get("report")), made_folder(folder):
        rows = _write(layout, document, folder / source.stem, own, progress)
    return Summary(
        output=folder,
        image_folder=folder,
        images=len(rows.images),
        images_without_boxes=rows.images_without_boxes(),
        class_counts=rows.class_counts(),
        crowds=rows.crowds(),
        findings=tuple(findings),
        report=paths.get("report"),
        next_step=how_to_load(
            document,
            folder,
            rows.videos(),
            shapes_of(rows.table.row("annotations", box) for box in rows.boxes.tolist()),
        ),
    )


def _check_paths(source: Path, images: Path, folder: Path, report: PathLike | None) -> dict[str, Path]:
    check_json_and_folder(source, images, IMAGES_ORDER)
    check_with_images("none", images)
    check_folder(folder)
    target = folder / f"{source.stem}.json"
    if identity(target) == identity(source):
        raise ConversionError(f"{target} is the input and would be replaced; give another folder")
    return output_files({"report": report}, source, target, images)


def _read(source: Path, images: Path) -> tuple[CocoRows, list[Finding]]:
    """Return the rows that can be packed, and findings. No image is opened but those with an unusual extension."""
    rows, findings = read_coco_rows(source)
    faulty = [*_faults(rows, images)]
    video_files = rows.table.videos.files
    if video_files and sum(fault.kind == "image-missing" for _, fault in faulty) == len(rows.images):
        raise ConversionError(
            f"{source}: the frames are in video files, as {shown(min(video_files.values()))}, and shards hold images; "
            "write the frames as the files that file_name says"
        )
    rows, faults = leave_out(rows, faulty)
    own = sum("category" in rows.table.row("annotations", box) for box in rows.boxes.tolist())
    if own:
        note = f"annotations.category, in {own:,} of its rows, becomes the category's name in the shards"
        faults.append(Finding(str(source), "key-dropped", before=["annotations.category", own], note=note))
    return rows, [*findings, *faults]


def _faults(rows: CocoRows, images: Path) -> Iterator[tuple[int, Finding]]:
    """Yield (position, finding) of each image that cannot be packed."""
    size, seen = cache(_file_size), set[str]()
    for image in rows.images.tolist():
        name, file = rows.file_name(image), rows.table.image_file(images, image)
        if size(file.path) < file.offset + (file.length or 0):
            note = f"is not in {images}" if file.length is None else f"{file.path} does not have its bytes"
            yield image, Finding(name, "image-missing", note=note)
        elif name in seen:  # in shards they may have one name
            yield image, Finding(name, "entry-invalid", note="its file_name is that of an earlier image; rename one")
        elif not image_extension(name) or size(file.path) == 0:
            yield from ((image, finding) for finding in _header_faults(name, file))
        seen.add(name)


def _file_size(path: str) -> int:
    """Return the bytes of a file; -1 for what is none. Raises OSError."""
    status = regular_status(path)
    return status.st_size if status else -1


def _header_faults(name: str, file: ImageFile) -> Iterator[Finding]:
    try:
        read_image_header(file)
    except ImageError as error:
        yield Finding(name, error.kind, note=str(error))


class _ShardFiles(NamedTuple):
    """A shard and the files to write for it, under their temporary names."""

    shard: Shard
    first: int
    """The number of its first image among those of all shards."""
    path: Path
    temporary: Path
    index_path: Path
    temporary_index: Path


def _write(layout: Layout, document: Path, start: Path, part: Part | None, progress: Progress | None) -> CocoRows:
    """Write the shards of a part, or all, their indexes and the JSON file, and return the rows in them.

    They get their names at the end, the JSON file last. start: of the names of the shards.
    """
    places: list[_Place] = []
    names, packed = set[str](), list[int]()
    with ExitStack() as stack:  # it ends in the reverse order
        unfinished = stack.enter_context(replacing(document))
        files = _shard_files(layout, start, part, names, stack)
        with closing(map_ahead(partial(_write_shard, layout), files, _THREADS)) as written:
            for shard_files, checksums in written:
                places += _places(shard_files, checksums)
                packed += range(shard_files.first, shard_files.first + len(shard_files.shard))
                if progress:
                    progress(len(places), len(layout.rows.images))
        _refuse_other_shards(start.parent, start.name, names)
        rows = layout.rows.without(set(np.delete(layout.rows.images, packed).tolist()))
        _write_text(unfinished, _document(layout, rows, places, part), document)
        refuse_other_content({}, {document: unfinished})
    return rows


def _shard_files(
    layout: Layout, start: Path, part: Part | None, names: set[str], stack: ExitStack
) -> Iterator[_ShardFiles]:
    """Yield the shards of a part, or all; add the names of all to `names`."""
    first = 0
    for number, shard in enumerate(layout.shards()):
        path, index_path = (Path(f"{start}-{number:05d}.{suffix}") for suffix in (layout.format.extension, "idx"))
        names |= {path.name, index_path.name}
        if part is None or number % part.of == part.number - 1:
            temporary, temporary_index = (stack.enter_context(replacing(target)) for target in (path, index_path))
            yield _ShardFiles(shard, first, path, temporary, index_path, temporary_index)
        first += len(shard)


def _write_shard(layout: Layout, files: _ShardFiles) -> tuple[_ShardFiles, list[int]]:
    """Write a shard and its index, and return the CRC-32C of each image."""
    with _naming(files.path), open(files.temporary, "wb") as file:
        checksums = write_samples((sample for _, sample in files.shard), file)
        file.write(bytes(layout.format.ending(file.tell())))
        file.flush()
        os.fsync(file.fileno())  # now, so that an error comes before any file gets its name
    _write_text(files.temporary_index, [layout.format.index_text(files.shard)], files.index_path)
    refuse_other_content({}, {files.path: files.temporary, files.index_path: files.temporary_index})
    return files, checksums


def _write_text(temporary: Path, text: Iterable[str], path: Path) -> None:
    with _naming(path), open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.writelines(text)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an OSError without a file name, such as that of a full disk, name this path."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise


def _places(files: _ShardFiles, checksums: Iterable[int]) -> Iterator[_Place]:
    shard = files.path.name
    for (offset, sample), crc32c in zip(files.shard, checksums, strict=True):
        place: _Place = {"shard": shard, "offset": offset + len(sample.before), "length": sample.image_bytes}
        yield place | {"crc32c": crc32c}


def _document(layout: Layout, rows: CocoRows, places: Iterable[_Place], part: Part | None) -> Iterator[str]:
    """Return the text of the JSON file: rows that are packed, in the order of the input."""
    table = rows.table
    images = (table.row("images", image) | place for image, place in zip(rows.images.tolist(), places, strict=True))
    boxes = sorted(rows.boxes.tolist())
    lists = {"images": images, "annotations": (table.row("annotations", box) for box in boxes)}
    if part is None:
        return document_text(table.coco.document, lists)
    names = map(layout.rows.file_name, layout.rows.images.tolist())
    head = part_head(part, [*names, f"{layout.format.extension} {layout.limit}"])
    positions = {"images": rows.images.tolist(), "annotations": boxes}
    return document_text({"part": head, **table.coco.document, "positions": positions}, lists)


def _refuse_other_shards(folder: Path, stem: str, names: Container[str]) -> None:
    """Raise ConversionError for shards of this dataset's name from another time: NAME-*.tar would read them, too."""
    pattern = re.compile(rf"{re.escape(stem)}-\d{{5,}}\.(tar|tfrecord|idx)")
    other = sorted(name for name in os.listdir(folder) if pattern.fullmatch(name) and name not in names)
    if other:
        raise ConversionError(
            f"{folder} has {counted(len(other), 'shard file')} of another dataset of this name, such as {other[0]}; "
            "give another folder, or move them away"
        )
