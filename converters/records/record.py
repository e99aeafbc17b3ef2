"""What the reader of a format yields: a record for each image, with its objects as the format has them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from detaug.coco.rings import area_of, convex_hull, join_rings
from detaug.coco.rings import points_of as points_of_ring
from detaug.errors import InputError
from detaug.files.spool import SpoolError
from detaug.files.text import is_plain
from detaug.findings.finding import Finding, shown

if TYPE_CHECKING:
    from detaug.coco.boxes import BoxNumbers
    from detaug.converters.records.images import Images
    from detaug.converters.records.placing import Placed
    from detaug.maps.kinds import ClassMap

Edges = tuple[float, float, float, float]
"""Left, top, right, bottom."""

T = TypeVar("T")


class Mask(NamedTuple):
    """A mask of a part of an image, whole pixels."""

    pixels: NDArray[np.bool_]
    """(h, w)"""
    left: int = 0
    top: int = 0


@dataclass(slots=True, eq=False)
class Object:
    """One object. x and y are continuous, in the unit of its record; pixel i covers i to i + 1.

    The box is `edges`, or else the one around the polygon, the mask, the corners or the keypoints.
    """

    class_name: str
    edges: Edges | None = None
    rings: Sequence[Sequence[float]] = ()
    """Polygons, each x, y, x, y, ...; the object is what at least one of them surrounds."""
    corners: Sequence[float] = ()
    """Of a rotated box: x, y of its four corners, in order. It is the polygon where there is no other."""
    masks: Sequence[Mask] = ()
    """The object is what at least one of them has."""
    key_points: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)
    """By name: x, y and COCO's visibility, 0 not labeled, 1 hidden, 2 visible."""
    is_crowd: bool = False
    is_ignored: bool = False
    """A region of no class, in which nothing counts: it becomes a crowd of each class."""
    track: int | None = None
    """The same number in all frames of a video."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the annotation."""
    tool_id: int | str | None = None
    """By which the labeling tool finds it."""
    line: int | None = None
    """In its file, from 1."""
    object_index: int | None = None
    """Among the objects of its image in the file, from 0."""

    def __reduce__(self) -> tuple[type[Object], tuple[Any, ...]]:
        """Return the fields in their order: to pickle them so takes half of the time and the space."""
        return Object, _fields_of(self)

    def set_box(self, edges: Edges, degrees: float, x: float, y: float) -> None:
        """Set a box that is rotated clockwise about (x, y): corners from the left top on, or edges where it is not."""
        if not degrees:
            self.edges = edges
            return
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        left, top, right, bottom = edges
        sides = [(at_x - x, at_y - y) for at_x, at_y in ((left, top), (right, top), (right, bottom), (left, bottom))]
        corners = [(x + across * cos - down * sin, y + across * sin + down * cos) for across, down in sides]
        self.corners = [*chain.from_iterable(corners)]

    def set_ellipse(self, x: float, y: float, radius_x: float, radius_y: float, degrees: float = 0) -> None:
        """Set the polygon, 72 points, and the box of an ellipse that is rotated clockwise about its center."""
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        ring = []
        for step in range(72):
            along, across = radius_x * math.cos(step * math.pi / 36), radius_y * math.sin(step * math.pi / 36)
            ring += [x + along * cos - across * sin, y + along * sin + across * cos]
        half_width, half_height = math.hypot(radius_x * cos, radius_y * sin), math.hypot(radius_x * sin, radius_y * cos)
        self.edges, self.rings = (x - half_width, y - half_height, x + half_width, y + half_height), [ring]


_fields_of = attrgetter(*Object.__slots__)


@dataclass(slots=True)
class Record:
    """The annotations of one image."""

    file: str
    """The annotation file, as findings name it."""
    names: Sequence[str] = ()
    """What the format calls the image, best first: a name or a path, with slashes or backslashes."""
    called: str = ""
    """The name in the file, where `names` has others; for messages."""
    stem: str = ""
    """For a format with one file for each image: that file's path without its extension."""
    size: tuple[float, float] | None = None
    """(width, height) in pixels as the format says it; the image file decides."""
    unit: tuple[float, float] | None = None
    """(width, height) of the image in the unit of x and y, such as (1, 1); None for pixels."""
    objects: list[Object] = field(default_factory=list)
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the image."""
    tool_id: int | str | None = None
    """By which the labeling tool finds it, such as the number of a task."""
    video: str = ""
    frame: int | None = None
    """Number of the frame in its video, from 0."""
    video_size: tuple[int, int] | None = None
    """(width, height) in pixels of a frame of a video file, which is not a file of its own: `image` is its name."""
    without_image: str = ""
    """What to do if no image is found, if the format has an own way."""
    findings: list[Finding] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    """How often elements and keys occur that the reader leaves out, by name: see `unread_elements`."""
    image: str = ""
    """The image below its folder, where the format knows it; without it, it is looked for, and then set."""
    alike: Sequence[str] = ()
    """The images of its stem, if there are several: of those that it does not get none is an image without objects."""

    def about(self, line: int | None) -> str:
        """Return the file as findings about an object name it: with the image, if no line tells which one it is."""
        named = self.names and not self.stem and line is None
        return f"{self.file}: {self.called or self.names[0]}" if named else self.file


class Contents(NamedTuple):
    """What a reader returns."""

    records: Iterable[Record]
    read: Callable[[Record], None] | None = None
    """Fills a record from its file, if the format has one for each image: in any process, and not for other parts."""
    total: int = 0
    """How many records there are, if that is known before they are read."""
    place: Callable[[Record, tuple[int, int], BoxNumbers], tuple[list[Placed], list[Placed]]] | None = None
    """Returns the objects and the regions of a record, which has its image by then, in pixels of that image of size
    (H, W), if the rules of the format are not those of `Place`: in any process. Its findings are the record's."""
    class_names: Iterable[str] = ()
    """In the order of their category ids, if the format has one; others follow, sorted. Read after the records."""
    key_points: Mapping[str, Sequence[str]] = {}
    """By class, in their order, if the format has one."""
    skeletons: Mapping[str, Sequence[tuple[int, int]]] = {}
    """By class, pairs of keypoints, from 1."""
    findings: Iterable[Finding] = ()
    """About what is in no record. Read after the records."""
    files: int | None = None
    """How many annotation files there are, of which each image notes its own; None for those of the source."""
    images: Sequence[str] | None = None
    """The images in the order of their ids, if the format knows it; else all below the folder, sorted."""
    finder: Images | None = None
    """All images, if the reader has looked for them itself, such as in another folder than that of the source."""
    find: Callable[[Images, Record], tuple[str | None, int]] | None = None
    """Finds the image of a record, if the rules of the format are not those of `Images.find`: in any process."""
    unlabeled: str = "label-missing"
    """Kind of the finding about an image without a file, if the format has one for each; "dropped" leaves it out."""
    compares_images: bool = False
    """Whether images with the same bytes are findings."""
    map: ClassMap | None = None
    """Of images that have maps of their classes, which then need no object."""
    title: str = ""
    """What the JSON file says it was converted from, if it is not the name of the format."""
    info: Mapping[str, Any] = {}
    """Further keys of the JSON file's `info`."""
    keeps_folder: bool = False
    """Whether file names stay relative to the folder of the images, not to the deepest one that holds all of them."""
    keeps_unused: bool = True
    """Whether a listed class without an object becomes a category."""
    categories: Mapping[str, Mapping[str, Any]] = {}
    """Further keys of the rows of classes, by class."""
    other_splits: Sequence[str] = ()
    """Those that are not converted."""
    fault: Callable[[Iterator[tuple[tuple[int, int], Mapping[str, Any]]]], str] | None = None
    """Returns what is wrong with the shapes of all objects, and a remedy; "" where nothing is. It takes each object's
    image size (H, W) and keys."""
    video_names: Callable[[], Sequence[str]] | None = None
    """Returns the names of the videos of all records, sorted: of a part, which may have to read the files for it."""
    videos: Mapping[str, Mapping[str, Any]] = {}
    """Further keys of the rows of videos, by name."""


class AnnotationFiles(NamedTuple):
    """The files of a dataset in one format."""

    folder: Path
    files: Sequence[str]
    """The annotation files, relative to the folder."""
    images: Path
    temporary: Path
    """Where there is room for temporary files: the folder of the output."""
    path: Path | None = None
    """What was given: a file, or the folder itself."""

    @property
    def other_images(self) -> Path | None:
        """Return the folder of the images, if it is not that of the files."""
        return None if self.images == self.folder else self.images

    def name(self, file: str) -> str:
        """Return the file's path as a message has it."""
        return os.path.join(self.folder, file)


class ObjectError(InputError):
    """An object, or a file, that cannot be read: the kind of finding, and why."""

    def __init__(self, message: str, kind: str = "object-invalid") -> None:
        super().__init__(message)
        self.kind = kind


def names_beside(file: str, name: str) -> list[str]:
    """Return the names that an image may have: beside its annotation file, or below the folder; none for ""."""
    folder = file.rpartition("/")[0]
    return [*([f"{folder}/{name}"] if folder else []), name] if name else []


def read_objects(
    record: Record, items: Iterable[T], parse: Callable[[T], Object | None], line: Callable[[T], int] | None = None
) -> None:
    """Append the objects of a record; one that cannot be read becomes a finding, and one that is None is left out."""
    for index, item in enumerate(items):
        try:
            parsed = parse(item)
        except ObjectError as error:
            line_number = line(item) if line else None
            record.findings.append(Finding(record.about(line_number), error.kind, index, line_number, note=str(error)))
            continue
        if parsed:
            parsed.object_index = index
            record.objects.append(parsed)


def unused_shape(record: Record, index: int | None, what: str, line: int | None = None) -> None:
    """Append a finding about a shape that has no place in the JSON file."""
    record.findings.append(Finding(record.about(line), "shape-unused", index, line, before=what))


_CLOSED = 0.05
"""How far apart the ends of a line may be, of its length: who draws a polygon as a line rarely hits its start."""


def ring_of_line(
    record: Record, index: int | None, line: Sequence[float], row: int | None = None
) -> list[float] | None:
    """Return the ring that a line, x, y, x, y, ..., is whose ends meet, or nearly do; None for an open one.

    A line whose ends do not quite meet is a finding. row: the line in the file, if it tells where this is.
    """
    points = points_of_ring(line).tolist()
    apart = math.dist(points[0], points[-1]) if points else 0
    length = sum(map(math.dist, points, points[1:]))
    ring = [*chain.from_iterable(points if apart else points[:-1])]
    if apart > _CLOSED * length or len(ring) < 6 or not area_of(ring):
        return None
    if apart:
        record.findings.append(Finding(record.about(row), "line-closed", index, row, before=round(apart, 3)))
    return ring


def count_unread(record: Record, entry: Any, read: Collection[str]) -> None:
    """Count the keys of an entry of a JSON file that are not read and have a value; what is not an object has none."""
    values = entry if isinstance(entry, dict) else {}
    record.unread.update(key for key, value in values.items() if key not in read and value not in (None, "", [], {}))


def part_of(record: Record, entry: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return a part of an entry of a JSON file; an empty one for none, or for another type, which is counted."""
    value = entry.get(key)
    if isinstance(value, kind):
        return value
    count_unread(record, {f"{key} of another type": value}, ())
    return kind()


def unread_elements(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding for each name of elements or keys that a reader leaves out; they are counted when it is read."""
    for name, count in sorted(counts.items()):
        yield Finding("", "element-unused", before=name, note=f"{name} is not read, {count:,} times", count=count)


_NUMBERS = frozenset({int, float})
_LARGEST = 1e9
"""Of a coordinate: far above that of any image."""


def number_of(value: object, name: str) -> float:
    """Return a finite number, of JSON or of text. Raises ObjectError."""
    number = math.nan
    if type(value) in (int, float):
        number = value  # type: ignore[assignment]
    elif isinstance(value, str) and "_" not in value:  # float() accepts 1_000
        try:
            number = float(value)
        except ValueError:
            number = math.nan
    if not -_LARGEST < number < _LARGEST:  # also of NaN
        raise ObjectError(f"{name} must be a finite number, got {shown(value)}")
    return number


def numbers_of(values: Iterable[Any], name: str | Sequence[str]) -> list[float]:
    """Return finite numbers, of JSON or of text. name: of all of them, or of each. Raises ObjectError."""
    values = [*values]
    is_text = bool(values) and type(values[0]) is str
    try:  # all at once, which takes half of the time
        are_usual = "_" not in "".join(values) if is_text else _NUMBERS.issuperset(map(type, values))
        numbers = [*map(float, values)] if is_text else values
        if are_usual and sum(map(abs, numbers)) < _LARGEST:
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    names = repeat(name) if isinstance(name, str) else name
    return [*map(number_of, values, names)]  # says which one is wrong


def points_of(value: object, name: str, least: int = 1) -> list[float]:
    """Return x, y, x, y, ... of JSON's [[x, y], ...]. Raises ObjectError, also for fewer points than `least`."""
    points = value if isinstance(value, list) else []
    if points is not value or not {*map(type, points)} <= {list} or not {*map(len, points)} <= {2}:
        raise ObjectError(f"{name} must be points [[x, y], ...], got {shown(value)}")
    if len(points) < least:
        raise ObjectError(f"{name} must be at least {least} points, got {len(points)}")
    return numbers_of(chain.from_iterable(points), name)


def text_of(value: object, name: str) -> str:
    """Return text that is not empty; a number becomes text. Raises ObjectError."""
    text = str(value) if type(value) in (int, float) else value
    if not isinstance(text, str) or not text.strip():
        raise ObjectError(f"{name} must be text, got {shown(value)}", "object-no-name")
    return text


def whole_of(text: str | None, digits: int = 8) -> int | None:
    """Return the whole number that a text is, from 0; None for another text, or for more digits."""
    return int(text) if text and text.isdecimal() and len(text) <= digits else None


def id_of(value: object) -> int | str | None:
    """Return the id that a tool has given, a whole number or text; None for anything else."""
    is_id = type(value) is int or (isinstance(value, str) and 0 < len(value) < 200 and is_plain(value))
    return value if is_id else None  # type: ignore[return-value]


def object_of(value: object, name: str) -> dict[str, Any]:
    """Return JSON's {...}. Raises ObjectError."""
    if not isinstance(value, dict):
        raise ObjectError(f"{name} must be an object {{...}}, got {shown(value)}")
    return value


def list_of(value: object, name: str, *, optional: bool = False) -> list[Any]:
    """Return JSON's [...]; of an `optional` one [] for None, a missing key or null. Raises ObjectError."""
    if value is None and optional:
        return []
    if value is None:  # it is not known whether there is nothing, or whether a tool writes it elsewhere
        raise ObjectError(f"{name} must be a list [...], [] for an image without objects, got null or nothing")
    if not isinstance(value, list):
        raise ObjectError(f"{name} must be a list [...], got {shown(value)}")
    return value


def edges_of(numbers: Sequence[float]) -> Edges:
    """Return the box around points x, y, x, y, ..."""
    xs, ys = numbers[::2], numbers[1::2]
    return min(xs), min(ys), max(xs), max(ys)


def hull_of(numbers: Sequence[float]) -> list[float]:
    """Return the ring around points x, y, x, y, ...: what a cuboid covers, whose corners they are."""
    hull: list[float] = convex_hull(points_of_ring(numbers)).ravel().tolist()
    return hull


def ring_with_holes(exterior: Sequence[float], holes: Sequence[Sequence[float]]) -> list[float]:
    """Return one ring, x, y, x, y, ..., around a polygon without its holes, which go round the other way."""
    if not holes:
        return [*exterior]
    rings = [points_of_ring(ring) for ring in (exterior, *holes)]
    first = _turns_right(rings[0])
    oriented = [ring[::-1] if index and _turns_right(ring) == first else ring for index, ring in enumerate(rings)]
    joined: list[float] = join_rings(oriented).ravel().tolist()
    return joined


def _turns_right(ring: NDArray[np.float64]) -> bool:
    x, y = ring.T
    return bool((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() > 0)


def contents_of_files(
    source: AnnotationFiles, read: Callable[[AnnotationFiles, Record], None], **more: Any
) -> Contents:
    """Return the contents of a format with a label file for each image.

    read: fills the record of a file, and may raise OSError and InputError. It is called in any process, with a source
    without files: a function of a module, or a partial of one. more: of `Contents`.
    """
    records = (Record(file, stem=file.rpartition(".")[0]) for file in source.files)
    return Contents(records, partial(_fill, read, source._replace(files=())), len(source.files), **more)


def _fill(read: Callable[[AnnotationFiles, Record], None], source: AnnotationFiles, record: Record) -> None:
    try:
        read(source, record)
    except (OSError, InputError) as error:
        record.findings.append(unreadable(record.file, error))


def records_of_lists(source: AnnotationFiles, read: Callable[[str], Iterable[Record]]) -> Iterator[Record]:
    """Yield the records of files with many images each; `read` may raise OSError, ObjectError and InputError."""
    for file in source.files:
        try:
            yield from read(file)
        except SpoolError:  # the file is not at fault
            raise
        except (OSError, InputError, UnicodeDecodeError) as error:
            yield Record(file, findings=[unreadable(file, error)])


def unreadable(file: str, error: Exception) -> Finding:
    """Return the finding about an annotation file that cannot be read."""
    note = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
    note = f"must be UTF-8 text: {error.reason}" if isinstance(error, UnicodeDecodeError) else note
    return Finding(file, "label-unreadable", note=note)
