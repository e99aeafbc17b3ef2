"""Find the maps of a reader's images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.maps.files import FileMaps
from detaug.maps.kinds import MapKind, PanopticMap
from detaug.maps.panoptic import ObjectsOfImages, PanopticFiles


def find_maps(
    maps: Mapping[str, Any] | None,
    images: Path,
    file_names: Sequence[str],
    sizes: Ints,
    objects: Callable[[], ObjectsOfImages] | None = None,
    *,
    cache: bool = True,
) -> dict[str, FileMaps]:
    """Return the maps of images by name. Raises InputError for what is not a map.

    `objects`: returns the annotations of the images. `cache`: as of `FileMaps`.
    """
    if maps is None:
        return {}
    if not isinstance(maps, Mapping) or not all(isinstance(name, str) for name in maps):
        raise InputError(f'maps must be a dict, such as {{"semantic": da.ClassMap("masks")}}, got {maps!r}')
    file_maps: dict[str, FileMaps] = {}
    for name, kind in maps.items():
        if not isinstance(kind, MapKind):
            raise InputError(f"maps[{name!r}] must be a da.ClassMap, da.PanopticMap or da.DepthMap, got {kind!r}")
        if isinstance(kind, PanopticMap):
            own_objects = None if objects is None else objects()
            file_maps[name] = PanopticFiles(kind, name, images, file_names, sizes, own_objects, cache=cache)
        else:
            file_maps[name] = FileMaps(kind, name, images, file_names, sizes, cache=cache)
    for own in file_maps.values():
        own.refuse_none()
    return file_maps
