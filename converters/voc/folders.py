"""Find the folders of a Pascal VOC data set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.errors import ConversionError


@dataclass(frozen=True)
class Folders:
    """The folders of a data set: the devkit's layout, or images beside their XML below root."""

    root: Path
    annotations: Path
    images: Path

    @cached_property
    def xml_prefix(self) -> str:
        """Return the start of an XML's name in findings: the folder's path, relative to root if below it."""
        return _prefix(self.root, self.annotations)

    @cached_property
    def image_prefix(self) -> str:
        """Return the start of an image's name in findings."""
        return _prefix(self.root, self.images)


def _prefix(root: Path, folder: Path) -> str:
    path = (folder.relative_to(root) if folder.is_relative_to(root) else folder).as_posix()
    return "" if path == "." else f"{path}/"


def find_folders(root: Path, images: Path | None = None, annotations: Path | None = None) -> Folders:
    """Return ROOT/Annotations with ROOT/JPEGImages (or ROOT/images) where they exist, else ROOT for both."""
    for folder in filter(None, (root, images, annotations)):
        if not folder.is_dir():
            raise ConversionError(f"{folder} is not a folder; give the folder of the VOC data set")
    if images is None and annotations is None:
        _refuse_folder_of_a_data_set(root)
    children = {path.name.lower(): path for path in sorted(root.iterdir(), reverse=True) if path.is_dir()}
    if annotations is None:
        annotations = children.get("annotations", root)
    if images is None:
        beside = children.get("images", root) if annotations != root else root
        images = children.get("jpegimages", beside)
    if annotations == images == root:
        _refuse_devkit_parent(root)
    return Folders(root, annotations, images)


def _refuse_folder_of_a_data_set(root: Path) -> None:
    """Raise ConversionError for the Annotations or JPEGImages of a data set, unless it has the other one's files."""
    partners, extensions = _PARTNERS.get(root.resolve().name.lower(), ((), ()))
    above = root.resolve().parent if root.name in ("", "..") else root.parent
    has_partner = partners and any(path.name.lower() in partners for path in above.iterdir())
    if has_partner and not any(path.suffix.lower() in extensions for path in root.iterdir()):
        raise ConversionError(f"{root} is one folder of a VOC data set; give the folder above it: convert {above}")


_PARTNERS = {
    "annotations": (("jpegimages", "images"), IMAGE_EXTENSIONS),
    "jpegimages": (("annotations",), (".xml",)),
}


def _refuse_devkit_parent(root: Path) -> None:
    parts = sorted(path.parent.name for path in root.glob("*/Annotations") if (path.parent / "JPEGImages").is_dir())
    if parts:
        raise ConversionError(f"{root} contains the data sets {', '.join(parts)}; convert each: {root / parts[0]}")
