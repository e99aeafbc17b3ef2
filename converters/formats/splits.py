"""Find the splits that a dataset has of its own: those of its lists, or folders or files named train, val and test.

`detaug train PATH` trains on them; only where there are none it splits the dataset itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from detaug.converters.formats.label_maps import splits_of_maps
from detaug.converters.formats.recognise import Recognised
from detaug.converters.voc.folders import find_folders
from detaug.converters.yolo.files import find_images
from detaug.converters.yolo.without_yaml import read_data_set
from detaug.errors import InputError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.namesakes import SPLITS
from detaug.files.paths import list_files, stem_of
from detaug.findings.finding import listed


class OwnSplit(NamedTuple):
    """A split, as `convert_to_coco` takes it."""

    path: Path
    split: str | None = None
    """The name of a split, of a format that has some."""
    images: Path | None = None
    """The folder of the images, if it is not `path` or the folder that `path` is in."""


def own_splits(dataset: Recognised, say: Callable[[str], None] = lambda line: None) -> dict[str, OwnSplit]:
    """Return the splits of a dataset by name, "train", "val", "test"; {} without both a "train" and another one.

    `say` is called with a line if a data.yaml names a val that is not there.
    """
    splits: dict[str, OwnSplit] = {}
    if dataset.format.name == "yolo":
        splits = _of_yolo(dataset, say)
    elif dataset.format.folders:
        splits = {name: OwnSplit(dataset.path, name) for name in splits_of_maps(dataset.folder, dataset.files)}
    elif dataset.path.is_dir():
        splits = (
            (_of_voc(dataset) if dataset.format.name == "voc" else {}) or _of_folders(dataset) or _of_files(dataset)
        )
    return splits if "train" in splits and len(splits) > 1 else {}


def _of_yolo(dataset: Recognised, say: Callable[[str], None]) -> dict[str, OwnSplit]:
    """Return the splits of a data.yaml, an obj.data or folders. A split without images is none: exports list it too."""
    data = read_data_set(dataset.path)
    splits, without = dict[str, OwnSplit](), dict[str, str]()
    for key, entries in data.splits.items():
        name = SPLITS.get(key, key)
        if name == "val" and entries == data.splits.get("train"):  # as in coco128.yaml
            key = "train"
        with suppress(InputError, OSError):
            if find_images(data, key).names:
                splits[name] = OwnSplit(dataset.path, key)
        if name not in splits:
            without[name] = f"{data.path} has {key}: {listed(entries)}, where no images are"
    if "train" in splits and "val" in without:
        say(f"  {without['val']}; if there should be some, bring them and begin again")
    return splits


def _of_voc(dataset: Recognised) -> dict[str, OwnSplit]:
    """Return those of ImageSets/Main; trainval is both train and val, so it is train where these have no lists."""
    with suppress(InputError):
        lists = {path.stem for path in (find_folders(dataset.folder).root / "ImageSets" / "Main").glob("*.txt")}
        names = {"train": "train", "val": "val", "test": "test"}
        if "trainval" in lists and not {"train", "val"} <= lists:
            names = {"train": "trainval", "test": "test"}
        return {name: OwnSplit(dataset.path, text) for name, text in names.items() if text in lists}
    return {}


def _of_folders(dataset: Recognised) -> dict[str, OwnSplit]:
    """Return the folders named after splits, such as train/_annotations.coco.json or annotations/val/1.xml."""
    tops: dict[str, set[str]] = {}
    for file in dataset.files:
        folders = file.split("/")[:-1]
        depth = next((index for index, folder in enumerate(folders) if folder.lower() in SPLITS), None)
        if depth is None:
            return {}
        tops.setdefault(SPLITS[folders[depth].lower()], set()).add("/".join(folders[: depth + 1]))
    if any(len(folders) > 1 for folders in tops.values()):
        return {}
    splits = {name: dataset.folder / folder for name, (folder,) in tops.items()}
    return {
        name: OwnSplit(path, images=None if _has_images(path) else _images_of(dataset.folder, path))
        for name, path in splits.items()
    }


def _images_of(root: Path, split: Path) -> Path:
    """Return the folder of the same name that has images, such as images/train for labels/train; else the root."""
    same = (path for pattern in ("*", "*/*") for path in sorted(root.glob(pattern)) if path.name == split.name)
    return next((path for path in same if path.is_dir() and path != split and _has_images(path)), root)


def _has_images(folder: Path) -> bool:
    return bool(list_files(folder, IMAGE_EXTENSIONS))


_WORD = re.compile(rf"(?<![a-z])({'|'.join(SPLITS)})(?![a-z])")


def _of_files(dataset: Recognised) -> dict[str, OwnSplit]:
    """Return the files named after splits, each about many images: instances_train2017.json, test_labels.csv."""
    splits: dict[str, OwnSplit] = {}
    for file in dataset.files:
        words = {SPLITS[word] for word in _WORD.findall(stem_of(file.rpartition("/")[2]).lower())}
        if len(words) != 1 or not words.isdisjoint(splits):
            return {}
        splits[words.pop()] = OwnSplit(dataset.folder / file, images=dataset.folder)
    return splits
