"""`ImageFolder`: images with a class each, by the name of their folder or from a list."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import numpy as np

from detaug.arguments import checks_names
from detaug.errors import InputError
from detaug.files import heif
from detaug.files.addresses import check_on_disk
from detaug.files.image_file import short_digest
from detaug.sources.class_folders import find_classes, read_class_list
from detaug.sources.size_cache import FileTable, stat_files, with_sizes
from detaug.sources.source import FolderSource


class ImageFolder(FolderSource):
    """Images of a folder, each with one class and without boxes.

    `root`: a folder with a sub-folder for each class, as for torchvision's `ImageFolder`. The classes are the sorted
    names of the sub-folders; an image may be at any depth below its class. Images are sorted by class, then folder,
    then name. Names that begin with a dot are ignored.

    `list_file`: a text file with a line `path class` for each image, as for Caffe and DALI's `file_list`; its order
    stays. Paths are relative to `root`. The last word of a line is the class: in all lines a number from 0, which is
    the class's number, or in all lines a name; names are sorted.

    `Batch.classes` are 0..K-1 in the order of the classes: `class_to_idx` has the number of a name. `class_names` has
    "background" in front, as for every source, so the name of class c is `class_names[c + 1]`.

    `cache`: store the images' sizes in ~/.cache/detaug; the next start reads the headers of changed files only.

    Images whose header is broken, or whose format DALI does not decode, are `missing`: `Loader` refuses or skips them.
    Raises InputError for a folder or list that is not as above.

    >>> from pathlib import Path
    >>> _ = Path("list.txt").write_text("000001.jpg street\\n000002.jpg pond\\n000003.jpg street\\n")
    >>> reader = da.ImageFolder("demo/VOC/JPEGImages", list_file="list.txt")
    >>> print(reader.classes, reader.class_to_idx)
    [1 0 1] {'pond': 0, 'street': 1}
    """

    @checks_names
    def __init__(
        self, root: str | os.PathLike[str], *, list_file: str | os.PathLike[str] | None = None, cache: bool = True
    ) -> None:
        check_on_disk(root)
        self.root, self.folder = Path(root), Path(root).absolute()
        self.list_file = None if list_file is None else Path(list_file)
        if not self.root.is_dir():
            raise InputError(f"{self.root}: no such folder; it must hold the images")
        if self.list_file is None:
            names, class_names, classes, status = find_classes(self.root)
            files = FileTable(names, status)
        else:
            names, class_names, classes = read_class_list(self.list_file)
            files = stat_files(self.folder, names)
        sizes, self._faults = with_sizes(self.folder, self.list_file or self.folder, files, cache=cache)
        super().__init__(sizes, class_names, classes=classes, origin=str(self.list_file or self.root))
        self.file_names, self._bytes = files.names, files.status[:, 0]
        self.has_heif = heif.are_among(self.file_names)
        self.files = not self.has_heif
        self.missing = np.array(sorted(self._faults), np.int64)
        self.remedy = "remove it, or save it again as JPEG or PNG"
        if len(self.missing) == len(self):
            self.check_files()

    def __repr__(self) -> str:
        listed = "" if self.list_file is None else f", list_file={str(self.list_file)!r}"
        return f"ImageFolder({str(self.root)!r}{listed})  # {len(self)} images, {len(self.class_names) - 1} classes"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Return the number of each class in `Batch.classes`, 0..K-1, by its name."""
        return {name: number for number, name in enumerate(self.class_names[1:])}

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used: "is empty (0 bytes)"."""
        return self._faults[index]

    def explain_size(self, index: int, size: tuple[int, int]) -> str:
        """Return why an image of this size cannot be used: it changed, and maybe its length and date did not."""
        (height, width), before = size, self.sizes[index]
        was = f"it had {before[1]} x {before[0]} when its size was read"
        return f"has {width} x {height} pixels, {was}; touch the file, and make the ImageFolder again"

    def check_files(self) -> None:
        """Raise InputError if an image cannot be used."""
        if self._faults:
            first, why = min(self._faults.items())
            raise InputError(
                f"{self.origin}: {len(self._faults)} of {len(self)} images cannot be used, the first is "
                f"{self.path(first)}, which {why}; {self.remedy}"
            )

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash of the sizes of the files in bytes, as they were when the source was made."""
        return short_digest(self._bytes.tobytes())
