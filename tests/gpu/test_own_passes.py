"""Passes of users' ops, which Triton's kernels render recipes with. Without a GPU Triton interprets the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, types
from torch import Tensor

import detaug as da
from detaug.boxes.views import Views
from detaug.recipes.kernel_chain import chain_of
from detaug.recipes.recipe import Recipe

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [*[pytest.mark.gpu] * (DEVICE.type == "cuda"), pytest.mark.usefixtures("few_programs")]

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8) for seed in range(3)]


@triton.jit
def darken(images, shares, length, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    image = tl.program_id(0)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(images + image * length + at, mask=at < length, other=0).to(tl.float32)
        darker = tl.floor(value * tl.load(shares + image) + 0.5).to(tl.uint8)
        tl.store(images + image * length + at, darker, mask=at < length)


class DarkerPass:
    def parameters(self, views: Views, inputs: Any) -> Any:
        return {"share": inputs["share"].astype(np.float32)}

    def run(self, images: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        darken[len(images),](images, parameters["share"], images[0].numel(), BLOCK=1024)
        return images


@dataclass(frozen=True)
class Darker(da.PixelOp):
    least: float = 0.3

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        return {"share": rng.uniform(self.least, 1, n)}

    def cpu_kernel(self, views: Views) -> Any:
        return lambda image, share: (image * torch.tensor(share) + 0.5).floor().to(torch.uint8)

    def dali_graph(self, image: Any, planned: Any, views: Views) -> Any:
        return fn.cast(image * planned["share"], dtype=types.UINT8)

    def gpu_pass(self, views: Views) -> Any:
        return DarkerPass()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of images on which `DarkerPass` ran. On the CPU too, Triton's kernels render."""
    lengths, run = list[int](), DarkerPass.run

    def counted(self: DarkerPass, images: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        lengths.append(len(images))
        return run(self, images, parameters)

    monkeypatch.setattr(DarkerPass, "run", counted)
    return lengths


@pytest.mark.parametrize(
    ("ops", "passes"),
    [
        ([Darker()], 1),
        ([Darker(), da.RandomInvert(p=1), Darker(0.8), da.Normalize()], 2),
        ([da.RandomApply([Darker(), da.RandomInvert(p=1)])], 1),
    ],
    ids=["alone", "among others", "in a container"],
)
def test_a_pass_paints_what_the_cpu_kernel_paints(
    ops: list[da.Op], passes: int, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = da.batch(IMAGES).then(da.Resize((20, 30)), *ops)
    expected = samples.images
    assert runs == []
    monkeypatch.setattr("detaug.samples.rendering.chain_for", lambda recipe, device: chain_of(recipe, DEVICE))
    monkeypatch.setattr("detaug.samples.rendering._with_triton", on(DEVICE))
    made = da.batch(IMAGES).then(da.Resize((20, 30)), *ops).images
    assert runs == [3] * passes
    for one, other in zip(expected, made, strict=True):
        assert np.abs(one.astype(float) - other).max() <= (1e-6 if one.dtype == np.float32 else 0)
    assert not all(map(np.array_equal, made, IMAGES))


def on(device: torch.device) -> Any:
    """Return what renders with Triton's kernels, on this device."""
    from detaug.samples.rendering import _with_triton

    return lambda chain, images, plan, _: _with_triton(chain, images, plan, device)


@dataclass(frozen=True)
class OtherDraw(Darker):
    """Its draw may not fit the pass that it would inherit."""

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        return {"share": rng.uniform(0, self.least, n)}


@dataclass(frozen=True)
class OtherBlur(da.GaussianBlur):
    """Plans a sigma per axis, which only DALI's operator takes."""

    def amounts(self, rng: np.random.Generator, n: int) -> Any:
        return {"sigma": rng.uniform(1, 2, (n, 2))}


class OtherKernel:
    def cpu_kernel(self, views: Views) -> Any:
        return lambda image, share: image


@dataclass(frozen=True)
class MixedIn(OtherKernel, Darker):
    """Has a kernel of another class than the pass."""


@pytest.mark.parametrize("op", [OtherDraw(), OtherBlur(), MixedIn()], ids=repr)
def test_a_subclass_that_does_something_else_inherits_no_pass(op: da.Op) -> None:
    for own in (op, da.RandomApply([op])):
        assert chain_of(Recipe((da.Resize((20, 30)), own)), DEVICE) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda images: images.float(), r"TypeError: run must return images \(3, 3, 20, 30\) torch\.uint8, got"),
        (lambda images: images[:2], r"TypeError: run must return images \(3, 3, 20, 30\) torch\.uint8, got \(2, 3"),
        (lambda images: images / "a", "TypeError: unsupported operand"),
    ],
    ids=["type", "shape", "error"],
)
def test_a_wrong_pass_is_named(changed: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DarkerPass, "run", lambda self, images, parameters: changed(images))
    monkeypatch.setattr("detaug.samples.rendering.chain_for", lambda recipe, device: chain_of(recipe, DEVICE))
    monkeypatch.setattr("detaug.samples.rendering._with_triton", on(DEVICE))
    with pytest.raises(da.OpError, match=rf"Darker \(2nd .*\) failed in gpu_pass: {message}"):
        _ = da.batch(IMAGES).then(da.Resize((20, 30)), Darker()).images


def test_an_op_needs_more_than_a_pass() -> None:
    with pytest.raises(TypeError, match="OnGpu changes pixels on a GPU alone: define dali_graph or cpu_kernel, too"):

        @dataclass(frozen=True)
        class OnGpu(da.PixelOp):
            def gpu_pass(self, views: Views) -> Any:
                return DarkerPass()
