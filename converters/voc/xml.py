"""Parse one Pascal VOC XML into its objects as written, and convert their boxes. Safe on hostile input.

Nothing else is read: no DTD, no entity, no network. The two limits bound the memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, NamedTuple

from lxml import etree

from detaug.coco.table import THIN
from detaug.coco.writer import Box
from detaug.converters.records.record import Edges, Object
from detaug.converters.records.xml_elements import SAFE, unread_attributes
from detaug.errors import InputError
from detaug.files.formats import LFS, VOC_XML
from detaug.files.known_files import what_is
from detaug.files.text import read_file
from detaug.findings.finding import shown

MAX_XML_BYTES = 8 << 20  # 20,000 objects; a VOC file has about 1 KB
MAX_XML_DEPTH = 256  # libxml2's own limit without its "huge" option; a VOC file has 5

CORNERS = ("xmin", "ymin", "xmax", "ymax")
"""The elements of a <bndbox>."""
FLAGS = ("difficult", "truncated", "occluded")
"""The elements of an <object> that are 0 or 1."""
ROTATED = ("cx", "cy", "w", "h", "angle")
"""The elements of roLabelImg's <robndbox>."""
_POINTS_OF_ROTATED = tuple(
    f"{axis}_{corner}" for corner in ("left_top", "right_top", "right_bottom", "left_bottom") for axis in "xy"
)
"""The elements of the <robndbox> of DIOR-R."""
_ROOT_CHILDREN = frozenset({"folder", "filename", "path", "source", "owner", "size", "segmented", "object"})
"""Of an XML. Those that are not read say nothing of its objects."""
_OBJECT_CHILDREN = frozenset({"name", "bndbox", "robndbox", "pose", *FLAGS})
_TEXTS = (*FLAGS, "pose")
_POLYGON = "polygon"
"""The element of a polygon, of which an object may have several: <x1>, <y1>, <x2>, ... of supervision, Roboflow and
RectLabel, or points <pt> of <x> and <y>."""
_SAYS_NOTHING = frozenset({_POLYGON, "type", "id"})
"""Further elements that are read, or say nothing more: roLabelImg's <type> is robndbox."""
_IN_OBJECTS = _OBJECT_CHILDREN | _SAYS_NOTHING | {*CORNERS, *ROTATED, *_POINTS_OF_ROTATED, "pt", "point", "x", "y"}
_ENCODINGS = ("ascii", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_ENCODED_DOCTYPES = ["<!DOCTYPE".encode(encoding) for encoding in _ENCODINGS]


class VocAnnotation(NamedTuple):
    """The content of one XML. size: (width, height) pixels, None where <size> is missing or cannot be used."""

    filename: str
    size: tuple[float, float] | None
    objects: list[Object]
    """Their values as written. `edges` are the corners of the <bndbox>; `corners` those of the <robndbox> of roLabelImg
    and DIOR-R, continuous pixels; `rings` the polygons. `columns` are the texts of flags and pose: see FLAGS."""
    unread: list[str]
    """Elements and attributes that are not read, each as often as it occurs."""


class XmlError(InputError):
    """An XML that cannot be used: the kind of finding, the message, and the position."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        line: int | None = None,
        object_index: int | None = None,
        before: object = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.line, self.object_index, self.before = kind, line, object_index, before
        self.filename = ""
        """<filename>, where the XML has one and an object is at fault."""


def read_voc_xml(path: str) -> VocAnnotation:
    """Read one VOC XML file. Raises XmlError where it cannot be used."""
    return parse_voc_xml(_read_bytes(path))


def parse_voc_xml(data: bytes) -> VocAnnotation:
    """Parse the content of one VOC XML. Raises XmlError where it cannot be used."""
    root = _parse(data)
    if root.tag != "annotation":
        remedy = "; remove its xmlns=" if root.tag.startswith("{") else ""
        what = what_is("", data, but=[VOC_XML]) or f"the root element is <{root.tag}>, not <annotation>{remedy}"
        raise XmlError("xml-not-voc", what, line=root.sourceline)
    filename = _text(_first(root, "filename")) or ""
    unread = []
    for child in root:
        if child.tag not in _ROOT_CHILDREN:
            _refuse_objects_elsewhere(child)
            unread.append(f"<{child.tag}>")
    head, _, body = data.partition(b"?>")
    if b"=" in (body or head):  # most files have no attributes
        unread += _attributes(root)
    try:
        objects = [_object(element, index, unread) for index, element in enumerate(root.iterchildren("object"))]
    except XmlError as error:
        error.filename = filename
        raise
    return VocAnnotation(filename, _size(_first(root, "size")), objects, unread)


def _attributes(root: Any) -> Iterator[str]:
    """Yield the attributes of elements that are read: labelImg's `verified` is about no object."""
    yield from unread_attributes(root, ("verified",))
    for element in root.iterchildren("filename", "size", "object"):
        yield from unread_attributes(element, inside=_IN_OBJECTS)


def _refuse_objects_elsewhere(element: Any) -> None:
    """Raise XmlError for objects that are not children of the root: its image would be one without objects."""
    misplaced = next((descendant for descendant in element.iter() if str(descendant.tag).lower() == "object"), None)
    if misplaced is not None:
        where = f"<object> in a <{element.tag}>" if misplaced is not element else f"a <{element.tag}>"
        remedy = f"must have each <object> directly in <annotation>, got {where}; write it so"
        raise XmlError("xml-not-voc", remedy, line=misplaced.sourceline)


def _read_bytes(path: str) -> bytes:
    try:
        return read_file(path, MAX_XML_BYTES)
    except OSError as error:
        raise XmlError("xml-unreadable", f"cannot be read: {error.strerror or error}") from error
    except InputError as error:
        raise XmlError("xml-too-large", f"{error}, the limit for one XML") from None


def _parse(data: bytes) -> Any:
    if any(doctype in data for doctype in _ENCODED_DOCTYPES):
        raise _doctype_error()
    try:
        # Not collect_ids=False, though it is faster: with it libxml2 opens external DTDs after all (lxml 6.1.3).
        root = etree.fromstring(data, etree.XMLParser(recover=False, **SAFE))
    except etree.XMLSyntaxError as error:
        if "<!DOCTYPE" in data.decode("utf-7", "ignore"):  # lxml 5.0 stops at an entity in it
            raise _doctype_error() from error
        raise _syntax_error(error, data) from error
    except ValueError as error:  # embedded NUL and the like
        raise XmlError("xml-broken", f"does not parse: {error}") from error
    if root.getroottree().docinfo.internalDTD is not None:  # in an encoding that the search above does not cover
        raise _doctype_error()
    return root


def _doctype_error() -> XmlError:
    return XmlError("xml-doctype", "has a DOCTYPE, which VOC files do not need and attacks use; remove it")


def _syntax_error(error: Any, data: bytes) -> XmlError:
    if not data.strip():
        remedy = "delete it for an image without objects, which needs no XML"
        return XmlError("xml-broken", f"is empty ({len(data)} bytes); {remedy}")
    if data.startswith(LFS):
        return XmlError("xml-broken", what_is("", data))
    text = " ".join(str(error.msg).split())
    if "depth" in text.lower():
        return XmlError("xml-too-large", f"is nested deeper than {MAX_XML_DEPTH} elements", line=error.lineno)
    return XmlError("xml-broken", f"does not parse: {text}", line=error.lineno or None)


def _object(element: Any, index: int, unread: list[str]) -> Object:
    """Return an object; append its elements that are not read."""
    try:
        parts = _children_once(element, _OBJECT_CHILDREN)
        name = _text(parts.get("name"))
        if name is None or not name.strip():
            raise XmlError("object-no-name", "has no class name")
        annotation = Object(name, line=element.sourceline, object_index=index)
        annotation.columns = {tag: _text(parts.get(tag)) for tag in _TEXTS}
        annotation.rings = [_ring(child) for child in element.iterchildren(_POLYGON) if len(child)]
        if "robndbox" in parts:
            annotation.corners = _rotated_corners(parts["robndbox"])
            _count_others(parts["robndbox"], (*ROTATED, *_POINTS_OF_ROTATED), unread)
        elif "bndbox" in parts or not annotation.rings:
            annotation.edges = _corners(parts.get("bndbox"), element)
            _count_others(parts["bndbox"], CORNERS, unread)
        elif element.find(f"{_POLYGON}/pt") is not None:  # it counts pixels from 0, and marks objects as deleted
            remedy = "the LabelMe web tool wrote the <pt> of its <polygon>: convert the folder with detaug convert"
            raise XmlError("object-no-box", f"has no <bndbox>; {remedy}")
        if len(element) > len(parts):  # most have no other elements
            unread += (f"<{child.tag}>" for child in element if child.tag not in _OBJECT_CHILDREN | _SAYS_NOTHING)
        return annotation
    except XmlError as error:
        error.object_index = index
        error.line = error.line or element.sourceline
        raise


def _count_others(element: Any, names: tuple[str, ...], unread: list[str]) -> None:
    """Append the children of a box whose tags are not among `names`."""
    if len(element) > len(CORNERS):  # no box has fewer, and most have no others
        unread += (f"<{child.tag}> in <{element.tag}>" for child in element if child.tag not in names)


def _children_once(element: Any, wanted: frozenset[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return the wanted direct children by tag, in any order (decision 6)."""
    children: dict[str, Any] = {}
    for child in element:
        tag = child.tag
        if tag in wanted:
            if tag in children:
                raise XmlError("child-repeated", f"has <{tag}> twice", line=child.sourceline)
            children[tag] = child
    return children


_NUMBERED = re.compile(r"[xy][1-9][0-9]{0,5}")


def _ring(element: Any) -> tuple[float, ...]:
    """Return x and y of the points of a <polygon>."""
    parts = {child.tag: child for child in element if _NUMBERED.fullmatch(child.tag)}
    points = [_numbers_of(child, ("x", "y")) for child in element if child.tag in ("pt", "point")]
    if parts and not points:
        names = [(f"x{number}", f"y{number}") for number in range(1, len(parts) // 2 + 1)]
        if parts.keys() == {*chain.from_iterable(names)}:
            points = [[_number(parts[name]) for name in pair] for pair in names]
    if len(points) < 3:
        rule = "must have at least three points <x1>, <y1>, <x2>, ..., without gaps"
        raise XmlError("object-invalid", f"<polygon> {rule}", line=element.sourceline)
    return tuple(chain.from_iterable(points))


def _corners(element: Any, item: Any) -> Edges:
    if element is None:
        remedy = f", but a <{_POLYGON}>; write the <bndbox> around it" if item.find(_POLYGON) is not None else ""
        raise XmlError("object-no-box", f"has no <bndbox>{remedy}")
    xmin, ymin, xmax, ymax = _numbers_of(element, CORNERS)
    return xmin, ymin, xmax, ymax


def _numbers_of(element: Any, names: tuple[str, ...]) -> list[float]:
    parts = _children_once(element, names)
    if len(parts) < len(names):
        missing = ", ".join(f"<{name}>" for name in names if name not in parts)
        raise XmlError("object-no-box", f"has a <{element.tag}> without {missing}", line=element.sourceline)
    return [_number(parts[name]) for name in names]


def _rotated_corners(element: Any) -> tuple[float, ...]:
    """Return x and y of the corners of a <robndbox>: its angle is in radians, clockwise on the screen."""
    if element.find(_POINTS_OF_ROTATED[0]) is not None:
        return tuple(_numbers_of(element, _POINTS_OF_ROTATED))
    x, y, width, height, angle = _numbers_of(element, ROTATED)
    along_x, along_y = width / 2 * math.cos(angle), width / 2 * math.sin(angle)
    across_x, across_y = -height / 2 * math.sin(angle), height / 2 * math.cos(angle)
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return tuple(value for a, b in signs for value in (x + a * along_x + b * across_x, y + a * along_y + b * across_y))


def _number(element: Any) -> float:
    text = element.text or ""
    try:
        value = float(text)
        if math.isfinite(value) and "_" not in text:  # float() takes 1_000
            return value
    except ValueError:
        pass
    message = f"<{element.tag}> must be a finite number, got {shown(_shortened(text))}"
    raise XmlError("coordinate-invalid", message, line=element.sourceline, before=_shortened(text))


def _size(element: Any) -> tuple[float, float] | None:
    if element is None:
        return None
    try:
        size = (float(_text(_first(element, "width")) or ""), float(_text(_first(element, "height")) or ""))
    except ValueError:
        return None
    return size if size[0] > 0 and size[1] > 0 and max(size) < math.inf else None


def _first(element: Any, tag: str) -> Any:
    """Return the first child with a tag, or None: quicker than find, which has paths."""
    return next(element.iterchildren(tag), None)


def _text(element: Any) -> str | None:
    return None if element is None else element.text


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


Origin = Literal["one", "zero"]
"""Whether pixels count from 1 and boxes include their last one (VOC), or from 0 with an exclusive end."""
FIRST_PIXEL = {"one": 1, "zero": 0}


class CocoBox(NamedTuple):
    """The box inside its image, None where nothing is left of it; and the kinds of findings about it."""

    box: Box | None
    kinds: tuple[str, ...]


def to_coco_box(corners: Edges, origin: Origin, size: tuple[int, int]) -> CocoBox:
    """Convert VOC's corners, as in the XML, to COCO's (x, y, width, height) inside an image of size (H, W); pixels.

    Decisions 1 and 7.
    """
    xmin, ymin, xmax, ymax = corners
    height, width = size
    first = FIRST_PIXEL[origin]
    (xmin, xmax), (ymin, ymax) = _in_order(xmin, xmax, first), _in_order(ymin, ymax, first)
    kinds = [] if (xmin, ymin, xmax, ymax) == corners else ["box-reversed"]
    edges = (xmin - first, ymin - first, xmax, ymax)
    left, top, right, bottom = max(edges[0], 0), max(edges[1], 0), min(xmax, width), min(ymax, height)
    if right - left < THIN or bottom - top < THIN:
        return CocoBox(None, (*kinds, "box-outside" if _is_outside(edges, size) else "box-empty"))
    if (left, top, right, bottom) != edges:
        kinds.append("box-clipped")
    return CocoBox((left, top, right - left, bottom - top), tuple(kinds))


def _in_order(low: float, high: float, first: int) -> tuple[float, float]:
    """Return the two corners of an axis, the lower one first; a box narrower than a pixel may end before its start."""
    return (high, low) if low > high and low - high >= first else (low, high)


def _is_outside(edges: Edges, size: tuple[int, int]) -> bool:
    left, top, right, bottom = edges
    is_thin = right - left < THIN or bottom - top < THIN
    return not is_thin or left >= size[1] or top >= size[0] or right <= 0 or bottom <= 0
