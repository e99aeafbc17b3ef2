"""Find the image of each record: by the path or the name that the format gives, or by the stem of its label file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from detaug.converters.records.record import Record
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.matching import OTHER_CASE, OTHER_FOLDER, SAME_STEM, ImageNames
from detaug.files.namesakes import Namesakes, are_of_different_splits, parts_of
from detaug.files.paths import folded, last_part, list_files, stem_of
from detaug.findings.finding import Finding, has_error, shown


class Images:
    """The images below a folder. No path of an annotation is ever opened: it is compared with their names."""

    def __init__(self, folder: Path, names: Sequence[str] | None = None, prefix: str = "") -> None:
        """names: the images in their order, if it is known; else all, sorted. prefix: of their names in findings."""
        self.folder, self.prefix = folder, prefix
        self.lookup = ImageNames(list_files(folder, IMAGE_EXTENSIONS) if names is None else names)
        self.names = self.lookup.names if names is None else names

    def own_copy(self, name: str) -> str:
        """Return the name itself, as the one in memory: another process has sent its own."""
        return self.lookup.own_copy(name)

    def with_stem(self, stem: str) -> Sequence[str]:
        """Return the images with the path of a label file, but for their extensions."""
        return self.lookup.by_stem.get(stem) if stem else ()

    def find(self, record: Record) -> tuple[str | None, int]:
        """Return the image of a record, and how well it fits: see matching. Appends findings to the record.

        A label file's stem counts before the name in the file (decision 3). Of several images with the name in other
        folders, the one with most of the path counts.
        """
        if same := self.with_stem(record.stem):
            return self._of_stem(record, same), SAME_STEM
        names = [name.strip().replace("\\", "/").removeprefix("./") for name in record.names if name.strip()]
        for name in names:
            if name in self.lookup:
                return name, SAME_STEM
        for name in [record.stem, *names] if record.stem else names:
            if image := self._elsewhere(record, name):
                return image, OTHER_CASE if parts_of(image) == parts_of(name) else OTHER_FOLDER
            if record.findings and record.findings[-1].kind in ("image-unclear", "image-missing"):
                return None, OTHER_FOLDER
        if has_error(record.findings):
            pass
        elif record.names:
            called = record.called or record.names[0]
            note = f"no image in {self.folder} has the name {shown(called)}"
            note += f"; {record.without_image}" if record.without_image else ""
            record.findings.append(Finding(record.file, "image-missing", before=called, note=note))
        else:
            record.findings.append(Finding(record.file, "label-unused", before=record.file))
        return None, OTHER_FOLDER

    def _of_stem(self, record: Record, same: Sequence[str]) -> str:
        """Return the image of a stem, that which the file names if there are several, and note another name."""
        called = {folded(last_part(name)) for name in record.names}
        image = next((image for image in same if folded(last_part(image)) in called), same[0])
        if len(same) > 1:
            self.note_several(record, same, image)
            record.alike = same
        if called and folded(stem_of(last_part(image))) not in map(stem_of, called):
            record.findings.append(Finding(record.file, "filename-differs", before=record.names[0], after=image))
        return image

    def _elsewhere(self, record: Record, name: str) -> str | None:
        """Return the image of a name in another case, form, extension or folder."""
        nearest = self.lookup.namesakes.nearest(name)
        best = [image for image in nearest if not are_of_different_splits(image, record.file)]
        if not best and nearest:
            note = f"{record.called or name} may be {nearest[0]}, which is an image of another split"
            record.findings.append(Finding(record.file, "image-missing", before=record.called or name, note=note))
            return None
        if _unclear(best) and _unclear(best := self._in_trees(name, best)):
            remedy = (
                "give their folder: --images of convert, IMAGES of convert-dota; or convert each folder by itself, and "
                "join the JSON files: detaug merge"
            )
            note = f"several images have the name {shown(record.called or name)}: {', '.join(best[:4])}; {remedy}"
            record.findings.append(Finding(record.file, "image-unclear", before=name, after=best[0], note=note))
            return None
        if len(best) > 1:
            self.note_several(record, best, best[0])
        return best[0] if best else None

    def _in_trees(self, name: str, images: list[str]) -> list[str]:
        """Choose among images by their folders, without the first one, which differs for labels and images.

        So images/a/rgb/1.jpg belongs to labels/a/anno/1.json. With `--images images` its name is a/rgb/1.jpg. Returns
        all of them if the folders fit several.
        """
        below = name.partition("/")[2]
        choices = (namesakes.nearest(below) for namesakes in (self.lookup.namesakes, self._below))
        return next((choice for choice in choices if choice and not _unclear(choice)), images)

    @cached_property
    def _below(self) -> Namesakes:
        """The images by their paths without the first folder."""
        return Namesakes(self.names, lambda name: name.partition("/")[2] or name)

    def note_several(self, record: Record, images: Sequence[str], chosen: str) -> None:
        """Note that several images fit a record, and which one it gets."""
        record.findings.append(Finding(record.file, "image-ambiguous", before=list(images), after=chosen))

    def deepest_folder(self, names: Iterable[str]) -> str:
        """Return the deepest folder that holds these images, relative to the folder: "" or with a slash at its end."""
        folders = {os.path.dirname(name) for name in names}
        common = os.path.commonpath(folders) if folders else ""
        return f"{common}/" if common else ""


def _unclear(images: Sequence[str]) -> bool:
    """Return whether images differ by more than their extensions."""
    return len({stem_of(image) for image in images}) > 1
