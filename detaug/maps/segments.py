"""The segments of a panoptic map: what each of its values is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from detaug.arrays import Bools, Ints

VOID = -1
"""The row of a segment without a box: of a crowd, of an object that is not among the annotations; and of no segment."""
STUFF = -2
"""The row of a segment of stuff, which has a class and no box."""


@dataclass(frozen=True, eq=False)
class Segments:
    """The S segments of an image's map, whose values are 1..S; 0 is void. The first entry of each array is void's."""

    row: Ints
    """(S + 1,): which of its image's annotations each segment is, `VOID` or `STUFF`."""
    label: Ints
    """(S + 1,): the class of each, a position in `PanopticMap.class_names`; -1 of void."""
    crowd: Bools
    """(S + 1,): whether it is a group of objects, `iscrowd`."""
    place: Ints
    """(S + 1,): numbers in the order of `segments_info`, where values are in that of the ids; -1 of void."""

    @classmethod
    def of(cls, row: Ints, label: Ints, crowd: Bools, place: Ints) -> Segments:
        """Return the segments of an image; arrays (S,)."""
        columns: Any = (row, VOID), (label, -1), (crowd, False), (place, -1)
        return cls(*(np.concatenate([[void], column]) for column, void in columns))  # quicker than np.insert

    def with_rows(self, rows: Ints) -> Segments:
        """Return segments of an image with some of the annotations. `rows`: (R,) which of the old ones each is."""
        new_row: Ints = np.full(int(max(self.row.max(), rows.max(initial=0))) + 1, VOID)
        new_row[rows] = np.arange(len(rows))
        return replace(self, row=np.where(self.row >= 0, new_row[self.row], self.row))

    def with_labels(self, table: Ints) -> Segments:
        """Return segments whose classes have other numbers. `table`: (C,) the new number of each."""
        return replace(self, label=np.where(self.label >= 0, table[self.label], -1))


NO_SEGMENTS = Segments(np.array([VOID]), np.array([-1]), np.array([False]), np.array([-1]))
"""Those of an image without a map."""
