"""Split a COCO JSON file into several, such as for training and validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from detaug.arguments import renamed
from detaug.arrays import Bools, Floats, Ints
from detaug.coco.annotations import raise_on_errors
from detaug.coco.examine import examine_file
from detaug.coco.groups import GroupRule, joined_units
from detaug.coco.parts import refuse_part
from detaug.coco.table import Table
from detaug.coco.writer import document_text
from detaug.errors import InputError
from detaug.files.atomic import write_together
from detaug.files.image_headers import read_fingerprint
from detaug.files.near_duplicates import near_pairs, read_thumbnails
from detaug.files.paths import PathLike
from detaug.files.repeated import repeated_files
from detaug.findings.finding import counted, on_one_line, shown
from detaug.named_options import option
from detaug.outputs.guards import output_files


@dataclass(frozen=True)
class SplitSummary:
    """What `split_coco` wrote. str() is the table that the command prints.

    >>> from detaug.converters import split_coco, voc_to_coco
    >>> _ = voc_to_coco("demo/VOC", "all.json")
    >>> summary = split_coco("all.json", ["most.json", "rest.json"], (80, 20))
    >>> print(type(summary).__name__, summary.images, summary.class_counts["car"])
    SplitSummary (47, 13) (20, 5)
    """

    outputs: tuple[Path, ...]
    """The K files."""
    images: tuple[int, ...]
    """K"""
    boxes: tuple[int, ...]
    """K"""
    class_counts: dict[str, tuple[int, ...]]
    """The boxes of each class in each of the K files, in the order of the category ids."""
    crowds: tuple[int, ...] = ()
    """K: the crowds (iscrowd 1), which are not among the boxes."""

    def __str__(self) -> str:
        rows = {"images": self.images, "boxes": self.boxes}
        rows |= {f"  {name}": counts for name, counts in self.class_counts.items()}
        rows |= {"crowds": self.crowds} if any(self.crowds) else {}
        cells = [["", *(on_one_line(str(path)) for path in self.outputs)]]
        cells += [[on_one_line(name), *(f"{count:,}" for count in counts)] for name, counts in rows.items()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for name, *columns in cells:
            padded = [cell.rjust(width) for cell, width in zip(columns, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *padded]))
        return "\n".join(lines)


@renamed(shares="ratios")
def split_coco(
    annotations: PathLike,
    outputs: Sequence[PathLike],
    ratios: Sequence[float],
    *,
    seed: int = 0,
    group_key: str | None = None,
    group_name: str | None = None,
    images: PathLike | None = None,
    near: bool = False,
) -> SplitSummary:
    """Split a COCO JSON file into several: each image, with its boxes, goes to one of them.

    Groups stay together: all frames of a video, and the tiles that `detaug tile` cut of one image, go to one file.

    Rows keep their ids and all their keys, every file has all classes, and images stay in their order. All files are
    written, or none.

    Raises AnnotationError, an InputError, for a JSON file with errors, as `read_annotations` does, and InputError for
    arguments.

    Args:
        annotations: The COCO JSON file.
        outputs: K JSON files to write.
        ratios: K positive numbers, the part of the images that each gets: (80, 20) is the same as (0.8, 0.2). The split
            is stratified by class, as far as the images allow it (iterative stratification: Sechidis, Tsoumakas and
            Vlahavas, "On the Stratification of Multi-Label Data", 2011); images without boxes count as a class.
        seed: Another one gives another split; the same file, ratios and seed give the same bytes.
        group_key: A key of the images, such as "patient": those with the same value are a group, too.
        group_name: A regular expression, whose groups, or else all that it matches in the file names, name a group:
            r"^[^_]+".
        images: The folder of the images, whose files with the same bytes then stay together, too; a copy in both parts
            would be a leak.
        near: Images of that folder that are the same but for size, format, a crop of some per cent, a flip or
            brightness stay together, too, see `check_coco`.

    >>> from detaug.converters import split_coco, voc_to_coco
    >>> _ = voc_to_coco("demo/VOC", "all.json")
    >>> print(split_coco("all.json", ["most.json", "rest.json"], (80, 20)))
             most.json  rest.json
    images          47         13
    boxes          165         38
      ball          46         10
      car           20          5
      fish          36          5
      house         19          5
      mug           25          7
      tree          19          6
    """
    if near and images is None:
        raise InputError(f"{option('near')} compares the pixels of the images; give {option('images')}, too")
    parts = _parts(outputs, ratios)
    paths = output_files({f"output {number}": path for number, path in enumerate(outputs, 1)}, annotations)
    refuse_part(Path(annotations))
    table = examine_file(Path(annotations))
    raise_on_errors(table)
    unit, videos = _units(table, GroupRule(group_key, group_name), None if images is None else Path(images), near=near)
    labels = _labels(table, unit, int(videos.max()) + 1)
    part_of_unit = _filled(stratify(labels, parts, np.random.default_rng(seed)), labels, parts)
    _refuse_empty(table, [*paths.values()], part_of_unit)
    write_together(
        {path: _document(table, unit, videos, part_of_unit == index) for index, path in enumerate(paths.values())}
    )
    return _summary(table, tuple(paths.values()), part_of_unit[unit])


def _parts(outputs: Sequence[PathLike], ratios: Sequence[float]) -> list[float]:
    """Return the ratios as parts of 1."""
    if len(outputs) < 2 or len(outputs) != len(ratios):
        raise InputError(f"give two outputs or more, and a ratio for each, got {len(outputs)} and {len(ratios)}")
    if not all(np.isfinite(ratio) and ratio > 0 for ratio in ratios):
        raise InputError(f"ratios must be positive numbers, such as 80 and 20, got {', '.join(map(str, ratios))}")
    return [ratio / sum(ratios) for ratio in ratios]


def _units(table: Table, rule: GroupRule, folder: Path | None, *, near: bool) -> tuple[Ints, Ints]:
    """Return (N,) the number of each image's unit, which goes to one file, and (V,) that of each video."""
    count = len(table.image_ids)
    unit = np.arange(count)
    if table.coco.has_videos:
        ids = np.array([row["id"] for row in table.coco.document["videos"]])
        order = ids.argsort()
        unit, count = order[np.searchsorted(ids[order], table.videos.video_ids)], len(ids)
    marks = rule.marks(table)
    copies = [*_copies(table, folder), *(_near_copies(table, folder) if near else ())] if folder else []
    for copy, earlier in copies:
        marks[copy].append(("copy", earlier))
        marks[earlier].append(("copy", earlier))
    number = joined_units(unit, marks, count)
    return number[unit], number


def _copies(table: Table, folder: Path) -> Iterator[tuple[int, int]]:
    """Return (row, earlier row) of images whose files have the same bytes. Raises InputError for missing files."""
    if not folder.is_dir():
        raise InputError(f"images {folder} is not a folder; give the folder that file_name is relative to")
    prints: list[tuple[int, int] | None] = []
    missing: list[str] = []
    in_videos = table.videos.in_files
    for row, name in enumerate(table.file_names):
        try:
            prints.append(read_fingerprint(table.image_file(folder, row)) if name else None)
        except OSError:
            prints.append(None)
            if not in_videos[row]:
                missing.append(name)
    if missing:
        lacks = f"{len(missing):,} of {counted(len(prints), 'image')} of {table.path}, such as {shown(missing[0])}"
        raise InputError(f"images {folder} must have all images, got it without {lacks}; detaug check lists them")
    return repeated_files(prints, lambda row: table.image_file(folder, row))


def _near_copies(table: Table, folder: Path) -> Iterator[tuple[int, int]]:
    """Yield (row, earlier row) of images that are nearly the same. Those that do not decode are not compared."""
    rows = [row for row, name in enumerate(table.file_names) if name and not table.videos.in_files[row]]
    thumbnails, _ = read_thumbnails([table.image_file(folder, row) for row in rows])
    yield from ((rows[pair.second], rows[pair.first]) for pair in near_pairs(thumbnails))


def _labels(table: Table, unit: Ints, units: int) -> Labels:
    """Return (U, C + 1) which classes are in each unit; the last column: none of them."""
    ids = np.array(list(table.categories))
    labels = np.zeros((units, len(ids) + 1), bool)
    with_class = table.image_categories >= 0
    labels[unit[with_class], np.searchsorted(ids, table.image_categories[with_class])] = True
    labels[unit[table.image_index], np.searchsorted(ids, table.category_ids)] = True
    labels[:, -1] = ~labels.any(1)
    return labels


def _filled(part_of_unit: Ints, labels: Labels, parts: Sequence[float]) -> Ints:
    """Return the part of each unit, with one in each part whose ratio is at least half a unit.

    Where few units have many classes, each rarest class goes to the largest part, and so may all units. The unit to
    move is one with objects, with the fewest classes that its part would be without.
    """
    part_of_unit = part_of_unit.copy()
    for part, ratio in enumerate(parts):
        counts = np.bincount(part_of_unit, minlength=len(parts))
        if counts[part] or ratio * len(part_of_unit) < 0.5 or counts.max() < 2:
            continue
        units = np.flatnonzero(part_of_unit == counts.argmax())
        alone = labels[units].sum(0) == 1
        lost = (labels[units] & alone).sum(1)
        part_of_unit[units[np.lexsort((lost, labels[units, -1]))[0]]] = part
    return part_of_unit


def _refuse_empty(table: Table, paths: Sequence[Path], part_of_unit: Ints) -> None:
    grouped = len(part_of_unit) < len(table.image_ids)
    if len(part_of_unit) < len(paths):
        has = counted(len(part_of_unit), *("group of images", "groups of images") if grouped else ("image",))
        others = f", or a {option('group_key')} or {option('group_name')} that makes more groups"
        remedy = "give fewer outputs" + others * grouped
        raise InputError(f"{table.path} has {has} for {len(paths)} outputs; {remedy}")
    units = "groups of images" if grouped else "images"
    for index, path in enumerate(paths):
        if not (part_of_unit == index).any():
            raise InputError(f"{path} would get none of the {units} of {table.path}; give it a larger ratio")


def _document(table: Table, unit: Ints, videos: Ints, chosen: Bools) -> Iterator[str]:
    """Yield the text of a JSON file with the chosen (U,) of the units. videos: (V,) the unit of each."""
    images = chosen[unit]
    masks = {"images": images, "annotations": images[table.image_index]}
    if table.coco.has_videos:
        masks["videos"] = chosen[videos]
    document = table.coco.document
    return document_text(document, {key: compress(document[key], mask.tolist()) for key, mask in masks.items()})


def _summary(table: Table, paths: tuple[Path, ...], output: Ints) -> SplitSummary:
    """Return what is in the files. output: (N,) the number of each image's file."""
    of_box = output[table.image_index]
    ids = [table.category_ids[(of_box == index) & ~table.crowd] for index in range(len(paths))]
    counts = {
        name: tuple(int((class_ids == number).sum()) for class_ids in ids) for number, name in table.categories.items()
    }
    images, crowds = (np.bincount(numbers, minlength=len(paths)) for numbers in (output, of_box[table.crowd]))
    return SplitSummary(paths, tuple(images.tolist()), tuple(map(len, ids)), counts, tuple(crowds.tolist()))


Labels = NDArray[np.bool_]
"""(U, C): which of the labels each sample has."""


def stratify(labels: Labels, parts: Sequence[float], rng: np.random.Generator) -> Ints:
    """Return (U,) the number of the part that each sample goes to. parts: K shares, of 1 in all.

    Iterative stratification, algorithm 1 of Sechidis, Tsoumakas and Vlahavas, "On the Stratification of Multi-Label
    Data" (2011): the label with the fewest samples left is divided first, each of its samples to the part that
    wants the most of it, at a tie to the part that wants the most samples, and then at random. A sample without any
    label stays in part 0.
    """
    order = rng.permutation(len(labels))
    labels = labels[order]
    left = labels.sum(0)
    wanted_samples, wanted = np.multiply(parts, len(labels)), np.outer(left, parts)
    part_of_sample = np.full(len(labels), -1)
    while left.any():
        rarest = int(np.where(left > 0, left, len(labels) + 1).argmin())
        for sample in np.flatnonzero(labels[:, rarest] & (part_of_sample < 0)).tolist():
            part_of_sample[sample] = chosen = _most_wanting(wanted[rarest], wanted_samples, rng)
            wanted[labels[sample], chosen] -= 1
            wanted_samples[chosen] -= 1
            left -= labels[sample]
    # Back to the samples' own order: until here they were shuffled.
    unshuffled = np.zeros(len(labels), np.int64)
    unshuffled[order] = np.maximum(part_of_sample, 0)
    return unshuffled


def _most_wanting(wanted: Floats, wanted_samples: Floats, rng: np.random.Generator) -> int:
    """Return the part with the highest numbers (K,), the first array before the second."""
    best = np.flatnonzero(wanted == wanted.max())
    best = best[wanted_samples[best] == wanted_samples[best].max()]
    return int(best[0] if len(best) == 1 else rng.choice(best))
