"""Check maps: files that are missing, or cannot be what their `ClassMap` or `DepthMap` says that they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.check.images import Header
from detaug.coco.table import Table
from detaug.errors import InputError
from detaug.files.image_headers import ImageHeader
from detaug.findings.entries import Findings, from_messages
from detaug.findings.finding import counted
from detaug.machine.cores import available_cores
from detaug.machine.parallel import Progress, map_ahead, with_progress
from detaug.maps.files import FileMaps
from detaug.maps.kinds import IDS, ClassMap, DepthMap, MapError, MapKind, Pixels, PlainMap, pixels_of

NEAR, FAR = 0.1, 1000.0
"""Meters: a map whose middle depth lies outside of these has another unit. Indoors it is 1 to 5, on roads 10 to 50."""

_MOST_CLASSES = 40

IGNORED = "ignored"
"""Of `MapSummary.fractions`: pixels of no class."""


@dataclass(frozen=True)
class MapSummary:
    """What is known of the maps of one name."""

    name: str
    folder: Path
    files: int
    """Those that were read."""
    fractions: dict[str, float]
    """Of their pixels, by class, in the order of the numbers, and `IGNORED` last; of depths those that are "known"."""
    depths: tuple[float, float] | None
    """The least and the largest one in meters, of a map of depths that has one."""
    of_rows: Mapping[int, Path] = field(repr=False)
    """The file of each image that has one, by its position in the JSON file."""
    kind: PlainMap = field(repr=False)

    def lines(self) -> Iterator[str]:
        """Yield what `detaug check` prints."""
        start = f"map {self.name}: {counted(self.files, 'file')} in {self.folder}"
        if not isinstance(self.kind, DepthMap):
            yield f"{start}; pixels per class" if self.fractions else start
            width = max(map(len, self.fractions), default=0)
            rows = [*self.fractions.items()]
            yield from (f"  {name:<{width}}  {percent(value):>8}" for name, value in rows[:_MOST_CLASSES])
            if len(rows) > _MOST_CLASSES:
                yield f"  and {len(rows) - _MOST_CLASSES:,} more classes"
        else:
            known = f", {percent(self.fractions['known'])} of the pixels known" if self.fractions else ""
            yield start + known + ("" if self.depths is None else ", {:.3g} to {:.3g} m".format(*self.depths))


def percent(fraction: float) -> str:
    """Return a fraction as text in at least two digits."""
    return f"{100 * fraction:.1f} %" if fraction >= 0.01 or not fraction else f"{100 * fraction:.2g} %"


class _Looked(NamedTuple):
    """What is known of one map."""

    findings: dict[str, str]
    """Messages by kind of finding."""
    counts: Ints | None = None
    """(256,) pixels of each class; of depths (2,), those not known and those known."""
    depths: tuple[float, float] | None = None


def check_maps(
    table: Table, folder: Path, headers: Sequence[Header], kinds: Mapping[str, MapKind], progress: Progress | None
) -> tuple[list[Findings], list[MapSummary]]:
    """Return findings about the maps of all images that are there, and a summary of each kind.

    Raises InputError for a folder that is not there, or has no file for any image.
    """
    rows = [index for index, header in enumerate(headers) if isinstance(header, ImageHeader) and table.has_size[index]]
    names = [table.file_names[index] for index in rows]
    messages, summaries = dict[str, dict[int, list[str]]](), list[MapSummary]()
    for name, kind in kinds.items():
        if not isinstance(kind, PlainMap):
            raise InputError(
                f"maps[{name!r}] must be a da.ClassMap or da.DepthMap, got {kind!r}; a PanopticMap is "
                "checked by CocoReader(maps=), which refuses what it does not understand"
            )
        maps = FileMaps(kind, name, folder, names, table.sizes[rows])
        if rows and not maps.lossy:
            maps.refuse_none()
        of_map, summary = _check_kind(maps, rows, progress)
        for finding, own in of_map.items():
            for row, message in own.items():
                messages.setdefault(finding, {}).setdefault(row, []).append(message)
        summaries.append(summary)
    joined = {finding: {row: ", and ".join(texts) for row, texts in own.items()} for finding, own in messages.items()}
    return [from_messages(finding, "images", own) for finding, own in joined.items()], summaries


def _check_kind(
    maps: FileMaps, rows: Sequence[int], progress: Progress | None
) -> tuple[dict[str, dict[int, str]], MapSummary]:
    """Return messages by kind of finding and row, and the summary of the maps of one name."""
    messages: dict[str, dict[int, str]] = {}
    for index in maps.absent:
        if index in maps.lossy:
            messages.setdefault("map-lossy", {})[rows[index]] = maps.lossy_remedy(index)
        elif maps.kind.missing == "error":
            messages.setdefault("map-missing", {})[rows[index]] = maps.why_absent(index)
    present = [index for index in range(len(rows)) if maps.path(index) is not None]
    counts: Ints = np.zeros(IDS if isinstance(maps.kind, ClassMap) else 2, np.int64)
    ranges, of_two, files = list[tuple[float, float]](), dict[int, Ints](), 0
    looked = map_ahead(lambda index: _look(maps, index), present, available_cores())
    for index, content in zip(with_progress(present, progress), looked, strict=True):
        for kind, message in content.findings.items():
            messages.setdefault(kind, {})[rows[index]] = message
        if content.counts is not None:
            counts += content.counts
            files += 1
            of_two[rows[index]] = content.counts
        if content.depths is not None:
            ranges.append(content.depths)
    if isinstance(maps.kind, ClassMap) and (binary := _binary(maps.kind, counts, of_two)):
        messages.setdefault("map-bits", {}).update(binary)
    depths = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
    of_rows = {rows[index]: path for index in present if (path := maps.path(index)) is not None}
    assert isinstance(maps.kind, PlainMap)
    fractions = _fractions(maps.kind, counts)
    return messages, MapSummary(maps.name, maps.folder, files, fractions, depths, of_rows, maps.kind)


def _look(maps: FileMaps, index: int) -> _Looked:
    path, kind = maps.path(index), maps.kind
    assert path is not None
    assert isinstance(kind, PlainMap)
    try:
        pixels = pixels_of(path)
        values = kind.values_of(pixels, path)
        maps.check_size(index, path, values)
    except MapError as error:
        return _Looked({error.finding: str(error)})
    except OSError as error:
        return _Looked({"map-broken": f"{path} cannot be read ({error.strerror or error})"})
    if isinstance(kind, DepthMap):
        return _look_at_depths(kind, pixels, values, path)
    findings, counts = {}, np.bincount(values.ravel(), minlength=IDS)
    if pixels.mode == "1":
        findings["map-bits"] = f"{path} has one bit per pixel, read as 0 and 1; other programs read 0 and 255"
    if counts[kind.ignore] == values.size:
        findings["map-empty"] = f"{path} has only the value {kind.ignore}, which is ignored"
    tall, wide = maps.image_size(index)
    if values.shape != (tall, wide):
        findings["map-scaled"] = f"{path} has {values.shape[1]} x {values.shape[0]} pixels, the image {wide} x {tall}"
    return _Looked(findings, counts)


def _look_at_depths(kind: DepthMap, pixels: Pixels, values: NDArray[Any], path: Path) -> _Looked:
    raw, known = pixels.values, values[values > 0]
    counts = np.array([values.size - len(known), len(known)])
    real = raw[raw != kind.invalid]
    wrong = {"not finite": int((~np.isfinite(real)).sum()), "negative": int((real < 0).sum())}
    texts = [f"{100 * number / raw.size:.2g} % of its values are {what}" for what, number in wrong.items() if number]
    if not len(known):
        texts = ["no depth in it is known"]
    elif not NEAR <= (middle := float(np.median(known))) <= FAR:
        texts.append(
            f"its middle depth is {middle:.3g} m; give DepthMap(scale=) the meters that a value of 1 stands for"
        )
    findings = {"depth-invalid": f"{path}: {', and '.join(texts)}"} if texts else {}
    return _Looked(findings, counts, (float(known.min()), float(known.max())) if len(known) else None)


def _binary(kind: ClassMap, counts: Ints, of_maps: Mapping[int, Ints]) -> dict[int, str]:
    """Return a message for each map with ignored pixels, where all maps have no class but 0, and pixels of both."""
    others = np.delete(counts, [0, kind.ignore]).sum()
    if kind.table is not None or others or not (kind.ignore and counts[0] and counts[kind.ignore]):
        return {}
    if kind.classes is not None and len(kind.classes) == 1:
        return {}
    message = (
        f"no map has other values than 0 and {kind.ignore}, which is ignored; if it is a class, give "
        f"ClassMap(table={{0: 0, {kind.ignore}: 1}})"
    )
    return {row: message for row, own in of_maps.items() if own[kind.ignore]}


def _fractions(kind: PlainMap, counts: Ints) -> dict[str, float]:
    total = int(counts.sum())
    if not total:
        return {}
    if isinstance(kind, DepthMap):
        return {"known": int(counts[1]) / total}
    shown = [number for number in np.flatnonzero(counts).tolist() if number != kind.ignore]
    if kind.classes is not None:
        shown = sorted({*shown, *range(len(kind.classes))} - {kind.ignore})
    fractions = {kind.class_name(number): int(counts[number]) / total for number in shown}
    ignored = int(counts[kind.ignore])
    return fractions | ({IGNORED: ignored / total} if ignored else {})
