"""Read the maps of images ahead, while a pipeline decodes the images."""

from __future__ import annotations

from concurrent.futures import Future
from functools import cached_property

import torch

from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.gpu.maps import map_table
from detaug.loading.bad_files import BadFiles, BadFilesFound
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.maps.values import MapValues
from detaug.sources.source import Source

OwnMaps = dict[str, MapValues]
"""The maps of one image, by name; nothing where they are on the device."""

MapsOfImages = dict[int, OwnMaps]
"""Those of images, by their positions in the source."""


class MapFeed:
    """Reads the maps of a source in threads: Pillow decodes outside of Python's lock.

    On a GPU, maps that were read stay there, see `MapTable`: they are not read again.
    """

    def __init__(self, source: Source, device: torch.device) -> None:
        self._source, self._table = source, map_table(source, device)

    def start(self, indices: Ints) -> dict[int, Future[OwnMaps] | None]:
        """Begin to read the maps of images, None for those that are there; nothing for a source without maps."""
        if not self._source.maps:
            return {}
        reading: dict[int, Future[OwnMaps] | None] = dict.fromkeys(indices.tolist())
        unknown = indices if self._table is None else indices[~self._table.known[indices]]
        return reading | {index: self._threads.submit(self._read, index) for index in dict.fromkeys(unknown.tolist())}

    def finish(self, reading: dict[int, Future[OwnMaps] | None]) -> MapsOfImages:
        """Wait for the maps. Raises BadFilesFound for images with one that cannot be used."""
        maps, bad = MapsOfImages({index: {} for index in reading}), BadFiles()
        for index, task in reading.items():
            if task is None:
                continue
            try:
                maps[index] = task.result()
            except InputError as error:
                bad[index] = str(error)
            except OSError as error:
                bad[index] = f"{error.filename} cannot be read ({error.strerror or error})"
        if bad:
            raise BadFilesFound(bad)
        if self._table is not None:
            self._table.add(maps)
        return maps

    def _read(self, index: int) -> OwnMaps:
        return {name: maps.read(index) for name, maps in self._source.maps.items()}

    @cached_property
    def _threads(self) -> Threads:
        return Threads(available_cores(), "detaug-maps")
