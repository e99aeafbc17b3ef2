"""The JSON files of the parts of one dataset: `merge_coco` joins them to the same bytes as one run writes.

A part begins with {"part": {...}. Its other keys are those of any COCO JSON file, so it can be checked and trained on,
but not cleaned or split. Two kinds of them: of `detaug convert --part`, whose classes are those of its own objects, so
that the ids of all are known only in the end; and of `detaug pack --part`, whose rows are some of the JSON file that is
packed, at `positions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from detaug.coco.classes_and_images import unused_classes
from detaug.coco.table import load_coco
from detaug.coco.writer import Row, category_rows, coco_text, document_text
from detaug.errors import ConversionError, InputError
from detaug.files.atomic import write_atomically
from detaug.findings.finding import Finding
from detaug.named_options import option
from detaug.outputs.part import Part

Document = dict[str, Any]

_START = b'{"part":{"number":'
_OWN_KEYS = ("part", "regions", "positions")


def part_head(
    part: Part,
    names: Iterable[str],
    listed: Sequence[str] = (),
    left_out: Sequence[str] = (),
    *,
    from_top: bool = False,
    keeps_unused: bool = True,
    last_track: int | None = None,
) -> Document:
    """Return what a JSON file says of the part that it is.

    names: of all images of the dataset: a checksum of them tells whether two parts belong together. listed: classes of
    a list that all parts have, with which the categories begin. left_out: classes of objects of this part that were
    dropped, since the list does not have them. from_top: file names are relative to a folder of which the whole takes
    the deepest that holds all images. keeps_unused: classes without an object stay in the whole. last_track: the
    largest track_id of an object of a video that had one; larger ones are of objects without a track.
    """
    data_set = crc32("\n".join([*names, "", *listed]).encode("utf-8", "backslashreplace"))
    head = {"number": part.number, "of": part.of, "data_set": data_set, "listed": len(listed)}
    more = {"from_top": from_top, "keeps_unused": keeps_unused, "last_track": last_track}
    return {**head, "left_out": [*left_out], **more}


def write_part(
    path: Path,
    head: Document,
    info: Row,
    rows: Sequence[Iterable[Row]],
    regions: Iterable[Row],
    videos: Iterable[Row] | None = None,
) -> None:
    """Write the JSON file of a part of a conversion.

    rows: images, annotations and categories. regions: annotations without a class, which the annotations end with as
    crowds of each class. videos: of this part, None where the dataset has none.
    """
    names = "images", "annotations", "categories"
    lists = {
        **({} if videos is None else {"videos": videos}),
        **dict(zip(names, rows, strict=True)),
        "regions": regions,
    }
    document: Document = {"part": head, "info": info, **dict.fromkeys(lists)}
    write_atomically(path, document_text(document, lists))


def is_part(path: Path) -> bool:
    """Return whether a file is the JSON file of a part."""
    try:
        with path.open("rb") as file:
            return file.read(len(_START)) == _START
    except OSError:
        return False


def refuse_keys_of_parts(path: Path, document: Document) -> None:
    """Raise ConversionError for a JSON file that has keys of parts of its own."""
    if any(key in document for key in _OWN_KEYS):
        raise ConversionError(f"{path} has one of the keys {', '.join(_OWN_KEYS)}, which parts need; rename it")


def refuse_part(path: Path) -> None:
    """Raise ConversionError for the JSON file of a part."""
    if is_part(path):
        raise ConversionError(f"{path} is one part of a dataset; join all of them first: detaug merge")


def read_parts(paths: Sequence[Path]) -> list[Document]:
    """Return the parts of one dataset in their order. Raises ConversionError for another set of files."""
    documents = {path: load_coco(path).document for path in paths if is_part(path)}
    for path, document in documents.items():
        if not all(type(document["part"].get(key)) is int for key in ("number", "of")):
            raise ConversionError(f"{path}: part must have a number and of; make it again")
    for path in paths:
        if path not in documents:
            raise ConversionError(f"{path} is not a part, as the other files are; merge the parts by themselves first")
    in_order = sorted(documents.values(), key=lambda document: int(document["part"]["number"]))
    of, numbers = in_order[0]["part"]["of"], [document["part"]["number"] for document in in_order]
    if numbers != [*range(1, of + 1)] or any(document["part"]["of"] != of for document in in_order):
        got = ", ".join(
            f"{path} ({document['part']['number']}/{document['part']['of']})" for path, document in documents.items()
        )
        raise ConversionError(f"the parts must be 1/{of} to {of}/{of}, each once, got {got}")
    keys = [
        [document.keys(), document.get("info"), {**document["part"], "number": 0, "left_out": [], "last_track": 0}]
        for document in in_order
    ]
    if keys.count(keys[0]) < len(keys):
        raise ConversionError(f"{paths[0]} and the others are parts of different datasets, or were changed")
    return in_order


def joined_parts(parts: Sequence[Document]) -> Document:
    """Return the document of the whole dataset. Raises ConversionError for parts that were changed."""
    try:
        return _joined_packed(parts) if "positions" in parts[0] else _joined_converted(parts)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ConversionError("the parts were changed; make them again, or merge files without the key part") from None


def count_regions(parts: Sequence[Document]) -> int:
    """Return how many of the annotations of the whole, at their end, are crowds of each class of a region."""
    classes = {row["name"] for part in parts for row in part["categories"]}
    return len(classes) * sum(len(part.get("regions", ())) for part in parts)


def class_findings(parts: Sequence[Document], class_counts: Mapping[str, int]) -> list[Finding]:
    """Return findings about classes of objects that were dropped, and listed ones without an object."""
    left_out = sorted({name for part in parts for name in part["part"].get("left_out", ())})
    unused = unused_classes((name for name, count in class_counts.items() if not count), left_out)
    return [*(Finding("", "class-not-listed", before=name) for name in left_out), *unused]


def text_of_joined(parts: Sequence[Document], document: Document) -> Iterator[str]:
    """Return the text of the whole, as the run of one process writes it."""
    images, annotations, categories = (document[name] for name in ("images", "annotations", "categories"))
    if "positions" in parts[0]:
        return document_text(document, {"images": images, "annotations": annotations})
    return coco_text(images, annotations, categories, document["info"], document.get("videos", ()))


def _joined_packed(parts: Sequence[Document]) -> Document:
    whole = {key: value for key, value in parts[0].items() if key not in _OWN_KEYS}
    for name in ("images", "annotations"):
        placed = [pair for part in parts for pair in zip(part["positions"][name], part[name], strict=True)]
        whole[name] = [row for _, row in sorted(placed, key=lambda pair: int(pair[0]))]
    return whole


def _joined_converted(parts: Sequence[Document]) -> Document:
    listed = [row["name"] for row in parts[0]["categories"][: parts[0]["part"]["listed"]]]
    others = {row["name"] for part in parts for row in part["categories"]} - {*listed}
    if not parts[0]["part"]["keeps_unused"]:
        used = {name for part in parts for name in _used_classes(part)}
        listed = [name for name in listed if name in used] or listed[:1]
    categories: dict[str, Document] = {str(row["name"]): {**row} for row in category_rows([*listed, *sorted(others)])}
    for row in (row for part in parts for row in part["categories"] if row["name"] in categories):
        category = categories[row["name"]]
        known = category.get("keypoints", [])
        more = [name for name in row.get("keypoints", ()) if name not in known]
        category |= {**row, "id": category["id"]} | ({"keypoints": [*known, *more]} if known or more else {})
    videos = _joined_videos(parts)
    names = [row["file_name"] for part in parts for row in part["images"]]
    from_top = names and parts[0]["part"]["from_top"]
    folder = os.path.commonpath([os.path.dirname(name) for name in names]) if from_top else ""
    start = f"{folder}/" if folder else ""
    images = [row | {"file_name": row["file_name"].removeprefix(start)} for part in parts for row in part["images"]]
    new_ids, first = list[dict[int, int]](), 1
    for part in parts:
        new_ids.append({row["id"]: new for new, row in enumerate(part["images"], first)})
        first += len(part["images"])
    for image_id, row in enumerate(images, 1):
        row["id"] = image_id
    annotations = [*_objects(parts, new_ids, categories), *_regions(parts, new_ids, len(categories))]
    for annotation_id, row in enumerate(annotations, 1):
        row["id"] = annotation_id
    _number_free(annotations, parts)
    rows = {
        **({"videos": videos} if videos else {}),
        "images": images,
        "annotations": annotations,
        "categories": [*categories.values()],
    }
    return {"info": parts[0]["info"], **rows}


def _used_classes(part: Document) -> Iterator[str]:
    """Yield the names of the classes of a part that have an object."""
    used = {row["category_id"] for row in part["annotations"]}
    return (row["name"] for row in part["categories"] if row["id"] in used)


def _joined_videos(parts: Sequence[Document]) -> list[Document]:
    """Return the videos of all parts with new ids, which their images get too."""
    videos = list[Document]()
    for part in parts:
        new_ids = {row["id"]: number for number, row in enumerate(part.get("videos", ()), len(videos) + 1)}
        videos += (row | {"id": new_ids[row["id"]]} for row in part.get("videos", ()))
        for row in part["images"]:
            if "video_id" in row:
                row["video_id"] = new_ids[row["video_id"]]
    return videos


def _number_free(annotations: Sequence[Document], parts: Sequence[Document]) -> None:
    """Give objects without a track a number above all, as they have in the whole; none where no part has a track."""
    lasts = [last for part in parts if (last := part["part"]["last_track"]) is not None]
    free = count(max(lasts, default=0) + 1)
    for row in annotations:
        if "track_id" in row and row["track_id"] is None:
            if lasts:
                row["track_id"] = next(free)
            else:
                del row["track_id"]


def _objects(
    parts: Sequence[Document], new_ids: Sequence[Mapping[int, int]], categories: Mapping[str, Document]
) -> Iterator[Document]:
    """Yield the objects of all parts with the ids of the whole, and the keypoints that a class has in any part.

    new_ids: for each part, those of its images.
    """
    for part, image_ids in zip(parts, new_ids, strict=True):
        own = {row["id"]: row for row in part["categories"]}
        objects = len(part["annotations"]) - len(part["regions"]) * len(own)
        crowds = [row["bbox"] for row in part["annotations"][objects:]]
        if crowds != [row["bbox"] for row in part["regions"] for _ in own]:
            raise ValueError("not the crowds of its regions")
        last = part["part"]["last_track"]
        for row in part["annotations"][:objects]:
            category = own[row["category_id"]]
            whole = categories[category["name"]]
            row |= {"image_id": image_ids[row["image_id"]], "category_id": whole["id"]}
            if "track_id" in row and row["track_id"] > (-1 if last is None else last):
                row["track_id"] = None
            if "keypoints" in row and whole.get("keypoints") != category.get("keypoints"):
                triples = (row["keypoints"][start : start + 3] for start in range(0, len(row["keypoints"]), 3))
                points = dict(zip(category["keypoints"], triples, strict=True))
                row["keypoints"] = [number for name in whole["keypoints"] for number in points.get(name, (0, 0, 0))]
            yield row


def _regions(parts: Sequence[Document], new_ids: Sequence[Mapping[int, int]], classes: int) -> Iterator[Document]:
    for part, image_ids in zip(parts, new_ids, strict=True):
        for row in part["regions"]:
            ids = range(1, classes + 1)
            more = {"track_id": None} if part.get("videos") else {}
            yield from (row | {"image_id": image_ids[row["image_id"]], "category_id": number, **more} for number in ids)


def check_options_of_parts(images: Sequence[object], *, join: bool, classes: Sequence[str] | None) -> None:
    """Raise InputError for options of `merge_coco` that parts do not have."""
    if images or join or classes is not None:
        raise InputError(
            "parts of one dataset have one folder, the same classes, and each image once; leave out "
            f"{option('images')}, {option('join')} and {option('classes')}"
        )
