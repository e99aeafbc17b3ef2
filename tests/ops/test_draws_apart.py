"""Two equal ops of one recipe draw different numbers, and so do two images, steps, epochs and seeds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from dali_pipelines import make
from nvidia.dali import fn
from painted_files import Folder

import detaug as da

TWICE: dict[str, list[da.Op]] = {
    "geometric": [da.RandomZoomOut(p=1), da.RandomZoomOut(p=1), da.Resize((40, 40))],
    "pixels": [da.Resize((40, 40)), da.RandomErasing(p=1), da.RandomErasing(p=1)],
    "mixing": [da.Resize((40, 40)), da.Mosaic(), da.Mosaic()],
}


def assert_different(draws: list[dict[str, np.ndarray]]) -> None:
    """All numbers are random: that some are equal by chance is impossible."""
    for one, other in combinations(draws, 2):
        for name in one.keys() & {"ratio", "offset", "area", "center", "partners"}:
            assert not np.isin(one[name], other[name]).any(), name


@pytest.mark.parametrize("recipe", TWICE)
def test_in_a_loader(recipe: str, painted: Folder, device: str) -> None:
    reader, options = da.CocoReader(*painted), {"device": device, "return_params": True}
    loader = da.Loader(reader, TWICE[recipe], 4, **options)
    batches = [*loader, *loader, next(iter(da.Loader(reader, TWICE[recipe], 4, seed=1, **options)))]
    first = 1 if recipe != "geometric" else 0
    assert_different([batch.params[step] for batch in batches for step in (first, first + 1)])


@pytest.mark.parametrize("recipe", TWICE)
def test_in_samples(recipe: str) -> None:
    images = [np.zeros((40, 40, 3), np.uint8)] * 4
    first = 1 if recipe != "geometric" else 0
    draws = [da.batch(images, seed=seed).then(*TWICE[recipe]).params[first : first + 2] for seed in (0, 1)]
    assert_different([each for both in draws for each in both])


def test_in_a_pipeline() -> None:
    """The matrix of two zoom-outs that drew the same would be that of one, twice."""
    zoom = da.RandomZoomOut(p=1)

    def nodes() -> Any:
        image = fn.external_source(lambda: [np.zeros((40, 50, 3), np.uint8)] * 8, layout="HWC")
        once = da.fn.augment(image, None, None, [zoom, da.Resize((20, 20))], return_matrix=True, seed=1)[-1]
        twice = da.fn.augment(image, None, None, [zoom, zoom, da.Resize((20, 20))], return_matrix=True, seed=1)[-1]
        return once, twice

    once, twice = (np.array(each.as_array()) for each in make(nodes, 8).run())
    scale = np.array([20 / 50, 20 / 40])
    ratios = [scale / np.stack([each[:, 0, 0], each[:, 1, 1]], axis=1) for each in (once, twice)]
    assert np.abs(ratios[1] - ratios[0] ** 2).min() > 1e-4


def test_in_compose() -> None:
    """Two zoom-outs that drew the same would make the side a square of the ratio."""
    image, target = np.zeros((100, 100, 3), np.uint8), {"boxes": np.zeros((0, 4)), "labels": []}
    zoom = da.RandomZoomOut(p=1)
    for seed in range(5):
        once, twice = (da.Compose(ops, seed=seed)(image, target)[0].shape[0] / 100 for ops in ([zoom], [zoom, zoom]))
        assert abs(twice - once**2) > 0.05
