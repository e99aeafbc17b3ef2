"""Folders of maps, a PNG beside each image: Pascal VOC's masks, Cityscapes, and classes of pixels alone.

Sources: the VOC2012 development kit, sections 2.4 and 5.2; README.md and helpers/labels.py of
https://github.com/mcordts/cityscapesScripts; https://github.com/CSAILVision/sceneparsing, README.md (ADE20K);
config_v1.2.json of Mapillary Vistas; class_names.txt of https://github.com/wkentaro/labelme, labelmap.txt of CVAT.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.converters.records.images import Images
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Mask,
    Object,
    ObjectError,
    Record,
    contents_of_files,
    read_objects,
)
from detaug.converters.voc import masks as voc
from detaug.errors import ConversionError
from detaug.files.formats import MAP_FOLDERS
from detaug.files.image_headers import IMAGE_EXTENSIONS, PILLOW_ERRORS, ImageError, read_image_header
from detaug.files.large_images import ANY_NUMBER, allow_pixels
from detaug.files.matching import OTHER_FOLDER
from detaug.files.namesakes import SPLITS
from detaug.files.paths import last_part, list_files, stem_of
from detaug.findings.finding import Finding, counted, listed
from detaug.machine.cores import available_cores
from detaug.machine.parallel import map_ahead
from detaug.maps.kinds import CITYSCAPES, IDS, ClassMap, MapError, Table
from detaug.maps.kinds import pixels_of as map_pixels_of
from detaug.maps.values import is_scaled
from detaug.named_options import option

VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""By the number in SegmentationClass."""

CITYSCAPES_CLASSES = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)  # fmt: skip
"""By trainId."""

INSTANCES = {number: CITYSCAPES_CLASSES[CITYSCAPES[number]] for number in (24, 25, 26, 27, 28, 31, 32, 33)}
"""The classes of objects, by id."""
IGNORED = {29: "caravan", 30: "trailer"}
"""Those of objects that Cityscapes' evaluation ignores."""
FIRST_INSTANCE = 1000
"""Of `instanceIds`: id * 1000 + n is the n-th object of a class, a number below that is of no single object."""

UNKNOWN = frozenset((0, voc.VOID))


def pixels_of(path: Path) -> NDArray[Any]:
    """Return the numbers of a PNG, (H, W), or its colors (H, W, 3 or 4). Raises ObjectError, also for a palette."""
    from PIL import Image  # slow to import, and only masks need it

    try:
        with allow_pixels(ANY_NUMBER), Image.open(path, formats=("PNG",)) as image:
            is_palette, pixels = image.mode == "P", np.asarray(image)
    except PILLOW_ERRORS as error:
        raise ObjectError(f"{path} cannot be read: {error}") from None
    if is_palette:
        raise ObjectError(f"{path} has a palette, where numbers or colors are expected")
    return pixels


# ------------------------------------------------------------------------------------------------ images and maps


def _pairs(source: AnnotationFiles, stem_of_image: Callable[[str], str]) -> dict[str, list[str]]:
    """Return the image of each map that has one, of its name, and of several those in the most alike folder."""
    by_stem: dict[str, list[str]] = defaultdict(list)
    for name in _images(source):
        by_stem[stem_of(last_part(name))].append(name)
    pairs = {}
    for file in source.files:
        candidates = by_stem.get(stem_of_image(last_part(file)), [])
        alike = [_common(file, name) for name in candidates]
        pairs[file] = [name for name, number in zip(candidates, alike, strict=True) if number == max(alike)]
    return {file: names for file, names in pairs.items() if names}


def _images(source: AnnotationFiles) -> list[str]:
    """Return the images, which the folders of maps do not have."""
    names = list_files(source.images, IMAGE_EXTENSIONS)
    return [name for name in names if MAP_FOLDERS.isdisjoint(name.split("/")[:-1])]


def _common(one: str, other: str) -> int:
    """Count the names of folders, from the last one on, that two paths share."""
    shared = 0
    for a, b in zip(one.split("/")[-2::-1], other.split("/")[-2::-1], strict=False):
        if a != b:
            break
        shared += 1
    return shared


def _contents(
    source: AnnotationFiles,
    pairs: Mapping[str, list[str]],
    read: Callable[[Record, Path, tuple[int, int]], None],
    split: str | None,
    **more: Any,
) -> Contents:
    """Return the contents of maps. read: fills a record from a map, for an image of size (height, width).

    Images without a map are counted, unless they may be of other splits than `split`.
    """
    if not pairs:
        raise ConversionError(
            f"{source.images} has the image of none of {len(source.files)} maps, the first is {source.files[0]}; give "
            f"the folder of the images, {option('images')}"
        )
    images = sorted({name for names in pairs.values() for name in names})
    unlisted = [] if split else sorted({*_images(source)} - {*images})
    note = f"{counted(len(unlisted), 'image')} without a map, the first is {''.join(unlisted[:1])}"
    findings = [Finding("", "image-unlisted", note=note, count=len(unlisted))] if unlisted else []
    contents = contents_of_files(
        source, partial(_read, fill=read), images=images, find=_no_image, findings=findings, **more
    )
    return contents._replace(records=(_record(file, pairs.get(file, [])) for file in source.files))


def _record(file: str, images: Sequence[str]) -> Record:
    """Return the record of a map, with its image, or a finding for several."""
    if len(images) < 2:
        return Record(file, image="".join(images))
    folders = {os.path.dirname(name) for name in images}
    remedy = "rename all but one, and give each a map of its name"
    if len(folders) > 1:
        remedy = f"give the folder that has the images of the maps, {option('images')}"
    note = f"several images have the name of the map, {listed(images)}; {remedy}"
    return Record(file, findings=[Finding(file, "image-unclear", after=images[0], note=note)])


def _no_image(_: Images, record: Record) -> tuple[str | None, int]:
    if not record.findings:
        note = f"no image has the name of the map; give the folder of the images, {option('images')}"
        record.findings.append(Finding(record.file, "image-missing", note=note))
    return None, OTHER_FOLDER


def _read(source: AnnotationFiles, record: Record, *, fill: Callable[[Record, Path, tuple[int, int]], None]) -> None:
    if not record.image:
        return
    try:
        header = read_image_header(os.path.join(source.images, record.image))
    except ImageError:
        return  # it becomes a finding when its size is read
    fill(record, Path(source.name(record.file)), (header.height, header.width))


def _check_size(path: Path, numbers: NDArray[Any], size: tuple[int, int]) -> None:
    if numbers.shape[:2] != size:
        height, width = numbers.shape[:2]
        raise ObjectError(f"{path} has {width} x {height} pixels, and its image {size[1]} x {size[0]}")


def _numbers(path: Path, size: tuple[int, int]) -> NDArray[np.int64]:
    """Return (H, W) the numbers of a map: of a palette its indices, of VOC's colors their positions."""
    numbers = voc.read_masks(str(path), size)
    if isinstance(numbers, str):
        raise ObjectError(f"{path} {numbers or 'is not there'}")
    return numbers


def splits_of_maps(folder: Path, files: Sequence[str]) -> dict[str, list[str]]:
    """Return the maps of each split: of VOC's lists, ImageSets/Segmentation/NAME.txt, or in folders of its name."""
    above = [path for path in (folder / files[0]).parents if path.is_relative_to(folder)]
    lists = next((sets for path in above if (sets := path / "ImageSets/Segmentation").is_dir()), None)
    splits = defaultdict[str, list[str]](list)
    if lists is not None:
        for name in ("train", "val", "test"):
            if (path := lists / f"{name}.txt").is_file():
                stems = {*path.read_text("utf-8-sig").split()}
                splits[name] += [file for file in files if stem_of(last_part(file)) in stems]
    else:
        for file in files:
            for name in {SPLITS[part.lower()] for part in file.split("/")[:-1] if part.lower() in SPLITS}:
                splits[name].append(file)
    return {name: own for name, own in splits.items() if own}


def _of_split(source: AnnotationFiles, split: str | None) -> AnnotationFiles:
    """Return the files of a split. Raises ConversionError for one that there is not."""
    if split is None:
        return source
    splits = splits_of_maps(source.folder, source.files)
    if split not in splits:
        there = f"there are {', '.join(splits)}" if splits else "there are none; leave it out"
        raise ConversionError(f"{source.folder} has no maps of the split {split!r}: {there}")
    return source._replace(files=splits[split])


def _class_map(source: AnnotationFiles, files: Sequence[str], classes: Sequence[str], **more: Any) -> ClassMap:
    """Return the maps of classes that files are, in a folder of their own. classes: their names, if they are known."""
    folder = source.folder / os.path.commonpath([os.path.dirname(file) for file in files])
    return ClassMap(os.fspath(folder), classes=tuple(classes) or None, **more)


# --------------------------------------------------------------------------------------------------- Pascal VOC


def read_voc_masks(source: AnnotationFiles, split: str | None = None) -> Contents:
    """Read the objects of SegmentationObject, each of the class that most of its pixels have in SegmentationClass.

    The box is that of the mask. 0 and 255 mean none. Classes are those of class_names.txt or labelmap.txt, or VOC's
    where ImageSets/Segmentation is, else "class N".
    """
    source, names = _of_split(source, split), names_of_classes(source.folder, source.files[0])
    pairs = _pairs(source, stem_of)
    files = [_class_file(file) for file in source.files]
    table = _table_of_colors(source, files, names, strict=False)  # a file that is at fault is a finding
    map = _class_map(source, files, names, table=table)
    read = partial(_read_voc, names=names, map=map)
    return _contents(source, pairs, read, split, class_names=_without_background(names), keeps_unused=False, map=map)


def _class_file(file: str) -> str:
    return "SegmentationClass".join(file.rsplit(voc.FOLDER, 1))


def _read_voc(record: Record, path: Path, size: tuple[int, int], *, names: Sequence[str], map: ClassMap) -> None:
    objects = _numbers(path, size)
    of_pixels = _classes_of_pixels(Path(_class_file(str(path))), size, map)
    present = [number for number in np.unique(objects).tolist() if number not in UNKNOWN]
    read_objects(record, present, lambda number: _voc_object(objects == number, of_pixels, names, number))


def _classes_of_pixels(path: Path, size: tuple[int, int], map: ClassMap) -> NDArray[Any]:
    """Return (H, W) the numbers of a map of classes, of colors by its table."""
    if map.table is None or not path.is_file():
        return _numbers(path, size)
    try:
        classes = replace(map, classes=None).values_of(map_pixels_of(path), path)
    except MapError as error:
        raise ObjectError(str(error)) from None
    _check_size(path, classes, size)
    return classes


def _voc_object(mask: NDArray[np.bool_], of_pixels: NDArray[np.int64], names: Sequence[str], number: int) -> Object:
    values, counts = np.unique(of_pixels[mask], return_counts=True)
    known = {
        value: count for value, count in zip(values.tolist(), counts.tolist(), strict=True) if value not in UNKNOWN
    }
    if not known:
        raise ObjectError(f"object {number} has no class: SegmentationClass has 0 or 255 on all of its pixels")
    return Object(name_of(max(known, key=lambda value: known[value]), names), masks=[Mask(mask)])


def name_of(number: int, names: Sequence[str]) -> str:
    """Return the name of a class. Raises ObjectError for a number without one, where others have names."""
    if names and number >= len(names):
        raise ObjectError(f"class {number} has no name, of {len(names)}; add it to the file of names")
    return names[number] if names else f"class {number}"


def _without_background(names: Sequence[str]) -> list[str]:
    return [name for number, name in enumerate(names) if number]


def names_of_classes(folder: Path, file: str) -> list[str]:
    """Return the names of the classes 0, 1, ...: those of a file in a folder above a map, [] where none is.

    `class_names.txt` has one per line, from LabelMe with __ignore__ first, which is -1; `labelmap.txt` has
    name:r,g,b:parts:actions; objectInfo150.txt of ADE20K has tables with the names last; config*.json of Mapillary has
    `labels`.
    """
    for above in (folder / file).parents:
        if path := _first(above, "class_names.txt"):
            names = [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
            return names[1:] if names[:1] == ["__ignore__"] else names
        if path := _first(above, "labelmap.txt"):
            return [row[0] for row in _rows_of_labelmap(path)]
        if path := _first(above, "objectInfo150.txt"):
            rows = [line.split("\t") for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
            return [row[-1].strip() for row in rows if row[0].strip().isdecimal()]
        if path := _first(above, "config*.json"):
            labels = json.loads(path.read_text("utf-8-sig")).get("labels")
            return [str(row.get("readable") or row.get("name")) for row in labels or ()]
        if (above / "ImageSets/Segmentation").is_dir():
            return list(VOC_CLASSES)
        if above in (folder, *folder.parents):
            break
    return []


def _rows_of_labelmap(path: Path) -> list[list[str]]:
    """Return the fields of each class of a labelmap.txt, name:r,g,b:parts:actions."""
    lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    return [line.split(":") for line in lines if line and not line.startswith("#")]


def _first(folder: Path, pattern: str) -> Path | None:
    return next((path for path in sorted(folder.glob(pattern)) if path.is_file()), None)


# --------------------------------------------------------------------------------------------------- Cityscapes


def read_cityscapes(source: AnnotationFiles, split: str | None = None) -> Contents:
    """Read the objects of *_instanceIds.png: id * 1000 + n; id alone is a group, a crowd; caravans are ignored."""
    source = _of_split(source, split)
    pairs = _pairs(source, _stem_of_city)
    kind = stem_of(source.files[0]).removesuffix("_instanceIds").rpartition("_")[2]  # gtFine or gtCoarse
    map = _class_map(source, source.files, CITYSCAPES_CLASSES, suffix=f"_{kind}_labelIds", table="cityscapes")
    return _contents(source, pairs, _read_city, split, class_names=list(INSTANCES.values()), map=map)


def _stem_of_city(name: str) -> str:
    return f"{stem_of(name).removesuffix('_instanceIds').rpartition('_')[0]}_leftImg8bit"


def _read_city(record: Record, path: Path, size: tuple[int, int]) -> None:
    numbers = pixels_of(path)
    if numbers.ndim != 2:
        raise ObjectError(f"{path} has colors, where id * 1000 + n are expected")
    _check_size(path, numbers, size)
    read_objects(record, np.unique(numbers).tolist(), partial(_city_object, numbers=numbers))


def _city_object(number: int, numbers: NDArray[Any]) -> Object | None:
    class_id = number // FIRST_INSTANCE if number >= FIRST_INSTANCE else number
    name = INSTANCES.get(class_id) or IGNORED.get(class_id)
    if name is None and (number >= FIRST_INSTANCE or number > max(CITYSCAPES)):
        raise ObjectError(f"{number} is not an instanceId: id * 1000 + n for ids {min(INSTANCES)} to {max(INSTANCES)}")
    if name is None:
        return None
    is_ignored = class_id in IGNORED
    masks = [Mask(numbers == number)]
    return Object(name, masks=masks, is_crowd=number < FIRST_INSTANCE, is_ignored=is_ignored)


# ---------------------------------------------------------------------------------------- classes of pixels alone


def read_semantic(source: AnnotationFiles, split: str | None = None) -> Contents:
    """Read which images have a map, and the names of its classes: the JSON file has no boxes, and goes with maps=.

    Category n + 1 is number n of the map. Maps are read with `maps=` of a reader; here only their sizes are compared.
    """
    names = names_of_classes(source.folder, source.files[0])
    colors = _table_of_colors(source, source.files, names, strict=True)
    numbers = {*(colors or {}).values()}
    table: Table | None = colors
    if table is None and len(names) in (0, 2):
        numbers = _numbers_of_maps(source, source.files, strict=not names)  # of all splits
        if numbers == {0, voc.VOID}:  # a binary mask: 255, which is ignored elsewhere, is its other class
            numbers, table = {0, 1}, {0: 0, voc.VOID: 1}
    if not names:
        largest = max(numbers - {voc.VOID}, default=0)
        names = [f"class {number}" for number in range(largest + 1)]
    source = _of_split(source, split)
    pairs = _pairs(source, stem_of)
    is_ade = any(_first(above, "objectInfo150.txt") for above in (source.folder / source.files[0]).parents[:4])
    map = _class_map(source, source.files, names, table="ade20k" if is_ade else table)
    return _contents(source, pairs, _read_semantic, split, class_names=names, map=map)


def _numbers_of_maps(source: AnnotationFiles, files: Sequence[str], *, strict: bool) -> set[int]:
    """Return the numbers in maps, of VOC's colors their positions; -1 for a file that cannot be read.

    strict: raise ConversionError for such a file, and for one with a number above `IDS` - 1, the largest of a class.
    """

    def of_file(file: str) -> set[int]:
        numbers = voc.read_masks(str(source.folder / file), None)
        why = numbers if isinstance(numbers, str) else ""
        own = {-1} if isinstance(numbers, str) else {*np.unique(numbers).tolist()}
        if max(own, default=0) >= IDS:
            why = f"has the value {max(own)}, where a class is in 0..{IDS - 1}"
        if why and strict:
            raise ConversionError(
                f"{source.folder / file} {why}; read such maps with da.MapReader(images, masks, table=)"
            )
        return own

    return set().union(*map_ahead(of_file, files, available_cores()))


def _has_colors(path: Path) -> bool:
    """Return whether a map has colors, in place of numbers or a palette."""
    from PIL import Image  # slow to import, and only maps need it

    try:
        with Image.open(path, formats=("PNG",)) as image:
            return image.mode in ("RGB", "RGBA")
    except PILLOW_ERRORS:
        return False  # it becomes a finding when it is read


def _table_of_colors(
    source: AnnotationFiles, files: Sequence[str], names: Sequence[str], *, strict: bool
) -> dict[tuple[int, int, int], int] | None:
    """Return the class of each color, of labelmap.txt or VOC's; None if the first map has numbers or a palette.

    strict: as of `_numbers_of_maps`, which is asked where there are no names.
    """
    first = source.folder / files[0]
    if not _has_colors(first):
        return None
    for above in first.parents:
        if path := _first(above, "labelmap.txt"):
            try:
                colors = [tuple(int(part) for part in row[1].split(",")) for row in _rows_of_labelmap(path)]
                table = {(red, green, blue): number for number, (red, green, blue) in enumerate(colors)}
                return {voc.color_of(voc.VOID): voc.VOID} | table
            except (IndexError, ValueError):
                raise ConversionError(f"{path} must have lines of name:r,g,b:parts:actions") from None
        if above == source.folder:
            break
    numbers = range(len(names)) if names else sorted(_numbers_of_maps(source, files, strict=strict) - {-1})
    return {voc.color_of(number): number for number in (*numbers, voc.VOID)}


def _read_semantic(record: Record, path: Path, size: tuple[int, int]) -> None:
    from PIL import Image  # slow to import, and only maps need it

    try:
        with Image.open(path, formats=("PNG",)) as image:
            width, height = image.size
    except PILLOW_ERRORS as error:
        raise ObjectError(f"{path} cannot be read: {error}") from None
    if not is_scaled((height, width), size):
        raise ObjectError(f"{path} has {width} x {height} pixels, and its image {size[1]} x {size[0]}")
