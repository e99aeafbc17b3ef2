"""Find groups of images, such as the tiles of one image, that are in two splits (decision 25)."""

from __future__ import annotations

from collections.abc import Iterator

from detaug.coco.groups import GroupRule, Mark, origin_of
from detaug.coco.table import Table
from detaug.findings.entries import Findings, from_messages
from detaug.findings.finding import shown

_WHAT = {"image": "tiles of the image {}", "video": "frames of the video {}"}


def check_groups(table: Table, other: Table, rule: GroupRule, *, one_folder: bool) -> Iterator[Findings]:
    """Yield findings about images whose group is in the other split too.

    one_folder: the images of both are in one folder. In two folders, different images and videos often have one name.
    """
    others = {mark: index for index, marks in enumerate(_marks(other, rule)) for mark in marks}
    messages: dict[str, dict[int, str]] = {}
    for index, marks in enumerate(_marks(table, rule)):
        for mark in marks:
            if mark not in others:
                continue
            kind, name = mark
            if kind == "image" and not (origin_of(table, index)[1] or origin_of(other, others[mark])[1]):
                continue  # whole images are compared by their bytes
            finding = "group-leaked" if one_folder or kind in ("key", "name") else "group-name-shared"
            what = _WHAT.get(kind, "images of the group {}").format(shown(name))
            messages.setdefault(finding, {})[index] = f"{what} are in {other.path} too"
    for finding, of_kind in messages.items():
        yield from_messages(finding, "images", of_kind)


def _marks(table: Table, rule: GroupRule) -> list[list[Mark]]:
    """Return the marks of each image, its video's name among them: ids of videos are those of one JSON file."""
    marks, names = rule.marks(table), _names_of_videos(table)
    return [[*own, ("video", names[index])] if index in names else own for index, own in enumerate(marks)]


def _names_of_videos(table: Table) -> dict[int, str]:
    """Return the name or the file of each image's video, where it has one that says which it is."""
    names = {}
    for row in table.coco.document.get("videos", ()) if table.coco.has_videos else ():
        name = row.get("file_name") or row.get("name") if isinstance(row, dict) else None
        if isinstance(name, str):
            names[row.get("id")] = name
    return {index: names[number] for index, number in enumerate(table.videos.video_ids.tolist()) if number in names}
