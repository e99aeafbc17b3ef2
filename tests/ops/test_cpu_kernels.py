"""CPU kernels at the limits: views beside the image, windows on its border, floats and bytes, torch's settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from painted_files import Folder, same

import detaug as da
from detaug.boxes.views import Views
from detaug.ops.cpu_kernels import resize
from detaug.pipelines.graph import Node, Nodes

BLACK = (0.0, 0.0, 0.0)
GRAY = np.full((61, 97, 3), 100, np.uint8)


@pytest.mark.parametrize("resize", [da.Resize((20, 30)), da.Resize((20, 30), letterbox="center", fill=BLACK)], ids=repr)
def test_a_view_beside_the_image_is_all_fill(resize: da.Op, device: str) -> None:
    beside = [da.Pad((500, 0, 0, 0), fill=BLACK), da.CenterCrop((10, 15), fill=BLACK)]
    samples = da.batch([GRAY], [[[0, 0, 97, 61]]], device=device).then(*beside, resize)
    assert not samples.images[0].any()
    assert not len(samples.boxes[0])


def test_windows_of_a_mirrored_image_may_lie_on_its_border(device: str) -> None:
    """After two flips, coordinates of the border are 0 only up to rounding."""
    boxes = [[0, 0, 97, 61], [3, 4, 60, 60], [0, 0, 30, 20], [60, 40, 97, 61]]
    crop = da.RandomIoUCrop(allow_no_crop=False, scaling=(0.1, 1))
    samples = da.batch([GRAY] * 500, [boxes] * 500, device=device)
    after = samples.then(da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1), crop, da.Resize((20, 30)))
    assert all((image == 100).all() for image in after.images)


@dataclass(frozen=True)
class Scaled(da.PixelOp):
    """Returns float32 beyond 0..255, as arithmetic in DALI does."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return image * 1.75 - 50.25


@pytest.mark.parametrize("op", [da.Normalize(dtype="uint8"), da.ColorJitter()], ids=repr)
def test_floats_become_bytes_rounded_and_clipped(op: da.Op, device: str) -> None:
    ramp = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (2, 1, 3))
    image = da.batch([ramp], device=device).then(da.Resize((2, 256)), Scaled(), op).images[0]
    image = image if op.stage == "pixels" else image.transpose(1, 2, 0)
    assert image.dtype == np.uint8
    assert np.abs(image - (ramp * 1.75 - 50.25).clip(0, 255)).max() <= 0.5


@pytest.mark.parametrize("side", range(40, 48))
def test_no_fill_on_a_side_that_has_none(side: int, device: str) -> None:
    """The image takes whole output pixels, also where half of an odd side is not whole."""
    samples = da.batch([GRAY], device=device).then(da.Pad((97, 61, 0, 0), fill=BLACK), da.Resize((side, side)))
    image = samples.images[0]
    assert (image[-1] == 100).any()
    assert (image[:, -1] == 100).any()
    assert np.abs((image == 100).all(2).sum() - side**2 / 4) < side


@pytest.mark.parametrize("default", [torch.device("meta"), torch.bfloat16], ids=repr)
def test_torchs_defaults_do_not_matter(default: torch.device | torch.dtype, painted: Folder) -> None:
    recipe = [da.Resize((40, 50), letterbox="center"), da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)]
    reader = da.CocoReader(*painted)
    batch = next(iter(da.Loader(reader, recipe, 4, device="cpu")))
    set_default = torch.set_default_device if isinstance(default, torch.device) else torch.set_default_dtype
    set_default(default)  # type: ignore[operator]
    try:
        again = next(iter(da.Loader(reader, recipe, 4, device="cpu")))
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert same(batch, again)


def test_a_subclass_with_its_own_dali_graph_does_not_inherit_the_cpu_kernel(device: str) -> None:
    class Black(da.ColorJitter):
        def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
            return image * 0

    white = da.batch([np.full((4, 4, 3), 255, np.uint8)], device=device).then(da.Resize((4, 4)), Black())
    assert white.images[0].max() == 0


def test_an_image_that_keeps_its_size_is_a_copy() -> None:
    """Ops after it may write into it, and its source may be an image in memory."""
    source = torch.arange(60 * 80 * 3).to(torch.uint8).view(60, 80, 3).permute(2, 0, 1)
    for first, last in (((0, 0), (60, 80)), ((60, 0), (0, 80)), ((3, 5), (43, 75))):
        region = np.array([first, last, np.abs(np.subtract(first, last))], float)
        window = source[:, min(first[0], last[0]) : max(first[0], last[0]), first[1] : last[1]]
        expected = (window.flip(1) if first[0] > last[0] else window).clone()
        image = resize(source, region)
        assert image.equal(expected)
        image.zero_()
    assert source.equal(torch.arange(60 * 80 * 3).to(torch.uint8).view(60, 80, 3).permute(2, 0, 1))
