"""Read an XML that is a list of images, which may be larger than the memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from lxml import etree

from detaug.converters.files.paths import require_file
from detaug.converters.records.record import ObjectError
from detaug.converters.voc.xml import SAFE


def elements_of_xml(path: str, tags: tuple[str, ...]) -> Generator[Any, None, None]:
    """Yield the elements below the root with one of the tags, one in memory at a time. Raises ObjectError."""
    try:
        require_file(path)
        with open(path, "rb") as opened:
            depth = 0
            for event, element in etree.iterparse(opened, events=("start", "end"), **SAFE):
                depth += 1 if event == "start" else -1
                if depth == 1 and event == "start" and element.getroottree().docinfo.internalDTD is not None:
                    rule = "has a DOCTYPE, which annotations do not need and attacks use; remove it"
                    raise ObjectError(rule, "xml-doctype")
                if depth == 1 and event == "end":
                    if element.tag in tags:
                        yield element
                    element.clear()
                    while element.getprevious() is not None:
                        del element.getparent()[0]
    except (etree.XMLSyntaxError, ValueError) as error:
        if isinstance(error, ObjectError):
            raise
        raise ObjectError(f"does not parse: {error}", "xml-broken") from None
    except OSError as error:
        raise ObjectError(f"cannot be read: {error.strerror or error}", "xml-unreadable") from None
