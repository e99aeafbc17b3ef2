"""`ImageFolder`: images with a class each, by the name of their folder or from a list."""

from __future__ import annotations

import os
from pathlib import Path

from detaug.arguments import checks_names
from detaug.errors import InputError
from detaug.files.addresses import check_on_disk
from detaug.sources.class_folders import find_classes, read_class_list
from detaug.sources.scanned_folder import ScannedFolder
from detaug.sources.size_cache import FileTable, stat_files, with_sizes


class ImageFolder(ScannedFolder):
    """Images of a folder, each with one class and without boxes.

    `Batch.classes` are 0..K-1 in the order of the classes: `class_to_idx` has the number of a name. `class_names` has
    "background" in front, as for every source, so the name of class c is `class_names[c + 1]`.

    Images whose header is broken, or whose format DALI does not decode, are `missing`: `Loader` refuses or skips them.
    Raises InputError for a folder or list that is not as below.

    Args:
        root: A folder with a sub-folder for each class, as for torchvision's `ImageFolder`. The classes are the sorted
            names of the sub-folders; an image may be at any depth below its class. Images are sorted by class, then
            folder, then name. Names that begin with a dot are ignored.
        list_file: A text file with a line `path class` for each image, as for Caffe and DALI's `file_list`; its order
            stays. Paths are relative to `root`. The last word of a line is the class: in all lines a number from 0,
            which is the class's number, or in all lines a name; names are sorted.
        cache: Whether to store the images' sizes in ~/.cache/detaug; the next start reads the headers of changed files
            only.

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
        sizes, faults = with_sizes(self.folder, self.list_file or self.folder, files, cache=cache)
        super().__init__(sizes, class_names, classes=classes, origin=str(self.list_file or self.root))
        self._take(files, faults, "remove it, or save it again as JPEG or PNG")

    def __repr__(self) -> str:
        listed = "" if self.list_file is None else f", list_file={str(self.list_file)!r}"
        return f"ImageFolder({str(self.root)!r}{listed})  # {len(self)} images, {len(self.class_names) - 1} classes"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Return the number of each class in `Batch.classes`, 0..K-1, by its name."""
        return {name: number for number, name in enumerate(self.class_names[1:])}
