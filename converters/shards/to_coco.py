"""Convert shards, TFRecord or WebDataset, to a COCO JSON file that has the place of each image (decision 13)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from detaug.coco.classes_and_images import joined_splits
from detaug.coco.how_to_load import how_to_load
from detaug.converters.shards.from_tfrecord import TFRecordOptions, feature_names, read_tfrecord
from detaug.converters.shards.from_webdataset import read_webdataset
from detaug.converters.shards.joined import JoinedShards
from detaug.converters.shards.samples import Shard, ShardContent, check_first_label
from detaug.errors import ConversionError, InputError
from detaug.files.atomic import write_atomically
from detaug.files.image_file import load_crc32c
from detaug.files.paths import PathLike, absolute, identity, last_part
from detaug.machine.cores import available_cores
from detaug.machine.parallel import Progress, map_in_jobs
from detaug.outputs.folder import check_folder
from detaug.outputs.guards import OnError, check_choice, check_classes, output_files
from detaug.outputs.summary import (
    Summary,
    refuse_no_object_left,
    refuse_nothing_left,
    refuse_other_numbers,
    reported,
    stop_on_errors,
)

_BYTES_FOR_PROCESSES = 64 << 20  # new processes take longer to start than smaller shards to read
_MOST_NAMES_SHOWN = 20


def tfrecord_to_coco(
    shards: Sequence[PathLike],
    output: PathLike,
    *,
    features: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    first_label: int = 1,
    extract: PathLike | None = None,
    on_error: OnError = "stop",
    jobs: int | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert TFRecord shards into one COCO JSON file, without unpacking them.

    Corners are relative to the image; boxes become COCO's [x, y, width, height] in pixels, rounded to 3 decimals and
    cut at the image's edges. difficult, truncated, is_crowd and area become keys of the annotation. Boxes without a
    class have that of their image. image/source_id becomes the image's id if it is a different whole number in each
    record.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Args:
        shards: TFRecord files of tf.train.Example with the features of TensorFlow's Object Detection API, or with
            image/class/label or image/class/text for classification.
        output: The COCO JSON file to write.
        features: Other names for some of them, by the keys of detaug.converters.shards.from_tfrecord.FEATURES, such as
            {"image": "jpeg", "label": "classes"}. The checksums of every record are verified, which needs google-crc32c
            (`pip install 'detaug[shards]'`).
        classes, first_label, extract, on_error, jobs, report, progress: See `webdataset_to_coco`; class numbers count
            from 1 here, since 0 is the background in TensorFlow's label maps.

    >>> from detaug.converters import tfrecord_to_coco
    >>> try:
    ...     tfrecord_to_coco(["demo/VOC/JPEGImages/000001.jpg"], "shards.json")
    ... except da.InputError as error:
    ...     print(str(error).splitlines()[0])
    000001.jpg: is not a TFRecord file: its first checksum is wrong [shard-unreadable]
    """
    options = TFRecordOptions(feature_names(features), first_label)
    check_first_label(first_label)
    others = "convert-tfrecord --feature KEY=NAME names others"
    conversion = _Conversion("TFRecord", partial(read_tfrecord, options), "feature", others)
    return conversion.run(shards, output, _Options(classes, extract, on_error, jobs, report, progress))


def webdataset_to_coco(
    shards: Sequence[PathLike],
    output: PathLike,
    *,
    classes: Sequence[str] | None = None,
    first_label: int = 0,
    extract: PathLike | None = None,
    on_error: OnError = "stop",
    jobs: int | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert WebDataset shards, tar files, into one COCO JSON file, without unpacking them.

    The JSON file has shard, offset, length and crc32c (of its bytes) of each image, and the size of its header, EXIF
    orientation applied (decision 2). Checksums need google-crc32c (`pip install 'detaug[shards]'`). Shards are named
    relative to their folder, or the deepest one that holds all: Summary.image_folder, which is what CocoReader takes.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    The same input gives the same bytes, with any number of jobs.

    Args:
        shards: Uncompressed tar files. Members with the same key, the name up to the first dot, are a sample: an image
            and its labels. These are a .json with "annotations", each with "bbox" [x, y, width, height] in pixels and
            "category", a name, or "category_id"; or a .txt with YOLO's rows; or a .cls with the class of the image, a
            number or a name. Further keys of the .json, and of its annotations, stay, ids too if they are whole numbers
            and none is missing or repeated; else images and annotations get the ids 1, 2, ... in the order of the
            shards and their samples.
        output: The COCO JSON file to write.
        classes: The names of the category ids 1, 2, ...; without them, names in the shards, or "class 1". Classes
            without a number are sorted by name.
        first_label: The number of the first class in .cls and .txt; it gets the category id 1.
        extract: A folder to write the images to, as plain files; the JSON file then has no shards.
        on_error: "stop" at shards and samples that cannot be used, after reading all of them, or "skip" these. A
            damaged shard is used up to the damage.
        jobs: Processes; None for one for each core.
        report: A JSON file for every finding.
        progress: Called with (shards done, shards in all).

    >>> from detaug.converters import webdataset_to_coco
    >>> try:
    ...     webdataset_to_coco(["train.json"], "shards.json")
    ... except da.InputError as error:
    ...     print(str(error).splitlines()[0])
    train.json: is a COCO JSON file; it needs no conversion: detaug check FILE.json IMAGES [shard-unreadable]
    """
    check_first_label(first_label)
    conversion = _Conversion(
        "WebDataset", partial(read_webdataset, first_label), "member", "a sample needs one of them"
    )
    return conversion.run(shards, output, _Options(classes, extract, on_error, jobs, report, progress))


@dataclass(frozen=True)
class _Options:
    """The options that both conversions have."""

    classes: Sequence[str] | None
    extract: PathLike | None
    on_error: OnError
    jobs: int | None
    report: PathLike | None
    progress: Progress | None

    def check(self) -> None:
        """Raise InputError for options that cannot be used."""
        check_choice("on_error", self.on_error, OnError)
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")
        check_classes(self.classes)
        if self.extract is not None:
            check_folder(Path(self.extract))


@dataclass(frozen=True)
class _Conversion:
    """One of the formats."""

    format: str
    read: Callable[[Shard], ShardContent]
    part: str
    """The name of a part of a record in messages."""
    hint: str

    def run(self, inputs: Sequence[PathLike], output: PathLike, options: _Options) -> Summary:
        """Convert shards. Raises InputError if the package for checksums is not installed."""
        load_crc32c()
        options.check()
        folder, shards = find_shards(inputs)
        paths = output_files({"output": output, "report": options.report}, *inputs)
        contents = self._contents(shards, options)
        self._refuse_no_labels(contents)
        for content in contents:
            if not content.samples and not content.findings:
                content.note("shard-empty", "")
        joined = JoinedShards(contents, options.classes, None if options.extract is None else Path(options.extract))
        findings, report = joined.findings, paths.get("report")
        # train-00000-of-00002.tfrecord is as a folder train/
        starts = (re.split(r"[-_.]", last_part(shard.name))[0] for shard in shards)
        findings += joined_splits(
            (f"{start}/{shard.name}" for start, shard in zip(starts, shards, strict=True)), folder
        )
        stop_on_errors(findings, options.on_error, report)
        names = ", ".join(map(str, inputs))
        refuse_nothing_left(joined.images, names, findings, report)
        objects = sum(joined.box_counts().values()) + sum(joined.image_counts().values())
        refuse_no_object_left(objects, names, findings, report)
        refuse_other_numbers(joined.numbers.fault(), names, findings, report)
        with joined.extracting(), reported(findings, report):
            write_atomically(paths["output"], joined.text(f"{self.format} shards, converted by detaug"))
        return Summary(
            output=paths["output"],
            image_folder=joined.extract or folder,
            images=joined.images,
            images_without_boxes=sum(not sample.labels for _, sample in joined.samples()),
            class_counts=joined.box_counts(),
            crowds=sum(content.crowds for content in contents),
            findings=tuple(findings),
            report=report,
            image_class_counts=joined.image_counts(),
            next_step=how_to_load(
                paths["output"],
                joined.extract or folder,
                joined.dataset.get("videos", ()),
                set().union(*(content.shapes for content in contents)),
            ),
        )

    def _contents(self, shards: Sequence[Shard], options: _Options) -> list[ShardContent]:
        """Read the shards, in several processes if that is quicker."""
        small = sum(os.path.getsize(shard.path) for shard in shards) < _BYTES_FOR_PROCESSES
        contents: list[ShardContent] = []
        jobs = options.jobs or (1 if small else available_cores())
        for content in map_in_jobs(self.read, shards, min(jobs, len(shards))):
            contents.append(content)
            if options.progress:
                options.progress(len(contents), len(shards))
        return contents

    def _refuse_no_labels(self, contents: Sequence[ShardContent]) -> None:
        """Raise ConversionError if no record has labels: they have other names, rather than no record having any."""
        if any(content.samples for content in contents) and not any(content.labeled for content in contents):
            names = list(dict.fromkeys(name for content in contents for name in content.parts))[:_MOST_NAMES_SHOWN]
            wanted = (
                "image/object/bbox/xmin or image/class/label" if self.format == "TFRecord" else ".json, .cls or .txt"
            )
            raise ConversionError(f"no record has the {self.part} {wanted}, there are {', '.join(names)}; {self.hint}")


def find_shards(shards: Sequence[PathLike]) -> tuple[Path, list[Shard]]:
    """Return the deepest folder that holds all shards, and the shards, in the order given. Raises InputError."""
    if isinstance(shards, str | os.PathLike) or not shards:
        raise InputError(f"shards must be a list of at least one file, got {shards!r}")
    paths = [Path(path) for path in shards]
    for path in paths:
        if path.is_dir():
            raise ConversionError(f"{path} is a folder; give its files, such as {path / '*'}")
        if not path.exists():
            raise ConversionError(f"{path} does not exist; give the shards' files")
    files = [*map(identity, paths)]
    if len(set(files)) < len(files):
        repeated = next(path for path, file in zip(paths, files, strict=True) if files.count(file) > 1)
        raise InputError(f"shards must be different files, got {repeated} twice")
    parents = {path.parent for path in paths}
    whole = [absolute(path.parent) / path.name for path in paths]
    top = parents.pop() if len(parents) == 1 else Path(os.path.commonpath([path.parent for path in whole]))
    names = [Path(os.path.relpath(path, absolute(top))).as_posix() for path in whole]
    return top, [Shard(str(path), name) for path, name in zip(paths, names, strict=True)]
