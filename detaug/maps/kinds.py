"""`ClassMap`, `PanopticMap`, `DepthMap`: files beside the images with a value for each pixel, and what values mean.

Such files are read with Pillow, which alone returns all of them as they are: DALI, OpenCV and imagecodecs return
colors for a palette, and 0 and 255 for one bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.arguments import check, checks_names, is_number, is_whole
from detaug.errors import InputError
from detaug.files.image_headers import PILLOW_ERRORS
from detaug.files.large_images import allow_pixels
from detaug.files.paths import PathLike

Missing = Literal["error", "ignore"]
Erased = Literal["ignore", "keep"]
Color = tuple[int, int, int]
Table = Mapping[int, int] | Mapping[Color, int] | str

CITYSCAPES = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12, 26: 13}
CITYSCAPES |= {27: 14, 28: 15, 31: 16, 32: 17, 33: 18}
"""Each id of a `labelIds` file that has a trainId. Source: cityscapesscripts/helpers/labels.py of
https://github.com/mcordts/cityscapesScripts."""

COLOR_UNITS = 1, 256, 65536
"""Of red, green and blue, in the number of a color."""

PRESETS = "cityscapes", "ade20k"
IDS = 256
"""Values of a map of classes, 8 bits each."""


class MapError(InputError):
    """A file that cannot be a map. `finding`: the kind of finding that `detaug check` makes of it."""

    def __init__(self, message: str, finding: str = "map-broken") -> None:
        super().__init__(message)
        self.finding = finding


EXTENSIONS = ".png", ".npy", ".tif", ".tiff", ".bmp", ".gif"
"""Of files that maps are read from: JPEG changes values."""

LOSSY, LOSSY_FORMATS = (".jpg", ".jpeg", ".jfif", ".webp"), ("JPEG", "MPO", "WEBP")
"""Extensions, and Pillow's names, of formats that change values."""


@dataclass(frozen=True)
class ClassMap:
    """A map with the number of a class for each pixel, 0..255: `Batch.maps` has it as uint8.

    Args:
        folder: Of files with the names of the images, below the same sub-folders: PNG (numbers, or a palette, whose
            indices are the numbers), TIFF, BMP, GIF or .npy.
        ignore: The number of pixels that are of no known class; in batches also of fill, padding and what an op erased.
        table: The class of each number in the files, for all that they have but `ignore`; of colors, {(128, 64, 128):
            0}, for files in RGB; or a name: "cityscapes" makes trainIds of the ids of `labelIds` files, and "ade20k"
            makes 0..149 of 1..150; both make what is left `ignore`.
        classes: Names of the classes 0, 1, ..., with which others are an error, and by which `ConcatReader` joins maps.
        suffix: What the names of the files have after those of the images: "_gtFine_labelTrainIds", for which
            "_leftImg8bit", the last part of an image's name, is left out where the file is not there with it.
        missing: "ignore" takes images without a file, all of which then has the value `ignore`; with "error" they are
            as images that are missing.
        erased: "keep" leaves what an op such as `RandomErasing` erased as it was, as torchvision and Albumentations do.

    >>> da.ClassMap("SegmentationClass").empty
    255
    """

    folder: PathLike
    ignore: int = 255
    table: Table | None = None
    classes: Sequence[str] | None = None
    suffix: str = ""
    missing: Missing = "error"
    erased: Erased = "ignore"

    dtype: ClassVar[Any] = np.uint8
    """Of its values in batches."""
    is_linear: ClassVar[bool] = False
    """Whether values between pixels are interpolated."""

    def __post_init__(self) -> None:
        check("ignore", self.ignore, is_whole(self.ignore, 0, IDS - 1), f"a whole number in 0..{IDS - 1}")
        _check_choices(self)
        if isinstance(self.table, str):
            check("table", self.table, self.table in PRESETS, f"a dict, or one of {', '.join(map(repr, PRESETS))}")
        if self.classes is not None:
            names = list(self.classes)
            good = not isinstance(self.classes, str) and len(set(names)) == len(names) <= IDS and all(names)
            check("classes", self.classes, good, f"a list of at most {IDS} names, all different")
        _ = self._numbers  # errors of the table come now

    @property
    def empty(self) -> int:
        """Return the value of what shows nothing that is known: fill, padding, what was erased."""
        return self.ignore

    @property
    def rule(self) -> str:
        """Return text that differs where the same files have other values, or cannot be maps."""
        return repr((self.numbering, None if self.classes is None else len(self.classes)))

    @property
    def numbering(self) -> tuple[Any, ...]:
        """Return what is equal for two maps in whose files a number, or a color, means the same."""
        return self.ignore, None if self._numbers is None else sorted(self._numbers.items()), self._has_colors

    def class_name(self, number: int) -> str:
        """Return the name of a class: its number, if `classes` has none."""
        names = self.classes or ()
        return names[number] if number < len(names) else str(number)

    @cached_property
    def _numbers(self) -> dict[int, int] | None:
        """Return the class of each number in the files, of a color r + 256 g + 256^2 b; None: as they are."""
        if self.table is None:
            return None
        if self.table == "cityscapes":
            return {number: CITYSCAPES.get(number, self.ignore) for number in range(IDS)}
        if self.table == "ade20k":
            return {0: self.ignore, **{number: number - 1 for number in range(1, 151)}}
        assert isinstance(self.table, Mapping)
        good = [is_whole(value, 0, IDS - 1) for value in self.table.values()]
        good += [_is_color(key) == self._has_colors and (_is_color(key) or is_whole(key, 0)) for key in self.table]
        rule = f"a dict of whole numbers, or of colors (r, g, b), to classes in 0..{IDS - 1}"
        check("table", self.table, bool(self.table) and all(good), rule)
        return {_as_number(key): int(value) for key, value in self.table.items()}

    @property
    def _has_colors(self) -> bool:
        return isinstance(self.table, Mapping) and any(map(_is_color, self.table))

    def values_of(self, pixels: Pixels, path: Path) -> NDArray[Any]:
        """Return (H, W) the values of a file, of `dtype`. Raises MapError for one that cannot be one."""
        values = pixels.values
        if values.ndim == 3:
            if not self._has_colors:
                raise MapError(
                    f"{path} has colors where numbers of classes are expected; give ClassMap(table=) the class of each "
                    "color, {(128, 64, 128): 0, ...}",
                    "map-colors",
                )
            values = numbers_of_colors(values)
        elif self._has_colors:
            raise MapError(
                f"{path} has numbers, and the table of its ClassMap is one of colors; give it numbers", "map-colors"
            )
        if values.ndim != 2:
            raise MapError(f"{path} has {values.ndim} axes, where a map has two, height and width")
        if values.dtype.kind not in "uib":
            raise MapError(
                f"{path} has values of type {values.dtype}, where numbers of classes are whole; save them as uint8",
                "map-value",
            )
        present, of_pixel = np.unique(values, return_inverse=True)
        table = self._numbers
        new = [self._class_of(int(number), table, path) for number in present]
        return np.array(new, np.uint8)[of_pixel].reshape(values.shape)

    def _class_of(self, number: int, table: dict[int, int] | None, path: Path) -> int:
        if number == self.ignore and (table is None or number not in table) and not self._has_colors:
            return number
        if table is not None and number not in table:
            shown = _as_color(number) if self._has_colors else number
            raise MapError(
                f"{path} has the value {shown}, which is not in the table of its ClassMap; add it", "map-value"
            )
        value = number if table is None else table[number]
        if not 0 <= value < IDS:
            raise MapError(
                f"{path} has the value {value}, where a class is in 0..{IDS - 1}; give ClassMap(table=) the class of "
                "each number",
                "map-value",
            )
        if self.classes is not None and value != self.ignore and value >= len(self.classes):
            raise MapError(
                f"{path} has the value {value}, where its ClassMap has {len(self.classes)} classes, 0.."
                f"{len(self.classes) - 1}, and ignores {self.ignore}; name it, or give a table",
                "map-value",
            )
        return value


@dataclass(frozen=True)
class DepthMap:
    """A map with the distance of what each pixel shows: `Batch.maps` has it as float32, 0 where it is not known.

    Between pixels, depth is interpolated linearly of those that are known, and never between two images; where the
    nearest one is not known, it is 0.

    Args:
        folder: Of PNG or TIFF files of 8, 16 or 32 bits, or .npy, with the names of the images; see `ClassMap`.
        scale: What a value of the files is multiplied by, for meters, also where it is a float: 1 / 256 of KITTI's. By
            default 0.001 of whole numbers, millimeters, and 1 of floats, as Ultralytics' .npy files are.
        invalid: The value in the files of pixels that are not known; so are values below 0, and those that are not
            finite.
        suffix: See `ClassMap`.
        missing: See `ClassMap`.
        erased: See `ClassMap`.

    >>> da.DepthMap("depth", scale=1 / 256).empty
    0
    """

    folder: PathLike
    scale: float | None = None
    invalid: float = 0
    suffix: str = ""
    missing: Missing = "error"
    erased: Erased = "ignore"

    dtype: ClassVar[Any] = np.float32
    is_linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        good = self.scale is None or (is_number(self.scale) and self.scale > 0)
        check("scale", self.scale, good, "a number above 0")
        check("invalid", self.invalid, is_number(self.invalid), "a number")
        _check_choices(self)

    @property
    def empty(self) -> int:
        """Return the value of what shows nothing that is known: fill, padding, what was erased."""
        return 0

    def values_of(self, pixels: Pixels, path: Path) -> NDArray[Any]:
        """Return (H, W) the values of a file, of `dtype`. Raises MapError for one that cannot be one."""
        values = pixels.values
        if pixels.mode == "P":
            raise MapError(f"{path} has a palette, whose numbers are not depths", "map-colors")
        if values.ndim != 2 or values.dtype.kind not in "uif":
            raise MapError(
                f"{path} has {values.ndim} axes of type {values.dtype}, where a depth map has one band", "map-colors"
            )
        scale = self.scale or (1.0 if values.dtype.kind == "f" else 0.001)
        valid = np.isfinite(values) & (values > 0) & (values != self.invalid)
        meters = np.where(valid, values, 0).astype(np.float64) * float(scale)  # 16 bits are too few for it
        return np.where(meters <= np.finfo(np.float32).max, meters, 0).astype(np.float32)


@dataclass(frozen=True)
class PanopticMap:
    """A map with the segment of each pixel, in COCO's panoptic form: `Batch.maps` has it as int32.

    A segment is an annotation of the reader if both have one class, by name, and their boxes have an IoU of at least
    0.5; of several such pairs those with the highest IoU. In batches its pixels have the row of this annotation, as
    `Batch.rows`. Stuff, classes with `isthing` 0 and without annotations, is A + C there: A is the number of the
    reader's annotations and C the position of the class in `class_names`. -1 is void: fill, crowds, objects whose box
    an op dropped, and segments without an annotation, which are counted in `dropped` of the reader's map.

    Args:
        folder: Of PNG files with the names of the images; the id of a segment is R + 256 G + 65536 B, 0 is void. Files
            with one band have the ids themselves.
        annotations: The JSON file with the `segments_info` of each, by default FOLDER.json, beside the folder or in
            `annotations` beside it.
        suffix, missing, erased: As of `ClassMap`.

    >>> print(da.PanopticMap("panoptic_train2017", annotations="annotations/panoptic_train2017.json").missing)
    error
    """

    folder: PathLike
    annotations: PathLike | None = None
    suffix: str = ""
    missing: Missing = "error"
    erased: Erased = "ignore"
    class_names: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)
    """Once a reader has it, `reader.maps["panoptic"].kind`: those of the reader, then those of the JSON file alone."""
    is_thing: tuple[bool, ...] = field(default=(), init=False, repr=False, compare=False)
    """Whether each class is of objects that are counted."""

    dtype: ClassVar[Any] = np.int32
    is_linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        good = self.annotations is None or isinstance(self.annotations, str | Path)
        check("annotations", self.annotations, good, "the path of a JSON file, or None")
        _check_choices(self)

    @property
    def empty(self) -> int:
        """Return the value of void in the maps of a reader, where segments are 1, 2, ... of each image."""
        return 0

    @property
    def rule(self) -> str:
        """Return text as `ClassMap.rule` does."""
        return "panoptic"

    def named(self, class_names: Sequence[str], is_thing: Sequence[bool]) -> PanopticMap:
        """Return the same with classes."""
        result = copy(self)
        object.__setattr__(result, "class_names", tuple(class_names))
        object.__setattr__(result, "is_thing", tuple(map(bool, is_thing)))
        return result

    def values_of(self, pixels: Pixels, path: Path) -> NDArray[Any]:
        """Return (H, W) int64, the ids of a file. Raises MapError for one that cannot be one."""
        values, mode = pixels
        if mode == "P":  # what makes files smaller without loss writes few colors so
            with Image.open(path) as image:
                values = np.asarray(image.convert("RGB"))
        if values.dtype.kind not in "ui" or (values.ndim == 3 and (values.dtype != np.uint8 or values.shape[2] < 3)):
            raise MapError(f"{path} has pixels of the kind {mode}, where ids are colors of 8 bits, or whole numbers")
        return values.astype(np.int64) if values.ndim == 2 else numbers_of_colors(values)


for _kind in (ClassMap, DepthMap, PanopticMap):
    _kind.__init__ = checks_names(_kind.__init__)  # type: ignore[method-assign]

MapKind: TypeAlias = ClassMap | DepthMap | PanopticMap

PlainMap: TypeAlias = ClassMap | DepthMap
"""A map whose values mean the same in all files, unlike the segments of a `PanopticMap`."""


def _check_choices(kind: Any) -> None:
    check("missing", kind.missing, kind.missing in get_args(Missing), "'error' or 'ignore'")
    check("erased", kind.erased, kind.erased in get_args(Erased), "'ignore' or 'keep'")
    check("suffix", kind.suffix, isinstance(kind.suffix, str), "a text, such as '_gtFine_labelTrainIds'")


def _is_color(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 3 and all(is_whole(value, 0, 255) for value in key)


def _as_number(key: int | Color) -> int:
    return int(np.dot(key, COLOR_UNITS)) if isinstance(key, tuple) else int(key)


def _as_color(number: int) -> Color:
    return number % 256, number // 256 % 256, number // 65536


def numbers_of_colors(colors: NDArray[Any]) -> NDArray[np.int64]:
    """Return (H, W) r + 256 g + 256^2 b of colors (H, W, 3 or 4)."""
    return np.asarray(colors[..., :3].astype(np.int64) @ np.array(COLOR_UNITS))


class Pixels(NamedTuple):
    """The pixels of a file as they are."""

    values: NDArray[Any]
    """(H, W), or (H, W, 3 or 4) colors."""
    mode: str
    """Pillow's name of their kind: "P" with a palette, "1" with one bit each."""


ONE_PARSER = Lock()
"""NumPy parses the header of a .npy file with `ast`, which raises SystemError in several threads before Python 3.11.8
and 3.12.2 (https://github.com/python/cpython/issues/106905)."""


def pixels_of(path: Path) -> Pixels:
    """Return the pixels of a file as they are. Raises MapError for a file that no map is read from."""
    if path.suffix.lower() == ".npy":
        try:
            content = BytesIO(path.read_bytes())
            with ONE_PARSER:
                return Pixels(np.asarray(np.load(content, allow_pickle=False)), "array")
        except (ValueError, EOFError) as error:
            raise MapError(f"{path} is not an array of NumPy ({error})") from None
    try:
        with allow_pixels(1 << 31), Image.open(path) as image:
            is_lossy = image.format in LOSSY_FORMATS or image.info.get("compression") == "jpeg"
            mode, values = image.mode, np.asarray(image)
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as error:
        raise MapError(f"{path}: does not decode ({error})") from None
    if is_lossy:
        raise MapError(f"{path} is compressed as JPEG, which changes numbers; save the map as PNG", "map-lossy")
    if values.ndim not in (2, 3) or mode in ("LA", "PA", "CMYK", "YCbCr", "LAB", "HSV"):
        raise MapError(f"{path} has pixels of the kind {mode}, which no map has; save it with one band", "map-colors")
    return Pixels(values, mode)
