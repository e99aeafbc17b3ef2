"""The color of each class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

Color = tuple[int, int, int]

# 24 colors, every two at least 0.05 apart in OKLab (0.02 is just noticeable) to normal sight and to those
# with deuteranopia, protanopia or tritanopia (Machado et al. 2009), and all light enough for black text.
PALETTE: tuple[Color, ...] = (
    (119, 204, 255), (102, 136, 17), (238, 255, 0), (204, 68, 255), (153, 204, 119), (170, 255, 238),
    (187, 136, 170), (102, 170, 255), (119, 238, 119), (221, 102, 119), (170, 221, 187), (204, 153, 0),
    (102, 119, 204), (0, 153, 102), (238, 153, 204), (204, 255, 170), (51, 238, 255), (204, 187, 0),
    (170, 102, 153), (238, 119, 221), (255, 17, 51), (255, 204, 34), (238, 0, 204), (119, 187, 136),
)  # fmt: skip
# With this salt the 20 classes of Pascal VOC get 20 different colors (and so do those of `detaug demo`).
SALT = b"315485"


def class_color(name: str) -> Color:
    """Return the color of a class, (R, G, B) in 0..255: the same for a name in every image, dataset and process.

    There are 24 colors, which differ in the common forms of color blindness as well. Names are hashed, so
    two classes may share a color; the 20 classes of Pascal VOC do not. `class_colors` separates such classes.

    >>> class_color("dog") == class_color("dog") != class_color("cat")
    True
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4, salt=SALT).digest()
    return PALETTE[int.from_bytes(digest, "big") % len(PALETTE)]


def class_colors(names: Iterable[str]) -> dict[str, Color]:
    """Return the color of each of some classes; no two share one while there are colors left.

    A class has its `class_color`, unless one that comes before it in the alphabet has that already: then it gets a
    color that no class has.

    >>> len(set(class_colors(f"class {number}" for number in range(24)).values()))
    24
    """
    colors: dict[str, Color] = {}
    others: list[str] = []
    for name in sorted(set(names)):
        color = class_color(name)
        if color in colors.values():
            others.append(name)
        else:
            colors[name] = color
    free = [color for color in PALETTE if color not in colors.values()]
    rest = {name: class_color(name) for name in others[len(free) :]}
    return colors | dict(zip(others, free, strict=False)) | rest
