"""Find the files of a YOLO dataset in Ultralytics' layout: data.yaml, its splits, the labels of each image."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

from detaug.converters.yolo.labels import YoloTask
from detaug.errors import ConversionError
from detaug.files.formats import DATA_YAML
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.known_files import what_file_is
from detaug.files.matching import ImageNames
from detaug.files.namesakes import splits_of
from detaug.files.paths import PathLike, last_part, list_files, regular_status
from detaug.files.text import is_plain, joined_spaces, lines_of, parse_yaml, read_text
from detaug.findings.finding import Finding, shown

_NAMES_OF_VAL = ("val", "validation", "valid")  # Ultralytics takes "validation" for val as well
_OTHER_NAMES = dict.fromkeys(_NAMES_OF_VAL, _NAMES_OF_VAL)


class DataYaml(NamedTuple):
    """The content of a data.yaml."""

    path: Path
    root: Path
    """The folder that the splits are relative to."""
    class_names: tuple[str, ...]
    """By class number, from 0."""
    splits: dict[str, tuple[str, ...]]
    task: YoloTask | None
    key_points: tuple[int, int] | None
    """kpt_shape: (number of keypoints, numbers of each) of pose labels."""
    flip_idx: list[int] | None
    """flip_idx: where each keypoint goes in a flipped image, from 0."""
    point_names: list[list[str]]
    """kpt_names: of the keypoints of each class; [] where they have none."""
    images: Path
    """The folder in which the images lie as the splits say: the root, or another one with the same folders."""

    def in_root(self, path: str) -> str:
        """Return the place below the root of an image, whose label file is found by it."""
        is_elsewhere = self.images != self.root and Path(path).is_relative_to(self.images)
        return os.path.join(self.root, os.path.relpath(path, self.images)) if is_elsewhere else path


class SplitImages(NamedTuple):
    """The images of a split, and findings about its entries."""

    folder: Path
    names: list[str]
    """Relative to the folder, in the split's order."""
    findings: list[Finding]


def find_data_yaml(path: Path) -> Path:
    """Return the file itself, or the data.yaml (or the only .yaml) of a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise ConversionError(f"{path} does not exist; give a data.yaml or the folder that holds it")
    yamls = sorted(child for child in path.iterdir() if child.suffix.lower() in (".yaml", ".yml"))
    named = [child for child in yamls if child.stem.lower() == "data"] or yamls
    if len(named) != 1:
        if yamls:
            several = ", ".join(child.name for child in yamls)
            raise ConversionError(f"{path} must hold one data.yaml, there are several: {several}; give the file")
        raise ConversionError(f"{path} must hold a data.yaml, there is none; give the file or folder of one")
    return named[0]


def read_data_yaml(path: Path, images: Path | None = None) -> DataYaml:
    """Read a data.yaml. images: see DataYaml; None for the root. Raises ConversionError where it cannot be used."""
    content = load_yaml(path)
    folder = path.absolute().parent
    named = content.get("path")
    # Ultralytics takes a relative path from its own settings' folder, then from the working directory.
    root = folder / named if isinstance(named, str) else folder
    root = root if root.is_dir() else folder
    class_names, shape, task = _class_names(content, path), _key_points(content, path), content.get("task")
    count = shape[0] if shape else 0
    return DataYaml(
        path,
        root,
        class_names,
        _splits(content, path),
        task if task in get_args(YoloTask) else None,
        shape,
        _flip_idx(content, path, count),
        _point_names(content, path, count, len(class_names)),
        images or root,
    )


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a yaml file whose content is a mapping of plain values; tags that would make objects are errors."""
    import yaml  # type: ignore[import-untyped]  # slow to import, and only YOLO needs it

    try:
        content = parse_yaml(read_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if what := what_file_is(path, but=(DATA_YAML,)):
            raise ConversionError(f"{path} {what}") from None
        raise ConversionError(f"{path} does not parse as yaml: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        what = what_file_is(path) or f"must be a mapping with train: and names:, got {type(content).__name__}"
        raise ConversionError(f"{path} {what}")
    if content.keys().isdisjoint(("names", "nc")) and (what := what_file_is(path)):
        raise ConversionError(f"{path} {what}")
    return content


def _class_names(content: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if names is None and type(count) is int and 0 < count <= 100_000:
        names = [f"class_{number}" for number in range(count)]  # as Ultralytics names them
    if isinstance(names, dict):
        if all(isinstance(number, str) and number.isdecimal() for number in names):  # "0": cat
            names = {int(number): name for number, name in names.items()}
        if sorted(map(repr, names)) != sorted(map(repr, range(len(names)))):
            raise ConversionError(f"{path}: names must be numbered from 0 without gaps, got {shown(list(names))}")
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise ConversionError(f"{path}: names must be a list of class names, or number: name; got {shown(names)}")
    if type(count) is int and count != len(names):
        raise ConversionError(f"{path}: nc is {count}, but there are {len(names)} names; correct one of them")
    return checked_names(names, path)


def checked_names(names: Sequence[Any], path: Path) -> tuple[str, ...]:
    """Return the names of classes. Raises ConversionError for one that is not text, empty or repeated."""
    class_names = tuple(_class_name(name, path) for name in names)
    for name, count in Counter(class_names).items():
        if count > 1:
            raise ConversionError(f"{path}: names must differ, got {shown(name)} {count} times")
    if not class_names:
        raise ConversionError(f"{path}: names must be those of the classes, got none")
    return class_names


def _class_name(name: Any, path: Path) -> str:
    if type(name) in (int, float):
        return str(name)
    if not isinstance(name, str):  # yaml reads no, yes, on, off, null and dates as other types
        remedy = "" if isinstance(name, list | dict) else f'; put it into quotes: "{name}"'
        raise ConversionError(f"{path}: names must be text, got {shown(name)}{remedy}")
    spaced = joined_spaces(name)
    if not spaced or not is_plain(spaced):
        raise ConversionError(f"{path}: names must not be empty or have control characters, got {shown(name)}")
    return spaced


def _key_points(content: Mapping[str, Any], path: Path) -> tuple[int, int] | None:
    shape = content.get("kpt_shape")
    if shape is None:
        return None
    whole = isinstance(shape, list) and len(shape) == 2 and all(type(number) is int for number in shape)
    if not whole or shape[0] < 1 or shape[1] not in (2, 3):
        raise ConversionError(f"{path}: kpt_shape must be [number of keypoints, 2 or 3], got {shown(shape)}")
    return shape[0], shape[1]


def _flip_idx(content: Mapping[str, Any], path: Path, count: int) -> list[int] | None:
    flips = content.get("flip_idx")
    if not count or not flips:
        return None
    if not (
        isinstance(flips, list) and all(type(index) is int for index in flips) and sorted(flips) == [*range(count)]
    ):
        rule = f"flip_idx must have each of 0..{count - 1} once, where each keypoint goes in a flipped image"
        raise ConversionError(f"{path}: {rule}, got {shown(flips)}")
    return flips


def _point_names(content: Mapping[str, Any], path: Path, count: int, classes: int) -> list[list[str]]:
    """Return the names of the keypoints of each class: Ultralytics has a list by class number, or one for all."""
    kpt_names = content.get("kpt_names")
    if not count or not kpt_names:
        return [[]] * classes
    of_class = kpt_names if isinstance(kpt_names, dict) else dict.fromkeys(range(classes), kpt_names)
    for names in of_class.values():
        if not (isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)):
            rule = f"kpt_names must be {count} names (kpt_shape), or such a list for each class number"
            raise ConversionError(f"{path}: {rule}, got {shown(names)}")
    return [list(of_class.get(number, [])) for number in range(classes)]


def _splits(content: Mapping[str, Any], path: Path) -> dict[str, tuple[str, ...]]:
    splits = {}
    for key, value in content.items():
        entries = value if isinstance(value, list) else [value]
        if key in ("train", "val", "validation", "valid", "test", "minival") and value is not None:
            if not all(isinstance(entry, str) and entry for entry in entries):
                raise ConversionError(
                    f"{path}: {key} must be a folder, a .txt file or a list of these, got {shown(value)}"
                )
            splits[str(key)] = tuple(entries)
    return splits


def split_key(data: DataYaml, split: str) -> str:
    """Return the key of a split in the data.yaml: val, validation and valid are one. Raises ConversionError."""
    key = next((key for key in _OTHER_NAMES.get(split, (split,)) if key in data.splits), None)
    if key is None:
        existing = ", ".join(data.splits) or "none"
        raise ConversionError(f"{data.path} has no split {shown(split)}; there are {existing}")
    return key


def find_images(data: DataYaml, split: str) -> SplitImages:
    """Return the images of a split: those in its folders, subfolders included, and those that its .txt files list."""
    key = split_key(data, split)
    findings: list[Finding] = []
    sources = [_resolve(data, entry) for entry in data.splits[key]]
    files = [file for source in sources for file in _images_of(source, data, findings)]
    if not files and not findings:
        raise ConversionError(f"{data.path}: {', '.join(map(str, sources))} has no images")
    tops = [str(source) for source in sources if source.is_dir()] + [
        os.path.dirname(file) for source in sources if source.is_file() for file in files
    ]
    folder = os.path.commonpath(tops or [str(data.images)])
    return SplitImages(Path(folder), _without_repeats(files, folder, findings), findings)


def _without_repeats(files: Sequence[str], folder: str, findings: list[Finding]) -> list[str]:
    seen: dict[str, None] = {}
    start = os.path.join(folder, "")
    for file in files:
        name = file[len(start) :] if file.startswith(start) else os.path.relpath(file, folder)
        if name in seen:
            findings.append(Finding(name, "split-entry-repeated", before=name))
        seen[name] = None
    return list(seen)


def _resolve(data: DataYaml, entry: str) -> Path:
    """Return the path of an entry as Ultralytics does: below the root, and ../train/images also as train/images."""
    entries = [entry, entry.removeprefix("../"), entry.replace("\\", "/")]  # the last one: as Windows writes it
    places = (folder / candidate for folder in dict.fromkeys((data.images, data.root)) for candidate in entries)
    existing = next((path for path in places if os.path.exists(path)), None)
    if existing is None:
        kind = " (a path of Windows)" if re.match(r"[A-Za-z]:[\\/]", entry) else " (a pattern)" if "*" in entry else ""
        remedy = "write the folder, or choose another split" if kind else "correct path: or choose another split"
        raise ConversionError(f"{data.path}: {entry}{kind} is not in {data.images}; {remedy}")
    return Path(os.path.normpath(existing))


def _images_of(source: Path, data: DataYaml, findings: list[Finding]) -> list[str]:
    if source.is_dir():
        return [os.path.join(source, name) for name in list_files(source, IMAGE_EXTENSIONS)]
    if source.name.lower().endswith(IMAGE_EXTENSIONS):
        return [str(source)]
    try:
        lines = lines_of(read_text(source))
    except ValueError as error:
        raise ConversionError(f"{source} {error}; a split is a folder or a text file with an image per line") from None
    return [*_listed(source, lines, data, findings)]


def _listed(source: Path, lines: Sequence[str], data: DataYaml, findings: list[Finding]) -> Iterator[str]:
    moved = cache(lambda: ImageNames(list_files(data.images, IMAGE_EXTENSIONS)))
    folders = [source.parent, data.root]
    if data.images != data.root:
        below = (os.path.relpath(folder, data.root) for folder in folders if folder.is_relative_to(data.root))
        folders = [data.images / folder for folder in below]
    for number, line in enumerate(lines, 1):
        if entry := line.strip():
            # Windows writes backslashes, and CVAT data/ in front of each path.
            entries = [entry, entry.replace("\\", "/"), entry.removeprefix("data/")]
            paths = [os.path.normpath(folder / candidate) for candidate in entries for folder in folders]
            existing = next((path for path in paths if regular_status(path)), None)
            is_moved = existing is None and _ABSOLUTE.match(entry)  # of the machine where the list was written
            existing = _with_its_end(moved(), entry.replace("\\", "/"), data.images) if is_moved else existing
            if existing and is_moved:
                findings.append(Finding(str(source), "split-entry-moved", line=number, before=entry, after=existing))
            if existing:
                yield existing
            else:
                rule = (
                    "is not a file" if not _ABSOLUTE.match(entry) else "is not a file, nor the end of one image's path,"
                )
                note = f"{entry} {rule} below {source.parent}; write paths relative to this folder"
                findings.append(Finding(str(source), "split-entry-missing", line=number, before=entry, note=note))


_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]")


def _with_its_end(images: ImageNames, path: str, root: Path) -> str | None:
    """Return the only image that ends like a path of another machine; None if there is none, or several."""
    name, splits = last_part(path), splits_of(path)
    matches = [image for image in images.namesakes.nearest(path) if last_part(image) == name]
    matches = [image for image in matches if not (splits and splits_of(image)) or splits & splits_of(image)]
    return os.path.join(root, matches[0]) if len(matches) == 1 else None


def label_file(image: PathLike) -> str:
    """Return the label file of an image, by Ultralytics' rule: the last /images/ of its path becomes /labels/."""
    stem = os.path.splitext(os.path.abspath(image))[0]
    return re.sub(r"^(.*)/images/", r"\1/labels/", stem, count=1, flags=re.DOTALL) + ".txt"
