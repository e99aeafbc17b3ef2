"""Find images that are nearly the same, in a dataset and in its other splits: `detaug check --near`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from detaug.arrays import Ints
from detaug.check.images import Header, OtherSplit
from detaug.coco.groups import Mark, joined_units
from detaug.coco.table import Table
from detaug.files.image_headers import ImageHeader
from detaug.files.near_duplicates import NearPair, Thumbnails, near_pairs, read_thumbnails
from detaug.findings.entries import Findings, from_messages
from detaug.findings.finding import shown
from detaug.machine.parallel import Progress


def check_near(
    table: Table,
    folder: Path,
    headers: Sequence[Header],
    others: Sequence[OtherSplit],
    known: Sequence[Findings],
    progress: Progress | None,
) -> Iterator[Findings]:
    """Yield findings about images that are nearly the same.

    Args:
        table: The JSON file.
        folder: Of its images.
        headers: Of its images; those without one are not compared, since other findings name them.
        others: Other splits.
        known: Findings so far: images with the same bytes as others are not named again.
        progress: Called with (images done, images in all).
    """
    same = {kind: {row for group in known if group.kind == kind for row in group.rows.tolist()} for kind in _SAME}
    rows = [
        row
        for row, header in enumerate(headers)
        if isinstance(header, ImageHeader) and row not in same["image-identical"]
    ]
    thumbnails, faults = read_thumbnails([table.image_file(folder, row) for row in rows], progress)
    if faults:
        yield from_messages("image-not-compared", "images", {rows[index]: text for index, text in faults.items()})
    yield from _within(table, rows, near_pairs(thumbnails))
    for other in others:
        yield from _between(table, rows, thumbnails, other, same["image-leaked"], progress)


_SAME = ("image-identical", "image-leaked")


def _within(table: Table, rows: Sequence[int], pairs: Sequence[NearPair]) -> Iterator[Findings]:
    """Yield a finding for each image but the first of a group, the groups one after the other."""
    videos = table.videos.video_ids
    pairs = [NearPair(rows[pair.first], rows[pair.second], pair.flipped) for pair in pairs]
    groups = groups_of([pair for pair in pairs if not _of_one_video(videos, pair)], len(table.file_names))
    messages = {}
    for row, pair in groups.items():
        messages[row] = f"like images[{pair.first}], {shown(table.file_names[pair.first])}{_how(pair)}"
    if messages:
        like = {row: pair.first for row, pair in groups.items()}
        yield Findings("image-near", "images", np.array([*messages]), lambda row: messages[int(row)], like)


def groups_of(pairs: Sequence[NearPair], count: int) -> dict[int, NearPair]:
    """Return for each image but the first of its group the pair that joins it to another one, an earlier one if any.

    It is the second one of that pair. Images of a group follow each other, the groups in the order of their first ones.
    count: of all images.
    """
    marks: list[list[Mark]] = [[] for _ in range(count)]
    for number, pair in enumerate(pairs):
        for image in (pair.first, pair.second):
            marks[image].append(("copy", number))
    group = joined_units(np.arange(count), marks, count)
    firsts = np.unique(group, return_index=True)[1]
    joined, later = dict[int, NearPair](), dict[int, NearPair]()
    for pair in sorted(pairs):
        joined.setdefault(pair.second, pair)
        later.setdefault(pair.first, NearPair(pair.second, pair.first, pair.flipped))
    # one of many that look alike may only be a candidate with later ones, see MOST_CANDIDATES
    joined = {**later, **joined}
    images = sorted(
        (image for image in joined if firsts[group[image]] != image), key=lambda image: (group[image], image)
    )
    return {image: joined[image] for image in images}


def _of_one_video(videos: Ints, pair: NearPair) -> bool:
    """Return whether both images are frames of one video: these are alike, and stay together anyway."""
    return videos[pair.first] >= 0 and bool(videos[pair.first] == videos[pair.second])


def _between(
    table: Table,
    rows: Sequence[int],
    thumbnails: Thumbnails,
    other: OtherSplit,
    leaked: set[int],
    progress: Progress | None,
) -> Iterator[Findings]:
    names = other.table.file_names
    of_other = [
        index for index, name in enumerate(names) if name and other.table.image_file(other.folder, index).exists()
    ]
    files = [other.table.image_file(other.folder, index) for index in of_other]
    others, _ = read_thumbnails(files, progress)
    pairs = near_pairs(thumbnails, others)
    messages = dict[int, str]()
    for pair in pairs:
        row = rows[pair.second]
        if row not in leaked:
            messages.setdefault(row, f"like {shown(names[of_other[pair.first]])} of {other.table.path}{_how(pair)}")
    if messages:
        yield from_messages("image-near-leaked", "images", messages)


def _how(pair: NearPair) -> str:
    return ", flipped" * pair.flipped
