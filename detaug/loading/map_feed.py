"""Read the maps of images ahead, while a pipeline decodes the images."""

from __future__ import annotations

from concurrent.futures import Future
from functools import cached_property

from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.loading.bad_files import BadFiles, BadFilesFound
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.maps.values import MapValues
from detaug.sources.source import Source

OwnMaps = dict[str, MapValues]
"""The maps of one image, by name."""

MapsOfImages = dict[int, OwnMaps]
"""Those of images, by their positions in the source."""


class MapFeed:
    """Reads the maps of a source in threads: Pillow decodes outside of Python's lock."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def start(self, indices: Ints) -> dict[int, Future[OwnMaps]]:
        """Begin to read the maps of images; nothing for a source without maps."""
        if not self._source.maps:
            return {}
        return {index: self._threads.submit(self._read, index) for index in dict.fromkeys(indices.tolist())}

    def finish(self, reading: dict[int, Future[OwnMaps]]) -> MapsOfImages:
        """Wait for the maps. Raises BadFilesFound for images with one that cannot be used."""
        found, bad = MapsOfImages(), BadFiles()
        for index, task in reading.items():
            try:
                found[index] = task.result()
            except InputError as error:
                bad[index] = str(error)
            except OSError as error:
                bad[index] = f"{error.filename} cannot be read ({error.strerror or error})"
        if bad:
            raise BadFilesFound(bad)
        return found

    def _read(self, index: int) -> OwnMaps:
        return {name: maps.read(index) for name, maps in self._source.maps.items()}

    @cached_property
    def _threads(self) -> Threads:
        return Threads(available_cores(), "detaug-maps")
