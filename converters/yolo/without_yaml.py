"""Find the classes and the splits of YOLO datasets without a data.yaml: of Darknet, CVAT, labelImg, Label Studio.

Classes are in a file with a name on each line: that of obj.data, or obj.names, or classes.txt. Splits are those of
obj.data, or lists of images, such as train.txt, or folders.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from detaug.converters.yolo.files import DataYaml, checked_names, find_data_yaml, read_data_yaml
from detaug.errors import ConversionError, InputError
from detaug.files.known_files import what_folder_has
from detaug.files.paths import in_any_case, is_below, last_part, list_files
from detaug.files.text import lines_of, read_text

Splits = dict[str, tuple[str, ...]]

_SPLITS = ("train", "val", "valid", "validation", "test")
_YAML = ("data.yaml", "data.yml", "dataset.yaml")
_NAMES = ("classes.txt", "obj.names", ".names")
"""Ends of the names of files of classes."""


def read_data_set(path: Path, images: Path | None = None) -> DataYaml:
    """Return the classes and splits of a data.yaml, an obj.data, a file of classes, or the folder of one of these.

    images: see DataYaml; None for the root. Raises ConversionError.
    """
    images = images and images.absolute()
    if path.suffix.lower() == ".data":
        return _of_data_file(path, images)
    if path.name.lower().endswith(_NAMES) and path.is_file():
        return _of_folder(path.parent, path, images)
    if not path.is_dir() or any(child.suffix.lower() in (".yaml", ".yml") for child in path.iterdir()):
        data = read_data_yaml(find_data_yaml(path), images)
        # supervision writes a data.yaml with nothing but names.
        return data if data.splits else data._replace(splits=_splits_of(data.root, data.images))
    data_files = sorted(child for child in path.iterdir() if child.suffix.lower() == ".data")
    if not data_files and (below := _only_yaml_below(path)):
        return read_data_set(below, images)
    if len(data_files) > 1:
        names = ", ".join(child.name for child in data_files)
        raise ConversionError(f"{path} must hold one file of Darknet, there are several: {names}; give the file")
    return _of_data_file(data_files[0], images) if data_files else _of_folder(path, _names_file(path), images)


def _only_yaml_below(folder: Path) -> Path | None:
    """Return the one data.yaml in a folder deeper, as archives have it, such as dataset/data.yaml; else None.

    All text files must be below the folder of it: labels elsewhere would be left out.
    """
    names = [name for name in list_files(folder, (".yaml", ".yml")) if last_part(name).lower() in _YAML]
    if len(names) != 1:
        return None
    below = names[0].rpartition("/")[0] + "/"
    return folder / names[0] if all(name.startswith(below) for name in list_files(folder, (".txt",))) else None


def _of_data_file(path: Path, images: Path | None) -> DataYaml:
    """Read Darknet's obj.data: lines "key = value", whose paths are relative to Darknet's folder, not to the file."""
    pairs = (line.partition("=") for line in _lines(path))
    values = {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
    folder = path.absolute().parent
    if "names" not in values:
        raise ConversionError(f"{path} must have a line names = FILE, with the names of the classes one a line")
    names = _near(folder, values["names"])
    splits: Splits = {key: (str(_near(folder, value)),) for key, value in values.items() if key in _SPLITS}
    return _data_set(path, folder, names, splits or _splits_of(folder, images or folder), images)


def _of_folder(folder: Path, names: Path, images: Path | None) -> DataYaml:
    return _data_set(names, folder.absolute(), names, _splits_of(folder, images or folder), images)


def _data_set(path: Path, folder: Path, names: Path, splits: Splits, images: Path | None) -> DataYaml:
    lines = _lines(names)
    while lines and not lines[-1].strip():
        lines.pop()
    class_names = checked_names(lines, names)
    return DataYaml(path, folder, class_names, splits, None, None, None, [[]] * len(class_names), images or folder)


def _lines(path: Path) -> list[str]:
    try:
        return lines_of(read_text(path))
    except InputError as error:
        raise ConversionError(f"{path} {error}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConversionError(f"{path}, the names of the classes, cannot be read: {reason}") from None


def _near(folder: Path, value: str) -> Path:
    """Return the file that a path of Darknet means: below the folder of obj.data, or beside it, never elsewhere."""
    value = value.replace("\\", "/")
    inside = [value.removeprefix("data/"), value] if is_below(value) else []
    tries = [in_any_case(folder / entry) for entry in (*inside, last_part(value))]
    return next((path for path in tries if os.path.exists(path)), tries[0])


def _names_file(folder: Path) -> Path:
    """Return the one file of classes below a folder. Raises ConversionError."""
    names = [name for name in list_files(folder, (".txt", ".names")) if name.lower().endswith(_NAMES)]
    names = [name for name in names if last_part(name).lower() in _NAMES] or names
    if not names:
        rule = f"{folder} must hold a data.yaml, obj.names or classes.txt, there is none"
        remedy = f"write {folder / 'classes.txt'}, the names of the classes one a line, in the order of their numbers"
        raise ConversionError(f"{rule}; {remedy}{what_folder_has(folder)}")
    texts = {name: read_text(folder / name).split() for name in names}
    first = min(names, key=lambda name: (name.count("/"), name))
    for name, text in texts.items():
        if text != texts[first]:
            raise ConversionError(f"{folder} has {first} and {name} with other classes; convert the folder of each")
    return folder / first


def _splits_of(folder: Path, images: Path) -> Splits:
    """Return the splits of a folder: lists of images, folders, or all images as train. images: what they lie below."""
    lists: Splits = {name: (f"{name}.txt",) for name in _SPLITS if (folder / f"{name}.txt").is_file()}
    if lists:
        return lists
    folders: Splits = {}
    for name in _SPLITS:
        tries = (images / pattern for pattern in (f"images/{name}", f"{name}/images", name))
        existing = next((path for path in map(in_any_case, tries) if path.is_dir()), None)
        if existing and not re.search(r"labels$", existing.name, re.IGNORECASE):
            folders[name] = (str(existing.relative_to(images)),)
    below = in_any_case(images / "images")
    return folders or {"train": (below.name if below.is_dir() else ".",)}
