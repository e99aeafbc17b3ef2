"""Batches in other frameworks, as docs/interop.md shows it: the same memory, no copy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from painted_files import Folder

import detaug as da


@pytest.fixture
def batch(painted: Folder, device: str) -> da.Batch:
    return next(iter(da.Loader(da.CocoReader(*painted), [da.Resize((40, 60)), da.Normalize()], 4, device=device)))


def expected(batch: da.Batch) -> list[np.ndarray]:
    return [each.cpu().numpy() for each in (batch.images, batch.boxes, batch.labels)]


def test_numpy(batch: da.Batch) -> None:
    on_cpu = batch.to("cpu")
    images, boxes, labels = (np.from_dlpack(each) for each in (on_cpu.images, on_cpu.boxes, on_cpu.labels))
    assert all(map(np.array_equal, (images, boxes, labels), expected(batch)))
    assert images.ctypes.data == on_cpu.images.data_ptr()


@pytest.mark.slow
def test_jax(batch: da.Batch) -> None:
    jax = pytest.importorskip("jax")
    if batch.images.is_cuda and jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    images, boxes = jax.dlpack.from_dlpack(batch.images), jax.dlpack.from_dlpack(batch.boxes)
    assert all(map(np.array_equal, (np.asarray(images), np.asarray(boxes)), expected(batch)))
    assert images.unsafe_buffer_pointer() == batch.images.data_ptr()
    labels = jax.numpy.asarray(jax.dlpack.from_dlpack(batch.labels.to(torch.int32)))
    assert np.array_equal(np.asarray(labels), expected(batch)[2])


@pytest.mark.slow
def test_tensorflow(batch: da.Batch) -> None:
    tf = pytest.importorskip("tensorflow")
    if batch.images.is_cuda and not tf.config.list_physical_devices("GPU"):
        pytest.skip("this TensorFlow has no GPU")
    for tensor, array in zip((batch.images, batch.boxes, batch.labels), expected(batch), strict=True):
        there = tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
        assert np.array_equal(there.numpy(), array)


def test_a_trainer_may_give_a_loader_what_it_looks_at(painted: Folder) -> None:
    """As the script of docs/trainers/ultralytics.md does."""
    loader = da.Loader(da.CocoReader(*painted), [da.Resize((40, 60))], 4, device="cpu")
    assert not hasattr(loader, "dataset")
    with pytest.raises(AttributeError, match="a Loader has no dataset to skip batches of"):
        _ = loader.dataset
    loader.dataset = loader.sampler = [1, 2]  # type: ignore[attr-defined]
    assert loader.dataset == [1, 2]
    assert not hasattr(da.Loader(da.CocoReader(*painted), [da.Resize((40, 60))], 4, device="cpu"), "dataset")
