"""Merge several COCO JSON files into one."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from detaug.coco.classes_and_images import alike_classes, unused_classes
from detaug.coco.how_to_load import how_to_load, shapes_of
from detaug.coco.parts import (
    check_options_of_parts,
    class_findings,
    count_regions,
    is_part,
    joined_parts,
    read_parts,
    text_of_joined,
)
from detaug.coco.rows import CocoRows, read_coco_rows
from detaug.coco.table import ID_OF_ENTRY, OWN_KEYS
from detaug.coco.writer import category_rows, document_text
from detaug.errors import ConversionError, InputError
from detaug.files.atomic import write_atomically
from detaug.files.paths import PathLike, absolute, identity
from detaug.findings.finding import Finding, counted, shown
from detaug.named_options import option
from detaug.outputs.guards import OnError, check_choice, check_classes, output_files
from detaug.outputs.summary import (
    Summary,
    left_out_classes,
    refuse_no_object_left,
    refuse_nothing_left,
    refuse_other_classes,
    reported,
    stop_on_errors,
)

_Entry = dict[str, Any]

_KEY_POINT_KEYS = {"keypoints", "skeleton", "flip_idx"}
"""Keys of categories that say what the keypoints of annotations are."""

_NEW_ALREADY = {"image_id", "category_id", "neg_category_ids", "not_exhaustive_category_ids"}

_CATEGORIES_OF_IMAGES = ("neg_category_ids", "not_exhaustive_category_ids")
"""Keys of LVIS: lists of the ids of categories."""


def merge_coco(
    annotations: Sequence[PathLike],
    output: PathLike,
    *,
    images: Sequence[PathLike] = (),
    join: bool = False,
    classes: Sequence[str] | None = None,
    on_error: OnError = "stop",
    report: PathLike | None = None,
) -> Summary:
    """Merge several COCO JSON files into one, or give one file other classes.

    Images and annotations get the ids 1, 2, ... in the order of the files; classes too, in the order of their ids in
    the first file that has them. Classes are joined by their exact name; names that differ at most in case, spaces or
    Unicode form are reported. A class whose keypoints have other names, skeletons or flip_idx in two files is an error.
    All other keys of a row stay, but licences are left out, since their ids would contradict each other.

    The parts of one dataset, of `convert_to_coco` or `pack_coco` with `part`, are joined to the same bytes as one run
    writes. They are all given, in any order, without images, join and classes.

    An image that is in two of the files is an error, since a file name may occur only once; with join, it gets the
    boxes of both, if both files give it the same size. Videos get new ids, and their objects keep their track ids; then
    all files must have videos, and join is refused.

    Raises ConversionError, an InputError, for input that cannot be merged, and InputError for arguments.

    Args:
        annotations: The JSON files.
        output: The COCO JSON file to write.
        images: For each of them the folder that its file names are relative to; the merged file names are relative to
            the deepest folder that holds all of these, Summary.image_folder. Without it, all files share one folder,
            and file names stay as they are.
        join: Whether an image that is in two files gets the boxes of both.
        classes: Those of the merged file, in the order of their ids. Objects of others are left out, and so are images
            that are of another class as a whole.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these: then an image stays
            with the first file that has it.
        report: A JSON file for every finding.

    >>> from detaug.converters import merge_coco, voc_to_coco
    >>> for split in ("train", "val"):
    ...     _ = voc_to_coco("demo/VOC", f"{split}.json", split=split)
    >>> print(merge_coco(["train.json", "val.json"], "trainval.json"))
    60 images (4 without boxes), 203 boxes in 6 classes
      ball          56
      car           25
      fish          41
      house         24
      mug           32
      tree          25
    written: trainval.json
    load it: da.CocoReader(IMAGES, "trainval.json"), the images' folder first
    """
    check_choice("on_error", on_error, OnError)
    check_classes(classes)
    sources = [Path(path) for path in annotations]
    paths = output_files({"output": output, "report": report}, *sources, *images)
    if any(map(is_part, sources)):
        check_options_of_parts(images, join=join, classes=classes)
        return _merge_parts(sources, paths)
    few = len(sources) < (2 if classes is None else 1)
    if few or len({*map(identity, sources)}) < len(sources):
        raise InputError(
            "annotations must be two JSON files or more, or one with classes, all different, got "
            f"{[*map(str, sources)]}"
        )
    folder, prefixes = _prefixes(sources, [Path(path) for path in images])
    merged = _Merged(join, classes)
    for source, prefix in zip(sources, prefixes, strict=True):
        rows, findings = read_coco_rows(source)
        merged.findings += findings
        if images:
            _refuse_other_folder(rows, folder / prefix)
        merged.add(rows, prefix)
    merged.refuse_different_kinds()
    counts = merged.class_counts() + merged.image_class_counts()
    unused = (name for name in classes or () if not counts[name])
    merged.findings += unused_classes(unused, left_out_classes(merged.findings))
    merged.findings += alike_classes(merged.categories)
    stop_on_errors(merged.findings, on_error, paths.get("report"))
    refuse_nothing_left(len(merged.images), ", ".join(map(str, sources)), merged.findings, paths.get("report"))
    refuse_other_classes(counts, ", ".join(map(str, sources)), merged.findings, paths.get("report"))
    refuse_no_object_left(counts.total(), ", ".join(map(str, sources)), merged.findings, paths.get("report"))
    with reported(merged.findings, paths.get("report")):
        write_atomically(paths["output"], merged.text(f"{len(sources)} COCO JSON files, merged by detaug"))
    return merged.summary(paths, folder)


def _merge_parts(sources: Sequence[Path], paths: dict[str, Path]) -> Summary:
    """Join the parts of one dataset."""
    parts = read_parts(sources)
    document = joined_parts(parts)
    objects = document["annotations"][: len(document["annotations"]) - count_regions(parts)]
    counts = Counter(row["category_id"] for row in objects)
    class_counts = {row["name"]: counts[row["id"]] for row in document["categories"]}
    names, report = ", ".join(map(str, sources)), paths.get("report")
    refuse_nothing_left(len(document["images"]), names, [], report)
    refuse_other_classes(class_counts, names, class_findings(parts, class_counts), report)
    with reported([], report):
        write_atomically(paths["output"], text_of_joined(parts, document))
    return Summary(
        output=paths["output"],
        image_folder=Path("."),
        images=len(document["images"]),
        images_without_boxes=len(document["images"]) - len({row["image_id"] for row in objects}),
        class_counts=class_counts,
        crowds=_crowds(objects),
        findings=(),
        report=report,
        next_step=how_to_load(paths["output"], None, document.get("videos", ()), shapes_of(objects)),
    )


def _crowds(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(row.get("iscrowd") == 1 for row in rows)


def _prefixes(sources: Sequence[Path], folders: Sequence[Path]) -> tuple[Path, list[str]]:
    """Return the folder of the merged file names, and the start of the file names of each source."""
    if not folders:
        return Path("."), [""] * len(sources)
    if len(folders) != len(sources):
        raise InputError(f"images must be one folder for each of the {len(sources)} JSON files, got {len(folders)}")
    for folder in folders:
        if not folder.is_dir():
            raise ConversionError(f"images {folder} is not a folder; give the folder that file_name is relative to")
    whole = [absolute(folder) for folder in folders]
    top = os.path.commonpath(whole)
    return Path(top), [Path(os.path.relpath(folder, top)).as_posix() for folder in whole]


def _refuse_other_folder(rows: CocoRows, folder: Path) -> None:
    images = (rows.table.image_file(folder, image).exists() for image in rows.images.tolist())
    videos = ((folder / name).is_file() for name in rows.table.videos.files.values())
    if len(rows.images) and not any(images) and not any(videos):
        first = rows.file_name(int(rows.images[0]))
        raise ConversionError(f"{folder} has no image of {rows.table.path}, the first is {first}; give its folder")


def _with_new_categories(image: _Entry, ids: Mapping[int, int | None]) -> _Entry:
    """Return the row of an image with the new ids of the classes that it lists, where it has any."""
    image = {**image}
    for key in _CATEGORIES_OF_IMAGES:
        if isinstance(image.get(key), list):
            numbers = [ids.get(number) for number in image[key] if isinstance(number, int)]
            image[key] = [number for number in numbers if number is not None]
    return image


def _renumber(rows: Iterable[_Entry], ids: Mapping[str, Mapping[int, int | None]]) -> Counter[str]:
    """Give keys that end in image_id, annotation_ids or the like the new ids, in place; return how many by key.

    ids: the new ids by the old ones, of images, annotations and categories. A key that has others is left alone.
    """
    counts = Counter[str]()
    for row in rows:
        for key, value in row.items():
            named = ID_OF_ENTRY.search(key) if key.endswith(("id", "ids")) and key not in _NEW_ALREADY else None
            numbers = value if isinstance(value, list) else [value]
            if named and numbers and all(type(old) is int and old in ids[named[1]] for old in numbers):
                new = [number for old in numbers if (number := ids[named[1]][old]) is not None]
                row[key] = new if isinstance(value, list) else next(iter(new), None)
                counts[key] += 1
    return counts


@dataclass
class _Merged:
    """The rows of the files so far, with their new ids."""

    join: bool
    classes: Sequence[str] | None
    images: dict[str, _Entry] = field(default_factory=dict)
    """By path: `Table.path_of` in its folder."""
    annotations: list[_Entry] = field(default_factory=list)
    categories: dict[str, _Entry] = field(default_factory=dict)
    """By name."""
    first_file: dict[str, Path] = field(default_factory=dict)
    """The file that each category is from, by name."""
    videos: list[_Entry] = field(default_factory=list)
    tiled_images: dict[tuple[Path, Any], int] = field(default_factory=dict)
    """The new ids of the images that tiles were cut from, by file and id; their JSON file is not among the files."""
    findings: list[Finding] = field(default_factory=list)
    with_videos: dict[Path, bool] = field(default_factory=dict)
    """For each file, whether it has videos."""
    with_image_classes: dict[Path, bool] = field(default_factory=dict)
    """For each file, whether its images have classes of their own."""

    def __post_init__(self) -> None:
        self.categories = {str(row["name"]): {**row} for row in category_rows(self.classes or ())}

    def add(self, rows: CocoRows, prefix: str) -> None:
        """Add the rows of one file."""
        self.with_videos[rows.table.path] = rows.table.coco.has_videos
        self.with_image_classes[rows.table.path] = bool((rows.table.image_categories >= 0).any())
        category_ids = {number: self._category_id(rows, number) for number in rows.table.categories}
        video_ids = {row["id"]: self._video_id(row, prefix) for row in rows.videos()}
        lost = licenses = 0
        not_listed = Counter[str]()
        new_ids: dict[str, dict[int, int | None]] = {"image": {}, "annotation": {}, "category": category_ids}
        before = [len(self.images), len(self.annotations), len(self.videos) - len(video_ids)]
        for image, boxes in rows:
            category_id = int(rows.table.image_categories[image])
            if category_id >= 0 and category_ids[category_id] is None:
                not_listed[rows.table.categories[category_id]] += 1
                lost += len(boxes)
                continue
            row = _with_new_categories(rows.table.row("images", image), category_ids)
            self._renumber_tile(row, rows.table.path, prefix)
            if category_id >= 0:
                row["category_id"] = category_ids[category_id]
            image_id = self._image_id(rows, image, row, prefix, video_ids)
            licenses += "license" in rows.table.row("images", image)
            new_ids["image"][int(rows.table.image_ids[image])] = image_id
            if image_id is None:
                lost += len(boxes)
                continue
            for box in boxes:
                category_id = int(rows.table.category_ids[box])
                ids = {"id": len(self.annotations) + 1, "image_id": image_id, "category_id": category_ids[category_id]}
                if ids["category_id"] is None:
                    not_listed[rows.table.categories[category_id]] += 1
                else:
                    self.annotations.append(rows.table.row("annotations", box) | ids)
                old = rows.table.row("annotations", box)["id"]
                new_ids["annotation"][old] = None if ids["category_id"] is None else ids["id"]
        entries = zip(([*self.images.values()], self.annotations, self.videos), before, strict=True)
        counts = _renumber(chain.from_iterable(added[start:] for added, start in entries), new_ids)
        for key, count in counts.items():
            note = f"{key} is taken for ids of this file, which are new"
            self.findings.append(Finding(str(rows.table.path), "ids-inside", note=note, count=count))
        self._note_losses(str(rows.table.path), lost, licenses, not_listed)
        for key, value in rows.table.coco.document.items():
            if key not in OWN_KEYS and value:
                count = len(value) if isinstance(value, list) else 1
                note = f"{key}, which is beside the images, was left out"
                self.findings.append(Finding(str(rows.table.path), "key-dropped", before=[key, count], note=note))

    def text(self, description: str) -> Iterator[str]:
        """Yield the text of the JSON file."""
        rows: dict[str, Iterable[_Entry]] = {"videos": self.videos} if self.videos else {}
        rows |= {"images": self.images.values(), "annotations": self.annotations}
        rows["categories"] = self.categories.values()
        return document_text({"info": {"description": description}, **dict.fromkeys(rows)}, rows)

    def class_counts(self) -> Counter[str]:
        """Return the number of boxes of each class."""
        return self._count(self.annotations)

    def image_class_counts(self) -> Counter[str]:
        """Return the number of images of each class, where images themselves have classes."""
        return self._count(self.images.values())

    def _count(self, rows: Iterable[_Entry]) -> Counter[str]:
        names = {row["id"]: name for name, row in self.categories.items()}
        return Counter(names[row["category_id"]] for row in rows if row.get("category_id") is not None)

    def _note_losses(self, file: str, boxes: int, licenses: int, not_listed: Mapping[str, int]) -> None:
        if boxes:
            self.findings.append(Finding(file, "boxes-without-image", before=boxes, count=boxes))
        if licenses:
            note = f"the licences of {licenses:,} images were left out"
            self.findings.append(Finding(file, "key-dropped", before=["images.license", licenses], note=note))
        for name, count in not_listed.items():
            note = f"{counted(count, 'object')} of {name}, which is not among the classes"
            self.findings.append(Finding(file, "class-not-listed", before=name, note=note, count=count))

    def _category_id(self, rows: CocoRows, number: int) -> int | None:
        """Return the new id of a category, None for one that is not listed."""
        name = rows.table.categories[number]
        row = next(row for row in rows.table.coco.document["categories"] if row["id"] == number)
        if self.classes is not None and name not in self.categories:
            return None
        if name not in self.first_file:
            earlier = self.categories.get(name, {"id": len(self.categories) + 1, "name": name})
            self.categories[name] = row | earlier
            self.first_file[name] = rows.table.path
        category = self.categories[name]
        for key in _KEY_POINT_KEYS & row.keys():
            if category.setdefault(key, row[key]) != row[key]:
                raise ConversionError(
                    f"{rows.table.path} and {self.first_file[name]}: category {shown(name)} has different {key}, "
                    f"{shown(row[key])} and {shown(category[key])}, so its keypoints mean different things; "
                    "rename the category in one of them, or give both the same"
                )
        for key, value in row.items():
            if key not in _KEY_POINT_KEYS and key not in ("id", "name") and category.setdefault(key, value) != value:
                note = (
                    f"category {shown(name)}: {key} stays {shown(category[key])}, of {self.first_file[name]}; "
                    f"{shown(value)} was left out"
                )
                self.findings.append(
                    Finding(str(rows.table.path), "key-dropped", before=[f"categories.{key}", 1], note=note)
                )
        return int(category["id"])

    def _renumber_tile(self, row: _Entry, path: Path, prefix: str) -> None:
        """Give the image that a tile is of an id that no image of another file has, and its name the prefix."""
        tile_of = row.get("tile_of")
        if not isinstance(tile_of, dict):
            return
        key = path, shown(tile_of.get("id"))
        row["tile_of"] = tile_of | {"id": self.tiled_images.setdefault(key, len(self.tiled_images) + 1)}
        if isinstance(name := tile_of.get("file_name"), str):
            row["tile_of"]["file_name"] = posixpath.normpath(posixpath.join(prefix, name))
        self._renumber_tile(row["tile_of"], path, prefix)  # a tile of a tile

    def _video_id(self, row: _Entry, prefix: str) -> int:
        row = row | {"id": len(self.videos) + 1}
        if row.get("file_name"):
            row["file_name"] = posixpath.normpath(posixpath.join(prefix, row["file_name"]))
        self.videos.append(row)
        return len(self.videos)

    def refuse_different_kinds(self) -> None:
        """Raise ConversionError if only some files have videos or classes of images, or frames would be joined."""
        for what, has in {"videos": self.with_videos, "images with a category_id": self.with_image_classes}.items():
            having, lacking = ([path for path, has_it in has.items() if has_it == some] for some in (True, False))
            if having and lacking:
                raise ConversionError(f"{having[0]} has {what}, {lacking[0]} has none; merge files of one kind")
        if self.join and any(self.with_videos.values()):
            (first, *_) = self.with_videos
            raise ConversionError(f"{first} has videos, whose frames cannot be joined; leave out {option('join')}")

    def _image_id(
        self, rows: CocoRows, image: int, row: _Entry, prefix: str, video_ids: Mapping[int, int]
    ) -> int | None:
        """Return the image's new id; None, with a finding, where an earlier file has it and it may not be joined."""
        height, width = rows.table.sizes[image].tolist()
        row = row | {"width": width, "height": height}
        if video_ids:
            row["video_id"] = video_ids[row["video_id"]]
        key = "shard" if rows.table.places[image, 0] >= 0 else "file_name"
        row[key] = posixpath.normpath(posixpath.join(prefix, row[key]))
        name = posixpath.normpath(posixpath.join(prefix, rows.table.path_of(image)))
        row.pop("license", None)
        earlier = self.images.setdefault(name, row)
        if earlier is row:
            row["id"] = len(self.images)
            return len(self.images)
        fault = self._why_not_joined(earlier, row)
        note = f"is in {rows.table.path} and in an earlier file{fault}"
        self.findings.append(Finding(name, "image-in-two-files" if fault else "image-joined", note=note))
        return None if fault else int(earlier["id"])

    def _why_not_joined(self, earlier: _Entry, row: _Entry) -> str:
        sizes = [f"{entry['width']} x {entry['height']}" for entry in (row, earlier)]
        if sizes[0] != sizes[1]:
            return f", with {sizes[0]} pixels here and {sizes[1]} there"
        if row.get("category_id") != earlier.get("category_id"):
            return ", with another class of the image itself"
        if self.join:
            return ""
        repeated = any(finding.kind == "image-in-two-files" for finding in self.findings[-1:])
        joins = "" if any(self.with_videos.values()) else f"{option('join', python='True')} combines its boxes; "
        remedy = f"{joins}if these are different images, give {option('images')} for each file"
        return ", too" if repeated else f"; {remedy}"

    def summary(self, paths: dict[str, Path], folder: Path) -> Summary:
        """Return the summary of the merged file."""
        counts, of_images = self.class_counts(), self.image_class_counts()
        return Summary(
            output=paths["output"],
            image_folder=folder,
            images=len(self.images),
            images_without_boxes=len(self.images) - len({row["image_id"] for row in self.annotations}),
            class_counts={name: counts[name] for name in self.categories},
            crowds=_crowds(self.annotations),
            image_class_counts={name: of_images[name] for name in self.categories} if of_images else {},
            findings=tuple(self.findings),
            report=paths.get("report"),
            next_step=how_to_load(
                paths["output"], None if folder == Path(".") else folder, self.videos, shapes_of(self.annotations)
            ),
        )
