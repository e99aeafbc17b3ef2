"""Find the label file of each image of a YOLO dataset, by Ultralytics' rule and the rules of names (decision 3)."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from detaug.converters.yolo.files import DataYaml, SplitImages, label_file
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.matching import (
    OTHER_CASE,
    OTHER_FOLDER,
    SAME_STEM,
    ImageNames,
    Pair,
    PairsByStem,
    similar_names,
)
from detaug.files.paths import in_any_case, list_files, stem_of
from detaug.findings.finding import Finding

_NOT_LABELS = (
    *("classes.txt", "readme.txt", "readme.dataset.txt", "readme.roboflow.txt"),
    *("train.txt", "val.txt", "valid.txt", "test.txt"),
)


class Labels:
    """The label files of the images of a split. All are paths from the root on.

    root: of the dataset; label files in findings are relative to it. images: of the split and beside its images.
    """

    def __init__(self, root: Path, images: ImageNames) -> None:
        self.root, self._images, self._place = root, images.names, images.place
        self._by_rule = bytearray(len(images.names))  # whether an image has the label file of Ultralytics' rule
        self._others: dict[str, str] = {}
        self.findings: dict[str, list[Finding]] = {}
        """Image -> what is to be said about its label file."""
        self.others: list[Finding] = []
        """About label files that are not used."""

    def of_image(self, image: str) -> str | None:
        """Return the label file of an image, also of one that is not in the split; None where there is none."""
        index = bisect_left(self._images, image)
        has_usual = self._images[index : index + 1] == [image] and self._by_rule[index]
        return self._usual(image) if has_usual else self._others.get(image)

    def _usual(self, image: str) -> str:
        return f"{stem_of(self._place(image))}.txt"

    def claim(self, pairs: Sequence[Pair], *, beside: bool = False) -> list[str]:
        """Give images their label files, in the order of how well the names fit; return label files without an image.

        pairs: sorted by label file. beside: the label files are in another folder than Ultralytics' rule says.
        """
        unused = []
        worst = OTHER_CASE if beside else OTHER_FOLDER
        others = (pair for pair in pairs if SAME_STEM < pair.rank <= worst)
        in_order = sorted(others, key=lambda pair: (pair.rank, pair.label))
        for pair in chain((pair for pair in pairs if pair.rank == SAME_STEM), in_order):
            assert pair.label is not None
            free = [image for image in pair.images if not self.of_image(image)]
            elsewhere = beside or pair.rank == OTHER_FOLDER
            if free and not (elsewhere and len(free) < len(pair.images)):
                self._give(pair, free, elsewhere=elsewhere)
            elif pair.images and not elsewhere:
                image = pair.images[0]
                note = f"its image {self.name(image)} has the label file {self.name(self.of_image(image) or '')}"
                self.others.append(Finding(self.name(pair.label), "image-shared", after=image, note=note))
            else:
                unused.append(pair.label)
        return unused

    def _give(self, pair: Pair, images: list[str], *, elsewhere: bool) -> None:
        assert pair.label is not None
        label = self.name(pair.label)
        kind = "label-elsewhere" if elsewhere else "" if pair.rank == SAME_STEM else "label-name"
        for image in images:
            if pair.label == self._usual(image):
                self._by_rule[bisect_left(self._images, image)] = True
            else:
                self._others[image] = pair.label
            if kind:
                self.add(image, Finding(label, kind, before=label, after=image))
            if len(images) > 1:
                others = ", ".join(self.name(other) for other in images if other != image)
                note = f"shares its label file {label} with {others}; rename all but one, and give each its label file"
                self.add(image, Finding(self.name(image), "label-shared", before=label, after=others, note=note))

    def add(self, image: str, finding: Finding) -> None:
        """Append a finding about the label file of an image."""
        self.findings.setdefault(image, []).append(finding)

    def name(self, path: str) -> str:
        """Return a file's name in findings."""
        return relative_to(self.root, path)


def relative_to(root: Path, path: str) -> str:
    """Return a path relative to the dataset's root, if below it."""
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else Path(relative).as_posix()


def find_labels(images: SplitImages, data: DataYaml) -> Labels:
    """Find the label files of a split's images: where Ultralytics' rule says, else beside their images.

    Images that are not in the split have label files too, so images of their folders are looked for.
    """
    top, label_folder = os.path.abspath(images.folder), cache(lambda folder: _label_folder(data.in_root(folder)))

    def place(image: str) -> str:
        folder, name = os.path.split(image)
        return os.path.join(label_folder(folder), name)

    folders = {os.path.dirname(path) for path in _paths(images)} | ({top} if label_folder(top) != top else set())
    listed = ImageNames(_files(folders, IMAGE_EXTENSIONS))
    names = ImageNames([*listed.names, *(path for path in _paths(images) if path not in listed)], place)
    labels = Labels(data.root, names)
    label_files = {*_files(map(label_folder, folders), (".txt",)), *_hidden(map(place, names.names))}
    unused = labels.claim(PairsByStem(sorted(label_files), names))
    rest = [path for path in _paths(images) if not labels.of_image(path)]
    others = {os.path.dirname(path) for path in rest} - {*map(label_folder, folders)}
    labels.claim(PairsByStem(_files(others, (".txt",)), ImageNames(rest)), beside=True)
    _note_unused(labels, unused, [path for path in rest if not labels.of_image(path)])
    return labels


def _paths(images: SplitImages) -> Iterator[str]:
    top = os.path.abspath(images.folder)
    return (os.path.join(top, name) for name in images.names)


def _label_folder(images: str) -> str:
    """Return the folder of the labels of a folder's images: by the rule of label_file, or one that differs in case."""
    by_rule = os.path.dirname(label_file(f"{images}/a"))
    any_case = re.sub(r"^(.*)/images/", r"\1/labels/", f"{images}/", count=1, flags=re.DOTALL | re.IGNORECASE)
    folder = in_any_case(by_rule if by_rule != images else any_case)
    return str(folder) if folder.is_dir() else by_rule


def _files(folders: Iterable[str], extensions: Iterable[str]) -> list[str]:
    """Return the files with an extension below folders, each once: also what is there and cannot be read."""
    files: list[str] = []
    last = ""
    for folder in sorted(filter(os.path.isdir, set(folders)), key=lambda folder: f"{folder}/"):
        if not last or not f"{folder}/".startswith(last):
            last = f"{folder}/".replace("//", "/")
            files += [last + name for name in list_files(Path(folder), extensions, regular=False)]
    return files


def _hidden(places: Iterable[str]) -> Iterator[str]:
    """Yield the label files of images that only a list names, since they are hidden."""
    return filter(os.path.lexists, (f"{stem_of(place)}.txt" for place in places if "/." in place))


def _note_unused(labels: Labels, unused: Sequence[str], images: Sequence[str]) -> None:
    """Append findings about label files without an image, one for each pair with an image of nearly its name."""
    similar = similar_names(unused, images)
    for image, label in similar.items():
        name = labels.name(label)
        note = f"has no image, and {labels.name(image)} has no labels; rename one, or move the label file away"
        labels.add(image, Finding(name, "label-similar", before=name, after=image, note=note))
    for label in unused:
        if label not in similar.values() and os.path.basename(label).lower() not in _NOT_LABELS:
            labels.others.append(Finding(labels.name(label), "label-unused"))
