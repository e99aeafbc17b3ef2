"""da.fn's single ops against DALI's own pairs: equal where DALI's are right, and exact where they are off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import load_script
from dali_pipelines import Samples, given, make, outputs
from nvidia.dali import fn, types
from painted import BLACK
from PIL import Image, ImageFilter
from seeds import slow

import detaug as da
from detaug.testing import paint

SIZES = [(60, 80), (64, 64), (100, 50), (41, 83)]


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load_script("dali_pairs")


def photos(n: int = 4) -> tuple[Samples, Samples, Samples]:
    """Return images of blurred noise, three relative boxes each, and labels."""
    rng = np.random.default_rng(3)
    noise = [rng.integers(0, 256, (*SIZES[at % 4], 3), np.uint8) for at in range(n)]
    images = [np.array(Image.fromarray(each).filter(ImageFilter.GaussianBlur(2))) for each in noise]
    start, sides = rng.random((n, 3, 2)) * 0.7, 0.05 + rng.random((n, 3, 2)) * 0.24
    boxes = list(np.concatenate([start, start + sides], 2).astype(np.float32))
    return images, boxes, [np.array([3, 0, 7])] * n


def run(nodes: Callable[..., Any], samples: tuple[Samples, Samples, Samples], device: str = "cpu") -> list[Samples]:
    def graph() -> Any:
        images, *others = map(given, samples)
        return nodes(images.gpu() if device == "cuda" else images, *others)

    return outputs(make(graph, len(samples[0]), device))


def assert_equal(ours: list[Samples], theirs: list[Samples], level: int = 0) -> None:
    """`level`: by how much pixels may differ."""
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert one.shape == other.shape
        assert np.abs(one.astype(int) - other).max() <= level
    for one, other in zip(ours[1], theirs[1], strict=True):
        assert np.abs(one - other).max(initial=0) < 1e-6
    assert [each.tolist() for each in ours[2]] == [each.tolist() for each in theirs[2]]


@pytest.mark.parametrize("horizontal", [0, 1])
@pytest.mark.parametrize("vertical", [0, 1])
def test_flip(horizontal: int, vertical: int, device: str) -> None:
    def dalis(images: Any, boxes: Any, labels: Any) -> Any:
        how = {"horizontal": horizontal, "vertical": vertical}
        return fn.flip(images, **how), fn.bb_flip(boxes, ltrb=True, **how), labels

    def ours(images: Any, boxes: Any, labels: Any) -> Any:
        return da.fn.flip(images, boxes, labels, horizontal=float(horizontal), vertical=float(vertical))

    assert_equal(run(ours, photos(), device), run(dalis, photos(), device))


@pytest.mark.parametrize("size", [(32, 40), (128, 100)])
def test_resize(size: tuple[int, int], device: str) -> None:
    """DALI's own resize is right about boxes: relative ones stay."""

    def dalis(images: Any, boxes: Any, labels: Any) -> Any:
        return fn.resize(images, size=size), boxes, labels

    ours = run(lambda *nodes: da.fn.resize(*nodes, size), photos(), device)
    assert_equal(ours, run(dalis, photos(), device), level=2)


@pytest.mark.parametrize(("size", "mode", "limit"), [(32, "not_smaller", None), (32, "not_smaller", 40)])
def test_resize_of_the_shorter_side(size: int, mode: str, limit: int | None, device: str) -> None:
    def dalis(images: Any, boxes: Any, labels: Any) -> Any:
        limits = {} if limit is None else {"max_size": limit}
        return fn.resize(images, size=[size, size], mode=mode, **limits), boxes, labels

    ours = run(lambda *nodes: da.fn.resize(*nodes, size, max_size=limit), photos(), device)
    theirs = run(dalis, photos(), device)
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert np.abs(np.subtract(one.shape, other.shape)).max() <= 1  # the longer side may be rounded otherwise


@dataclass(frozen=True)
class _FixedZoomOut(da.RandomZoomOut):
    """Puts each image on a canvas 1.5 times as large, a quarter of the free space from the left, all from the top."""

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        return {"ratio": np.full(n, 1.5), "offset": np.tile([0.25, 1.0], (n, 1))}


def test_paste_where_dalis_is_right(device: str) -> None:
    """On canvases and at places of whole pixels."""
    images, boxes, labels = photos(8)
    whole = [np.ascontiguousarray(image[:40, :48]) for image in images]  # 60 x 72; 6 and 20 pixels from the corner

    def dalis(image: Any, box: Any, label: Any) -> Any:
        where = {"ratio": 1.5, "paste_x": 0.25, "paste_y": 1.0}
        return fn.paste(image, fill_value=[5, 6, 7], **where), fn.bbox_paste(box, ltrb=True, **where), label

    def ours(image: Any, box: Any, label: Any) -> Any:
        image, box, label = da.fn.augment(image, box, label, [_FixedZoomOut(fill=(5.0, 6.0, 7.0))])
        return image, box / [72.0, 60.0, 72.0, 60.0], label

    samples = whole, boxes, labels
    assert_equal(run(ours, samples, device), run(dalis, samples, device))


@pytest.mark.parametrize("units", ["relative", "pixels"])
def test_single_ops_are_the_ops_of_a_recipe(units: str, device: str) -> None:
    """The same draws, pixels and boxes as `augment`, in the units that they came in."""
    images, boxes, labels = photos(16)
    if units == "pixels":
        sizes = [np.tile(image.shape[1::-1], 2) for image in images]
        boxes = [(box * size).astype(np.float32) for box, size in zip(boxes, sizes, strict=True)]
    pairs: list[tuple[Any, Any]] = [
        (
            lambda *n: da.fn.paste(*n, max_ratio=2.0, fill=BLACK, seed=4, units=units),
            [da.RandomZoomOut(2.0, 0.5, BLACK)],
        ),
        (
            lambda *n: da.fn.random_bbox_crop(*n, thresholds=(0.3,), allow_no_crop=False, seed=4, units=units),
            [da.RandomIoUCrop((0.3,), allow_no_crop=False)],
        ),
        (lambda *n: da.fn.flip(*n, seed=4, units=units), [da.RandomHorizontalFlip(0.5), da.RandomVerticalFlip(0.0)]),
        (lambda *n: da.fn.resize(*n, [(20, 30), (40, 40)], seed=4, units=units), [da.Resize([(20, 30), (40, 40)])]),
    ]
    for single, ops in pairs:
        one = run(single, (images, boxes, labels), device)
        other = run(lambda *n, ops=ops: da.fn.augment(*n, ops, seed=4, units=units), (images, boxes, labels), device)
        if units == "relative":
            sizes = [np.tile(image.shape[1::-1], 2) for image in one[0]]
            one[1] = [box * size for box, size in zip(one[1], sizes, strict=True)]
        assert all(map(np.array_equal, one[0], other[0]))
        assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(one[1], other[1], strict=True))
        assert all(map(np.array_equal, one[2], other[2]))


@pytest.mark.slow
def test_crops_are_those_of_dali_in_distribution() -> None:
    """The fraction of images that are not cropped, of the boxes that are left, and the area of windows."""
    n = 1500
    rng = np.random.default_rng(1)
    start, sides = rng.random((n, 3, 2)) * 0.6, 0.1 + rng.random((n, 3, 2)) * 0.29
    boxes = list(np.concatenate([start, start + sides], 2).astype(np.float32))
    samples = [np.zeros((50, 50, 3), np.uint8)] * n, boxes, [np.arange(3, dtype=np.int32)] * n
    settings = {"thresholds": [0.0, 0.1, 0.3, 0.5], "scaling": [0.3, 1.0], "aspect_ratio": [0.5, 2.0]}

    def dalis(images: Any, rows: Any, labels: Any) -> Any:
        anchor, shape, rows, labels = fn.random_bbox_crop(  # type: ignore[misc]
            rows,
            labels,
            bbox_layout="xyXY",
            num_attempts=40,
            total_num_attempts=320,
            quiet=True,
            all_boxes_above_threshold=False,
            seed=5,
            **settings,
        )
        return fn.cat(anchor, shape, axis=0), rows, labels

    def ours(images: Any, rows: Any, labels: Any) -> Any:
        images, rows, labels = da.fn.random_bbox_crop(images, rows, labels, **settings)
        return images.shape(dtype=types.FLOAT) / 50.0, rows, labels

    made, expected = run(ours, samples), run(dalis, samples)
    windows = np.stack(made[0])[:, :2], np.stack(expected[0])[:, 2:]
    for share in (
        lambda sides, left: (sides > 0.99).all(1).mean(),
        lambda sides, left: sides.prod(1).mean(),
        lambda sides, left: sides.prod(1).std(),
        lambda sides, left: np.mean([len(each) for each in left]) / 3,
        lambda sides, left: np.mean([len(each) == 1 for each in left]),
    ):
        assert abs(share(windows[0], made[1]) - share(windows[1], expected[1])) < 0.06
    assert min(len(each) for each in made[1]) > 0


@pytest.mark.parametrize("operation", ["crop", *slow("flip", "paste", "resize", "SSD recipe")])
def test_boxes_lie_on_their_pixels_better_than_dalis(operation: str, program: ModuleType, device: str) -> None:
    """The numbers of benchmarks/dali_pairs.py: ours are the error of reading boxes off the pixels."""
    dalis, *ours = [program.measure(nodes, 32, device) for nodes in program.ROWS[operation].values()]
    resized = operation in ("resize", "SSD recipe")
    for errors in ours:
        assert errors.boxes > 60
        assert errors.worst <= (0.3 if resized else 0.01)
    assert dalis.worst >= {"paste": 1.0, "crop": 0.4, "SSD recipe": 1.0}.get(operation, 0)


def test_errors_name_the_function() -> None:
    images, boxes, labels = photos()
    boxes[1] = np.full((3, 4), np.nan, np.float32)
    for name in ("paste", "random_bbox_crop", "flip", "resize"):
        arguments = [(20, 30)] if name == "resize" else []

        def nodes(*samples: Any, name: str = name, arguments: Any = arguments) -> Any:
            return getattr(da.fn, name)(*samples, *arguments)

        with pytest.raises(RuntimeError, match=rf"da\.fn\.{name}, batch 0: sample 1: boxes must be finite numbers"):
            run(nodes, (images, boxes, labels))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("paste", {"max_ratio": 0.5}, "max_ratio must be at least 1"),
        ("paste", {"p": 2}, "p must be"),
        ("random_bbox_crop", {"thresholds": [2.0]}, "thresholds must be"),
        ("random_bbox_crop", {"scaling": (0.0, 1.0)}, "scaling must be"),
        ("flip", {"horizontal": -1}, "p must be"),
        ("resize", {"size": 0}, "size must be"),
        ("resize", {"size": (20, 30), "units": "px"}, "units must be"),
    ],
)
def test_wrong_arguments(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        run(lambda *nodes: getattr(da.fn, name)(*nodes, **arguments), photos())


def test_painted_rectangles_stay_exact_through_a_chain(device: str) -> None:
    """Single ops one after the other, without a Resize: pixels are copied, boxes stay on them."""
    painted = paint((120, 160), 8, 24, seed=3)
    boxes = [each.astype(np.float32) for each in painted.boxes]

    def chain(*nodes: Any) -> Any:
        nodes = da.fn.paste(*nodes, fill=BLACK, units="pixels", p=1.0)
        nodes = da.fn.random_bbox_crop(*nodes, units="pixels", seed=1)
        return da.fn.flip(*nodes, units="pixels", vertical=0.5)

    samples = painted.images, boxes, [np.arange(3)] * 8
    compared = 0
    for image, after, labels in zip(*run(chain, samples, device), strict=True):
        for (x0, y0, x1, y1), label in zip(after, labels, strict=True):
            rows, columns = np.nonzero(image[..., label])
            assert [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] == pytest.approx(
                [x0, y0, x1, y1], abs=1e-3
            )
            compared += 1
    assert compared > 10
