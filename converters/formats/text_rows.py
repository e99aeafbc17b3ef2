"""KITTI, VisDrone and DOTA: a text file for each image, a row for each object.

Sources: the development kit of KITTI's object benchmark, readme.txt;
https://github.com/VisDrone/VisDrone2018-DET-toolkit; https://captain-whu.github.io/DOTA/dataset.html.
"""

from __future__ import annotations

from detaug.converters.records.record import AnnotationFiles, Contents, Object, ObjectError, numbers_of
from detaug.converters.records.rows import read_rows

_KITTI_COLUMNS = ("truncated", "occluded", "alpha", "dimensions", "location", "rotation_y", "score")
_DOTA_HEADS = ("imagesource", "gsd", "acquisition dates")
VISDRONE_CLASSES = (
    *("pedestrian", "people", "bicycle", "car", "van", "truck", "tricycle", "awning-tricycle", "bus", "motor"),
    "others",
)
"""Of the numbers 1 to 11; 0 is a region in which nothing counts."""


def read_kitti(source: AnnotationFiles) -> Contents:
    """Read label_2: class, truncated, occluded, alpha, left, top, right, bottom, and the object's place in space.

    The columns have the names of KITTI's readme. DontCare is a region in which nothing counts.
    """
    return read_rows(source, _kitti)


def _kitti(words: list[str]) -> Object:
    if len(words) not in (15, 16):
        raise ObjectError(f"must be 15 values, or 16 with a score, got {len(words)}")
    truncated, occluded, alpha, left, top, right, bottom, *space = numbers_of(words[1:], "values after the class")
    values = truncated, int(occluded), alpha, space[:3], space[3:6], *space[6:]
    columns = dict(zip(_KITTI_COLUMNS, values, strict=False))  # the last one is missing in most files
    return Object(words[0], (left, top, right, bottom), is_ignored=words[0] == "DontCare", columns=columns)


def read_visdrone(source: AnnotationFiles) -> Contents:
    """Read annotations: left, top, width, height, score, class, truncation, occlusion.

    Class 0 is a region in which nothing counts. A score of 0 marks what an evaluation ignores: a crowd.
    """
    return read_rows(source, _visdrone, ",", class_names=VISDRONE_CLASSES[:10])


def _visdrone(words: list[str]) -> Object:
    while words and not words[-1]:  # some rows end with a comma
        words.pop()
    if len(words) != 8:
        raise ObjectError(f"must be 8 numbers, got {len(words)}")
    left, top, width, height, score, number, truncation, occlusion = numbers_of(words, "a row")
    if number not in range(len(VISDRONE_CLASSES) + 1):
        raise ObjectError(f"class must be a whole number from 0 to {len(VISDRONE_CLASSES)}, got {words[5]}")
    name = VISDRONE_CLASSES[int(number) - 1] if number else "ignored"
    annotation = Object(
        name, (left, top, left + width, top + height), is_ignored=not number, is_crowd=bool(number and not score)
    )
    annotation.columns = {"truncation": int(truncation), "occlusion": int(occlusion)}
    return annotation


def read_dota(source: AnnotationFiles) -> Contents:
    """Read the label files of DOTA: one for each image."""
    return read_rows(source, _dota)


def _dota(words: list[str]) -> Object | None:
    if words[0][:1].isalpha() and " ".join(words).partition(":")[0].strip().lower() in _DOTA_HEADS:
        return None
    rule = "must be x1 y1 x2 y2 x3 y3 x4 y4 class difficult"
    if len(words) not in (9, 10):
        raise ObjectError(f"{rule}, got {len(words)} words")
    try:
        corners = numbers_of(words[:8], "")
    except ObjectError:
        raise ObjectError(f"{rule}, with eight finite numbers, got {' '.join(words[:8])[:60]!r}") from None
    difficult = words[-1] if len(words) > 9 else "0"
    if not difficult.isdecimal():
        raise ObjectError(f"{rule}; difficult must be a whole number, got {difficult[:20]!r}")
    return Object(words[8], corners=corners, columns={"difficult": int(int(difficult) > 0)})
