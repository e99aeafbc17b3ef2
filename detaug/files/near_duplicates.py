"""Find images that are the same but for size, file format, a crop of some per cent, a flip, or brightness.

Each image becomes a thumbnail of 32 x 32 gray pixels. Two images whose low frequencies are alike are candidates: the
first 8 x 8 coefficients of the thumbnail's discrete cosine transform, which are those of a perceptual hash (pHash, as
in the package imagehash), but as numbers, not as the signs of them, since a crop of 5 % changes up to a third of the
signs. Candidates are then aligned: the crop is found by least squares on the pixels (Lucas and Kanade 1981, with a
scale and a shift for each axis), and they are the same if no part of the image differs. That part keeps apart what only
looks alike, such as frames of a video or a chessboard with other pieces on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats
from detaug.files.image_file import ImageFile, opened
from detaug.files.image_headers import PILLOW_ERRORS, read_orientation, upright
from detaug.files.large_images import without_pillows_warnings
from detaug.machine.cores import available_cores
from detaug.machine.parallel import Progress, map_in_jobs, with_progress

Thumbnails: TypeAlias = NDArray[np.uint8]
"""(N, SIDE, SIDE)"""

SIDE = 32
FREQUENCIES = 8
"""Along each axis."""

DECODED = 2 * SIDE
"""The least pixels per side of a JPEG that is decoded at a half, a quarter or an eighth of its size."""

ALIKE = 0.8
"""The cosine of the coefficients from which two images are candidates: of variants with a crop of up to 5 % on each
side, of 559 images, all have more (benchmarks/near_duplicates.py)."""

MOST_CANDIDATES = 20
"""Of an image: of many images that look alike, the nearest are aligned, and groups join through them."""

DIFFERENT = 0.22
"""The largest difference of a part of the image, an eighth of its sides, in standard deviations of the image. 97 % of
images with another brightness have less, and all with a crop; consecutive frames of a shark and other pieces on a
chessboard have 0.23 and more (the same script)."""

FLATTEST = 4.0
"""Standard deviation of a thumbnail's pixels; an image of one color is the same as any other, and not compared."""

LOWEST, HIGHEST = 4, 251
"""Of 0..255: pixels outside may be cut off by a change of brightness, and do not count in the alignment."""

FEWEST = 0.15
"""The fraction of the pixels that must count."""

_STEPS = 10
_FILES_AT_ONCE, _ROWS_AT_ONCE, _PAIRS_AT_ONCE = 16, 256, 256
_FEW_FILES = 200
"""Up to these many files one process is quicker than starting others."""


class NearPair(NamedTuple):
    """Two images that are the same but for what an image loses or gains in copying."""

    first: int
    second: int
    flipped: bool


def read_thumbnails(
    files: Sequence[ImageFile], progress: Progress | None = None, jobs: int | None = None
) -> tuple[Thumbnails, dict[int, str]]:
    """Return the thumbnails of images, and the reason for each that does not decode, by position.

    Args:
        files: N images. They are decoded as displayed, with Pillow; JPEGs at a fraction of their size.
        progress: Called with (images done, images in all).
        jobs: Processes; None: as many as there are cores.
    """
    parts = [files[start : start + _FILES_AT_ONCE] for start in range(0, len(files), _FILES_AT_ONCE)]
    jobs = jobs or (available_cores() if len(files) > _FEW_FILES else 1)
    read = (thumbnail for part in map_in_jobs(_thumbnails, parts, jobs) for thumbnail in part)
    thumbnails, faults = np.zeros((len(files), SIDE, SIDE), np.uint8), dict[int, str]()
    for index in with_progress(range(len(files)), progress):
        thumbnail = next(read)
        if isinstance(thumbnail, str):
            faults[index] = thumbnail
        else:
            thumbnails[index] = thumbnail
    return thumbnails, faults


def _thumbnails(files: Sequence[ImageFile]) -> list[Any]:
    with without_pillows_warnings():
        return [_thumbnail(file) for file in files]


def _thumbnail(file: ImageFile) -> Any:
    """Return (SIDE, SIDE) uint8, or text why the image does not decode."""
    from PIL import Image

    try:
        with opened(file) as content:
            orientation = read_orientation(content)
            with Image.open(content) as image:
                image.draft("L", (DECODED, DECODED))
                # Pillow rotates a TIFF itself
                return np.asarray(upright(_gray(image), 1 if image.format == "TIFF" else orientation))
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as error:
        return f"does not decode ({error})"


def _gray(image: Any) -> Any:
    """Return an image of Pillow as one of SIDE x SIDE gray pixels."""
    from PIL import Image

    if image.mode[0] in "IF":  # more than 8 bits: of any range
        values = np.asarray(image, np.float32)
        low, high = float(values.min()), float(values.max())
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1e-6))).astype(np.uint8))
    # overlapping parts: those of a crop are then more like those of the image
    return image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=3.0)


def near_pairs(thumbnails: Thumbnails, others: Thumbnails | None = None) -> list[NearPair]:
    """Return the pairs of images that are nearly the same: the first one is the earlier one.

    Args:
        thumbnails: Of N images.
        others: Of M others; then `first` are images of these, and `second` of `thumbnails`.
    """
    against = thumbnails if others is None else others
    pairs = []
    candidates = _candidates(thumbnails, others)
    while part := [*islice(candidates, _PAIRS_AT_ONCE)]:
        first, second, flipped = (np.array(column) for column in zip(*part, strict=True))
        one, other = against[first].astype(np.float64), thumbnails[second].astype(np.float64)
        one[flipped] = one[flipped, :, ::-1]
        same = largest_difference(one, other) < DIFFERENT
        pairs += [NearPair(*pair) for pair, is_same in zip(part, same.tolist(), strict=True) if is_same]
    return pairs


def _features(thumbnails: Thumbnails, *, flipped: bool = False) -> NDArray[np.float32]:
    """Return (N, FREQUENCIES ** 2 - 1) of length 1; zeros for images of one color."""
    numbers = np.arange(SIDE)
    cosines = np.cos(np.pi / SIDE * (numbers[:, None] + 0.5) * numbers[None, :FREQUENCIES])
    cosines[:, 0] /= np.sqrt(2)
    signs = np.where(flipped & (np.arange(FREQUENCIES) % 2 == 1), -1, 1)  # a flip changes the sign of odd waves
    features = np.empty((len(thumbnails), FREQUENCIES**2 - 1), np.float32)
    for start in range(0, len(thumbnails), 4096):
        values = thumbnails[start : start + 4096].astype(np.float32)
        waves = (cosines.T.astype(np.float32) @ values @ cosines.astype(np.float32)) * signs
        own = waves.reshape(len(values), -1)[:, 1:]  # without the mean brightness
        flat = values.std((1, 2)) < FLATTEST
        own[flat] = 0
        features[start : start + 4096] = own / np.linalg.norm(own, axis=1, keepdims=True).clip(1e-6)
    return features


def _candidates(thumbnails: Thumbnails, others: Thumbnails | None) -> Iterator[tuple[int, int, bool]]:
    """Yield (image, later image, whether flipped), or (other image, image, whether flipped), that look alike.

    All pairs are compared, some rows at a time, so that memory grows with N, not with its square.
    """
    own = _features(thumbnails)
    against, flipped = (own if others is None else _features(others)), _features(thumbnails, flipped=True)
    for start in range(0, len(against), _ROWS_AT_ONCE):
        rows = against[start : start + _ROWS_AT_ONCE]
        first = start + 1 if others is None else 0
        plain, mirrored = rows @ own[first:].T, rows @ flipped[first:].T
        alike = np.maximum(plain, mirrored)
        if others is None:  # only later ones
            alike[np.tril_indices(len(rows), -1, alike.shape[1])] = 0
        for row in np.flatnonzero(alike.max(1, initial=0) >= ALIKE).tolist():
            columns = np.flatnonzero(alike[row] >= ALIKE)
            if len(columns) > MOST_CANDIDATES:
                columns = np.sort(columns[np.argsort(-alike[row, columns], kind="stable")[:MOST_CANDIDATES]])
            for column in columns.tolist():
                yield start + row, first + column, bool(mirrored[row, column] > plain[row, column])


def largest_difference(one: Floats, other: Floats) -> Floats:
    """Return (P,): the largest difference of a part of two images, once they are aligned, in standard deviations.

    Args:
        one: (P, SIDE, SIDE) gray.
        other: (P, SIDE, SIDE), which may be a crop of the first one, or the first one a crop of it.
    """
    moved, inside = _aligned(one, other)
    counts = _counting(one, moved, inside)
    differences = []
    for source, target in ((one, moved), (moved, one)):  # the brighter one is a function of the darker one, or reverse
        predicted = _like(source, target, counts).clip(0, 255)
        spread = _spread(target, inside)
        parts = ((target - predicted) * inside / spread).reshape(len(one), 8, SIDE // 8, 8, SIDE // 8)
        differences.append(np.abs(parts.mean((2, 4))).max((1, 2)))
    enough = counts.mean((1, 2)) >= FEWEST
    return np.where(enough, np.minimum(*differences), np.inf)


def _aligned(one: Floats, other: Floats) -> tuple[Floats, Bools]:
    """Return (P, SIDE, SIDE) the second images at the places of the pixels of the first, and where they have any."""
    line = np.linspace(-1, 1, SIDE)
    y, x = np.meshgrid(line, line, indexing="ij")
    down, right = (np.asarray(slope * ((SIDE - 1) / 2)) for slope in np.gradient(other, axis=(1, 2)))
    place = np.tile([1.0, 0, 1, 0], (len(one), 1))  # scale and shift of x, then of y
    for step in range(_STEPS + 1):
        to_x = place[:, 0, None, None] * x + place[:, 1, None, None]
        to_y = place[:, 2, None, None] * y + place[:, 3, None, None]
        inside = (np.abs(to_x) <= 1 + 1e-9) & (np.abs(to_y) <= 1 + 1e-9)
        moved = _sampled(other, to_x, to_y)
        if step == _STEPS:
            break
        counts = _counting(one, moved, inside)
        scale = counts / _spread(moved, counts)
        rest = (one - _mean(one, counts)) * counts / _spread(one, counts)
        rest = rest - (moved - _mean(moved, counts)) * scale
        along_x, along_y = _sampled(right, to_x, to_y) * scale, _sampled(down, to_x, to_y) * scale
        slopes = [along_x * x, along_x, along_y * y, along_y, (moved - _mean(moved, counts)) * scale, counts]
        jacobian = np.stack(slopes, -1).reshape(len(one), -1, len(slopes))
        normal = jacobian.transpose(0, 2, 1) @ jacobian + 1e-2 * np.eye(len(slopes))
        change = np.linalg.solve(normal, jacobian.transpose(0, 2, 1) @ rest.reshape(len(one), -1, 1))
        place = place + change[:, :4, 0]
        place[:, ::2], place[:, 1::2] = place[:, ::2].clip(0.85, 1.18), place[:, 1::2].clip(-0.2, 0.2)
    return moved, inside


def _sampled(images: Floats, x: Floats, y: Floats) -> Floats:
    """Return images (P, SIDE, SIDE) at places in -1..1, interpolated."""
    places, starts = [], []
    for to in (x, y):
        to = (to + 1) * (SIDE - 1) / 2
        start = np.floor(to).astype(np.int64).clip(0, SIDE - 2)
        starts.append(start)
        places.append((to - start).clip(0, 1))
    (across, down), (column, row), image = places, starts, np.arange(len(images))[:, None, None]
    upper = images[image, row, column] * (1 - across) + images[image, row, column + 1] * across
    lower = images[image, row + 1, column] * (1 - across) + images[image, row + 1, column + 1] * across
    return np.asarray(upper * (1 - down) + lower * down)


def _counting(one: Floats, other: Floats, inside: Bools) -> Bools:
    """Return the pixels that both images have, and that no change of brightness has cut off."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.asarray(inside & (low > LOWEST) & (high < HIGHEST))


def _mean(values: Floats, counts: Bools) -> Floats:
    return np.asarray((values * counts).sum((1, 2), keepdims=True) / counts.sum((1, 2), keepdims=True).clip(1))


def _spread(values: Floats, counts: Bools) -> Floats:
    """Return (P, 1, 1): the standard deviation of the pixels that count."""
    squares = ((values - _mean(values, counts)) * counts) ** 2
    return np.asarray(
        np.sqrt(squares.sum((1, 2), keepdims=True) / counts.sum((1, 2), keepdims=True).clip(1)).clip(1e-3)
    )


def _like(source: Floats, target: Floats, counts: Bools) -> Floats:
    """Return the first images with the mean and the contrast of the second ones."""
    gain = _spread(target, counts) / _spread(source, counts)
    return np.asarray((source - _mean(source, counts)) * gain + _mean(target, counts))
