"""Ops on images of many bands and of 16 bits or floats, each against a second implementation in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from band_files import EXACT, READING, SIZE, Array, data_set, encode, first, loader_of, values

import detaug as da
from detaug.ops.camera import disc_kernels

FILL = (1.0, 2000.0, 3.0, 60000.0, 5.0, 6.5)


def six_bands(folder: Path, ops: list[da.Op], images: int = 1, seed: int = 0, dtype: str = "uint16") -> Array:
    """Return (N, H, W, 6): a batch of images of six bands, of `values` of seeds 0, 1 and so on."""
    files = {f"{n}.tif": encode(values(6, dtype, seed=n), "tif") for n in range(images)}
    reader = da.CocoReader(*data_set(folder, files), channels=6, dtype=dtype)  # type: ignore[arg-type]
    loader = da.Loader(reader, ops, images, train=False, device="cpu", seed=seed)
    return np.asarray(next(iter(loader)).images.permute(0, 2, 3, 1).numpy())


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_flips_and_whole_crops_keep_every_value(tmp_path: Path, dtype: str) -> None:
    source = values(6, dtype).astype(np.float32)
    flips: list[da.Op] = [da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)]
    flipped = six_bands(tmp_path / "a", [*flips, *EXACT], dtype=dtype)[0]
    np.testing.assert_array_equal(flipped, source[::-1, ::-1])
    crop: list[da.Op] = [da.CenterCrop((21, 31)), da.Resize((21, 31)), da.Normalize(scale=1)]
    np.testing.assert_array_equal(six_bands(tmp_path / "b", crop, dtype=dtype)[0], source[8:29, 11:42])
    padded: list[da.Op] = [da.Pad((4, 2), fill=FILL), da.Resize((41, 61)), da.Normalize(scale=1)]
    image = six_bands(tmp_path / "c", padded, dtype=dtype)[0]
    np.testing.assert_array_equal(image[2:-2, 4:-4], source)
    np.testing.assert_array_equal(image[0, 0], np.float32(FILL))
    turned: list[da.Op] = [da.RandomRotate90(p=1), da.Resize((53, 37)), da.Normalize(scale=1)]
    image = six_bands(tmp_path / "d", turned, dtype=dtype)[0]
    assert any(np.array_equal(image, np.rot90(source, turns)) for turns in (1, 3))
    large = six_bands(tmp_path / "e", [*turned[:1], da.Resize((159, 111)), turned[-1]], dtype=dtype)[0]
    np.testing.assert_array_equal(large[::158, ::110], image[::52, ::36])  # the corners: nothing blends with them


def test_no_data_stays_where_it_is(tmp_path: Path) -> None:
    array = values(1, "float32")
    array[3, 4], array[5, 6] = np.nan, np.inf
    files = {"a.tif": encode(array, "tif")}
    image = first(loader_of(tmp_path, files, [da.RandomHorizontalFlip(p=1), *EXACT], channels=1, dtype="float32"))
    np.testing.assert_array_equal(image, array[:, ::-1])


def linear(length: int, low: float, high: float, output: int) -> Array:
    """Return (output, length): the weights of an antialiased linear resize of a window, in double precision.

    Beyond the pixels that the window touches nothing is seen, as in Pillow with a box.
    """
    scale = (high - low) / output
    support = max(scale, 1.0)
    centers = low + (np.arange(output) + 0.5) * scale
    weights = np.clip(1 - np.abs(np.arange(length) + 0.5 - centers[:, None]) / support, 0, None)
    weights[:, : int(np.floor(low))] = 0
    weights[:, int(np.ceil(high)) :] = 0
    return np.asarray(weights / weights.sum(1, keepdims=True))


@pytest.mark.parametrize("size", [(20, 30), (74, 106), (37, 20)])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_resizing_is_that_of_double_precision(tmp_path: Path, dtype: str, size: tuple[int, int]) -> None:
    image = six_bands(tmp_path, [da.Resize(size), da.Normalize(scale=1)], dtype=dtype)[0]
    down, across = linear(37, 0, 37, size[0]), linear(53, 0, 53, size[1])
    expected = np.einsum("yh,hwc,xw->yxc", down, values(6, dtype).astype(np.float64), across)
    np.testing.assert_allclose(image, expected, rtol=2e-7, atol=1e-3 if dtype == "float32" else 0.02)


def test_windows_between_pixels(tmp_path: Path) -> None:
    files = {"a.tif": encode(values(6, "uint16"), "tif")}
    ops: list[da.Op] = [da.Resize((30, 40)), da.CenterCrop((24, 24)), da.Normalize(scale=1)]
    reader = da.CocoReader(*data_set(tmp_path, files), **READING)
    batch = next(iter(da.Loader(reader, ops, 1, train=False, device="cpu")))
    inverse = np.linalg.inv(np.vstack([batch.matrix[0, :2].double().numpy(), [0, 0, 1]]))
    (left, top), (right, bottom) = (inverse @ [0, 0, 1])[:2], (inverse @ [24, 24, 1])[:2]
    assert left % 1 or top % 1
    down, across = linear(37, top, bottom, 24), linear(53, left, right, 24)
    expected = np.einsum("yh,hwc,xw->yxc", down, values(6, "uint16").astype(np.float64), across)
    image = batch.images[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(image, expected, rtol=1e-5, atol=1)  # the window is float32


def test_turned_pictures_have_all_bands(tmp_path: Path) -> None:
    turn: list[da.Op] = [
        da.RandomAffine(degrees=(20, 20), translate=(0, 0), scale=(1, 1), shear=(0, 0), p=1, fill=FILL),
        da.Resize(SIZE),
        da.Normalize(scale=1),
    ]
    bands = six_bands(tmp_path, turn)[0]
    for band in range(6):  # each band alone, in a dataset of one band
        alone = {"a.tif": encode(values(6, "uint16")[..., band : band + 1], "tif")}
        ops = [da.RandomAffine(**(vars(turn[0]) | {"fill": FILL[band : band + 1]})), *turn[1:]]
        image = first(loader_of(tmp_path / str(band), alone, ops, channels=1, dtype="uint16"))
        np.testing.assert_array_equal(bands[..., band : band + 1], image)
    np.testing.assert_array_equal(bands[0, 0], np.float32(FILL))


def test_normalize_divides_by_scale_and_band(tmp_path: Path) -> None:
    mean, std = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
    source = values(6, "uint16").astype(np.float64)
    image = six_bands(tmp_path / "a", [da.Resize(SIZE), da.Normalize(mean, std)])[0]
    np.testing.assert_allclose(image, (source / 65535 - mean) / std, rtol=1e-5, atol=1e-6)
    image = six_bands(tmp_path / "b", [da.Resize(SIZE), da.Normalize(mean, std, scale=10000)])[0]
    np.testing.assert_allclose(image, (source / 10000 - mean) / std, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(six_bands(tmp_path / "c", [da.Resize(SIZE)])[0], source)  # without it: as in the file


def test_mixing_pastes_whole_values(tmp_path: Path) -> None:
    sources = np.stack([values(6, "uint16", seed=n) for n in range(4)]).astype(np.float32)
    mosaic = six_bands(tmp_path / "a", [da.Resize(SIZE), da.Mosaic(), da.Normalize(scale=1)], images=4)
    known = {tuple(pixel) for pixel in sources.reshape(-1, 6)}
    assert {tuple(pixel) for pixel in mosaic.reshape(-1, 6)} <= known
    assert not np.array_equal(mosaic, sources)
    mixed = six_bands(tmp_path / "b", [da.Resize(SIZE), da.MixUp(), da.Normalize(scale=1)], images=4)
    for at, image in enumerate(mixed):
        assert min(mixture(image, sources[at], other) for n, other in enumerate(sources) if n != at) < 0.05
    for op in (da.CutMix(), da.CopyPaste(p=1)):
        pasted = six_bands(tmp_path / type(op).__name__, [da.Resize(SIZE), op, da.Normalize(scale=1)], images=4)
        assert {tuple(pixel) for pixel in pasted.reshape(-1, 6)} <= known


def mixture(image: Array, one: Array, other: Array) -> float:
    """Return how far an image is from the nearest weighted mean of two."""
    along = (other - one).astype(np.float64)
    share = ((image - one) * along).sum() / (along**2).sum()
    return float(np.abs(one + share * along - image).max())


def test_erasing_noise_and_blur(tmp_path: Path) -> None:
    source = values(6, "uint16").astype(np.float32)
    erase = da.RandomErasing(p=1, value=FILL)
    image = six_bands(tmp_path / "a", [da.Resize(SIZE), erase, da.Normalize(scale=1)])[0]
    changed = (image != source).any(2)
    assert changed.any()
    np.testing.assert_array_equal(image[changed], np.tile(np.float32(FILL), (changed.sum(), 1)))
    for scale, sigma in ((None, 65535 * 0.1), (1000, 1000 * 0.1)):
        ops: list[da.Op] = [da.Resize(SIZE), da.GaussianNoise(sigma=0.1, p=1), da.Normalize(scale=scale)]
        noise = six_bands(tmp_path / f"b{scale}", ops)[0] * (scale or 65535) - source
        assert abs(noise.std() / sigma - 1) < 0.05
        assert np.abs(np.corrcoef(noise.reshape(-1, 6).T) - np.eye(6)).max() < 0.1  # each band has its own
    salt: list[da.Op] = [da.Resize(SIZE), da.SaltAndPepperNoise((0.2, 0.2), p=1), da.Normalize(scale=1000)]
    image = six_bands(tmp_path / "c", salt)[0] * 1000
    assert abs((image == 1000).all(2).mean() - 0.1) < 0.05
    blur: list[da.Op] = [da.Resize(SIZE), da.RandomApply([da.GaussianBlur(sigma=(3, 3), p=1)], p=1)]
    blurred = six_bands(tmp_path / "d", blur)[0]
    assert (blurred.std((0, 1)) < source.std((0, 1)) / 3).all()


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_ops_of_cameras(tmp_path: Path, dtype: str) -> None:
    """Negative values of floats are kept by gamma."""
    source, white = values(6, dtype).astype(np.float64), 65535 if dtype == "uint16" else 300

    def changed(op: da.Op) -> Array:
        ops: list[da.Op] = [da.Resize(SIZE), op, da.Normalize(scale=white)]
        return six_bands(tmp_path / type(op).__name__, ops, dtype=dtype)[0] * white

    bright = np.where(source > 0, np.abs(source / white) ** 0.5 * white, source)
    np.testing.assert_allclose(changed(da.RandomGamma((0.5, 0.5), p=1)), bright, atol=0.01 * white / 255)
    blurred = cv2.filter2D(source, -1, disc_kernels(np.array([2.0]), 2.0)[0].astype(float))
    np.testing.assert_allclose(changed(da.Defocus((2, 2), p=1)), blurred, atol=0.01 * white / 255)
    coarse = np.unique(changed(da.Downscale((0.25, 0.25), p=1)).reshape(-1, 6), axis=0)
    assert len(coarse) == 9 * 13
    apart = np.abs(coarse[:, None] - source.reshape(-1, 6)).max(2).min(1)  # from a pixel of the image
    assert apart.max() < 0.01 * white / 255
    moved = changed(da.MotionBlur((5, 5), p=1))
    assert (moved.std((0, 1)) < source.std((0, 1)) / 1.5).all()
    np.testing.assert_allclose(moved.mean((0, 1)), source.mean((0, 1)), rtol=0.05)
    shadow = changed(da.RandomShadow((0, 0, 1, 1), (1, 1), 4, (0.25, 0.25), p=1)) / source
    assert {*np.unique(shadow[np.abs(source) > 0.01 * white].round(2)).tolist()} == {0.75, 1.0}
    for name in ("MedianBlur", "ChannelDropout", "RandomFog", "RandomRain"):
        with pytest.raises(da.InputError, match=f"{name} .*works on 8-bit RGB"):
            changed(getattr(da, name)())


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (da.RandomHSV(), r"RandomHSV \(2nd\) works on 8-bit RGB, and the reader has 6 bands of uint16: leave it out"),
        (da.CLAHE(), r"CLAHE \(2nd\) works on 8-bit RGB"),
        (da.RandomPhotometricDistort(), "RandomPhotometricDistort"),
        (
            da.RandomApply([da.GaussianBlur(), da.RandomPosterize(4)]),
            "RandomApply.*: RandomPosterize .* works on 8-bit",
        ),
        (da.RandomErasing(value=(1, 2, 3)), r"RandomErasing \(2nd\).value must be a number for each band, in the val"),
        (da.Normalize(dtype="uint8"), "Normalize.*dtype must be 'float32' or 'float16'"),
        (da.Normalize(mean=(0.5, 0.4, 0.3)), "Normalize.*mean must be 6 numbers, one for each band"),
    ],
)
def test_ops_that_mean_colour_are_refused_by_name(tmp_path: Path, op: da.Op, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        six_bands(tmp_path, [da.Resize(SIZE), op])


def test_an_op_of_ones_own_says_whether_it_takes_any_bands(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Halve(da.PixelOp):
        any_bands = True

        def dali_graph(self, image: Any, planned: Any, views: da.Views) -> Any:
            assert (views.pixels.count, views.pixels.white) == (6, 65535)
            return image * 0.5

    @dataclass(frozen=True)
    class Blur(da.GaussianBlur):
        def dali_graph(self, image: Any, planned: Any, views: da.Views) -> Any:
            return image

    halved = six_bands(tmp_path / "a", [da.Resize(SIZE), Halve()])[0]
    np.testing.assert_array_equal(halved, values(6, "uint16") * np.float32(0.5))
    with pytest.raises(da.InputError, match=r"Blur \(2nd\) works on 8-bit RGB"):
        six_bands(tmp_path / "b", [da.Resize(SIZE), Blur()])


def test_pictures_are_decoded_whole(tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=r"Resize \(1st\).decode must be 'whole': the reader has 6 bands of uint16"):
        six_bands(tmp_path, [da.Resize(SIZE, decode="scaled")])


@pytest.mark.parametrize("op", [da.RandAugment(), da.TrivialAugmentWide()])
def test_automatic_augmentation_is_refused(tmp_path: Path, op: da.Op) -> None:
    with pytest.raises(da.InputError, match=f"{type(op).__name__} .1st. works on 8-bit RGB"):
        six_bands(tmp_path, [op, da.Resize(SIZE)])


def test_a_number_for_each_band(tmp_path: Path) -> None:
    with pytest.raises(
        da.InputError, match=r"RandomZoomOut \(1st\).fill must be a number for each band, .* 6 bands of"
    ):
        six_bands(tmp_path, [da.RandomZoomOut(fill=(1, 2, 3)), da.Resize(SIZE)])
    zeros: list[da.Op] = [da.RandomZoomOut(p=1, min_ratio=2), da.Resize(SIZE)]  # by default
    assert (six_bands(tmp_path / "zeros", zeros)[0] == 0).all(2).mean() > 0.5
    with pytest.raises(da.InputError, match=r"RandomZoomOut \(1st\).fill must be three numbers in 0..255"):
        da.batch([np.zeros((9, 9, 3), np.uint8)]).then(da.RandomZoomOut(fill=(0, 0, 300)))
    with pytest.raises(da.InputError, match=r"Normalize \(2nd\).scale must be left out"):
        da.batch([np.zeros((9, 9, 3), np.uint8)]).then(da.Resize((9, 9)), da.Normalize(scale=100))


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_the_mean_and_the_sigma_of_noise(tmp_path: Path, dtype: str) -> None:
    """They are fractions of the white of the type, of each band, and nothing is clamped."""
    source, white = values(6, dtype).astype(np.float64), 65535 if dtype == "uint16" else 300
    for mean, sigma in ((0.3, 0.05), (-0.2, 0.1), (0.0, 0.2)):
        ops: list[da.Op] = [da.Resize(SIZE), da.GaussianNoise(mean, sigma, p=1), da.Normalize(scale=white)]
        noise = six_bands(tmp_path / f"{mean}", ops, dtype=dtype)[0] - source / white
        few = 6 * sigma / noise[..., 0].size ** 0.5
        np.testing.assert_allclose(noise.mean((0, 1)), mean, atol=few)
        np.testing.assert_allclose(noise.std((0, 1)), sigma, rtol=0.08)
        assert noise.min() < mean - 3 * sigma
        assert noise.max() > mean + 3 * sigma
