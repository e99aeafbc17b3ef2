"""Pixel ops against Pillow or torchvision with the same parameters, their draws, and images that did not draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, types
from painted_files import Folder
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from reference import v2functional as tv
from seeds import slow

import detaug as da
from detaug.gpu.color_steps import BRIGHTNESS, CONTRAST
from detaug.ops.camera import disc_kernels, line_kernels
from detaug.recipes.recipe_file import library
from detaug.testing import assert_boxes_follow_pixels

SIZE = (60, 80)
NOISE = np.random.default_rng(0).integers(0, 256, (15, 20, 3), np.uint8)
PHOTO = np.asarray(Image.fromarray(NOISE).resize((80, 60), Image.Resampling.BICUBIC))

OPS = [
    da.RandomPhotometricDistort(),
    da.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.5),
    da.RandomHSV(p=0.5),
    da.RandomGrayscale(p=0.5),
    da.RandomChannelPermutation(),
    da.GaussianBlur(),
    da.RandomAdjustSharpness(3),
    da.JPEG(),
    da.RandomEqualize(),
    da.CLAHE(),
    da.RandomAutocontrast(),
    da.RandomInvert(),
    da.RandomPosterize(3),
    da.RandomSolarize(128),
    da.GaussianNoise(sigma=0.05),
    da.SaltAndPepperNoise(),
    da.RandomGamma((0.5, 0.7)),
    da.ChannelDropout(),
    da.MotionBlur(),
    da.Defocus(),
    da.MedianBlur(),
    da.Downscale(),
    da.RandomShadow(),
    da.RandomFog(),
    da.RandomRain(),
    da.Normalize(),
]
LINEAR = (
    da.RandomPhotometricDistort,
    da.ColorJitter,
    da.RandomHSV,
    da.RandomGrayscale,
    da.RandomChannelPermutation,
    da.ChannelDropout,
)
ids = {"ids": lambda op: type(op).__name__}


def changed(op: da.Op, photo: np.ndarray = PHOTO, n: int = 1, device: str = "cpu", seed: int = 0) -> list[np.ndarray]:
    """Return n images of `photo` after `op`, as float64."""
    samples = da.batch([photo] * n, seed=seed, device=device).then(da.Resize(photo.shape[:2]), op)
    return [np.asarray(image, np.float64) for image in samples.images]


def test_every_pixel_op_is_here() -> None:
    plain = {name for name, each in library().items() if getattr(each, "plan", None) is da.PixelOp.plan}
    assert plain == {type(op).__name__ for op in OPS}


@pytest.mark.parametrize("op", [op for op in OPS if not isinstance(op, da.RandomSolarize)], **ids)  # all black
@pytest.mark.parametrize("pipeline", [False, *slow(True)])
def test_boxes_stay_on_their_pixels(op: da.Op, pipeline: bool, device: str) -> None:
    ops = [da.RandomHorizontalFlip(), da.Resize((150, 200)), op]
    assert assert_boxes_follow_pixels(ops, pipeline=pipeline, device=device) == 24


@pytest.mark.parametrize("op", OPS[:-1], **ids)
def test_images_that_did_not_draw_it_are_bit_equal(op: da.Op, device: str) -> None:
    dull, arguments = (PHOTO // 2 + 40).astype(np.uint8), {**vars(op), "p": 0.5}
    same = sum(np.array_equal(image, dull) for image in changed(type(op)(**arguments), dull, n=48, device=device))
    assert (0 if isinstance(op, da.RandomPhotometricDistort) else 8) <= same <= 40
    never = changed(type(op)(**{**arguments, "p": 0.0}), dull, n=3, device=device)
    assert all(np.array_equal(image, dull) for image in never)


@dataclass(frozen=True)
class ToSize(da.PixelOp):
    """What no pixel op may do: boxes would stay behind."""

    size: int

    def dali_graph(self, image: Any, planned: Any, views: Any) -> Any:
        return fn.resize(image, size=[self.size, self.size])


@pytest.mark.parametrize("size", [5, 13])
def test_a_pixel_op_keeps_the_size(size: int, painted: Folder, device: str) -> None:
    ops = [da.Resize((8, 8)), ToSize(size)]
    message = rf"a pixel op changed the size of images to \({size}, {size}\), but their boxes are in \(8, 8\)"
    with pytest.raises(da.InputError, match=message):
        _ = da.batch([PHOTO], device=device).then(*ops).images
    with pytest.raises(da.InputError, match=message):
        da.Compose(ops)(PHOTO, {"boxes": np.zeros((0, 4)), "labels": []})
    with pytest.raises(da.InputError, match=message):
        next(iter(da.Loader(da.CocoReader(*painted), ops, 4, device=device)))


@dataclass(frozen=True)
class AsFloats(da.PixelOp):
    def dali_graph(self, image: Any, planned: Any, views: Any) -> Any:
        return fn.cast(image, dtype=types.FLOAT)


@dataclass(frozen=True)
class AreFloats(da.PixelOp):
    """Writes 1 if the pixels are floats, and 0 if they are bytes, to which a quarter is rounded."""

    def dali_graph(self, image: Any, planned: Any, views: Any) -> Any:
        return 4 * fn.cast_like(0 * fn.cast(image, dtype=types.FLOAT) + 0.25, image)


@pytest.mark.parametrize("size", [(1, 1), (7, 300), (301, 9)])
@pytest.mark.parametrize("op", OPS, **ids)
def test_odd_sizes_and_both_types(op: da.Op, size: tuple[int, int], device: str) -> None:
    photo = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    always = type(op)(**{**vars(op), "p": 1.0}) if hasattr(op, "p") else op
    normalizes = isinstance(op, da.Normalize)
    for before in ([], [AsFloats()]):
        after = [da.Normalize()] if before and not normalizes else []  # shows floats that are not in 0..255
        image = da.batch([photo] * 2, device=device).then(da.Resize(size), *before, always, *after).images[0]
        assert image.shape == ((3, *size) if normalizes or after else (*size, 3))
        assert np.isfinite(image).all()
        assert image.dtype == (np.float32 if normalizes or after else np.uint8)
        assert image.min() >= 0
        assert image.max() <= (1 if normalizes or after else 255)
        if not normalizes:
            seen = da.batch([photo] * 2, device=device).then(da.Resize(size), *before, always, AreFloats()).images[0]
            assert (seen == (1 if before and not isinstance(op, LINEAR) else 0)).all()


def pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image)


def mean_difference(image: np.ndarray, expected: Any) -> float:
    return float(np.abs(image - np.asarray(expected, np.float64)).mean())


def test_equalize_is_opencvs_formula(device: str) -> None:
    (image,) = changed(da.RandomEqualize(p=1), device=device)
    for channel in range(3):
        below = np.bincount(PHOTO[..., channel].ravel(), minlength=256).cumsum()
        lowest = below[below > 0][0]
        table = np.round((below - lowest) / (below[-1] - lowest) * 255)
        assert np.abs(image[..., channel] - table[PHOTO[..., channel]]).max() <= 1


def test_autocontrast_is_torchvisions(device: str) -> None:
    dull = (PHOTO // 3 + 40).astype(np.uint8)
    dull[..., 1] = 77
    (image,) = changed(da.RandomAutocontrast(p=1), dull, device=device)
    expected = tv().autocontrast(torch.from_numpy(dull).permute(2, 0, 1)).permute(1, 2, 0)
    assert np.abs(image - expected.numpy()).max() <= 1


def test_invert_is_pillows(device: str) -> None:
    assert mean_difference(changed(da.RandomInvert(p=1), device=device)[0], ImageOps.invert(pillow(PHOTO))) == 0


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_posterize_is_pillows(bits: int, device: str) -> None:
    (image,) = changed(da.RandomPosterize(bits, p=1), device=device)
    assert mean_difference(image, ImageOps.posterize(pillow(PHOTO), bits)) == 0


@pytest.mark.parametrize("threshold", [0, 100, 255])
def test_solarize_is_pillows(threshold: int, device: str) -> None:
    (image,) = changed(da.RandomSolarize(threshold, p=1), device=device)
    assert mean_difference(image, ImageOps.solarize(pillow(PHOTO), threshold)) == 0


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.0])
def test_sharpness_is_pillows(factor: float, device: str) -> None:
    (image,) = changed(da.RandomAdjustSharpness(factor, p=1), device=device)
    expected = np.asarray(ImageEnhance.Sharpness(pillow(PHOTO)).enhance(factor), float)
    assert np.abs(image - expected)[1:-1, 1:-1].max() <= 1 + abs(factor - 1)  # Pillow rounds before it blends


@pytest.mark.parametrize(("kernel_size", "sigma"), [(5, 1.0), (9, 2.5)])
def test_blur_is_torchvisions(kernel_size: int, sigma: float, device: str) -> None:
    (image,) = changed(da.GaussianBlur(kernel_size, (sigma, sigma), p=1), device=device)
    expected = tv().gaussian_blur(torch.from_numpy(PHOTO.copy()).permute(2, 0, 1), [kernel_size] * 2, [sigma] * 2)
    assert np.abs(image - expected.permute(1, 2, 0).numpy()).max() <= 1


def test_a_free_kernel_is_pillows_gaussian(device: str) -> None:
    (image,) = changed(da.GaussianBlur(sigma=(1.5, 1.5), p=1), device=device)
    expected = np.asarray(pillow(PHOTO).filter(ImageFilter.GaussianBlur(1.5)), float)
    assert np.abs(image - expected)[8:-8, 8:-8].mean() < 1  # Pillow approximates, and has other borders


@pytest.mark.parametrize("quality", [10, 50, 95])
def test_jpeg_is_about_pillows(quality: int, device: str) -> None:
    """Two encoders: they differ far less from each other than from the original."""
    from io import BytesIO

    gray = np.repeat(PHOTO[..., :1], 3, axis=2)  # the two enlarge the halved colors in different ways
    (image,) = changed(da.JPEG((quality, quality), p=1), gray, device=device)
    file = BytesIO()
    pillow(gray).save(file, "JPEG", quality=quality)
    expected = np.asarray(Image.open(file), float)
    assert mean_difference(image, expected) < max(1, mean_difference(gray.astype(float), expected) / 3)


def test_clahe_widens_what_is_dull(device: str) -> None:
    dull = (PHOTO // 4 + 90).astype(np.uint8)
    (image,) = changed(da.CLAHE(p=1, tiles=(2, 2)), dull, device=device)
    assert image.std() > 1.2 * dull.std()


def test_grayscale_is_torchvisions(device: str) -> None:
    (image,) = changed(da.RandomGrayscale(p=1), device=device)
    expected = tv().rgb_to_grayscale(torch.from_numpy(PHOTO.copy()).permute(2, 0, 1), 3).permute(1, 2, 0)
    assert np.abs(image - expected.numpy()).max() < 1.1  # torchvision rounds down


def test_hsv_moves_hue_saturation_and_value(device: str) -> None:
    for arguments, neutral in (({"value": 0.4}, PHOTO), ({"saturation": 0.7}, PHOTO), ({"hue": 0.5}, PHOTO)):
        op = da.RandomHSV(**{"hue": 0.0, "saturation": 0.0, "value": 0.0, **arguments})
        found = changed(op, n=6, device=device)
        assert len({round(float(image.mean() + image.std()), 3) for image in found}) == 6
        assert max(np.abs(image - neutral).mean() for image in found) > 3


def test_channel_permutations_are_all_found() -> None:
    found = {tuple(np.argsort(image[0, 0])) for image in changed(da.RandomChannelPermutation(p=1), n=64)}
    assert len(found) == 6


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.7])
def test_gamma_is_a_power_of_shares(gamma: float, device: str) -> None:
    (image,) = changed(da.RandomGamma((gamma, gamma), p=1), device=device)
    assert np.abs(image - 255 * (PHOTO / 255.0) ** gamma).max() <= 0.501


def test_one_or_two_channels_are_lost(device: str) -> None:
    found = changed(da.ChannelDropout((1, 2), 7, p=1), n=64, device=device)
    lost = [tuple((image == 7).all((0, 1))) for image in found]
    assert len({*lost}) == 6
    assert {sum(each) for each in lost} == {1, 2}
    assert all(
        np.array_equal(image[..., ~np.array(gone)], PHOTO[..., ~np.array(gone)])
        for image, gone in zip(found, lost, strict=True)
    )


def convolved(kernel: np.ndarray) -> np.ndarray:
    """Return the image filtered by torch, mirrored beyond its border."""
    reach = kernel.shape[0] // 2
    planes = torch.from_numpy(PHOTO.copy()).permute(2, 0, 1)[:, None].double()
    padded = torch.nn.functional.pad(planes, (reach,) * 4, "reflect")
    return torch.conv2d(padded, torch.from_numpy(kernel)[None, None].double())[:, 0].permute(1, 2, 0).numpy()


def test_motion_blurs_along_a_line_of_its_length(device: str) -> None:
    """The spread of each line is that of its points along the angle, and of at most half a pixel across it."""
    flat, upright = line_kernels(np.array([5, 3]), np.array([0, np.pi / 2]), 7)
    assert np.allclose(flat, np.pad(np.full((1, 5), 0.2), ((3, 3), (1, 1))), atol=1e-6)
    assert np.allclose(upright, np.pad(np.full((3, 1), 1 / 3), ((2, 2), (3, 3))), atol=1e-6)
    op = da.MotionBlur((3, 9), p=1)
    kernels = op.amounts(np.random.default_rng(2), 200)["kernel"]
    assert np.allclose(kernels.sum((1, 2)), 1, atol=1e-5)
    offset = np.arange(9) - 4
    y, x = kernels.sum(2), kernels.sum(1)
    assert np.allclose(y @ offset, 0, atol=1e-5)
    spread = y @ offset**2 + x @ offset**2
    assert spread.min() < 1.2
    assert 6.5 < spread.max() < 7.2
    falls = np.einsum("nyx,y,x->n", kernels, offset, offset)  # above 0: down to the right
    assert falls.min() < -2
    assert falls.max() > 2
    kernel = line_kernels(np.array([9]), np.array([0.7]), 9)[0]
    assert kernel[6:8, 7].sum() > 0.05  # y downwards: 40 degrees go down to the right
    assert kernel[6:8, 1].sum() == 0


@pytest.mark.parametrize("op", [da.MotionBlur((5, 9), p=1), da.Defocus((1.5, 4), p=1)], **ids)
def test_kernels_blur_as_torch_does(op: Any, device: str) -> None:
    samples = da.batch([PHOTO] * 4, device=device).then(da.Resize(SIZE), op)
    kernels = samples.plan.inputs[next(name for name in samples.plan.inputs if name.endswith("kernel"))]
    for image, kernel in zip(samples.images, kernels, strict=True):
        assert np.abs(image - convolved(kernel)).max() <= 0.51


@pytest.mark.parametrize("radius", [0.3, 1.0, 2.7, 6.0])
def test_out_of_focus_is_a_disc(radius: float) -> None:
    (kernel,) = disc_kernels(np.array([radius]), 6.0)
    assert kernel.shape == (13, 13)
    fine = np.hypot(*np.mgrid[-6.5:6.5:1300j, -6.5:6.5:1300j]) <= max(radius, 0.5)
    disc = fine.reshape(13, 100, 13, 100).mean((1, 3))
    assert np.abs(kernel - disc / disc.sum()).sum() < (0.35 if radius < 2 else 0.1)


@pytest.mark.parametrize("side", [3, 5])
def test_medians_are_torchs(side: int, device: str) -> None:
    (image,) = changed(da.MedianBlur(side, p=1), device=device)
    planes = torch.from_numpy(PHOTO.copy()).permute(2, 0, 1).float()
    padded = torch.nn.functional.pad(planes, (side // 2,) * 4, "replicate")
    expected = padded.unfold(1, side, 1).unfold(2, side, 1).flatten(3).median(3).values.permute(1, 2, 0)
    assert np.array_equal(image, expected.numpy())


def test_coarse_pixels_repeat(device: str) -> None:
    ramp = (
        np.stack([np.arange(80)] * 60).astype(np.uint8)[..., None].repeat(3, 2)
        + np.arange(60, dtype=np.uint8)[:, None, None]
    )
    (image,) = changed(da.Downscale((0.25, 0.25), p=1), ramp, device=device)
    blocks = image.reshape(15, 4, 20, 4, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert np.abs(image - ramp).max() <= 6  # of 4 + 4: within the block
    assert len(np.unique(image[0, :, 0])) == 20
    (image,) = changed(da.Downscale((0.196, 0.196), p=1), ramp, device=device)  # 11.76 x 15.68 pixels are 12 x 16
    assert [len(np.unique(line)) for line in (image[:, 0, 0], image[0, :, 0])] == [12, 16]


def test_defaults_of_camera_ops() -> None:
    assert da.RandomGamma() == da.RandomGamma((0.8, 1.2), 0.5)  # as Albumentations'
    assert da.ChannelDropout() == da.ChannelDropout((1, 1), 0, 0.5)
    assert da.MotionBlur() == da.MotionBlur((3, 7), 0.5)
    assert da.MedianBlur() == da.MedianBlur(3, 0.5)
    assert da.Defocus() == da.Defocus((1, 3), 0.5)
    assert da.Downscale() == da.Downscale((0.25, 0.5), 0.5)


class TestNoise:
    gray = np.full((200, 210, 3), 128, np.uint8)

    @pytest.mark.parametrize("size", [(1, 20_000), (17_000, 2), (3, 512), (1024, 3)])
    @pytest.mark.parametrize("op", [da.GaussianNoise(p=1), da.SaltAndPepperNoise((0.5, 0.5), p=1)], **ids)
    def test_each_pixel_has_its_own_whatever_the_size(self, op: da.Op, size: tuple[int, int], device: str) -> None:
        (image,) = changed(op, np.full((*size, 3), 128, np.uint8), device=device)
        pixels = image.reshape(-1, 3)[:, 0].astype(float)
        for distance in (1, 512, len(pixels) // 2):
            assert abs(np.corrcoef(pixels[distance:], pixels[:-distance])[0, 1]) < 0.1

    def test_gaussian_noise_has_its_mean_and_sigma(self, device: str) -> None:
        for image in changed(da.GaussianNoise(0.1, 0.04, p=1), self.gray, n=4, device=device):
            assert image.mean() == pytest.approx(128 + 25.5, abs=0.3)
            assert image.std() == pytest.approx(10.2, abs=0.2)

    def test_it_is_white_and_normal(self) -> None:
        (image,) = changed(da.GaussianNoise(0, 0.1, p=1), self.gray)
        noise = (image - 128) / 25.5
        for axis in (0, 1, 2):
            rolled = np.roll(noise, 1, axis)
            assert abs((noise * rolled).mean()) < 0.02
        assert (noise**3).mean() == pytest.approx(0, abs=0.05)
        assert (noise**4).mean() == pytest.approx(3, abs=0.15)

    def test_images_and_draws_differ_and_seeds_repeat(self, device: str) -> None:
        op = da.GaussianNoise(p=1)
        first, second = changed(op, self.gray, n=2, device=device)
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.02
        assert np.array_equal(first, changed(op, self.gray, n=2, device=device)[0])
        assert not np.array_equal(first, changed(op, self.gray, n=2, device=device, seed=1)[0])

    def test_salt_and_pepper_have_their_share(self, device: str) -> None:
        for image in changed(da.SaltAndPepperNoise((0.1, 0.1), p=1), self.gray, n=3, device=device):
            assert (image == 0).all(2).mean() == pytest.approx(0.05, abs=0.005)
            assert (image == 255).all(2).mean() == pytest.approx(0.05, abs=0.005)
            assert (image == 128).all(2).mean() == pytest.approx(0.9, abs=0.01)


class TestNormalize:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

    def test_it_is_torchvisions_formula(self, device: str) -> None:
        (image,) = changed(da.Normalize(self.mean, self.std), device=device)
        expected = (PHOTO.transpose(2, 0, 1) / 255 - np.reshape(self.mean, (3, 1, 1))) / np.reshape(self.std, (3, 1, 1))
        assert np.abs(image - expected).max() < 1e-5

    def test_types_and_memory_formats(self, device: str) -> None:
        for dtype, exact in (("float32", 1e-6), ("float16", 1e-3)):
            for memory_format in ("contiguous", "channels_last"):
                op = da.Normalize(dtype=dtype, memory_format=memory_format)
                image = da.batch([PHOTO], device=device).then(da.Resize(SIZE), op).images[0]
                assert image.dtype == np.dtype(dtype)
                image = image if memory_format == "channels_last" else image.transpose(1, 2, 0)
                assert np.abs(image - PHOTO / 255).max() < exact
        image = da.batch([PHOTO], device=device).then(da.Resize(SIZE), da.Normalize(dtype="uint8")).images[0]
        assert np.array_equal(image.transpose(1, 2, 0), PHOTO)

    @pytest.mark.parametrize("resize", [da.Resize((50, 60)), da.Resize(50)], ids=repr)
    def test_the_loader_yields_nchw_in_channels_last_memory(self, resize: da.Op, bccd: Any, device: str) -> None:
        reader = da.CocoReader(*bccd)
        plain, last = (
            next(iter(da.Loader(reader, [resize, normalize], 4, device=device, train=False))).images
            for normalize in (da.Normalize(), da.Normalize(memory_format="channels_last"))
        )
        assert last.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(plain, last)


N = 20_000


@pytest.mark.parametrize("op", [op for op in OPS if hasattr(op, "p") and not isinstance(op, LINEAR)], **ids)
def test_the_rate_is_p(op: da.Op) -> None:
    apply = type(op)(**{**vars(op), "p": 0.3}).draw(np.random.default_rng(1), N)["apply"]
    assert abs(apply.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / N)


@pytest.mark.parametrize(
    "op",
    [da.ColorJitter(0.4, p=0.3), da.RandomHSV(p=0.3), da.RandomGrayscale(p=0.3), da.RandomChannelPermutation(p=0.3)],
    **ids,
)
def test_the_rate_of_colour_changes_is_p(op: da.Op) -> None:
    drawn = op.draw(np.random.default_rng(1), N)
    changes = drawn["kind"] > 0 if "kind" in drawn else np.abs(drawn["color"] - np.eye(3, 4)).max(2) > 1e-9
    applied = changes.any(1)
    rate = 0.3 * 5 / 6 if isinstance(op, da.RandomChannelPermutation) else 0.3  # one of six orders changes nothing
    assert abs(applied.mean() - rate) < 4 * np.sqrt(0.3 * 0.7 / N)


@pytest.mark.parametrize(
    ("op", "name", "low", "high"),
    [
        (da.GaussianBlur(sigma=(0.5, 3)), "sigma", 0.5, 3),
        (da.JPEG((20, 60)), "quality", 20, 60),
        (da.SaltAndPepperNoise((0.1, 0.4)), "amount", 0.1, 0.4),
    ],
)
def test_amounts_are_uniform(op: da.Op, name: str, low: float, high: float) -> None:
    found = op.draw(np.random.default_rng(1), N)[name]
    assert low <= found.min() < low + (high - low) / 20
    assert high - (high - low) / 20 < found.max() <= high
    assert found.mean() == pytest.approx((low + high) / 2, abs=(high - low) / 50)
    assert found.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.05)


def test_colour_jitter_draws_its_ranges() -> None:
    drawn = da.ColorJitter(brightness=(0.5, 2)).draw(np.random.default_rng(1), N)
    found = drawn["amount"][drawn["kind"] == BRIGHTNESS]
    assert len(found) == N
    assert (found.min(), found.max()) == pytest.approx((0.5, 2), abs=0.01)
    assert found.mean() == pytest.approx(1.25, abs=0.02)
    drawn = da.ColorJitter(contrast=0.3).draw(np.random.default_rng(1), N)
    found = drawn["amount"][drawn["kind"] == CONTRAST]
    assert (found.min(), found.max()) == pytest.approx((0.7, 1.3), abs=0.01)


def test_colour_jitter_has_all_orders() -> None:
    kinds = da.ColorJitter(0.3, 0.3, 0.3, 0.1).draw(np.random.default_rng(1), N)["kind"]
    orders, counts = np.unique(kinds, axis=0, return_counts=True)
    assert len(orders) == 24
    assert np.abs(counts - N / 24).max() < 4 * np.sqrt(N / 24)


class TestLinearPhotometricDistort:
    photo = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)

    def distorted(self, device: str = "cpu", **bounds: tuple[float, float]) -> np.ndarray:
        neutral = {"brightness": (1.0, 1.0), "contrast": (1.0, 1.0), "saturation": (1.0, 1.0), "hue": (0.0, 0.0)}
        op = da.RandomPhotometricDistort(**{**neutral, **bounds}, p=1.0, permute=False, exact=False)
        image = op(da.Resize((20, 30))(da.batch([self.photo], device=device))).images[0]
        return np.asarray(image, float)

    def test_neutral_parameters_change_nothing(self, device: str) -> None:
        assert np.abs(self.distorted(device) - self.photo).max() < 1e-3

    def test_brightness_is_pillows(self, device: str) -> None:
        expected = np.clip(self.photo * 1.1, 0, 255)
        assert np.abs(self.distorted(device, brightness=(1.1, 1.1)) - expected).max() <= 1

    def test_contrast_turns_about_128(self, device: str) -> None:
        expected = np.clip((self.photo - 128.0) * 1.4 + 128, 0, 255)
        assert np.abs(self.distorted(device, contrast=(1.4, 1.4)) - expected).max() <= 1

    def test_saturation_is_pillows(self, device: str) -> None:
        from PIL import ImageEnhance

        expected = np.asarray(ImageEnhance.Color(Image.fromarray(self.photo)).enhance(0.5), float)
        assert np.abs(self.distorted(device, saturation=(0.5, 0.5)) - expected).max() <= 2

    def test_a_third_of_a_turn_makes_red_green(self) -> None:
        red = da.batch([np.full((4, 4, 3), (150, 110, 110), np.uint8)])
        op = da.RandomPhotometricDistort((1, 1), (1, 1), (1, 1), hue=(1 / 3, 1 / 3), p=1, permute=False, exact=False)
        turned = op(da.Resize((4, 4))(red)).images[0][0, 0].astype(int)
        assert turned.argmax() == 1
        assert abs(turned @ (0.299, 0.587, 0.114) - (150 * 0.299 + 110 * 0.701)) < 2  # luma stays

    def test_permute_only_changes_the_order_of_the_channels(self) -> None:
        op = da.RandomPhotometricDistort((1, 1), (1, 1), (1, 1), (0, 0), p=1, exact=False)
        samples = op(da.Resize((20, 30))(da.batch([self.photo] * 64)))
        orders = {tuple(np.argsort(image[0, 0], kind="stable")) for image in samples.images}
        assert all(np.allclose(np.sort(image, 2), np.sort(self.photo, 2), atol=1e-3) for image in samples.images)
        assert len(orders) > 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.ColorJitter(brightness=(2, 1)), "brightness must be"),
        (lambda: da.ColorJitter(hue=0.7), "hue must be"),
        (lambda: da.RandomHSV(saturation=2), "saturation must be a number in 0..1, got 2"),
        (lambda: da.RandomGrayscale(p=-1), "p must be a probability"),
        (lambda: da.GaussianBlur(4), "kernel_size must be None or an odd number"),
        (lambda: da.GaussianBlur(sigma=(0, 1)), "sigma must be above 0"),
        (lambda: da.RandomAdjustSharpness(-1), "sharpness_factor must be"),
        (lambda: da.JPEG((0, 50)), "quality must be"),
        (lambda: da.JPEG((10.5, 50)), "quality must be two whole numbers"),
        (lambda: da.CLAHE(0), "clip_limit must be above 0"),
        (lambda: da.CLAHE(tiles=(0, 8)), "tiles must be"),
        (lambda: da.RandomGamma((0, 1)), "gamma must be above 0"),
        (lambda: da.ChannelDropout((1, 3)), "channels must be"),
        (lambda: da.ChannelDropout(value=256), "value must be a number in 0..255"),
        (lambda: da.MotionBlur((3, 4)), "kernel_size must be two odd numbers"),
        (lambda: da.MotionBlur((1, 3)), "kernel_size must be"),
        (lambda: da.Defocus((0, 1)), "radius must be above 0"),
        (lambda: da.MedianBlur(4), "kernel_size must be an odd number of pixels in 3..9"),
        (lambda: da.MedianBlur(11), "kernel_size must be an odd number of pixels in 3..9"),
        (lambda: da.Downscale((0, 1)), "scale must be above 0"),
        (lambda: da.RandomPosterize(9), "bits must be a whole number in 1..8, got 9"),
        (lambda: da.RandomSolarize(300), "threshold must be in 0..255"),
        (lambda: da.GaussianNoise(sigma=-1), "sigma must be"),
        (lambda: da.SaltAndPepperNoise((0.5, 2)), "amount must be"),
        (lambda: da.Normalize(dtype="float64"), "dtype must be"),
        (lambda: da.Normalize(mean=(0.5, 0.5, 0.5), dtype="uint8"), "dtype must be 'float32' or 'float16' with a mean"),
        (lambda: da.Normalize(memory_format="HWC"), "memory_format must be 'contiguous' or 'channels_last', got 'HWC'"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
