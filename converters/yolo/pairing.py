"""Find the label file of each image of a YOLO data set, by Ultralytics' rule and the rules of names (decision 3)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.matching import OTHER_FOLDER, SAME_STEM, ImageNames, Pair, pair_by_stem, similar_names
from detaug.converters.files.paths import in_any_case, list_files, stem_of
from detaug.converters.findings.finding import Finding
from detaug.converters.yolo.files import SplitImages, label_file

_NOT_LABELS = (
    *("classes.txt", "readme.txt", "readme.dataset.txt", "readme.roboflow.txt"),
    *("train.txt", "val.txt", "valid.txt", "test.txt"),
)


@dataclass
class Labels:
    """The label files of the images of a split. All are paths from the root on."""

    root: Path
    """Of the data set: label files in findings are relative to it."""
    of_image: dict[str, str] = field(default_factory=dict)
    """Image -> label file: of those that have one, also of images that are not in the split."""
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    """Image -> what is to be said about its label file."""
    others: list[Finding] = field(default_factory=list)
    """About label files that are not used."""

    def claim(self, pairs: Iterable[Pair], images: Mapping[str, Sequence[str]], *, beside: bool = False) -> list[str]:
        """Give images their label files, in the order of how well the names fit; return label files without an image.

        images: name in a pair -> images. beside: the label files are in another folder than Ultralytics' rule says.
        """
        unused = []
        for pair in sorted(pairs, key=lambda pair: (pair.rank, pair.label)):
            assert pair.label is not None
            found = [image for name in pair.images for image in images[name]]
            free = [image for image in found if image not in self.of_image]
            elsewhere = beside or pair.rank == OTHER_FOLDER
            if free and not (elsewhere and len(free) < len(found)):
                self._give(pair, free, elsewhere=elsewhere)
            elif found and not elsewhere:
                note = f"its image {self.name(found[0])} has the label file {self.name(self.of_image[found[0]])}"
                self.others.append(Finding(self.name(pair.label), "image-shared", after=found[0], note=note))
            else:
                unused.append(pair.label)
        return unused

    def _give(self, pair: Pair, images: list[str], *, elsewhere: bool) -> None:
        assert pair.label is not None
        label = self.name(pair.label)
        kind = "label-elsewhere" if elsewhere else "" if pair.rank == SAME_STEM else "label-name"
        for image in images:
            self.of_image[image] = pair.label
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
    """Return a path relative to the data set's root, if below it."""
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else Path(relative).as_posix()


def find_labels(images: SplitImages, root: Path) -> Labels:
    """Find the label files of a split's images: where Ultralytics' rule says, else beside their images.

    Images that are not in the split have label files too, so images of their folders are looked for.
    """
    labels, label_folder = Labels(root), cache(_label_folder)
    top = os.path.abspath(images.folder)
    paths = [os.path.join(top, name) for name in images.names]
    folders = {*map(os.path.dirname, paths), *([top] if label_folder(top) != top else [])}
    places: dict[str, list[str]] = {}
    for path in dict.fromkeys([*paths, *_files(folders, IMAGE_EXTENSIONS)]):
        folder, name = os.path.split(path)
        places.setdefault(os.path.join(label_folder(folder), name), []).append(path)
    found = dict.fromkeys([*_files(map(label_folder, folders), (".txt",)), *_hidden(places)])
    unused = labels.claim(pair_by_stem(found, ImageNames(places)), places)
    rest = [path for path in paths if path not in labels.of_image]
    beside = {os.path.dirname(path) for path in rest} - {label_folder(folder) for folder in folders}
    pairs = pair_by_stem(_files(beside, (".txt",)), ImageNames(rest))
    labels.claim((pair for pair in pairs if pair.rank < OTHER_FOLDER), {path: [path] for path in rest}, beside=True)
    _note_unused(labels, unused, [path for path in rest if path not in labels.of_image])
    return labels


def _label_folder(images: str) -> str:
    """Return the folder of the labels of a folder's images: by the rule of label_file, or one that differs in case."""
    by_rule = os.path.dirname(label_file(f"{images}/a"))
    any_case = re.sub(r"^(.*)/images/", r"\1/labels/", f"{images}/", count=1, flags=re.DOTALL | re.IGNORECASE)
    found = in_any_case(by_rule if by_rule != images else any_case)
    return str(found) if found.is_dir() else by_rule


def _files(folders: Iterable[str], extensions: Iterable[str]) -> list[str]:
    """Return the files with an extension below folders, each once: also what is there and cannot be read."""
    found: list[str] = []
    last = ""
    for folder in sorted(filter(os.path.isdir, set(folders)), key=lambda folder: f"{folder}/"):
        if not last or not f"{folder}/".startswith(last):
            last = f"{folder}/".replace("//", "/")
            found += [last + name for name in list_files(Path(folder), extensions, regular=False)]
    return found


def _hidden(places: Iterable[str]) -> Iterator[str]:
    """Yield the label files of images that only a list names, since they are hidden."""
    labels = (f"{stem_of(place)}.txt" for place in places if "/." in place)
    return filter(os.path.lexists, labels)


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
