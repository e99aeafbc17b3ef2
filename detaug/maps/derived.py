"""Maps of a source whose images show images of other sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.maps.files import SourceMap
from detaug.maps.kinds import ClassMap, MapKind, PanopticMap
from detaug.maps.values import MapValues, no_map


class DerivedMaps:
    """The maps of one name of several sources."""

    def __init__(
        self,
        name: str,
        maps: Sequence[SourceMap | None],
        place: Callable[[int], tuple[int, int]],
        class_names: Sequence[str],
    ) -> None:
        """`maps`: of each source, None where it has none of this name; `place`: the source and position of an image.

        `class_names`: of the joined annotations. Maps of classes are joined by the names of these, where all have
        names. Raises InputError for kinds that differ.
        """
        self._maps, self._place = maps, place
        kinds = [source_map.kind for source_map in maps if source_map is not None]
        self.kind, every = _joined(name, kinds, class_names)
        tables = iter(every)
        self._table_of = [None if source_map is None else next(tables) for source_map in maps]

    def read(self, index: int) -> MapValues:
        """Return the map of an image."""
        source, position = self._place(index)
        own = self._maps[source]
        if own is None:
            return no_map(self.kind.dtype)
        values, table = own.read(position), self._table_of[source]
        if table is None:
            return values
        if values.segments is not None:
            return replace(values, segments=values.segments.with_labels(table))
        return replace(values, runs=replace(values.runs, values=table[values.runs.values]))


def _joined(
    name: str, kinds: Sequence[MapKind], class_names: Sequence[str]
) -> tuple[MapKind, Sequence[NDArray[Any] | None]]:
    """Return the kind of joined maps, and for each the new number of each of its classes, None for the same."""
    first = kinds[0]
    of_all = f"the maps {name!r} of all sources must"
    if any(type(kind) is not type(first) for kind in kinds):
        raise InputError(f"{of_all} be of one kind, got {[type(kind).__name__ for kind in kinds]}")
    if panoptic := [kind for kind in kinds if isinstance(kind, PanopticMap)]:
        return _joined_panoptic(name, panoptic, class_names)
    named = [kind for kind in kinds if isinstance(kind, ClassMap) and kind.classes is not None]
    if not named:
        if len({kind.empty for kind in kinds}) > 1:
            raise InputError(f"{of_all} have the same ignore=, since their classes have no names")
        return first, [None] * len(kinds)
    if len(named) < len(kinds):
        raise InputError(f"{of_all} have classes=, or none: they are joined by these names")
    names = list(dict.fromkeys(class_name for kind in named for class_name in kind.classes or ()))
    joined = replace(named[0], classes=tuple(names), table=None)
    if len(names) > joined.ignore:
        raise InputError(f"the maps {name!r} have {len(names)} classes together, among them ignore={joined.ignore}")
    tables = []
    for kind in named:
        table = np.full(256, joined.ignore, np.uint8)
        table[: len(kind.classes or ())] = [names.index(class_name) for class_name in kind.classes or ()]
        table[kind.ignore] = joined.ignore
        tables.append(table)
    return joined, tables


def _joined_panoptic(
    name: str, kinds: Sequence[PanopticMap], class_names: Sequence[str]
) -> tuple[PanopticMap, Sequence[Ints]]:
    """Return the kind of joined maps with the classes of all, and for each the new number of each of its classes."""
    things: dict[str, bool] = {}
    for kind in kinds:
        for own, is_thing in zip(kind.class_names, kind.is_thing, strict=True):
            if things.setdefault(own, is_thing) != is_thing:
                raise InputError(
                    f"the maps {name!r} of all sources must have the same isthing of each class: {own!r} is both "
                    "things and stuff"
                )
    names = list(dict.fromkeys([*class_names, *things]))
    tables: list[Ints] = [np.array([names.index(own) for own in kind.class_names], np.int64) for kind in kinds]
    return kinds[0].named(names, [things.get(own, True) for own in names]), tables
