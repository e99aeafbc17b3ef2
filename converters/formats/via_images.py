"""The images of VIA's projects and exports, with their regions as they are in the file.

Sources: via-2.x.y and via-3.x.y of https://gitlab.com/vgg/via, CodeDoc.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from detaug.converters.records.csv_rows import rows_of_csv
from detaug.converters.records.json_list import members_of_json
from detaug.converters.records.record import ObjectError, Source, list_of, object_of, text_of

_IMAGES = "_via_img_metadata"
"""The images of a project of VIA 1 and 2. All keys of a project begin with _via_; an export is the images alone."""

_LISTS_OF_3 = ("attribute", "file", "metadata", "view")
_KEYS_OF_3 = ("project", "config", *_LISTS_OF_3)
"""Of a project of VIA 3."""


class Item(NamedTuple):
    """Regions of an image, as they are in the file: all of them, or some."""

    key: Hashable
    """The same in all items of an image."""
    name: str
    regions: list[Any]
    attributes: Mapping[str, Any] = {}
    """Of the image."""


def items_of_file(source: Source, file: str) -> Callable[[], Iterator[Item]]:
    """Return what yields the images of a project or an export of VIA 1, 2 or 3, each time from the first one.

    Both raise OSError, ObjectError and InputError.
    """
    path = source.name(file)
    if file.lower().endswith(".csv"):
        return partial(_items_of_table, path)
    parent, key, _ = next(_members(path), ("", "", None))
    if key in _KEYS_OF_3 and not parent:
        return partial(_items_of_3, path, *_names_of_3(path))
    return partial(_items_of_2, path, is_project="_via_" in (parent[:5], key[:5]))


def _members(path: str) -> Iterator[tuple[str, str, Any]]:
    return members_of_json(path, "a VIA json", (_IMAGES, *_LISTS_OF_3))


def _items_of_2(path: str, *, is_project: bool) -> Iterator[Item]:
    """Yield the images of a project, or of an export."""
    for at, (parent, key, value) in enumerate(_members(path)):
        if parent == _IMAGES or not (is_project or key.startswith("_via_")):
            entry = object_of(value, "an image")
            regions = entry.get("regions")
            regions = [*regions.values()] if isinstance(regions, dict) else list_of(regions, "regions")  # VIA 1
            yield Item(at, str(entry.get("filename") or ""), regions, _object_or_empty(entry.get("file_attributes")))
        elif key == _IMAGES:
            object_of(value, _IMAGES)


def _object_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items_of_table(path: str) -> Iterator[Item]:
    """Yield the regions of a CSV, whose attributes are json; an image without regions has a row without a shape."""
    head: list[str] = []
    for line, row in rows_of_csv(path):
        if not head:
            head = [word.strip().lstrip("#") for word in row]
            continue
        words = dict(zip(head, row, strict=False))
        try:
            parsed = {key: json.loads(word or "{}") for key, word in words.items() if key.endswith("_attributes")}
        except (ValueError, RecursionError) as error:
            raise ObjectError(f"is no table of VIA: line {line}: {error}", "label-unreadable") from None
        name, shape = words.get("filename", ""), parsed.get("region_shape_attributes")
        regions = [{"shape_attributes": shape, "region_attributes": parsed.get("region_attributes")}] if shape else []
        yield Item(name, name, regions, _object_or_empty(parsed.get("file_attributes")))


def _names_of_3(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the attributes of a project of VIA 3, and of the images, by the ids of their views."""
    attributes, files, views = dict[str, str](), dict[str, str](), dict[str, str]()
    for parent, key, value in _members(path):
        if parent == "attribute":
            attributes[key] = text_of(object_of(value, "an attribute").get("aname"), "aname")
        elif parent == "file" and object_of(value, "a file").get("type", 2) == 2:  # an image
            files[key] = str(value.get("fname") or "")
        elif parent == "view" and (ids := list_of(object_of(value, "a view").get("fid_list"), "fid_list")):
            views[key] = str(ids[0])
        elif not parent and key in _LISTS_OF_3:
            object_of(value, key)
    return attributes, {view: files[file] for view, file in views.items() if file in files}


def _items_of_3(path: str, attributes: Mapping[str, str], images: Mapping[str, str]) -> Iterator[Item]:
    """Yield the regions of a project of VIA 3, which belong to views, and then the images without any."""
    without = {*images}
    for parent, _, value in _members(path):
        if parent != "metadata":
            continue
        entry = object_of(value, "metadata")
        view, numbers, values = str(entry.get("vid")), entry.get("xy"), _object_or_empty(entry.get("av"))
        if view in images and numbers:
            without.discard(view)
            named = {attributes.get(key, key): value for key, value in values.items()}
            yield Item(view, images[view], [{"shape_attributes": numbers, "region_attributes": named}])
    yield from (Item(view, images[view], []) for view in images if view in without)
