"""CVAT for images 1.1 and CVAT for video 1.1: XML of a task or a project.

Source: cvat/apps/dataset_manager/formats/cvat.py of CVAT 2, which writes both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from html import unescape
from typing import Any

from detaug.converters.findings.finding import Finding
from detaug.converters.formats.cvat_shapes import SHAPES, read_shape
from detaug.converters.formats.cvat_tracks import Video
from detaug.converters.records.frames import Stored
from detaug.converters.records.groups import join_shapes
from detaug.converters.records.record import Contents, Object, ObjectError, Record, Source, read_objects, whole_of
from detaug.converters.records.xml_elements import elements_of_xml


def read_cvat(source: Source) -> Contents:
    """Read the images, or the tracks, of each XML.

    A box with a rotation has `corners`; an ellipse is a ring of 72 points; the points of a skeleton are key points.
    Attributes, `occluded` and `group_id` are columns; tags are a column of the image. Lines, cuboids and points that
    are in no skeleton have no place.
    """
    labels: dict[str, list[str]] = {}
    edges: dict[str, list[tuple[int, int]]] = {}
    for file in source.files:
        for name, points, pairs in _labels(_meta(source.name(file))):
            labels.setdefault(name, points)
            edges.setdefault(name, pairs)
    key_points = {name: points for name, points in labels.items() if points}
    return Contents(_records(source), 0, [*labels], key_points, edges)


def _records(source: Source) -> Iterator[Record]:
    for file in source.files:
        videos: dict[str, Video] = {}
        with closing(Stored(source.temporary)) as stored:
            try:
                for around, element in elements_of_xml(source.name(file), ("image", "track"), ("track",)):
                    if element.tag == "image" and not around:
                        yield _image(element, file)
                        continue
                    track = around[0] if around else element
                    task, subset = track.get("task_id", ""), track.get("subset", "")
                    if task not in videos:
                        videos[task] = Video(source, file, _meta(source.name(file)), subset, task, stored)
                    videos[task].add(around, element)
            except ObjectError as error:
                yield Record(file, findings=[Finding(file, error.kind, note=str(error))])
                videos.clear()  # tracks are missing in their frames
            for video in videos.values():
                yield from video.records()


def _meta(path: str) -> Any:
    """Return the element <meta>; None where there is none, or the file cannot be read: its records say so."""
    try:
        with closing(elements_of_xml(path, ("meta", "image", "track"), ("track",))) as elements:
            around, first = next(elements, ((), None))
            return deepcopy(first) if first is not None and first.tag == "meta" and not around else None
    except ObjectError:
        return None


def _labels(meta: Any) -> Iterator[tuple[str, list[str], list[tuple[int, int]]]]:
    """Yield (name, names of key points, their skeleton) of the labels of a task or project, in their order."""
    found = [] if meta is None else meta.findall(".//labels/label")
    names = [(each.findtext("name") or "", each.findtext("parent"), each.findtext("svg") or "") for each in found]
    for name, parent, svg in names:
        if name.strip() and not parent:
            points = [child for child, its_parent, _ in names if its_parent == name and child.strip()]
            yield name, points, _skeleton(svg, points)


def _skeleton(svg: str, points: list[str]) -> list[tuple[int, int]]:
    """Return the edges of a skeleton between its points, from 1; [] where the drawing does not name them."""
    found = (
        re.findall(r"""([\w-]+)=(?:"([^"]*)"|'([^']*)')""", tag) for tag in re.findall(r"<\w+[^<>]*>", svg[:100_000])
    )
    tags = [{name: unescape(one or other) for name, one, other in pairs} for pairs in found]
    at = {tag["data-node-id"]: tag["data-label-name"] for tag in tags if {"data-node-id", "data-label-name"} <= {*tag}}
    pairs = [(at.get(tag.get("data-node-from", "")), at.get(tag.get("data-node-to", ""))) for tag in tags]
    return [(points.index(a) + 1, points.index(b) + 1) for a, b in pairs if a in points and b in points]


def _image(element: Any, file: str) -> Record:
    name, subset, folder = element.get("name", ""), element.get("subset"), file.rpartition("/")[0]
    names = [f"{subset}/{name}", name] if subset else [name]
    record = Record(file, [*(f"{folder}/{each}" for each in names if folder), *names] if name else [])
    if not name:
        record.findings.append(Finding(file, "object-invalid", None, element.sourceline, note="an image has no name"))
    record.tool_id = whole_of(element.get("id"), 17)
    width, height = (whole_of(element.get(name)) for name in ("width", "height"))
    record.size = None if width is None or height is None else (width, height)
    if tags := [tag.get("label") for tag in element.iterchildren("tag")]:
        record.columns = {"tags": tags}
    shapes = [child for child in element if child.tag in SHAPES]
    read_objects(
        record, shapes, lambda shape: read_shape(shape, shape.get("label"), record), lambda shape: shape.sourceline
    )
    _join_groups(record)
    return record


def _join_groups(record: Record) -> None:
    """Join shapes of one class and one group to one object, as CVAT's own COCO json does.

    Outlines, or masks, with at most one box, which is then the object's, or its rotated box, and at most one skeleton.
    Several boxes in a group are several objects.
    """
    groups: dict[tuple[str, int], list[Object]] = {}
    for each in record.objects:
        if group := each.columns.get("group_id"):
            groups.setdefault((each.class_name, group), []).append(each)
    for group in groups.values():
        boxes = [each for each in group if each.edges and not each.rings]
        corners, masks, rings, points = (
            [each for each in group if getattr(each, name)] for name in ("corners", "masks", "rings", "key_points")
        )
        if len(group) < 2 or len(boxes) + len(corners) > 1 or len(points) > 1 or (masks and rings):
            continue
        own_box = None if len(rings) > 1 or (rings and points) else group[0].edges
        join_shapes(record, group, boxes[0].edges if boxes else own_box)
        group[0].columns = {name: value for name, value in group[0].columns.items() if name != "group_id"}
        record.objects = [each for each in record.objects if each not in group[1:]]
