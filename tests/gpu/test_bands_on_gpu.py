"""Triton's kernels on images of other bands than 8-bit RGB, against what the CPU renders and against the files' values.

Without a GPU Triton interprets them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from band_files import SIZE, Array, data_set, encode, values
from painted_files import same

import detaug as da
from detaug.loading.image_feeds import ImageFeed
from detaug.loading.renderers import KernelRenderer
from detaug.pipelines.decoding import inputs
from detaug.pipelines.worker import PipelineWorker
from detaug.recipes.kernel_chain import chain_of
from detaug.recipes.recipe import make_recipe

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
pytestmark = [pytest.mark.gpu if DEVICE.type == "cuda" else pytest.mark.slow, pytest.mark.usefixtures("few_programs")]
pytest.importorskip("triton")

FILL = (1.0, 2000.0, 3.0, 60000.0, 5.0, 6.5)
WHOLE = da.Resize(SIZE)
"""Keeps the images as they are."""
VALUES = da.Normalize(scale=1)
"""Keeps the values as they are."""
MOST_OFF = 2e-5 if DEVICE.type == "cpu" else 1e-4
"""Of the largest value. A GPU divides less exactly, so that places between pixels are others by some 1e-5."""


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that returns the first batch of a loader whose images the kernels render."""

    def first_batch(reader: da.Source, ops: list[da.Op], images: int) -> da.Batch:
        with monkeypatch.context() as patch:
            patch.setattr("detaug.loading.stages.chain_for", chain_of)
            batch = next(iter(da.Loader(reader, ops, images, train=False, device=DEVICE)))
        assert batch.images.device == DEVICE
        return batch.to("cpu")

    return first_batch


def by_cpu(reader: da.Source, ops: list[da.Op], images: int) -> da.Batch:
    return next(iter(da.Loader(reader, ops, images, train=False, device="cpu")))


def smooth(bands: int, dtype: str, seed: int) -> Array:
    """Return (H, W, bands): slopes on one side, noise on the other."""
    array = values(bands, dtype, seed=seed)
    down, across = np.mgrid[: SIZE[0], : SIZE[1]][..., None]
    slope = down * 3 + across * 2 + np.arange(bands) * 5 + seed * 9
    return np.where(across < SIZE[1] // 2, slope.astype(dtype), array)


def reader_of(folder: Path, arrays: list[Array], **reading: Any) -> da.CocoReader:
    files = {f"{n}.tif": encode(array, "tif") for n, array in enumerate(arrays)}
    bands, dtype = arrays[0].shape[2], str(arrays[0].dtype)
    return da.CocoReader(*data_set(folder, files), channels=bands, dtype=dtype, **reading)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------- against the files

EXACT: dict[str, list[da.Op]] = {
    "flipped": [da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1), WHOLE],
    "cropped": [da.CenterCrop((21, 31)), da.Resize((21, 31))],
    "turned": [da.RandomRotate90(p=1), da.Resize((53, 37))],
}


@pytest.mark.parametrize(
    ("name", "bands", "dtype"),
    [
        ("flipped", 1, "uint16"),
        ("cropped", 2, "float32"),
        ("turned", 3, "uint16"),
        ("flipped", 4, "uint8"),
        ("flipped", 6, "uint16"),
        ("turned", 7, "float32"),
    ],
)
def test_values_stay_as_they_are(rendered: Any, tmp_path: Path, name: str, bands: int, dtype: str) -> None:
    """Also those that are no numbers, and those beside them."""
    array = values(bands, dtype)
    if dtype == "float32":
        array[9:12, 14, 0], array[20, 20, -1] = np.nan, np.inf
    expected = {"flipped": array[::-1, ::-1], "cropped": array[8:29, 11:42], "turned": np.rot90(array)}[name]
    image = rendered(reader_of(tmp_path, [array]), [*EXACT[name], VALUES], 1).images[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(image, expected.astype(np.float32))


def test_without_normalize_a_batch_has_the_values_of_the_files(rendered: Any, tmp_path: Path) -> None:
    array = values(6, "uint16")
    reader = reader_of(tmp_path, [array, array], bands=(5, 0, 3, 3))
    images = rendered(reader, [WHOLE], 2).images
    assert images.dtype == torch.float32
    np.testing.assert_array_equal(images[1].permute(1, 2, 0), array[..., [5, 0, 3, 3]])


def test_pairs_of_files(rendered: Any, tmp_path: Path) -> None:
    """An RGB image and a thermal one, as four bands."""
    visible, thermal = values(3, "uint8"), values(1, "uint16", seed=1)
    folders = [
        data_set(tmp_path / "a", {"0.png": encode(visible, "png")}),
        data_set(tmp_path / "b", {"0.png": encode(thermal, "png")}),
    ]
    pairs = da.StackReader([da.CocoReader(*folders[0]), da.CocoReader(*folders[1], channels=1, dtype="uint16")])
    image = rendered(pairs, [da.RandomHorizontalFlip(p=1), WHOLE, VALUES], 1).images[0].permute(1, 2, 0)
    np.testing.assert_array_equal(image, np.concatenate([visible, thermal], 2)[:, ::-1])


def test_tiles_of_many_bands(rendered: Any, tmp_path: Path) -> None:
    array = values(6, "uint16")
    tiles = da.TileReader(reader_of(tmp_path, [array]), 32, overlap=0)
    images = rendered(tiles, [da.Resize((32, 32)), VALUES], 2).images
    np.testing.assert_array_equal(images[0].permute(1, 2, 0), array[:32, :32])


# -------------------------------------------------------------------------------- against the CPU

SAME: dict[str, list[da.Op]] = {
    "padded": [da.Pad((4, 2), fill=FILL), da.Resize((41, 61))],
    "mosaic": [WHOLE, da.Mosaic()],
    "cutmix": [WHOLE, da.CutMix(p=1)],
    "pasted": [WHOLE, da.CopyPaste(p=1, max_hidden=1)],
    "erased": [WHOLE, da.RandomErasing(p=1, value=FILL)],
    "erased by default": [WHOLE, da.RandomErasing(p=1)],
    "grid": [WHOLE, da.GridMask(p=1, size=(5, 12))],
    "salt": [WHOLE, da.SaltAndPepperNoise((0.2, 0.2), p=1), da.Normalize(scale=4096)],
    "coarse": [WHOLE, da.Downscale((0.1, 0.9), p=1)],
}
"""Recipes that only move values: the kernels move the same ones."""

CLOSE: dict[str, list[da.Op]] = {
    "larger": [da.RandomHorizontalFlip(p=1), da.Resize((74, 106))],
    "smaller": [da.Resize((17, 23))],
    "several sizes": [da.RandomHorizontalFlip(), da.Resize(30, max_size=50)],
    "windows": [da.RandomZoomOut(p=1, fill=FILL), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((30, 40))],
    "letterbox": [da.Resize((64, 64), letterbox="center", fill=FILL)],
    "turned": [da.RandomAffine(20, (0.2, 0.2), (0.8, 1.5), 10, fill=FILL), WHOLE],
    "in perspective": [da.RandomPerspective(0.5, p=1), WHOLE],
    "turned and cut off": [
        da.RandomRotation(30, fill=FILL), da.RandomZoomOut(1.5, p=1, fill=FILL), da.RandomRotation(30, fill=FILL), WHOLE
    ],
    "mosaic of rotated images": [da.RandomRotation(20, fill=FILL), WHOLE, da.Mosaic()],
    "mixed up": [WHOLE, da.MixUp()],
    "noise": [WHOLE, da.GaussianNoise(0.02, 0.1, p=1)],
    "gamma": [WHOLE, da.RandomGamma((0.5, 2), p=1), da.Normalize(scale=60000)],
    "blurred": [WHOLE, da.GaussianBlur(p=1)],
    "moved": [WHOLE, da.MotionBlur((3, 5), p=1)],
    "out of focus": [WHOLE, da.Defocus((1, 2), p=1)],
    "in shadow": [WHOLE, da.RandomShadow((0, 0, 1, 1), p=1)],
    "bent": [WHOLE, da.OpticalDistortion((-0.3, 0.5), FILL, p=1)],
    "elastic": [WHOLE, da.ElasticTransform(90, 6, FILL, p=1)],
    "one of": [WHOLE, da.RandomChoice([da.GaussianBlur(p=1), da.RandomApply([da.RandomErasing(p=1)], p=1)])],
    "normalised": [
        WHOLE, da.GaussianBlur(p=1), da.Normalize((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (1, 0.9, 0.8, 0.7, 0.6, 0.5))
    ],
    "float16": [WHOLE, da.Normalize(dtype="float16")],
    "channels last": [WHOLE, da.Normalize(memory_format="channels_last")],
}  # fmt: skip


@pytest.mark.parametrize("name", [*SAME, *CLOSE])
def test_they_render_what_the_cpu_renders(rendered: Any, tmp_path: Path, name: str) -> None:
    ops = (SAME | CLOSE)[name]
    reader = reader_of(tmp_path, [smooth(6, "uint16", seed) for seed in range(2)])
    made, expected = rendered(reader, ops, 2), by_cpu(reader, ops, 2)
    assert same(made, replace(expected, images=made.images))
    assert made.images.stride() == expected.images.stride()
    off = (made.images.double() - expected.images.double()).abs()
    white = expected.images.double().abs().max()
    if name in SAME:
        assert off.max() <= 1e-6 * white * isinstance(ops[-1], da.Normalize)
    assert off.max() < MOST_OFF * white
    unchanged = by_cpu(reader, [WHOLE, *(op for op in ops if isinstance(op, da.Normalize))], 2).images
    if WHOLE in ops and name not in ("float16", "channels last"):
        assert (expected.images != unchanged).any(3).any(2).any(1).any()


@pytest.mark.parametrize("bands", [1, 3, 4])
def test_negative_values_and_bands_that_are_not_in_threes(rendered: Any, tmp_path: Path, bands: int) -> None:
    ops = [
        da.RandomZoomOut(p=1), da.Resize((40, 50)), da.RandomGamma(p=1), da.GaussianNoise(p=1), da.RandomErasing(p=1),
        da.RandomShadow((0, 0, 1, 1), p=1), da.OpticalDistortion((0.3, 0.5), p=1), da.Normalize(scale=300),
    ]  # fmt: skip
    reader = reader_of(tmp_path, [smooth(bands, "float32", seed) for seed in range(2)])
    made, expected = rendered(reader, ops, 2).images, by_cpu(reader, ops, 2).images
    assert expected.min() < -0.1
    assert (made - expected).abs().max() < 5 * MOST_OFF


def test_epochs_in_groups_and_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of two sizes in memory of several batches, and of parts of a batch, are those of the CPU."""
    arrays = [values(5, "uint16", size, seed) for seed, size in enumerate([(17, 23), (12, 9)] * 4)]
    files = {f"{n}.tif": encode(array, "tif") for n, array in enumerate(arrays)}
    folder, json_file = data_set(tmp_path, files, (17, 23))
    document = json.loads(json_file.read_text())
    for image, array in zip(document["images"], arrays, strict=True):
        image["height"], image["width"] = array.shape[:2]
    document["annotations"] = []
    json_file.write_text(json.dumps(document))
    reader = da.CocoReader(folder, json_file, channels=5, dtype="uint16")
    ops: list[da.Op] = [da.RandomHorizontalFlip(), da.Resize((12, 16)), VALUES]
    expected = [batch.images for batch in da.Loader(reader, ops, 4, device="cpu")]
    monkeypatch.setattr("detaug.loading.stages.chain_for", chain_of)
    grouped = da.Loader(reader, ops, 4, device=DEVICE)
    parts = da.Loader(reader, ops, 4, device=DEVICE, memory=6 * 17 * 23 * reader.pixel_format.decoded_bytes)
    assert grouped.settings.batches_per_group > 1
    assert parts.settings.parts_per_batch > 1
    for loader in (grouped, parts):
        made = [batch.images.cpu() for batch in loader]
        assert len(made) == len(expected)
        for ours, others in zip(made, expected, strict=True):
            assert (ours - others).abs().max() < 1


def test_a_file_of_other_bands_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detaug.loading.stages.chain_for", chain_of)
    files = {"0.tif": encode(values(6, "uint16"), "tif"), "1.tif": encode(values(5, "uint16"), "tif")}
    reader = da.CocoReader(*data_set(tmp_path, files), channels=6, dtype="uint16")
    with pytest.raises(da.DataError, match=r"1\.tif has 5 bands"):
        list(da.Loader(reader, [WHOLE], 2, device=DEVICE))


# ------------------------------------------------------------------------------------- what is refused


@dataclass(frozen=True)
class Halve(da.PixelOp):
    any_bands = True

    def dali_graph(self, image: Any, planned: Any, views: da.Views) -> Any:
        return image * 0.5


@pytest.mark.parametrize(
    ("ops", "named"),
    [
        ([WHOLE, da.GaussianBlur(), Halve(), VALUES], r"Halve \(3rd op of the recipe\)"),
        ([WHOLE, da.GaussianBlur(), da.Mosaic()], r"Mosaic \(3rd op of the recipe\)"),
    ],
)
def test_ops_without_a_kernel_are_named(ops: list[da.Op], named: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Both remedies work."""
    reader = reader_of(tmp_path, [values(6, "uint16")] * 2)
    monkeypatch.setattr("detaug.loading.stages.chain_for", chain_of)
    named += r" has no kernel .* images of 6 bands of uint16 need one: leave"
    with monkeypatch.context() as patch:
        patch.setattr("detaug.loading.loader.resolve_device", lambda _: torch.device("cuda", 0))
        with pytest.raises(da.InputError, match=named):
            da.Loader(reader, ops, 2, device="cuda")
    without = [op for op in ops if not isinstance(op, Halve | da.Mosaic)]
    assert next(iter(da.Loader(reader, without, 2, device=DEVICE))).images.shape[1] == 6
    assert by_cpu(reader, ops, 2).images.shape[1] == 6


def test_an_error_of_triton_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DALI's operators do not take over, as they do for 8-bit RGB."""
    from detaug.recipes.kernel_chain import triton_works

    def fails(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    recipe = make_recipe([WHOLE], da.PixelFormat(6, "uint16"))
    kernels = chain_of(recipe, DEVICE)
    assert kernels
    monkeypatch.setattr("detaug.recipes.fused_kernel.FusedKernel.render", fails)
    monkeypatch.setattr("detaug.recipes.kernel_chain._works_on", set())
    with pytest.raises(da.InputError, match=r"Failed to find C compiler.*6 bands of uint16.*gcc.*device=\"cpu\""):
        triton_works(kernels, recipe)


# --------------------------------------------------------------------------------- how images come there


def test_decoded_values_lie_one_behind_the_other(tmp_path: Path) -> None:
    """What the pipeline of the loader decodes and copies: float32 of the bands that are used, where kernels look."""
    arrays = [values(6, "uint16", seed=seed) for seed in range(3)]
    reader = reader_of(tmp_path, arrays, bands=(4, 1))
    recipe = make_recipe([WHOLE], reader.pixel_format)
    kernels, feed = chain_of(recipe, DEVICE), ImageFeed(reader, DEVICE, 1.0, None)
    assert kernels
    worker = PipelineWorker(KernelRenderer([kernels], feed, DEVICE).graph, 3, 2, DEVICE)
    rows = np.array([2, 0, 1])
    worker.start(inputs(reader, rows))
    memory, starts = feed.decoded_memory(rows, worker.finish()), feed.find(rows).starts
    assert (memory.dtype, memory.device, len(memory)) == (torch.float32, DEVICE, 3 * 37 * 53 * 2)
    assert starts.tolist() == [0, 4 * 2 * 37 * 53, 2 * 4 * 2 * 37 * 53]
    expected = np.stack([arrays[row][..., [4, 1]] for row in rows])
    np.testing.assert_array_equal(memory.cpu().view(3, 37, 53, 2), expected)
    worker.close()
