"""Read an XML that is a list of images or tracks, which may be larger than the memory."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from typing import Any

from lxml import etree

from detaug.converters.records.record import ObjectError
from detaug.files.paths import require_file

SAFE: dict[str, bool] = {
    "resolve_entities": False,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "no_network": True,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}
"""Options of lxml's parsers for files of anybody."""


def unread_attributes(element: Any, read: Collection[str] = (), inside: Collection[str] = ()) -> Iterator[str]:
    """Yield the attributes, but for those with a name in `read`, of an element and of the elements in it that are read.

    inside: the tags of these. Attributes of other namespaces, such as the place of a schema, are the parser's.
    """
    names: list[str] = element.keys()
    for name in names:
        if name not in read and not name.startswith("{"):
            yield f"{name} of <{element.tag}>"
    for child in element if inside else ():
        if child.tag in inside:
            yield from unread_attributes(child, read, inside)


def elements_of_xml(
    path: str, tags: Collection[str] | None = None, inside: Collection[str] = ()
) -> Generator[tuple[tuple[Any, ...], Any], None, None]:
    """Yield ((), element) of the elements below the root with one of the tags (None: all), one in memory at a time.

    Of an element whose tag is one of `inside` each child is yielded by itself, with the elements around it, of which
    only the attributes are known: ((element,), child). It is yielded after its children, without them.
    Raises ObjectError, when it comes to the fault.
    """
    try:
        require_file(path)
        with open(path, "rb") as opened:
            depth = 0
            around: list[Any] = []
            for event, element in etree.iterparse(opened, events=("start", "end"), **SAFE):
                if event == "start":
                    if depth == 0 and element.getroottree().docinfo.internalDTD is not None:
                        rule = "has a DOCTYPE, which annotations do not need and attacks use; remove it"
                        raise ObjectError(rule, "xml-doctype")
                    if depth == len(around) + 1 and element.tag in inside:
                        around.append(element)
                    depth += 1
                    continue
                depth -= 1
                if around and element is around[-1]:
                    around.pop()
                if depth == len(around) + 1:
                    if around or tags is None or element.tag in tags:
                        yield tuple(around), element
                    # Clearing an element leaves it below the root, where a million empty ones would fill the memory.
                    element.clear()
                    while element.getprevious() is not None:
                        del element.getparent()[0]
    except (etree.XMLSyntaxError, ValueError) as error:
        if isinstance(error, ObjectError):
            raise
        raise ObjectError(f"does not parse: {error}", "xml-broken") from None
    except OSError as error:
        raise ObjectError(f"cannot be read: {error.strerror or error}", "xml-unreadable") from None
