"""Find boxes and classes that training can use but a person should look at: tiny, repeated or unusual boxes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.check.similar_names import similar_names
from detaug.coco.boxes import box_iou
from detaug.coco.table import Table
from detaug.findings.entries import Findings, about_json, from_messages
from detaug.findings.finding import counted, shown
from detaug.named_options import option

SAME_IOU = 0.9
IMBALANCE = 100
FEWEST_FOR_USUAL = 20
"""Boxes of a class that it takes to know its usual size."""
UNUSUAL = 6.0
"""Robust standard deviations, of the logarithms of area and aspect ratio, from the class's median."""

_LEAST_SPREAD = 0.1  # of a logarithm: boxes drawn with one click differ by less, and 10 % is not unusual
_MOST_NEIGHBORS = 1000  # boxes of one image compared with each box: a bound on time for absurd files


def check_boxes(table: Table, size: tuple[int, int] | None = None, others: Sequence[Table] = ()) -> Iterator[Findings]:
    """Yield findings about boxes and classes.

    size: the (H, W) pixels that images are resized to. others: the JSON files of other splits.
    """
    rows = np.flatnonzero(usable_boxes(table))
    if not len(rows):
        yield _no_objects(table)
        return
    yield from _tiny(table, rows, size)
    yield from _repeated(table, rows)
    yield from _unusual(table, rows)
    yield from _classes(table, others)


def _similar(table: Table, counts: dict[int, int], positions: dict[int, int]) -> dict[int, str]:
    """Return the messages about classes whose names are nearly equal, by their positions."""
    ids, names, objects = [*counts], [shown(table.categories[number]) for number in counts], [*counts.values()]
    messages = {}
    for index, other in similar_names([table.categories[number] for number in ids], objects):
        says = f"{names[index]} with {counted(objects[index], 'object')} is like {names[other]} with {objects[other]:,}"
        messages[positions[ids[index]]] = f"{says}, categories[{positions[ids[other]]}]"
    return messages


def _no_objects(table: Table) -> Findings:
    crowds = int((table.has_box & table.has_category & table.crowd).sum())
    if crowds:
        return about_json("crowds-only", f"{counted(crowds, 'crowd')}; write iscrowd 0 where it is a single object")
    return about_json("objects-none", "training would see background only")


def usable_boxes(table: Table) -> Bools:
    """Return (A,) whether a detector is trained on the box."""
    return table.has_box & table.has_category & ~table.crowd


def class_counts(table: Table) -> dict[int, int]:
    """Count the boxes to train on by category id, in the order of the ids."""
    ids, counts = np.unique(table.category_ids[usable_boxes(table)], return_counts=True)
    by_id = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    return {number: by_id.get(number, 0) for number in table.categories}


def _tiny(table: Table, rows: Ints, size: tuple[int, int] | None) -> Iterator[Findings]:
    sides = table.boxes[rows, 2:] - table.boxes[rows, :2]
    after = sides if size is None else sides * (size[::-1] / table.sizes[table.image_index[rows], ::-1])
    small = np.flatnonzero(after.min(axis=1) < 1)

    def describe(n: int) -> str:
        pixels = f"{sides[n, 0]:.4g} x {sides[n, 1]:.4g} pixels"
        if size is None:
            return pixels
        return f"{pixels}, {after[n, 0]:.3g} x {after[n, 1]:.3g} at {size[0]} x {size[1]} (height x width)"

    if len(small):
        messages = {int(rows[n]): describe(n) for n in small.tolist()}
        badness = {int(rows[n]): -float(after[n].min()) for n in small.tolist()}
        yield from_messages("box-tiny", "annotations", messages, badness=badness)


def _repeated(table: Table, rows: Ints) -> Iterator[Findings]:
    first, second = close_pairs(table.boxes[rows], table.image_index[rows])
    earlier, later = rows[np.minimum(first, second)], rows[np.maximum(first, second)]
    one_class = table.category_ids[earlier] == table.category_ids[later]
    equal = np.all(table.boxes[earlier] == table.boxes[later], axis=1)
    repeated = np.isin(later, later[one_class & equal])
    for kind, pairs in (
        ("box-repeated", one_class & equal),
        ("box-nearly-repeated", one_class & ~repeated),
        ("box-two-classes", ~one_class),
    ):
        yield from _pair_findings(table, kind, later[pairs], earlier[pairs])


def _pair_findings(table: Table, kind: str, later: Ints, earlier: Ints) -> Iterator[Findings]:
    def describe(row: int, other: int) -> str:
        names = [shown(table.categories[int(table.category_ids[box])]) for box in (row, other)]
        classes = f"{names[0]} where {names[1]} is, " if kind == "box-two-classes" else f"{names[0]} "
        return f"{classes}{table.row('annotations', row)['bbox']}, like annotations[{other}]"

    if len(later):
        like = dict(zip(later.tolist(), earlier.tolist(), strict=True))
        iou = dict(zip(later.tolist(), box_iou(table.boxes[later], table.boxes[earlier]).tolist(), strict=True))
        messages = {row: describe(row, other) for row, other in like.items()}
        yield from_messages(kind, "annotations", messages, badness=iou, like=like)


def close_pairs(boxes: Floats, image: Ints) -> tuple[Ints, Ints]:
    """Return the positions of each two boxes of one image whose IoU is at least SAME_IOU.

    The boxes are sorted by their left edges. Step k compares every box with the k-th after it, until all left edges are
    too far apart for the IoU.
    """
    order = np.lexsort((boxes[:, 0], image))
    boxes, image = boxes[order], image[order]
    last_left = boxes[:, 0] + (1 - SAME_IOU) * (boxes[:, 2] - boxes[:, 0])
    chunks, first = [np.zeros((0, 2), np.int64)], np.arange(len(boxes))
    for step in range(1, _MOST_NEIGHBORS):
        # A box leaves the sweep when the next one is of another image or too far right: so are all behind that one.
        first = first[first + step < len(boxes)]
        first = first[(image[first + step] == image[first]) & (boxes[first + step, 0] <= last_left[first])]
        if not len(first):
            break
        close = first[box_iou(boxes[first], boxes[first + step]) >= SAME_IOU]
        chunks.append(order[np.stack([close, close + step], axis=1)])
    pairs = np.concatenate(chunks)
    return pairs[:, 0], pairs[:, 1]


def _unusual(table: Table, rows: Ints) -> Iterator[Findings]:
    sides = table.boxes[rows, 2:] - table.boxes[rows, :2]
    pixels = table.sizes[table.image_index[rows]].prod(axis=1)
    area, aspect = sides.prod(axis=1) / pixels, sides[:, 0] / sides[:, 1]
    messages, badness = dict[int, str](), dict[int, float]()
    for number, name in table.categories.items():
        of_class = np.flatnonzero(table.category_ids[rows] == number)
        if len(of_class) < FEWEST_FOR_USUAL:
            continue
        for describe, values in ((_describe_area, area), (_describe_aspect, aspect)):
            usual, distance = float(np.median(values[of_class])), _distances(values[of_class])
            far = np.flatnonzero(distance > UNUSUAL).tolist()
            for n, how_far in zip(of_class[far].tolist(), distance[far].tolist(), strict=True):
                row = int(rows[n])
                text = describe(float(values[n]), usual, float(pixels[n]), shown(name))
                messages[row] = f"{sides[n, 0]:.4g} x {sides[n, 1]:.4g} pixels{text}"
                badness[row] = max(how_far, badness.get(row, 0.0))
    if messages:
        yield from_messages("box-unusual", "annotations", messages, badness=badness)


def _describe_area(_: float, usual: float, pixels: float, name: str) -> str:
    """Name the usual area, a fraction of an image, in an image of this many `pixels`."""
    side = math.sqrt(usual * pixels)
    return f"; usual for {name} is the area of {side:.3g} x {side:.3g}, in an image of this size"


def _describe_aspect(aspect: float, usual: float, _: float, name: str) -> str:
    return f", {_shape(aspect)}; usual for {name} is {_shape(usual)}"


def _shape(aspect: float) -> str:
    """Describe a ratio of width to height."""
    if abs(math.log(aspect)) < math.log(1.15):
        return "about square"
    return f"{aspect:.3g} times as wide as high" if aspect >= 1 else f"{1 / aspect:.3g} times as high as wide"


def _distances(values: Floats) -> Floats:
    """Return (n,) the distances from the median, in robust standard deviations of the logarithms."""
    logarithms = np.log(values)
    distance = np.abs(logarithms - np.median(logarithms))
    # 1.4826 medians of the distance are a standard deviation, of numbers that are normally distributed
    spread = max(1.4826 * float(np.median(distance)), _LEAST_SPREAD)
    return np.asarray(distance / spread)


def _no_object(table: Table, number: int, *, alone: bool) -> str:
    """Return the message about a class without objects; Roboflow writes one above the others, with the id 0.

    alone: no other split was given, which may have objects of it: a class must then stay in all.
    """
    name = table.categories[number]
    dropped = option("drop_classes", shlex.quote(name), python=repr([name]), command="drop-class")
    without = f"{dropped} with {option('clean', 'FILE')} leaves it out"
    if not alone:
        return f"{shown(name)}; if it is not a class of yours, {without}"
    against = option("against", "OTHER.json", python='["OTHER.json"]')
    return f"{shown(name)}; if another split has objects of it, it must stay: {against} tells; if none has, {without}"


def _elsewhere(name: str, others: Sequence[Table]) -> str:
    """Return the message about a class without objects that another split has objects of; "" if none has."""
    for other in others:
        numbers = [number for number, text in other.categories.items() if text == name]
        if count := sum(class_counts(other)[number] for number in numbers):
            return f"{shown(name)}; {other.path} has {counted(count, 'object')} of it"
    return ""


def _classes(table: Table, others: Sequence[Table]) -> Iterator[Findings]:
    counts = class_counts(table)
    ids = [table.row("categories", index).get("id") for index in range(len(table.coco.document["categories"]))]
    positions = {number: index for index, number in enumerate(ids) if type(number) is int}
    unused = [number for number, count in counts.items() if not count]
    elsewhere = {positions[number]: text for number in unused if (text := _elsewhere(table.categories[number], others))}
    if elsewhere:
        yield from_messages("class-elsewhere", "categories", elsewhere)
    empty = {
        positions[number]: _no_object(table, number, alone=not others)
        for number in unused
        if positions[number] not in elsewhere
    }
    if empty:
        yield from_messages("class-empty", "categories", empty)
    if similar := _similar(table, counts, positions):
        yield from_messages("category-similar", "categories", similar)
    least, most = (pick(((count, n) for n, count in counts.items() if count)) for pick in (min, max))
    if most[0] > IMBALANCE * least[0]:
        names = [f"{shown(table.categories[number])} has {count:,}" for count, number in (most, least)]
        yield about_json("class-imbalance", f"{' objects, '.join(names)}")
