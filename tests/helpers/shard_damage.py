"""Damage a shard at many positions, and read what a conversion leaves of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from shard_files import contents, converted

from detaug.converters import ConversionError, Summary

Images = dict[str, tuple[list[Any], bytes]]
"""The boxes and the bytes of each image, by file name."""


def damages(path: Path, good: bytes, positions: Iterable[int]) -> Iterator[tuple[int, bool]]:
    """Write a shard cut off at each position, then with one bit flipped there; yield (position, whether it is cut)."""
    for position in positions:
        path.write_bytes(good[:position])
        yield position, True
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << position % 8]) + good[position + 1 :])
        yield position, False


def images_left(function: Callable[..., Summary], path: Path) -> tuple[Images, list[str]]:
    """Convert a shard with on_error="skip"; return its images, none if all are lost, and the findings."""
    try:
        document, summary = converted(function, path, on_error="skip")
    except ConversionError as error:
        return {}, [finding.kind for finding in error.findings]
    encoded = contents(document, path.parent)
    boxes: dict[int, list[Any]] = {image["id"]: [] for image in document["images"]}
    for row in document["annotations"]:
        boxes[row["image_id"]].append(row["bbox"])
    images = {each["file_name"]: (boxes[each["id"]], encoded[each["file_name"]]) for each in document["images"]}
    return images, list(summary.kind_counts)
