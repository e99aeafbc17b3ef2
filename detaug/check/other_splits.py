"""Find the images of a folder that other splits of its dataset name: a normal folder has the images of several.

Read are the lists of Pascal VOC, the data.yaml of YOLO, the sequences of MOTChallenge, and the JSON files beside the
one that is checked. What cannot be read, or leads out of the dataset, names no image.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from detaug.coco.table import Table, load_coco
from detaug.converters.mot.sequences import find_sequences
from detaug.converters.yolo.files import find_images, read_data_yaml
from detaug.errors import InputError
from detaug.files.paths import is_below, stem_of
from detaug.files.text import lines_of

_LEVELS_ABOVE = 3
"""How far above the image folder a data.yaml is looked for."""
_MOST_JSONS = 16
"""If more JSON files are in one folder, each is about one image, as LabelMe writes them, and none is read."""


def named_by_other_splits(table: Table, folder: Path, listed: Sequence[str]) -> set[str]:
    """Return those of the files `listed` in the image folder, relative to it, that a split of its dataset names.

    The JSON file itself names some of them; only where it does not name all, other splits are read.
    """
    named = {posixpath.normpath(name) for name in table.file_names}
    for names in (_in_voc_lists, _in_yolo_splits, _in_mot_sequences, _in_other_jsons):
        for some in names(table, folder, listed) if not named.issuperset(listed) else ():
            named |= some
    return named


def _in_voc_lists(table: Table, folder: Path, listed: Sequence[str]) -> Iterator[set[str]]:
    lists = sorted(folder.parent.glob("ImageSets/Main/*.txt"))
    texts = (path.read_text("utf-8-sig", "replace") for path in lists if path.is_file())
    lines = [line.strip() for text in texts for line in lines_of(text)]
    marked = [line.rsplit(maxsplit=1) for line in lines if line.endswith((" -1", " 0", " 1"))]
    names = {*lines, *(name for name, _ in marked)}
    yield {name for name in listed if names & {name, stem_of(name)}}


def _in_yolo_splits(table: Table, folder: Path, listed: Sequence[str]) -> Iterator[set[str]]:
    """Yield the images of all splits of each data.yaml in the image folder or above it."""
    top = folder.absolute()
    for above in (top, *top.parents[:_LEVELS_ABOVE]):
        for path in sorted(file for file in above.glob("*.y*ml") if file.is_file()):
            with suppress(InputError, OSError):
                data = read_data_yaml(path)
                inside = Path(os.path.normpath(data.root)).is_relative_to(above)
                splits = [split for split, entries in data.splits.items() if inside and all(map(is_below, entries))]
                for images in (find_images(data, split) for split in splits):
                    place = os.path.relpath(images.folder, top)
                    yield {posixpath.normpath(posixpath.join(place, name)) for name in images.names}


def _in_mot_sequences(table: Table, folder: Path, listed: Sequence[str]) -> Iterator[set[str]]:
    """Yield the frames of the sequences of which the JSON file has none."""
    own = {posixpath.normpath(name).partition("/")[0] for name in table.file_names}
    with suppress(InputError, OSError):
        others = {*find_sequences(folder, ())} - own
        yield {name for name in listed if name.partition("/")[0] in others}


def _in_other_jsons(table: Table, folder: Path, listed: Sequence[str]) -> Iterator[set[str]]:
    """Yield the images of each COCO JSON file beside this one, if most of them are in the folder."""
    paths = [path for path in sorted(table.path.parent.glob("*.json")) if path.is_file()]
    for path in paths if len(paths) <= _MOST_JSONS else ():
        with suppress(InputError, OSError):
            rows = [row for row in load_coco(path).document["images"] if isinstance(row, dict)]
            names = {posixpath.normpath(name) for row in rows if isinstance(name := row.get("file_name"), str)}
            if 2 * len(names.intersection(listed)) > len(names):
                yield names
