"""MixUp uncovers nothing: masks, keypoints and tight boxes of what an op covered before stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from seeds import seeds

import detaug as da

SIDE = 48
RESIZE = da.Resize((SIDE, SIDE))
BLACK = (0.0, 0.0, 0.0)
ERASE = da.RandomErasing(p=0.8, scale=(0.1, 0.4), value=BLACK, max_hidden=1)
COVERING: list[da.Op] = [
    da.CutMix(p=0.8, min_visibility=0, max_hidden=1),
    da.CopyPaste(p=0.8, min_visibility=0, max_hidden=1),
    da.CopyPaste(p=0.8, masks=True, min_visibility=0, max_hidden=1),
    ERASE,
    da.GridMask(p=0.8, size=(12, 20), value=BLACK, max_hidden=1),
    da.Mosaic(p=0.8, min_visibility=0),
]
CORNERS = [(4, 6, 40, 34), (10, 2, 30, 44), (6, 12, 46, 46)]
"""The box of the object of each image, which is an L in its own channel."""


def samples_of(seed: int, **more: Any) -> da.Samples:
    images, rings = [np.zeros((SIDE, SIDE, 3), np.uint8) for _ in CORNERS], []
    for at, (x0, y0, x1, y1) in enumerate(CORNERS):
        x, y = (x0 + x1) // 2, (y0 + y1) // 2
        rings.append([[x0, y0, x, y0, x, y, x1, y, x1, y1, x0, y1]])
        images[at][y0:y1, x0:x, at] = 255
        images[at][y:y1, x0:x1, at] = 255
    points = [[(x, y, 2) for x in range(x0, x1, 5) for y in range(y0, y1, 5)][:35] for x0, y0, x1, y1 in CORNERS]
    key_points = da.KeyPoints(np.array(points) + np.array([0.5, 0.5, 0]), swapped=np.arange(35)[None])
    shapes = da.Shapes.of_segmentations(rings, keypoints=key_points, **more)
    return da.batch(images, [[each] for each in CORNERS], [[1], [2], [3]], shapes=shapes, seed=seed).then(RESIZE)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("op", COVERING, ids=repr)
def test_objects_are_those_before_it(op: da.Op, tight: bool) -> None:
    for seed in range(3):
        before = samples_of(seed, tight=tight).then(op)
        after = before.then(da.MixUp())
        for at in range(3):
            pairs = [(at, other) for other in range(3) if other != at]
            assert any(all(map(np.array_equal, arrays_of(after, at), arrays_of(before, *pair))) for pair in pairs)


def arrays_of(samples: da.Samples, *images: int) -> list[NDArray[Any]]:
    """Return what the objects of some images have, concatenated."""
    each = samples.labels, samples.boxes, samples.masks, samples.keypoints
    return [np.concatenate([of_images[at] for at in images]) for of_images in each]


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_masks_are_where_their_channel_is_seen(seed: int) -> None:
    """Chains in which a MixUp comes before, between and after ops that cover.

    No mask has a pixel that does not show its object. Seen without a mask is one thing only: `CopyPaste(masks=True)`
    pastes the pixels of an object, and in an average these show another one too, which stays behind.
    """
    rng = np.random.default_rng(seed)
    chain = [COVERING[at] for at in rng.integers(0, len(COVERING), 3)]
    for at in sorted(rng.choice(4, 2, replace=False).tolist(), reverse=True):
        chain.insert(at, da.MixUp())
    mixed = next(at for at, op in enumerate(chain) if isinstance(op, da.MixUp))
    cuts_out = any(isinstance(op, da.CopyPaste) and op.masks for op in chain[mixed:])
    after = samples_of(seed).then(*chain)
    for image, labels, masks in zip(after.images, after.labels, after.masks, strict=True):
        for label in (1, 2, 3):
            seen, of_label = image[..., label - 1] > 0, masks[labels == label].any(0)
            assert not (of_label & ~seen).any(), (chain, label)
            assert cuts_out or np.array_equal(seen, of_label), (chain, label)
