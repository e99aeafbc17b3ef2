"""Maps of the images of a source: found when the source is made, read when batches need them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import PIL
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.coco.annotation_cache import cache_root
from detaug.errors import InputError
from detaug.files.image_file import short_digest
from detaug.files.paths import list_files
from detaug.maps.kept import KeptRuns
from detaug.maps.kinds import EXTENSIONS, LOSSY, ClassMap, DepthMap, MapError, MapKind, PanopticMap, pixels_of
from detaug.maps.run_file import MapKey
from detaug.maps.segments import Segments
from detaug.maps.values import MapValues, Runs, is_scaled, no_map


class SourceMap(Protocol):
    """The maps of one name of a source."""

    @property
    def kind(self) -> MapKind:
        """Return what they are."""
        ...

    def read(self, index: int) -> MapValues:
        """Return the map of an image. Raises InputError or OSError, which name the file, for one that is broken."""
        ...


class FileMaps:
    """Maps that are files of a folder, with names like those of the images."""

    def __init__(
        self,
        kind: MapKind,
        name: str,
        images: Path,
        file_names: Sequence[str],
        sizes: Ints,
        *,
        cache: bool = False,
    ):
        """Find the maps of images, `file_names` relative to the folder `images`, with `sizes` (n, 2) height and width.

        `cache`: keep maps of classes and segments in the user's cache folder once they are decoded. Raises InputError
        for a folder that is not there, or has two files for an image.
        """
        self.kind, self.name, self._images, self._file_names, self._sizes = kind, name, images, file_names, sizes
        self.folder = _folder_of(kind, name, images)
        self.inputs = [self.folder]
        """What is read."""
        files = _files_by_stem(self.folder, EXTENSIONS)
        flat_names = {os.path.basename(os.path.splitext(file)[0]) for file in file_names}
        are_flat = len(flat_names) == len(file_names)
        self._paths = [self._find(files, file, are_flat) for file in file_names]
        self._refuse_shared()
        absent = [index for index, path in enumerate(self._paths) if path is None]
        lossy = _files_by_stem(self.folder, LOSSY) if absent else {}
        others = {index: self._find(lossy, file_names[index], are_flat) for index in absent}
        self.lossy = {
            index: path
            for index, path in others.items()
            if path is not None and path != (images / file_names[index]).absolute()
        }
        """Files of images without a map that would be it, were they not in a format that changes numbers."""
        self.absent = absent
        """The images without a map."""
        self.refused = [] if kind.missing == "ignore" else absent
        """The images that cannot be used, since they have no map."""
        self._kept = KeptRuns(kind.dtype, _cache_file(kind, self.folder) if cache else None)

    def refuse_none(self) -> None:
        """Raise InputError where no image has a map: the folder is wrong, rather than each map missing."""
        if len(self.absent) == len(self._file_names):
            why = self.lossy_remedy(next(iter(self.lossy))) if self.lossy else self._remedy(0)
            raise InputError(f"{self.folder}: none of {len(self.absent)} images has a map {self.name!r} there; {why}")

    def _refuse_shared(self) -> None:
        """Raise InputError for a map that is one of the images, or the map of two of them: it is not theirs."""
        root = self._images.absolute()
        nested = root == self.folder or root in self.folder.parents or self.folder in root.parents
        images = {os.path.normpath(os.path.join(root, name)) for name in self._file_names} if nested else set()
        first_of: dict[Path, int] = {}
        for index, path in enumerate(self._paths):
            if path is None:
                continue
            own = self._file_names[index]
            if nested and os.path.normpath(path) in images:
                raise InputError(
                    f"{path} is one of the images, and the map {self.name!r} of {own}; move the maps to a folder of "
                    "their own"
                )
            first = first_of.setdefault(path, index)
            if first != index and os.path.normpath(other := self._file_names[first]) != os.path.normpath(own):
                raise InputError(
                    f"{path} is the map {self.name!r} of two images, {other} and {own}; rename one of them, and give "
                    "each a map with its name"
                )

    def path(self, index: int) -> Path | None:
        """Return the file of an image, None if it has none."""
        return self._paths[index]

    def image_size(self, index: int) -> tuple[int, int]:
        """Return the height and width of an image."""
        height, width = self._sizes[index].tolist()
        return height, width

    def read(self, index: int) -> MapValues:
        """Return the map of an image."""
        path = self._paths[index]
        if path is None:
            if self.kind.missing == "error":
                raise InputError(f"{self._images / self._file_names[index]} {self.why_absent(index)}")
            return no_map(self.kind.dtype)
        runs = self._depths(index, path) if self.kind.is_linear else self._runs(index, path)
        return MapValues.of(runs, self._sizes[index], self._segments(index))

    def _depths(self, index: int, path: Path) -> Runs:
        values = self._decoded(index, path)
        return Runs(values.ravel(), None, values.shape)

    def _runs(self, index: int, path: Path) -> Runs:
        if (runs := self._kept.at_hand(index)) is None:
            key = self._key(index, path)  # before it is decoded: a map that changes meanwhile has another key later
            if (runs := self._kept.load(index, key)) is None:
                runs = self._kept.add(index, key, Runs.of(self._decoded(index, path)))
        return runs

    def _key(self, index: int, path: Path) -> MapKey:
        """Return what is equal as long as `_decoded` gives the same."""
        status = os.stat(path)
        state = np.array([status.st_size, status.st_mtime_ns, *self._sizes[index], *self._numbers(index)], np.int64)
        return MapKey.of(os.fsencode(path), state.tobytes())

    def _decoded(self, index: int, path: Path) -> NDArray[Any]:
        """Return the values of a file, (H, W)."""
        values = self.kind.values_of(pixels_of(path), path)
        self.check_size(index, path, values)
        return values

    def _numbers(self, index: int) -> Ints:
        """Return the numbers that the values of an image's map stand for, if they are others than in the file."""
        return np.zeros(0, np.int64)

    def _segments(self, index: int) -> Segments | None:
        """Return what the values of an image's map are, where that is more than a number."""
        return None

    def why_absent(self, index: int) -> str:
        """Return that an image has no map, and what to do, as the end of a sentence about its file."""
        remedy = self.lossy_remedy(index) if index in self.lossy else f'{self._remedy(index)}, or missing="ignore"'
        return f"has no map {self.name!r} in {self.folder}; {remedy}"

    def lossy_remedy(self, index: int) -> str:
        """Return what to do about a file of `lossy`."""
        return f"{self.lossy[index]} is JPEG or WebP, which changes numbers; save PNG"

    def sought(self, index: int) -> str:
        """Return what the map of an image would be that has none."""
        stem, suffix = os.path.splitext(self._file_names[index])[0], self.kind.suffix
        return f"it would be {stem}{suffix}{'' if suffix.lower().endswith(EXTENSIONS) else EXTENSIONS[0]}"

    def _remedy(self, index: int) -> str:
        kind = type(self.kind).__name__
        return f"{self.sought(index)}; give {kind}(suffix=) what such names have after the image's"

    def _find(self, files: Mapping[str, list[Path]], file_name: str, are_flat: bool) -> Path | None:
        """Return the map of an image: below the same sub-folder, or right in the folder."""
        stem, suffix = os.path.splitext(file_name)[0], self.kind.suffix
        has_extension = suffix.lower().endswith(EXTENSIONS)
        ending = suffix[: suffix.rindex(".")] if has_extension else suffix
        stems = [stem + ending]
        if ending and "_" in os.path.basename(stem):
            stems.append(stem.rpartition("_")[0] + ending)
        if are_flat:
            stems += [os.path.basename(path) for path in stems]
        for stem in stems:
            paths = files.get(os.path.normpath(stem), [])
            paths = [path for path in paths if path.name.endswith(suffix)] if has_extension else paths
            if len(paths) > 1:
                raise InputError(
                    f"{paths[0]} and {paths[1]} are both the map {self.name!r} of {file_name}; move one away, or name "
                    "the extension in suffix="
                )
            if paths:
                return paths[0]
        return None

    def check_size(self, index: int, path: Path, values: NDArray[Any]) -> None:
        """Raise MapError for a map that is not of this image: it may be smaller or larger, of the same shape."""
        (height, width), (tall, wide) = values.shape, self._sizes[index].tolist()
        if is_scaled((height, width), (tall, wide)):
            return
        turned = "as if the image's EXIF orientation were not applied; turn it too"
        why = turned if (height, width) == (wide, tall) else "so it is not of it"
        sizes = f"{width} x {height} pixels, where the image has {wide} x {tall}"
        raise MapError(f"{path} has {sizes}, {why}", "map-size")


def _cache_file(kind: MapKind, folder: Path) -> Path | None:
    """Return where the maps of a folder are kept that are decoded by these rules; None if they are not kept.

    Files of depths are read as quickly, and a subclass may have any rules.
    """
    if isinstance(kind, DepthMap) or type(kind) not in (ClassMap, PanopticMap):
        return None
    code = (module.read_bytes() for module in sorted(Path(__file__).parent.glob("*.py")))
    name = short_digest(*code, PIL.__version__.encode(), kind.rule.encode(), os.fsencode(folder))
    with suppress(OSError):
        return cache_root() / "maps" / name
    return None


def _folder_of(kind: MapKind, name: str, images: Path) -> Path:
    """Return the folder of maps: in the working folder, else beside or in that of the images."""
    folder = Path(kind.folder)
    places = [folder] if folder.is_absolute() else [folder, images.parent / folder, images / folder]
    for place in places:
        if place.is_dir():
            return place.absolute()
    raise InputError(
        f"the map {name!r}: no such folder: {', '.join(map(str, dict.fromkeys(places)))}; give the folder's whole path"
    )


def _files_by_stem(folder: Path, extensions: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return the files below a folder with some extensions, by their path in it without the extension."""
    files: dict[str, list[Path]] = {}
    for name in list_files(folder, extensions):
        files.setdefault(os.path.splitext(name)[0], []).append(folder / name)
    return files
