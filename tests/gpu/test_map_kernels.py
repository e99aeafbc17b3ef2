"""The Triton kernel of maps gives the bits of Numba's loop. Without a GPU Triton interprets it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interpreter import interpret_quickly
from panoptic_files import PaintedPanoptic
from PIL import Image
from seeds import slow

import detaug as da
from detaug.boxes.masks import pixel_grid
from detaug.maps.sampling import sample_maps
from detaug.ops.op import Op

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [*[pytest.mark.gpu] * (DEVICE.type == "cuda"), pytest.mark.filterwarnings("ignore:MixUp:UserWarning")]
pytest.importorskip("triton")

SIZE = (60, 90)
IMAGES = 6 if DEVICE.type == "cuda" else 2
RESIZE = da.Resize(SIZE)
RECIPES: dict[str, list[Op]] = {
    "resized": [RESIZE],
    "affine": [da.RandomHorizontalFlip(), da.RandomAffine(degrees=30, shear=10), RESIZE],
    "perspective": [da.RandomPerspective(distortion_scale=0.6, p=1), da.RandomIoUCrop(), RESIZE],
    "letterbox": [da.RandomZoomOut(max_ratio=1.5), da.Resize(SIZE, letterbox="center")],
    "mixed": [da.RandomRotation(30), RESIZE, da.Mosaic(p=1), da.CopyPaste(p=1), da.RandomErasing(p=1), da.CutMix()],
    "averaged": [RESIZE, da.CutMix(), da.CopyPaste(p=1), da.MixUp(p=1), da.RandomErasing(p=1), da.MixUp(p=1)],
    "lens": [RESIZE, da.Mosaic(), da.MixUp(p=1), da.OpticalDistortion((-0.2, 0.2), p=0.7)],
    "elastic": [da.RandomRotation(30), RESIZE, da.ElasticTransform(90, 6, p=0.7)],
}


@pytest.fixture(autouse=True)
def large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes as long for a large block as for a small one."""
    if DEVICE.type == "cpu":
        interpret_quickly(monkeypatch)
        monkeypatch.setattr("detaug.gpu.maps.ROWS", 64)
        monkeypatch.setattr("detaug.gpu.maps.COLUMNS", 128)
        monkeypatch.setattr("detaug.gpu.grids.MOVED_ROWS", 256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of a panoptic dataset with maps of classes, of other sizes too, and of depths, some of them not known."""
    folder, rng = tmp_path_factory.mktemp("maps"), np.random.default_rng(5)
    painted = PaintedPanoptic(folder / "data")
    for name in ("classes", "depth"):
        (painted.folder / name).mkdir()
    for index, numbers in enumerate(painted.segments):
        scale = index % 2 + 1
        classes = rng.choice([0, 1, 2, 255], (12, 16)).repeat(8 * scale, 0).repeat(8 * scale, 1).astype(np.uint8)
        Image.fromarray(classes).save(painted.folder / f"classes/{index}.png")
        depths = rng.integers(1000, 9000, numbers.shape).astype(np.uint16) * (rng.random(numbers.shape) < 0.8)
        Image.fromarray(depths.astype(np.uint16)).save(painted.folder / f"depth/{index}.png")
    return painted.folder


def reader_of(folder: Path, **more: Any) -> da.CocoReader:
    kinds = {
        "classes": da.ClassMap("classes", **more),
        "depth": da.DepthMap("depth", **more),
        "panoptic": da.PanopticMap("panoptic", annotations=folder / "panoptic.json", **more),
    }
    return da.CocoReader(folder / "images", folder / "things.json", maps=kinds)


def check(batch: da.Batch, name: str, *, pair: bool = False, stride: int = 1, as_places: bool = False) -> int:
    """Compare a map with that of the loop; return how many values it shows."""
    from detaug.gpu.grids import pixel_grid_on_gpu
    from detaug.gpu.maps import sample_on_gpu, to_gpu

    shown, images = batch._shown_maps(name, as_places=as_places)
    maps = [batch.maps_of_images.of(image, name) for image in images.tolist()]
    expected = sample_maps(shown, maps, pixel_grid(*SIZE, stride), pair=pair)
    there = to_gpu(maps, shown.kind.dtype, DEVICE)
    found = sample_on_gpu(shown, there, pixel_grid_on_gpu(*SIZE, stride, DEVICE), DEVICE, pair=pair)
    for own, wanted in zip(found, expected, strict=True):
        assert own.cpu().numpy().dtype == wanted.dtype
        assert own.cpu().numpy().tobytes() == wanted.tobytes()
    return len(np.unique(expected[0]))


@pytest.mark.parametrize("erased", ["ignore", "keep"])
@pytest.mark.parametrize("recipe", ["lens", *slow(*(each for each in RECIPES if each != "lens"))])
def test_the_kernel_gives_the_bits_of_the_loop(folder: Path, recipe: str, erased: str) -> None:
    loader = da.Loader(reader_of(folder, erased=erased), RECIPES[recipe], batch_size=IMAGES, device="cpu", seed=3)
    batch = next(iter(loader))
    for name in batch.maps:
        assert check(batch, name, pair=True) > 2
    check(batch, "panoptic", stride=4, as_places=True)
    fraction = batch.map_pair("classes").fraction
    assert (fraction < 1).any() == (recipe in ("averaged", "lens"))
    loader.close()


def test_tiles_and_images_without_a_map(folder: Path) -> None:
    """Tiles of an image have its runs once; what has no map has none of the others' values."""
    (folder / "classes/3.png").rename(folder / "classes/3.away")
    try:
        reader = da.TileReader(reader_of(folder, missing="ignore"), 48)
        batch = next(iter(da.Loader(reader, [da.Resize(SIZE, letterbox="top-left")], 40, train=False, device="cpu")))
        assert len({id(own["classes"].runs) for own in batch.maps_of_images.images.values()}) < len(batch) == 40
        assert min(check(batch, name) for name in batch.maps) > 2
    finally:
        (folder / "classes/3.away").rename(folder / "classes/3.png")


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", RECIPES)
def test_maps_of_a_loader_on_a_gpu_are_those_of_one_on_the_cpu(folder: Path, recipe: str) -> None:
    pairs = zip(
        *(
            iter(da.Loader(reader_of(folder), RECIPES[recipe], batch_size=3, device=device, seed=7))
            for device in ("cuda", "cpu")
        ),
        strict=True,
    )
    for on_gpu, on_cpu in pairs:
        for name in on_cpu.maps:
            assert on_gpu.maps[name].is_cuda
            assert torch.equal(on_gpu.maps[name].cpu(), on_cpu.maps[name])
            assert torch.equal(on_gpu.map(name, 8).cpu(), on_cpu.map(name, 8))


@pytest.mark.gpu
@pytest.mark.parametrize("there", [[], [0, 2, 5], [0, 1, 2, 3, 4, 5]])
def test_maps_stay_on_a_gpu_while_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, there: list[int]
) -> None:
    from detaug.gpu.maps import map_table

    monkeypatch.setattr("detaug.gpu.maps.MOST", 0 if not there else 8 << 30)
    reader, recipe = reader_of(folder), [RESIZE, da.Mosaic(p=1), da.CopyPaste()]
    wanted = next(iter(da.Loader(reader_of(folder), recipe, batch_size=6, device="cpu", seed=7)))
    loader = da.Loader(reader, recipe, batch_size=6, device="cuda", seed=7)
    next(iter(loader))
    table = map_table(reader, torch.device("cuda", 0))
    assert table is not None
    assert table.known.sum() == (6 if there else 0)
    loader.close()
    table.known[:] = np.isin(np.arange(6), there)
    table._free = 0  # the others are read again, and stay outside
    read, reads = reader.maps["classes"].read, []
    monkeypatch.setattr(reader.maps["classes"], "read", lambda index: reads.append(index) or read(index))
    batch = next(iter(da.Loader(reader, recipe, batch_size=6, device="cuda", seed=7)))
    assert {*reads} == {*range(6)} - {*there}
    for name in wanted.maps:
        assert torch.equal(batch.maps[name].cpu(), wanted.maps[name])
        assert torch.equal(batch.map_pair(name, 4).first.cpu(), wanted.map(name, 4))
    assert torch.equal(pickle.loads(pickle.dumps(batch)).maps["panoptic"].cpu(), wanted.maps["panoptic"])
    assert torch.equal(batch.to("cpu").map("panoptic"), wanted.map("panoptic"))
