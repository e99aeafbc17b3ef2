"""The images of VIA's projects and exports, with their regions as they are in the file.

Sources: via-2.x.y and via-3.x.y of https://gitlab.com/vgg/via, CodeDoc.md.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, NamedTuple

from detaug.converters.files.text import read_json, read_text
from detaug.converters.records.json_list import members_of_json
from detaug.converters.records.record import ObjectError, Source, list_of, object_of, text_of

_IMAGES = "_via_img_metadata"
"""The images of a project of VIA 1 and 2. All keys of a project begin with _via_; an export is the images alone."""

_KEYS_OF_3 = frozenset({"project", "config", "attribute", "file", "metadata", "view"})
"""Of a project of VIA 3."""


class Item(NamedTuple):
    """An image: its name, and its regions as they are in the file."""

    name: str
    regions: list[Any]
    attributes: dict[str, Any]


def items_of_file(source: Source, file: str) -> Iterator[Item]:
    """Yield the images of a project or an export of VIA 1, 2 or 3. Raises OSError, ObjectError and InputError."""
    if file.lower().endswith(".csv"):
        yield from _items_of_table(read_text(source.folder / file))
        return
    members = members_of_json(source.name(file), "a VIA json", _IMAGES)
    first = next(members, None)
    if first is None:
        return
    if first[1] in _KEYS_OF_3 and not first[0]:
        yield from _items_of_3(read_json(source.name(file)))
        return
    is_project = "_via_" in (first[0][:5], first[1][:5])
    for parent, key, value in chain([first], members):
        if parent or not (is_project or key.startswith("_via_")):
            yield _item(object_of(value, "an image"))
        elif key == _IMAGES:
            object_of(value, _IMAGES)


def _item(entry: dict[str, Any]) -> Item:
    regions, attributes = entry.get("regions"), entry.get("file_attributes")
    regions = [*regions.values()] if isinstance(regions, dict) else list_of(regions, "regions")  # VIA 1
    return Item(str(entry.get("filename") or ""), regions, attributes if isinstance(attributes, dict) else {})


def _items_of_table(text: str) -> Iterator[Item]:
    """Yield the images of a CSV, whose attributes are json."""
    found: dict[str, Item] = {}
    try:
        for row in csv.DictReader(io.StringIO(text, newline="")):
            values = {
                (key or "").strip().lstrip("#"): value or "" for key, value in row.items() if isinstance(value, str)
            }
            parsed = {key: json.loads(values.get(key) or "{}") for key in values if key.endswith("_attributes")}
            file_attributes = parsed.get("file_attributes")
            attributes = file_attributes if isinstance(file_attributes, dict) else {}
            item = found.setdefault(values.get("filename", ""), Item(values.get("filename", ""), [], attributes))
            if parsed.get("region_shape_attributes"):
                shape, more = parsed["region_shape_attributes"], parsed.get("region_attributes")
                item.regions.append({"shape_attributes": shape, "region_attributes": more})
    except (csv.Error, ValueError, RecursionError) as error:
        raise ObjectError(f"is no table of VIA: {error}", "label-unreadable") from None
    yield from found.values()


def _items_of_3(document: dict[str, Any]) -> Iterator[Item]:
    """Yield the images of a project of VIA 3: files are in views, which metadata belongs to."""
    attributes = object_of(document.get("attribute"), "attribute").items()
    names = {key: text_of(object_of(entry, "an attribute").get("aname"), "aname") for key, entry in attributes}
    found: dict[str, Item] = {}
    for key, view in object_of(document.get("view"), "view").items():
        files = list_of(object_of(view, "a view").get("fid_list"), "fid_list")
        entry = object_of(document.get("file"), "file").get(str(files[0])) if files else None
        if entry and object_of(entry, "a file").get("type", 2) == 2:  # an image
            found[key] = Item(str(entry.get("fname") or ""), [], {})
    for entry in map(object_of, object_of(document.get("metadata"), "metadata").values(), repeat("metadata")):
        item, numbers, values = found.get(str(entry.get("vid"))), entry.get("xy"), entry.get("av")
        if item and numbers:
            named = {names.get(key, key): value for key, value in values.items()} if isinstance(values, dict) else {}
            item.regions.append({"shape_attributes": numbers, "region_attributes": named})
    yield from found.values()
