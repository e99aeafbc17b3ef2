"""CPU kernels at the limits: views beside the image, windows on its border, floats and bytes, torch's settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Thread, active_count
from time import sleep

import numpy as np
import pytest
import torch
from faults import Faults
from nvidia.dali import Pipeline, fn
from painted_files import Folder, same

import detaug as da
from detaug.boxes.views import Views
from detaug.ops.cpu_kernels import Array, apply_in_threads, make_thread_pool, resize
from detaug.ops.op import Node, Nodes

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


def torch_threads_in_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(torch.get_num_threads).result()


def test_pools_made_at_once_leave_torchs_number_of_threads() -> None:
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(20):
            together = [Thread(target=make_thread_pool, args=(3,)) for _ in range(6)]
            for thread in together:
                thread.start()
            for thread in together:
                thread.join()
            assert torch_threads_in_a_new_thread() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)


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


@pytest.mark.parametrize(("kind", "error"), [("Ctrl-C", KeyboardInterrupt), ("thread", RuntimeError)])
@pytest.mark.parametrize("at", [0, 1, 2, 7])
def test_no_thread_is_left_where_one_does_not_start(at: int, kind: str, error: type[BaseException]) -> None:
    """Those that started before it must not wait for it: the process could not end."""
    threads, of_torch = active_count(), torch.get_num_threads()
    with Faults(at, kind).active(), pytest.raises(error):
        make_thread_pool(8)
    assert (active_count(), torch.get_num_threads()) == (threads, of_torch)


def test_no_sample_is_computed_after_the_error_of_another() -> None:
    """DALI frees the memory of a batch that failed."""
    begun, done = Event(), list[int]()

    def sample(number: Array) -> Array:
        if not number[0]:
            begun.wait()
            raise ValueError("the first sample fails")
        begun.set()
        sleep(0.3)
        done.append(int(number[0]))
        return number

    pipeline = Pipeline(2, num_threads=2, device_id=None)
    with pipeline:
        pipeline.set_outputs(apply_in_threads(sample, fn.external_source(name="number")))
    pipeline.feed_input("number", np.arange(2)[:, None])
    with pytest.raises(RuntimeError, match="the first sample fails"):
        pipeline.run()
    assert done == [1]


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
