"""Arguments of ops and presets: wrong ones, NumPy's numbers, lists, booleans, and equal arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder

import detaug as da
from detaug.arguments import is_number, is_numbers, is_whole, is_wholes, to_python
from detaug.recipes.recipe_file import library

FLIPS = (da.RandomHorizontalFlip(p=0.25), da.RandomVerticalFlip(p=1.0))
EXAMPLES = [
    da.CLAHE(3.0, (4, 8), 0.5),
    da.CenterCrop((20, 30)),
    da.CenterCrop(20),
    da.ChannelDropout((1, 2), 4.0, 0.25),
    da.ColorJitter(0.5, (0.5, 2.0), 0.25, (-0.25, 0.5), 0.5),
    da.CopyPaste(0.5, 2, 0.25, 0.75),
    da.CutMix(0.5, 2.0, 0.25, 0.75),
    da.Defocus((0.5, 1.5), 0.25),
    da.Downscale((0.25, 0.5), 0.25),
    da.ElasticTransform(40.0, 4.0, (1.0, 2.0, 3.0), 0.25),
    da.GaussianBlur(5, (0.5, 1.5), 0.5),
    da.GaussianNoise(0.125, 0.5, 0.5),
    da.GridMask(0.5, 0.25, (20, 30), (1.0, 2.0, 3.0), 0.5),
    da.JPEG((10, 20), 0.5),
    da.MedianBlur(5, 0.25),
    da.MixUp(0.5, 2.0),
    da.Mosaic(0.5, (0.25, 0.5), 0.5, 3),
    da.MotionBlur((3, 5), 0.25),
    da.Normalize((0.5, 0.25, 0.125), (0.5, 0.25, 0.125)),
    da.OpticalDistortion((-0.125, 0.25), (1.0, 2.0, 3.0), 0.25),
    da.Pad((1, 2, 3, 4), (1.0, 2.0, 3.0)),
    da.Pad(3),
    da.PadToMultiple(32, (1.0, 2.0, 3.0)),
    da.RandAugment(3, 5, 11, (1.0, 2.0, 3.0)),
    da.RandomAdjustSharpness(2.0, 0.5),
    da.RandomAffine(10.0, (0.25, 0.5), (0.5, 1.5), (-5.0, 5.0, -2.0, 2.0), 0.5, (1.0, 2.0, 3.0)),
    da.RandomAffine((-10.0, 5.0), shear=5.0),
    da.RandomApply(FLIPS, 0.25),
    da.RandomAutocontrast(0.25),
    da.RandomBoxSafeCrop(0.25),
    da.RandomChannelPermutation(0.25),
    da.RandomChoice(FLIPS, (1.0, 3.0)),
    da.RandomCrop((20, 30), 0.5, (1.0, 2.0, 3.0)),
    da.RandomEqualize(0.25),
    da.RandomErasing(0.5, (0.25, 0.5), (0.5, 2.0), (1.0, 2.0, 3.0), 0.5),
    da.RandomFog((0.25, 0.5), 0.125, 0.25),
    da.RandomGamma((0.5, 1.5), 0.25),
    da.RandomGrayscale(0.25),
    da.RandomHSV(0.25, 0.5, 0.125, 0.5),
    da.RandomHorizontalFlip(0.25),
    da.RandomInvert(0.25),
    da.RandomIoUCrop((0.25, 0.5), (0.5, 1.0), (0.5, 2.0), 20, 0.25, True, 0.5),
    da.RandomOrder(FLIPS),
    da.RandomPerspective(0.25, 0.5, (1.0, 2.0, 3.0)),
    da.RandomPhotometricDistort((0.5, 1.5), (0.5, 1.5), (0.5, 1.5), (-0.25, 0.25), 0.25, False),
    da.RandomPosterize(4, 0.25),
    da.RandomResizedCrop((20, 30), (0.25, 0.5), (0.5, 2.0)),
    da.RandomRotate90(0.25),
    da.RandomRotation((-10.0, 20.0), 0.5, True, (1.0, 2.0, 3.0)),
    da.RandomRain((-5.0, 5.0), 20, 2, (1.0, 2.0, 3.0), 5, 0.5, 0.25, 0.125),
    da.RandomShadow((0.0, 0.25, 0.5, 1.0), (1, 3), 4, (0.25, 0.5), 0.25),
    da.RandomShortestSize((20, 30), 50),
    da.RandomSizeCrop(20, 30, (25, 35), True, 0.25),
    da.RandomSolarize(128.0, 0.25),
    da.RandomVerticalFlip(0.25),
    da.RandomZoomOut(3.0, 0.25, (1.0, 2.0, 3.0)),
    da.Resize((20, 30), fill=(1.0, 2.0, 3.0)),
    da.Resize(((20, 30), (40, 50))),
    da.Resize(20, max_size=30),
    da.SaltAndPepperNoise((0.25, 0.5), 0.25),
    da.SanitizeBoundingBoxes(2.0, 3.0, 0.25, 4.0),
    da.ScaleJitter((20, 30), (0.5, 2.0), (1.0, 2.0, 3.0), 0.5),
    da.TrivialAugmentWide(11, (1.0, 2.0, 3.0)),
]
"""Ops with all their arguments. An op that is not here is tested with its defaults, below."""

EXAMPLES += [op() for op in library().values() if op not in map(type, EXAMPLES)]

Convert = Callable[[Any], Any]


def arguments(op: da.Op) -> dict[str, Any]:
    return {field.name: getattr(op, field.name) for field in fields(op)}  # type: ignore[arg-type]


def converted(value: Any, convert: Convert) -> Any:
    """The value with its numbers and booleans converted, at any depth, and its tuples as lists."""
    if isinstance(value, tuple):
        return [converted(each, convert) for each in value]
    return convert(value) if isinstance(value, int | float) else value


def as_numpy(value: Any) -> Any:
    """The smallest type of NumPy that has this value: they are of several."""
    return np.min_scalar_type(value).type(value)


def with_one_boolean(value: Any) -> Iterator[Any]:
    """Copies of the value in each of which one number is True."""
    if isinstance(value, tuple):
        for at, each in enumerate(value):
            yield from ((*value[:at], other, *value[at + 1 :]) for other in with_one_boolean(each))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield True


@pytest.mark.parametrize("op", EXAMPLES, ids=repr)
def test_numpys_numbers_are_stored_as_pythons(op: da.Op, tmp_path: Path) -> None:
    made = type(op)(**{name: converted(value, as_numpy) for name, value in arguments(op).items()})
    assert made == op
    assert repr(made) == repr(op)
    da.save_recipe([made], tmp_path / "numpy.yaml")
    da.save_recipe([op], tmp_path / "python.yaml")
    assert (tmp_path / "numpy.yaml").read_text() == (tmp_path / "python.yaml").read_text()
    assert da.load_recipe(tmp_path / "numpy.yaml") == [op]


@pytest.mark.parametrize("op", EXAMPLES, ids=repr)
def test_booleans_are_not_numbers(op: da.Op) -> None:
    """An error names the argument; it may also name another one that no longer fits."""
    for name, value in arguments(op).items():
        for wrong in with_one_boolean(value):
            with pytest.raises(ValueError, match=r"^\w+ must be .*, got .*True"):
                type(op)(**{**arguments(op), name: wrong})


def equal_numbers(value: Any) -> Iterator[Any]:
    """Copies of an argument that are equal to it, in each of which one number is of another type."""
    if isinstance(value, tuple):
        yield list(value)
        for at, each in enumerate(value):
            yield from ((*value[:at], other, *value[at + 1 :]) for other in equal_numbers(each))
    elif isinstance(value, bool):
        yield np.bool_(value)
    elif isinstance(value, float) and value.is_integer():
        yield int(value)
        yield np.int64(value)
        if not value:
            yield -0.0


@pytest.mark.parametrize("op", EXAMPLES, ids=repr)
def test_equal_ops_have_one_repr(op: da.Op) -> None:
    for name, value in arguments(op).items():
        for other in equal_numbers(value):
            made = type(op)(**{**arguments(op), name: other})
            assert made == op
            assert repr(made) == repr(op)


@dataclass(frozen=True)
class Own(da.PixelOp):
    """An op of a user, which checks nothing."""

    share: float = 0.5
    count: int = 2
    on: bool = True
    table: dict[str, float] | None = None
    several: int | float = 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Own(share=1), Own(share=1.0)),
        (Own(share=True), Own(share=1)),  # type: ignore[arg-type]
        (Own(share=0.0), Own(share=-0.0)),
        (Own(count=3.0), Own(count=3)),  # type: ignore[arg-type]
        (Own(on=1), Own(on=True)),  # type: ignore[arg-type]
        (Own(table={"b": 1, "a": 2}), Own(table={"a": 2.0, "b": 1.0})),
        (Own(share=np.float32(1)), Own(share=1)),
    ],
    ids=repr,
)
def test_equal_ops_of_a_user_have_one_repr(one: Own, other: Own) -> None:
    assert one == other
    assert repr(one) == repr(other)


def test_numbers_that_the_type_does_not_have_stay() -> None:
    assert repr(Own(count=2.5)) == "Own(share=0.5, count=2.5, on=True, table=None, several=1)"  # type: ignore[arg-type]
    assert Own(share=10**400).share == 10**400
    assert Own(several=2).several == 2 != Own(several=2.5).several
    assert type(Own(several=2).several) is int


@pytest.mark.parametrize("saved", [1, 1.0, np.float32(1)])
@pytest.mark.parametrize("here", [1, 1.0, np.int8(1)])
def test_a_state_is_valid_for_an_equal_recipe(painted: Folder, saved: Any, here: Any) -> None:
    reader = da.CocoReader(*painted)

    def loader(p: Any) -> da.Loader:
        return da.Loader(reader, [da.RandomHorizontalFlip(p), da.Resize((16, 16))], 2, device="cpu", seed=3)

    loader(here).load_state_dict(loader(saved).state_dict())


def test_presets_take_numpys_numbers() -> None:
    mean, std = np.full(3, 0.5), np.full(3, 0.25, np.float32)
    for make in (da.presets.ssd300, da.presets.retinanet, da.presets.yolo640):
        assert repr(make(tuple(mean), tuple(std))) == repr(make((0.5,) * 3, (0.25,) * 3))
    evaluation = da.presets.evaluation(np.int64(300), max_size=np.int32(500))
    assert repr(evaluation) == repr(da.presets.evaluation(300, max_size=500))
    assert repr(da.presets.yolo640(until_epoch=np.int64(3))) == repr(da.presets.yolo640(until_epoch=3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_normalize_takes_torchs_dtypes(dtype: Any) -> None:
    assert repr(da.Normalize(dtype=getattr(torch, dtype))) == repr(da.Normalize(dtype=dtype))


@pytest.mark.parametrize(
    ("given", "name"), [(torch.contiguous_format, "contiguous"), (torch.channels_last, "channels_last")]
)
def test_normalize_takes_torchs_memory_formats(given: torch.memory_format, name: Any) -> None:
    assert repr(da.Normalize(memory_format=given)) == repr(da.Normalize(memory_format=name))


@pytest.mark.parametrize(
    ("value", "number", "whole"),
    [
        (3, True, True),
        (np.uint8(3), True, True),
        (10**400, True, True),
        (3.0, True, False),
        (np.float16(3), True, False),
        (True, False, False),
        (np.True_, False, False),
        (float("nan"), False, False),
        (float("inf"), False, False),
        ("3", False, False),
        (None, False, False),
        (np.timedelta64(3, "s"), False, False),
        (np.array([3]), False, False),
    ],
    ids=repr,
)
def test_what_is_a_number(value: Any, number: bool, whole: bool) -> None:
    assert (is_number(value), is_whole(value)) == (number, whole)
    assert (is_numbers([value]), is_wholes((value,))) == (number, whole)


def test_bounds_and_counts() -> None:
    assert is_number(0.5, 0, 1)
    assert not is_number(1.5, 0, 1)
    assert is_whole(4, 4, 4)
    assert not is_whole(3, 4)
    assert is_numbers([1, 2], 2)
    assert not is_numbers([1, 2], 3)
    assert not is_numbers(())
    assert not is_wholes([1, 0], 2, low=1)


def test_numbers_become_pythons_at_any_depth() -> None:
    found = to_python([np.float32(0.5), (np.int8(2), [np.True_]), "text", None])
    assert repr(found) == "(0.5, (2, (True,)), 'text', None)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.RandomHorizontalFlip(p=1.5), "p must be a probability in 0..1, got 1.5"),
        (lambda: da.RandomVerticalFlip(p=-1), "p must be a probability"),
        (lambda: da.RandomZoomOut(max_ratio=0.5), "max_ratio must be at least 1"),
        (lambda: da.RandomZoomOut(fill=(0, 0, "x")), "fill must be three numbers"),
        (lambda: da.RandomIoUCrop(thresholds=()), "thresholds must be one or more IoUs"),
        (lambda: da.RandomIoUCrop(scaling=(0.9, 0.3)), "scaling must be"),
        (lambda: da.RandomIoUCrop(min_visibility=2), "min_visibility must be"),
        (lambda: da.RandomIoUCrop(attempts=0), "attempts must be a whole number of at least 1"),
        (lambda: da.Resize((0, 300)), "size must be"),
        (lambda: da.Resize((300,)), "size must be"),
        (lambda: da.Resize(True), "size must be"),
        (lambda: da.Normalize(0.5), "mean must be"),
        (lambda: da.Normalize(mean=(123, 117, 104)), r"mean must be .* in 0\.\.1: .* divide both by 255"),
        (lambda: da.Normalize(mean=(-0.1, 0, 0)), r"mean must be three numbers in 0\.\.1"),
        (lambda: da.Normalize((0.5,) * 3, (58.4, 57.1, 57.4)), r"std must be .* at most 1: .* divide both by 255"),
        (lambda: da.RandomZoomOut(fill=0), "fill must be"),
        (lambda: da.RandomZoomOut(max_ratio=float("inf")), "max_ratio must be"),
        (lambda: da.Resize((300, 300), max_size=400), "max_size must be left out"),
        (lambda: da.Resize(300, max_size=200), "max_size must be at least size"),
        (lambda: da.Normalize(std=(0, 1, 1)), "std must be three numbers above 0"),
        (lambda: da.RandomPhotometricDistort(hue=(-1, 1)), "hue must be"),
        (lambda: da.RandomIoUCrop(p=2), "p must be a probability in 0..1, got 2"),
        (lambda: da.ScaleJitter((9, 9), p=2), "p must be a probability in 0..1, got 2"),
        (lambda: da.RandomRotate90(p=3), "p must be a probability in 0..1, got 3"),
        (lambda: da.RandomRotation("x"), "degrees must be"),
        (lambda: da.RandomRotation((9, 1)), "degrees must be"),
        (lambda: da.RandomRotation(9, rotate_method="round"), "rotate_method must be 'box' or 'ellipse', got 'round'"),
        (lambda: da.RandomRotation(9, fill=0), "fill must be three numbers"),
        (lambda: da.RandomAffine(translate=(2, 0)), "translate must be two fractions"),
        (lambda: da.RandomAffine(translate=0.1), "translate must be two fractions"),
        (lambda: da.RandomAffine(scale=(0, 1)), "scale must be above 0"),
        (lambda: da.RandomAffine(shear=(1, 2, 3)), "shear must be one, two or four angles"),
        (lambda: da.RandomAffine(shear=90), "shear must be one, two or four angles"),
        (lambda: da.RandomPerspective(1.0), "distortion_scale must be at least 0 and below 1"),
        (lambda: da.Pad(-1), "padding must be"),
        (lambda: da.Pad((1, 2, 3)), "padding must be"),
        (lambda: da.PadToMultiple(0), "multiple must be a whole number from 1"),
        (lambda: da.CenterCrop(1.5), "size must be"),
        (lambda: da.RandomCrop((3, 0)), "size must be"),
        (lambda: da.RandomBoxSafeCrop(p="a"), "p must be"),
        (lambda: da.ScaleJitter(300), "size must be"),
        (lambda: da.ScaleJitter((300, 300), scale=(0, 1)), "scale must be"),
        (lambda: da.RandomSizeCrop(0), "min_size must be a whole number of pixels from 1, got 0"),
        (lambda: da.RandomSizeCrop(400, 399), r"max_size must be at least min_size \(400\), got 399"),
        (lambda: da.RandomSizeCrop(shortest_size=()), "shortest_size must be None, or"),
        (lambda: da.RandomSizeCrop(shortest_size=500), "shortest_size must be None, or"),
        (lambda: da.RandomSizeCrop(square=1), "square must be True or False, got 1"),
        (lambda: da.Resize(()), "size must be"),
        (lambda: da.Resize([(3, 4), 5]), "size must be"),
        (lambda: da.Resize((3, 4), letterbox="left"), "letterbox must be None, 'center' or 'top-left', got 'left'"),
        (lambda: da.Resize(3, letterbox="center"), "letterbox must be left out"),
        (lambda: da.RandomShortestSize(()), "min_size must be"),
        (lambda: da.RandomResizedCrop((5, 9, 9)), "size must be"),
        (lambda: da.RandomResizedCrop(5, scale=(0, 1)), "scale must be above 0"),
        (lambda: da.RandomResizedCrop(5, scale=(1, 0.5)), "scale must be"),
        (lambda: da.RandomResizedCrop(5, ratio=(0, 1)), "ratio must be"),
        (lambda: da.RandomShortestSize((5, 9), max_size=8), "max_size must be at least the largest"),
        (lambda: da.RandomIoUCrop(attempts=1.5), "attempts must be a whole number"),
        (lambda: da.RandomIoUCrop(min_visibility="half"), "min_visibility must be None"),
        (lambda: da.RandomZoomOut(max_ratio="2"), "max_ratio must be at least 1"),
        (lambda: da.RandomPerspective("much"), "distortion_scale must be at least 0"),
        (lambda: da.RandomAffine(shear="x"), "shear must be one, two or four angles"),
        (lambda: da.ScaleJitter((300, 300), scale=0.5), "scale must be"),
        (lambda: da.Resize(300, max_size="400"), "max_size must be at least size"),
        (lambda: da.RandomShortestSize((5, 9), max_size=9.5), "max_size must be at least the largest"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Callable[[], da.Op], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
