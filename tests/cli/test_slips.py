"""Slips of new users: one sentence each that names the right way."""

from __future__ import annotations

import inspect
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from places import REPOSITORY
from reference import import_torchvision

import detaug as da
from detaug.converters import ConversionError

GRAY = np.full((40, 50, 3), 100, np.uint8)
BOX = [[1, 2, 30, 20]]


def names_of_others() -> Iterator[tuple[str, str]]:
    """Yield (a class of another library, the name beside it in the table of docs/ops.md)."""
    for line in REPOSITORY.joinpath("docs/ops.md").read_text().splitlines():
        ours, *others = line.strip("| ").split(" | ")
        if found := re.match(r"`(\w+)", ours):
            yield from ((name, found[1]) for cell in others[:3] for name in re.findall(r"`([A-Z]\w+)", cell))


@pytest.mark.parametrize("name", sorted({name for name, _ in names_of_others()} - {*da.__all__, "DistributedSampler"}))
def test_names_of_other_libraries_lead_to_ours(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^detaug has no {name}: use da\.") as caught:
        getattr(da, name)
    used = re.findall(r"da\.(\w+)", str(caught.value))[0]
    assert used in {ours for other, ours in names_of_others() if other == name}
    assert hasattr(da, used)


WITHOUT_COUNTERPART = {
    "AutoAugmentPolicy", "ClampKeyPoints", "ConvertBoundingBoxFormat", "FiveCrop", "Identity", "InterpolationMode",
    "Lambda", "LinearTransformation", "RGB", "SanitizeKeyPoints", "SetClampingMode", "TenCrop", "ToPILImage",
    "Transform", "UniformTemporalSubsample",
}  # fmt: skip


def test_torchvisions_ops_lead_to_ours() -> None:
    import_torchvision()
    v2 = import_module("torchvision.transforms.v2")
    names = {name for name, each in vars(v2).items() if inspect.isclass(each)} - {*da.__all__}
    for name in sorted(names - WITHOUT_COUNTERPART):
        with pytest.raises(AttributeError, match=rf"^detaug has no {name}: use da\.") as caught:
            getattr(da, name)
        assert hasattr(da, re.findall(r"da\.(\w+)", str(caught.value))[0])


@pytest.mark.parametrize("name", ["GlassBlur", "AdvancedBlur"])
def test_blurs_that_are_not_here_lead_to_the_nearest(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^detaug has no {name}: use da\.GaussianBlur"):
        getattr(da, name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("HorizontalFlip", "RandomHorizontalFlip"),
        ("ToTensor", "Normalize"),
        ("LetterBox", "Resize((H, W), letterbox='center')"),
    ],
)
def test_what_a_name_of_another_library_is_here(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"use da.{ours}")):
        getattr(da, name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("RandomHorizontalFlop", "RandomHorizontalFlip"), ("cocoreader", "CocoReader"), ("MixUP", "MixUp")],
)
def test_misspelt_names_lead_to_the_right_ones(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; is it da\.{ours}\?"):
        getattr(da, name)


def test_a_name_like_no_other_has_no_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"^module 'detaug' has no attribute 'zebra'$"):
        _ = da.zebra  # type: ignore[attr-defined]
    assert not hasattr(da, "__wrapped__")


def batch(**arguments: Any) -> da.Samples:
    return da.batch([GRAY], **{"boxes": [BOX], **arguments})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: da.Resize(300, 400), TypeError, r"one argument: Resize\(\(300, 400\)\), not Resize\(300, 400\)$"),
        (lambda: da.RandomVerticalFlip(0.5, 1), TypeError, r"^RandomVerticalFlip\.__init__\(\) takes"),
        (lambda: batch(labels=[["cat"]]), da.InputError, r"labels\[0\] must be whole numbers from 1: .*got \['cat'\]"),
        (lambda: batch(labels=["cat"]), da.InputError, r"labels\[0\] must be whole numbers from 1"),
        (lambda: batch(labels=[[1.5]]), da.InputError, r"labels\[0\] must be whole numbers from 1: .*got \[1.5\]"),
        (lambda: batch(labels=[[float("inf")]]), da.InputError, r"labels\[0\] must be whole numbers from 1"),
        (lambda: batch(labels=[[True]]), da.InputError, r"labels\[0\] must be whole numbers from 1"),
        (lambda: batch(labels=[[0]]), da.InputError, r"labels\[0\] must be whole numbers from 1"),
        (
            lambda: batch(boxes=[["a", "b"]]),
            da.InputError,
            r"boxes\[0\] must be \(M, 4\) XYXY pixels, got \['a', 'b'\]",
        ),
        (lambda: batch(boxes=[[[1, 2, 3, 4], [1, 2]]]), da.InputError, r"boxes\[0\] must be \(M, 4\) XYXY pixels"),
        (lambda: batch(seed=-1), da.InputError, r"seed must be a whole number of at least 0: .*got -1"),
        (lambda: batch(seed=None), da.InputError, r"seed must be a whole number of at least 0: .*got None"),
        (lambda: batch(seed=1.5), da.InputError, r"seed must be a whole number of at least 0: .*got 1.5"),
    ],
)
def test_a_slip_is_one_sentence_that_names_the_right_way(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_any_type_are_labels_and_seeds() -> None:
    for labels in ([[2]], [np.array([2.0])], [np.array([2], np.uint8)], np.array([[2]])):
        assert batch(labels=labels, seed=np.int64(3)).labels[0].tolist() == [2]
    assert da.batch([GRAY], [[]], [[]]).labels[0].tolist() == []


@pytest.mark.parametrize("name", [name for name in da.__all__ if name.endswith("Error")])
def test_a_traceback_shows_the_public_name_of_an_error(name: str) -> None:
    """Also of one that came through pickle, as from another process."""
    error = pickle.loads(pickle.dumps(getattr(da, name)("what to do")))
    assert type(error) is getattr(da, name)
    assert traceback.format_exception_only(error) == [f"detaug.{name}: what to do\n"]


def test_a_traceback_shows_the_public_name_of_a_conversion_error() -> None:
    error = pickle.loads(pickle.dumps(ConversionError("what to do")))
    assert traceback.format_exception_only(error) == ["detaug.converters.ConversionError: what to do\n"]
