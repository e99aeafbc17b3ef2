"""The images of VIA's projects and exports, with their regions as they are in the file.

Sources: via-2.x.y and via-3.x.y of https://gitlab.com/vgg/via, CodeDoc.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from detaug.converters.records.csv_rows import check_head, rows_of_csv
from detaug.converters.records.json_list import members_of_json
from detaug.converters.records.record import AnnotationFiles, ObjectError, list_of, object_of, text_of
from detaug.files.spool import Groups
from detaug.files.text import unique_keys
from detaug.findings.finding import shown

_IMAGES = "_via_img_metadata"
"""The images of a project of VIA 1 and 2. All keys of a project begin with _via_; an export is the images alone."""

_ATTRIBUTES = "_via_attributes"
"""The attributes of a project of VIA 2. The ids of their options are the values; where they are numbers, which VIA
proposes, their descriptions say what they mean.
"""

_IMAGE_KEYS = frozenset({"filename", "size", "regions", "file_attributes", "fileref", "base64_img_data"})
"""Of an image of VIA 1 and 2, those that are read, and those that say nothing of its objects."""

_LISTS_OF_3 = ("attribute", "file", "metadata", "view")
_METADATA_KEYS = frozenset({"vid", "flg", "z", "xy", "av"})
_KEYS_OF_3 = ("project", "config", *_LISTS_OF_3)
"""Of a project of VIA 3."""
_IMAGE_OF_3 = 2
"""The type of a file that is an image; 4 is a video."""


class Item(NamedTuple):
    """An image, with its regions as they are in the file."""

    name: str
    regions: list[Any]
    attributes: Mapping[str, Any] = {}
    """Of the image."""
    unread: Sequence[str] = ()
    """Keys and columns that are not read, each as often as it occurs."""


def items_of_file(source: AnnotationFiles, file: str, options: dict[str, dict[str, str]]) -> Iterator[Item]:
    """Yield the images of a project or an export of VIA 1, 2 or 3, whose file is read once.

    options: gets what the numbers of a VIA 2 project mean, by the name of the attribute. Regions that are far apart in
    the file wait in a temporary one. Raises OSError, ObjectError and InputError.
    """
    path = source.name(file)
    if file.lower().endswith(".csv"):
        return _items_of_table(path, source.temporary)
    parent, key, _ = next(_members(path), ("", "", None))
    if key in _KEYS_OF_3 and not parent:
        return _items_of_3(path, source.temporary)
    return _items_of_2(path, options, is_project="_via_" in (parent[:5], key[:5]))


def _members(path: str) -> Iterator[tuple[str, str, Any]]:
    return members_of_json(path, "a VIA JSON", (_IMAGES, *_LISTS_OF_3))


def _items_of_2(path: str, options: dict[str, dict[str, str]], *, is_project: bool) -> Iterator[Item]:
    """Yield the images of a project, or of an export. options: see `items_of_file`."""
    for parent, key, value in _members(path):
        if parent == _IMAGES or not (is_project or key.startswith("_via_")):
            entry = object_of(value, "an image")
            regions = entry.get("regions")
            regions = (
                [*regions.values()] if isinstance(regions, dict) else list_of(regions, f"regions of {shown(key)}")
            )  # VIA 1
            unread = [
                key for key, member in entry.items() if key not in _IMAGE_KEYS and member not in (None, "", {}, [])
            ]
            attributes = entry.get("file_attributes")
            unread += [] if isinstance(attributes, dict) or not attributes else ["file_attributes of another type"]
            yield Item(str(entry.get("filename") or ""), regions, _object_or_empty(attributes), unread)
        elif key == _IMAGES:
            object_of(value, _IMAGES)
        elif key == _ATTRIBUTES:
            for name, entry in _object_or_empty(_object_or_empty(value).get("region")).items():
                descriptions = _object_or_empty(_object_or_empty(entry).get("options"))
                if all(
                    number.isdecimal() and isinstance(text, str) and text.strip()
                    for number, text in descriptions.items()
                ):
                    options[name] = descriptions


def _object_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_COLUMNS = ("filename", "file_attributes", "region_shape_attributes", "region_attributes")
"""Of a CSV. The last three have JSON."""
_OTHER_COLUMNS = frozenset({*_COLUMNS, "file_size", "region_count", "region_id", ""})
"""Columns that are read, or say nothing of the objects."""


def _items_of_table(path: str, folder: Path) -> Iterator[Item]:
    """Yield the images of a CSV, which has a row for each region, and one without a shape for an image without any."""
    places: list[int | None] = []
    head: list[str] = []
    names: dict[str, None] = {}
    with closing(Groups[str, tuple[list[Any], dict[str, Any], list[str]]](folder)) as rows:
        for line, row in rows_of_csv(path):
            if not places:
                check_head(row)
                head = row
                place_of = {word.lstrip("#"): place for place, word in enumerate(row)}
                places = [place_of.get(name) for name in _COLUMNS]
                continue
            name, *texts = ("" if place is None else "".join(row[place : place + 1]) for place in places)
            try:
                of_image, shape, of_region = (_parsed(text) for text in texts)
            except (ValueError, RecursionError) as error:
                raise ObjectError(f"is not a table of VIA: line {line}: {error}", "label-unreadable") from None
            if any(row[len(head) :]):
                rule = f"line {line} must have {len(head)} words, got {len(row)}; put commas into quotes"
                raise ObjectError(f"is not a table of VIA: {rule}", "label-unreadable")
            unread = [
                word for word, text in zip(head, row, strict=False) if text and word.lstrip("#") not in _OTHER_COLUMNS
            ]
            regions = [{"shape_attributes": shape, "region_attributes": of_region}] if shape or of_region else []
            rows.add(name, (regions, _object_or_empty(of_image), unread))
            names[name] = None
        for name in names:
            parts = rows.pop(name)
            own_regions = [region for regions, *_ in parts for region in regions]
            yield Item(name, own_regions, parts[0][1], [word for *_, words in parts for word in words])


def _parsed(cell: str) -> Any:
    return {} if cell in ("", "{}") else json.loads(cell, object_pairs_hook=unique_keys)


def _items_of_3(path: str, folder: Path) -> Iterator[Item]:
    """Yield the images of a project of VIA 3, whose regions belong to views of them."""
    names, files, views = dict[str, str](), dict[str, tuple[str, bool]](), dict[str, str]()
    options = dict[str, dict[str, Any]]()
    of_images = dict[str, list[dict[str, Any]]]()
    unread = dict[str, list[str]]()
    with closing(Groups[str, tuple[Any, dict[str, Any]]](folder)) as regions:
        for parent, key, value in _members(path):
            if parent == "metadata":
                entry = object_of(value, "metadata")
                view = text_of(entry.get("vid"), f"vid of {shown(key)}")
                others = [key for key, member in entry.items() if key not in _METADATA_KEYS and member]
                if entry.get("xy"):
                    regions.add(view, (entry["xy"], _object_or_empty(entry.get("av"))))
                elif entry.get("z"):  # a time in a video
                    others.append("a time (z) without a region")
                else:
                    of_images.setdefault(view, []).append(_object_or_empty(entry.get("av")))
                unread.setdefault(view, []).extend(others)
            elif parent == "attribute":
                names[key] = text_of(object_of(value, "an attribute").get("aname"), "aname")
                options[key] = _object_or_empty(value.get("options"))
            elif parent == "file":
                is_image = object_of(value, "a file").get("type", _IMAGE_OF_3) == _IMAGE_OF_3
                files[key] = str(value.get("fname") or ""), is_image
            elif parent == "view" and (
                ids := list_of(object_of(value, "a view").get("fid_list"), "fid_list", optional=True)
            ):
                if len(ids) > 1:
                    raise ObjectError(f"a view must have one file, got {len(ids)}; write a view of each image")
                views[key] = str(ids[0])
            elif not parent and key in _LISTS_OF_3:
                object_of(value, key)

        def named(values: Mapping[str, Any]) -> dict[str, Any]:
            return {names.get(key, key): _chosen(member, options.get(key, {})) for key, member in values.items()}

        for view in dict.fromkeys((*views, *unread)):  # also of regions in a view that the file does not have
            own_regions = [
                {"shape_attributes": xy, "region_attributes": named(values)} for xy, values in regions.pop(view)
            ]
            name, is_image = files.get(views.get(view, ""), ("", False))
            attributes = {key: value for values in of_images.get(view, ()) for key, value in named(values).items()}
            if is_image or own_regions:  # a video with regions is read as an image, and the error names it
                yield Item(name, own_regions, attributes, unread.get(view, ()))


def _chosen(value: Any, options: Mapping[str, Any]) -> Any:
    """Return what was chosen among the options of VIA 3 by their ids: a text, or of checkboxes {"cat": true}.

    Texts, which have no options, stay as they are.
    """
    ids = str(value).split(",") if options else []
    if not ids or not options.keys() >= {*ids}:
        return value
    return str(options[ids[0]]) if len(ids) == 1 else {str(options[option]): True for option in ids}
