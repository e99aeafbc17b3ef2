"""RandAugment and TrivialAugmentWide: their draws and each of their ops against torchvision's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from reference import import_torchvision
from seeds import SLOW_ON_GPU, slow

import detaug as da
from detaug.arrays import Arrays
from detaug.ops.auto_augment import OPS, SIGNED
from detaug.testing import assert_boxes_follow_pixels

try:
    import_torchvision()
    from torchvision import tv_tensors
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as tv
except (ImportError, RuntimeError) as error:
    pytest.skip(f"torchvision, the reference, cannot be imported: {error}", allow_module_level=True)

SIZE = (60, 80)
NOISE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
PHOTO = np.asarray(Image.fromarray(NOISE).resize(SIZE[::-1], Image.Resampling.BICUBIC))
BOXES = np.array([[25.0, 22, 50, 38], [60, 5, 75, 55]])
BLACK = (0.0, 0.0, 0.0)
TORCHVISIONS = {da.RandAugment: v2.RandAugment, da.TrivialAugmentWide: v2.TrivialAugmentWide}
N = 20_000


@dataclass(frozen=True)
class Drawn(da.RandAugment):
    """Draws the given ops."""

    ops: tuple[tuple[str, float], ...] = ()

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        op, strength = ([each[part] for each in self.ops] for part in (0, 1))
        return {"op": np.tile([OPS.index(name) for name in op], (n, 1)), "strength": np.tile(strength, (n, 1))}


def drawn(*ops: tuple[str, float]) -> Drawn:
    return Drawn(num_ops=len(ops), fill=BLACK, ops=ops)


def after(*ops: tuple[str, float], device: str = "cpu", photo: np.ndarray = PHOTO) -> da.Samples:
    return da.batch([photo], [BOXES], device=device).then(drawn(*ops), da.Resize(photo.shape[:2]))


def reference(name: str, strength: float, given: Any) -> Any:
    """Return what torchvision's kernel returns, called as RandAugment calls it."""
    policy = v2.RandAugment(interpolation=v2.InterpolationMode.BILINEAR)
    return policy._apply_image_or_video_transform(given, name, strength, policy.interpolation, policy._fill)


def as_tensor(photo: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(photo.copy()).permute(2, 0, 1)


# ------------------------------------------------------------------------------------------------ draws


def strengths(space: Mapping[str, Any], name: str, bins: int) -> np.ndarray:
    found = space[name][0](bins, 300, 400)
    return np.zeros(bins) if found is None else np.asarray(found, np.float64)


@pytest.mark.parametrize("ours", TORCHVISIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("bins", [31, 10])
def test_ops_and_strengths_are_torchvisions(ours: type[da.Op], bins: int) -> None:
    space = TORCHVISIONS[ours]._AUGMENTATION_SPACE
    assert tuple(space) == OPS
    assert tuple(name for name in space if space[name][1]) == SIGNED
    table = ours.largest.strengths(bins)
    for name, row in zip(OPS, table, strict=True):
        side = {"TranslateX": 400, "TranslateY": 300}.get(name, 1) if ours is da.RandAugment else 1
        assert np.abs(row * side - strengths(space, name, bins)).max() < 1e-4


def test_rand_augment_draws_each_op_alike_with_one_strength() -> None:
    found = da.RandAugment(num_ops=3, magnitude=12).draw(np.random.default_rng(0), N)
    assert found["op"].shape == found["strength"].shape == (N, 3)
    counts = np.stack([np.bincount(column, minlength=14) for column in found["op"].T])
    assert np.abs(counts / N - 1 / 14).max() < 4 * np.sqrt(1 / 14 / N)
    for name in OPS:
        values = found["strength"][found["op"] == OPS.index(name)]
        expected = da.RandAugment.largest.strengths(31)[OPS.index(name), 12]
        assert np.allclose(abs(values), expected)
        assert (values < 0).mean() == pytest.approx(0.5 if name in SIGNED else 0, abs=0.05)
    both = np.histogram2d(found["op"][:, 0], found["op"][:, 1], bins=14)[0] / N  # one after the other is independent
    assert np.abs(both - 1 / 14**2).max() < 5 * np.sqrt(1 / 14**2 / N)


def test_trivial_augment_draws_each_strength_alike() -> None:
    found = da.TrivialAugmentWide().draw(np.random.default_rng(0), N)
    assert found["op"].shape == (N, 1)
    assert np.abs(np.bincount(found["op"][:, 0]) / N - 1 / 14).max() < 4 * np.sqrt(1 / 14 / N)
    degrees = found["strength"][found["op"] == OPS.index("Rotate")]
    assert (degrees.min(), degrees.max()) == (-135, 135)
    counts = np.bincount(np.round(abs(degrees) / 4.5).astype(int), minlength=31)
    assert np.abs(counts / len(degrees) - 1 / 31).max() < 5 * np.sqrt(1 / 31 / len(degrees))
    assert degrees.mean() == pytest.approx(0, abs=10)


# -------------------------------------------------------------------------------------------- each op


@pytest.mark.parametrize(
    ("name", "strength", "pixels"),
    [
        ("ShearX", 0.3, 0.3),
        ("ShearX", -0.2, -0.2),
        ("ShearY", 0.25, 0.25),
        ("TranslateX", 0.2, 16),
        ("TranslateX", -0.21, -16.8),
        ("TranslateY", 0.3, 18),
        ("Rotate", 25, 25),
        ("Rotate", -25, -25),
    ],
)
def test_moves_are_torchvisions(name: str, strength: float, pixels: float, device: str) -> None:
    samples = after((name, strength), device=device)
    expected = np.asarray(reference(name, pixels, as_tensor(PHOTO)).permute(1, 2, 0), float)
    inside = np.asarray(reference(name, pixels, torch.full((3, *SIZE), 255, dtype=torch.uint8)).permute(1, 2, 0)) == 255
    assert np.abs(samples.images[0] - expected)[inside].mean() < 1
    boxes = tv_tensors.BoundingBoxes(torch.from_numpy(BOXES), format="XYXY", canvas_size=SIZE)
    kernels = {"Rotate": lambda: tv.rotate(boxes, pixels)}
    kernels["ShearX"] = lambda: tv.affine(boxes, 0.0, [0, 0], 1.0, [np.degrees(np.arctan(pixels)), 0.0], center=[0, 0])
    kernels["ShearY"] = lambda: tv.affine(boxes, 0.0, [0, 0], 1.0, [0.0, np.degrees(np.arctan(pixels))], center=[0, 0])
    kernels["TranslateX"] = lambda: tv.affine(boxes, 0.0, [int(pixels), 0], 1.0, [0.0, 0.0])
    kernels["TranslateY"] = lambda: tv.affine(boxes, 0.0, [0, int(pixels)], 1.0, [0.0, 0.0])
    hulls = np.asarray(kernels[name]())  # of boxes not cut off: ours are smaller where the polygon leaves the view
    uncut = ((hulls[:, :2] > 0) & (hulls[:, 2:] < SIZE[::-1])).all(1)
    assert uncut.any()
    assert np.abs(samples.boxes[0] - hulls)[uncut].max() < 1e-3


@pytest.mark.parametrize(
    ("name", "strength", "most"),
    [
        ("Identity", 0, 0),
        ("Brightness", 0.5, 1),
        ("Brightness", -0.9, 1),
        ("Color", 0.5, 2),
        ("Color", -0.9, 2),
        ("Sharpness", 0.9, 2),
        ("Sharpness", -0.9, 2),
        ("Posterize", 4, 0),
        ("Posterize", 8, 0),
        ("Solarize", 0.7, 0),
        ("Solarize", 0.0, 0),
        ("Solarize", 0.4, 0),  # 102, a value that there is
        ("AutoContrast", 0, 1),
    ],
)
def test_colours_are_torchvisions(name: str, strength: float, most: float, device: str) -> None:
    photo = (PHOTO // 2 + 40).astype(np.uint8)
    (image,) = after((name, strength), device=device, photo=photo).images
    expected = np.asarray(reference(name, strength, as_tensor(photo)).permute(1, 2, 0), float)
    assert image.dtype == np.uint8
    assert np.abs(image - expected).max() <= most


def test_contrast_turns_about_128_and_equalize_is_the_ops(device: str) -> None:
    (image,) = after(("Contrast", 0.5), device=device).images
    assert np.abs(image - ((PHOTO - 128.0) * 1.5 + 128).clip(0, 255)).max() <= 1
    (image,) = after(("Equalize", 0), device=device).images
    plain = da.batch([PHOTO], device=device).then(da.Resize(SIZE), da.RandomEqualize(p=1)).images[0]
    assert np.array_equal(image, plain)


def test_ops_run_in_their_order(device: str) -> None:
    (image,) = after(("Solarize", 0.5), ("Posterize", 2), device=device).images
    first = reference("Posterize", 2, reference("Solarize", 0.5, as_tensor(PHOTO)))
    second = reference("Solarize", 0.5, reference("Posterize", 2, as_tensor(PHOTO)))
    assert np.array_equal(image, first.permute(1, 2, 0))
    assert not torch.equal(first, second)


# --------------------------------------------------------------------------------------- the whole op


class MovesOfRandAugment(da.RandAugment):
    """Without the color ops, after which rectangles cannot be read."""

    color_steps = None


class MovesOfTrivialAugmentWide(da.TrivialAugmentWide):
    color_steps = None


@pytest.mark.parametrize(
    "op",
    [
        MovesOfRandAugment(fill=BLACK),
        *slow(MovesOfRandAugment(4, 20, fill=BLACK), MovesOfTrivialAugmentWide(fill=BLACK)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("pipeline", [True, *slow(False)])
@SLOW_ON_GPU
def test_boxes_follow_pixels(op: da.Op, pipeline: bool, device: str) -> None:
    settings = {"images": 32, "pipeline": pipeline, "device": device}
    assert assert_boxes_follow_pixels([op, da.Resize((200, 220))], **settings) > 80
    ops = [da.RandomHorizontalFlip(), op, da.RandomZoomOut(1.5, fill=BLACK), op, da.Resize((200, 220))]
    assert assert_boxes_follow_pixels(ops, **settings) > 60


@pytest.mark.parametrize("op", [da.RandAugment(), da.TrivialAugmentWide()], ids=repr)
def test_an_image_changes_only_by_the_ops_it_drew(op: da.Op, device: str) -> None:
    """Images that drew nothing are equal bit for bit; those that drew a color op keep their boxes."""
    photo = (PHOTO // 2 + 40).astype(np.uint8)
    samples = da.batch([photo] * 200, [BOXES] * 200, device=device).then(op, da.Resize(SIZE))
    found = samples.params[0]
    still = (found["op"] == 0).all(1)
    moved = ((found["op"] >= 1) & (found["op"] <= 5) & (abs(found["strength"]) > 0)).any(1)
    same = np.array([np.array_equal(image, photo) for image in samples.images])
    assert same[still].all()
    assert 0.02 < same.mean() + (op == da.RandAugment()) < 1.2
    assert not same[(found["op"] == OPS.index("AutoContrast")).any(1)].any()
    assert all(np.array_equal(samples.boxes[at], BOXES) for at in np.flatnonzero(~moved))
    assert 20 < moved.sum() < 180


@pytest.mark.parametrize("size", [(1, 1), (7, 300)])
@pytest.mark.parametrize("after_it", [[], [da.RandomGrayscale(p=0.5), da.Normalize()]])
def test_odd_sizes_in_a_recipe(size: tuple[int, int], after_it: list[da.Op], device: str) -> None:
    photo = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    for op in (da.RandAugment(), da.TrivialAugmentWide()):
        images = da.batch([photo] * 64, device=device).then(op, da.Resize(size), *after_it).images
        assert all(np.isfinite(image).all() for image in images)
        assert {image.shape for image in images} == {(3, *size) if after_it else (*size, 3)}


def test_it_is_refused_in_a_container() -> None:
    with pytest.raises(ValueError, match="ops without a second part after Resize"):
        da.RandomApply([da.RandAugment()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.RandAugment(0), "num_ops must be a whole number of at least 1, got 0"),
        (lambda: da.RandAugment(magnitude=31), r"magnitude must be a whole number in 0\.\.30, got 31"),
        (lambda: da.RandAugment(num_magnitude_bins=1), "num_magnitude_bins must be a whole number of at least 2"),
        (lambda: da.RandAugment(fill=(0, 0, 300)), "fill must be three numbers"),
        (lambda: da.TrivialAugmentWide(0), "num_magnitude_bins must be a whole number of at least 2"),
        (lambda: da.TrivialAugmentWide(fill=0), "fill must be three numbers"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
