"""The line that loads a JSON file, with the arguments for all that it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detaug.coco.file_names import is_video

SHAPES = ("masks", "keypoints", "rotated")
"""The arguments of readers for shapes beside boxes."""


def shapes_of(annotations: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return which of SHAPES a reader of annotations needs to give all that they have."""
    shapes = set()
    for row in annotations:
        if row.get("corners"):  # they are in `segmentation` too
            shapes.add("rotated")
        elif row.get("segmentation"):
            shapes.add("masks")
        if row.get("keypoints"):
            shapes.add("keypoints")
    return shapes


def shape_arguments(shapes: Collection[str]) -> str:
    """Return the arguments of a reader for some of SHAPES, as text."""
    return "".join(f", {name}=True" for name in SHAPES if name in shapes)


def how_to_load(
    path: Path,
    folder: Path | None,
    videos: Sequence[Mapping[str, Any]] = (),
    shapes: Collection[str] = (),
    maps: str = "",
) -> str:
    """Return the line that loads a JSON file, of these videos if it has any.

    `folder`: of its files; None: not known. `shapes`: those of SHAPES that its annotations have. `maps`: the
    argument for maps, with a comma before it.
    """
    where, which = ("IMAGES", ", the images' folder first") if folder is None else (f'"{folder}"', "")
    arguments = shape_arguments(shapes) + maps
    if any(is_video(video.get("file_name")) for video in videos):
        where, which = where.replace("IMAGES", "VIDEOS"), which.replace("images", "videos")
        return f'load it: da.VideoReader({where}, annotations="{path}"{arguments}){which}'
    return f'load it: da.{"ClipReader" if videos else "CocoReader"}({where}, "{path}"{arguments}){which}'
