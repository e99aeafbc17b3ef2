"""`DerivedSource`: images that show images of other sources: some of them, joined, stacked or cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import tee
from math import lcm
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Bytes, Ints, pairs
from detaug.errors import InputError
from detaug.files.image_file import short_digest
from detaug.maps.derived import DerivedMaps
from detaug.maps.kinds import PanopticMap
from detaug.sources.clips import Tracks
from detaug.sources.source import Source
from detaug.storage.storage import Upcoming


class DerivedSource(Source):
    """A source whose images show images of other `sources`.

    A subclass says which: `shown`, (n,), or (n, P) if each image shows P of them, positions in all sources one after
    another. Paths, encoded images, faults, prefetching, rounds and fingerprints follow.

    Objects, classes and image ids are those of the first source, and its clips stay if all their frames do. A subclass
    with objects of its own gives `arguments` of `Source.__init__`; `of_images` returns those of a source.

    Encoded images are passed on as they are. A subclass with pixels of its own sets `files, decodes = False, True`,
    defines `contents` and `read`, and sets `pixel_format`.

    Raises InputError for clips of which an image is taken twice, or none is complete, and for clips among several
    sources or with other objects; and for sources of which only some decode their images, or with different bands.
    """

    def __init__(self, sources: Sequence[Source], shown: Ints, arguments: Mapping[str, Any] | None = None) -> None:
        self.sources = tuple(sources)
        self._shown = np.asarray(shown, np.int64).reshape(len(shown), -1)
        self._first: Ints = np.concatenate([[0], np.cumsum([len(source) for source in self.sources])])
        self._items: Ints | None = None
        has_clips = any(source.frames is not None for source in self.sources)
        if has_clips and (arguments is not None or len(self.sources) > 1):
            raise InputError(f"{type(self).__name__} takes sources of images, not of clips")
        if arguments is None:
            _, rows = pairs(self.sources[0]._box_offsets, self._shown[:, 0])
            super().__init__(**of_images(self.sources[0], self._shown[:, 0], rows))
            self._items = self._shown[:, 0]
            self._take_clips(self.sources[0], rows)
        else:
            super().__init__(**arguments)
        if not self.decodes:
            self._pass_on_pixels()
        faults = [source.missing + first for source, first in zip(self.sources, self._first, strict=False)]
        self.missing = np.flatnonzero(np.isin(self._shown, np.concatenate(faults)).any(1))
        self.maps = self._derived_maps()
        self.remedy = "; ".join(dict.fromkeys(source.remedy for source in self.sources))
        self.rounds = self._rounds()

    def _take_clips(self, source: Source, rows: Ints) -> None:
        if source.frames is None:
            return
        position_of: Ints = np.full(len(source), -1)
        position_of[self._shown[:, 0]] = np.arange(len(self))
        if (position_of >= 0).sum() < len(self):
            raise InputError(f"{self.origin}: images of clips can be taken once each")
        clips = position_of[source.clips]
        self._items = np.flatnonzero((clips >= 0).all(1))
        if not len(self._items):
            raise InputError(f"{self.origin}: no clip has all its frames among the images that are taken")
        self.clips = clips[self._items]
        self.frames = source.frames.of(self._shown[:, 0])
        if source.tracks is not None:
            self.tracks = Tracks(source.tracks.ids[rows], np.diff(self._box_offsets))

    def _pass_on_pixels(self) -> None:
        first = self.sources[0]
        for source in self.sources:
            if source.decodes != first.decodes:
                raise InputError(
                    "sources must all decode their images themselves, as da.TileReader does, or none: cut files with "
                    "detaug tile, and join those"
                )
            if source.pixel_format != first.pixel_format:
                raise InputError(
                    f"sources must all have the same channels, dtype and bands: {first.origin} has "
                    f"{first.pixel_format}, {source.origin} has {source.pixel_format}"
                )
        self.decodes, self.pixel_format = first.decodes, first.pixel_format
        self.files = all(source.files for source in self.sources)
        self.has_heif = any(source.has_heif for source in self.sources)

    def _derived_maps(self) -> dict[str, DerivedMaps]:
        """Return the maps that at least one source has, by name."""
        by_name: dict[str, DerivedMaps] = {}
        for name in dict.fromkeys(name for source in self.sources for name in source.maps):
            own = [source.maps.get(name) for source in self.sources]
            by_name[name] = DerivedMaps(name, own, partial(self._with_map, name), self.class_names[1:])
            if self._items is not None and own[0] is None and isinstance(by_name[name].kind, PanopticMap):
                raise InputError(
                    f"the panoptic map {name!r} must be one of the first source, whose boxes its segments are; give "
                    "the first source maps="
                )
        return by_name

    def _with_map(self, name: str, index: int) -> tuple[int, int]:
        """Return the place of the image whose map an image has: of several that it shows, the first one with it."""
        places = [self._place(shown) for shown in self._shown[index].tolist()]
        return next((place for place in places if name in self.sources[place[0]].maps), places[0])

    def _rounds(self) -> Bools | None:
        """Return the images of each epoch: those that each source takes, whose turns may have other lengths."""
        if all(source.rounds is None for source in self.sources):
            return None
        rounds = [
            np.ones((1, len(source)), bool) if source.rounds is None else source.rounds for source in self.sources
        ]
        # Each source repeats after its own number of epochs, all together after their least common multiple.
        turns = lcm(*(len(own) for own in rounds))
        return np.concatenate([np.tile(own, (turns // len(own), 1)) for own in rounds], axis=1)[:, self._shown[:, 0]]

    @cached_property
    def stretch_of_clip(self) -> Ints | None:  # type: ignore[override]
        """Return (C,) the stretches of the first source, whose items these are; None for objects of its own."""
        stretches = None if self._items is None else self.sources[0].stretch_of_clip
        return None if stretches is None else stretches[self._items]

    def path(self, index: int) -> Path:
        """Return the file that an image shows, one that is missing first."""
        source, position = self._origin(index)
        return source.path(position)

    def read(self, index: int) -> bytes:
        """Return the encoded image. Raises OSError if it cannot be read."""
        source, position = self._origin(index)
        return source.read(position)

    def contents(self, indices: Ints) -> list[NDArray[Any]]:
        """Return the encoded images at these positions: each source is asked once."""
        shown = self._shown[indices, 0]
        source_of = np.searchsorted(self._first, shown, side="right") - 1
        parts = {
            number: iter(self.sources[number].contents(shown[source_of == number] - self._first[number]))
            for number in np.unique(source_of).tolist()
        }
        return [next(parts[number]) for number in source_of.tolist()]

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Tell each source which of its images will be read."""
        lock = Lock()
        for number, (source, copy) in enumerate(zip(self.sources, tee(upcoming, len(self.sources)), strict=True)):
            source.prefetch(self._upcoming_of(number, copy, lock))

    def _upcoming_of(self, number: int, upcoming: Iterator[Upcoming], lock: Lock) -> Iterator[Upcoming]:
        """Yield the images of one source. Threads of several sources ask; `tee` allows one at a time."""
        first, end = self._first[number : number + 2]
        while True:
            with lock:
                images = next(upcoming, None)
            if images is None:
                return
            shown = self._shown[images.indices].ravel()
            every = Upcoming(shown - first, images.mine.repeat(self._shown.shape[1]))
            yield every.part((shown >= first) & (shown < end))

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used."""
        source, position = self._origin(index)
        return source.why_missing(position)

    def explain_size(self, index: int, size: tuple[int, int]) -> str:
        """Return why an image of this size cannot be used."""
        source, position = self._origin(index)
        return source.explain_size(position, size)

    def check_files(self) -> None:
        """Raise InputError if an image was missing when its source was made."""
        for index in self.missing[:1].tolist():
            self._origin(index)[0].check_files()

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash that changes with the files of any source."""
        return short_digest(*(source.files_fingerprint.encode() for source in self.sources))

    def _origin(self, index: int) -> tuple[Source, int]:
        """Return the source of an image and its position there; of several that it shows, one that is missing first."""
        places = [self._place(shown) for shown in self._shown[index].tolist()]
        missing = (place for place in places[1:] and places if place[1] in self.sources[place[0]].missing)
        source, position = next(missing, places[0])
        return self.sources[source], position

    def _place(self, shown: int) -> tuple[int, int]:
        """Return the position in `sources` of an image of all of them, and that of the image in its source."""
        number = int(np.searchsorted(self._first, shown, side="right")) - 1
        return number, shown - int(self._first[number])

    def _names(self) -> bytes:
        fingerprints = b"\0".join(source.fingerprint.encode() for source in self.sources)
        return fingerprints + self._choice() + super()._names()

    def _choice(self) -> bytes:
        """Return what says which images these are, for `fingerprint`."""
        return self._shown.tobytes()

    @cached_property
    def _path_table(self) -> Bytes:
        tables = [source.paths(np.arange(len(source))) for source in self.sources]
        width = max(table.shape[1] for table in tables)
        every = np.concatenate([np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in tables])
        return every[self._shown[:, 0]]


def of_images(source: Source, images: Ints, rows: Ints) -> dict[str, Any]:
    """Return the arguments with which `Source.__init__` makes a source of some images and some annotations, `rows`.

    Without `counts` of its own, an image has all of its annotations. Images that come twice are numbered from 1.
    """
    boxes, counts, labels = source.objects()
    image_ids = source.image_ids[images]
    return {
        "sizes": source.sizes[images],
        "class_names": source.class_names[1:],
        "boxes": boxes[rows],
        "counts": counts[images],
        "labels": labels[rows],
        "classes": None if source.classes is None else source.classes[images],
        "image_ids": image_ids if len(np.unique(image_ids)) == len(image_ids) else None,
        "category_ids": source.category_ids[1:],
        "relative": True,
        "columns": {name: column[rows] for name, column in source.columns.items()},
        "shapes": source.shapes.some(rows),
        "origin": source.origin,
    }
