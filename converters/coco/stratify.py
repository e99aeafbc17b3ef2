"""Share out samples with labels so that each part gets its share of every label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detaug.converters.coco.table import Floats, Ints

Labels = NDArray[np.bool_]
"""(U, C): which of the labels each sample has."""


def stratify(labels: Labels, parts: Sequence[float], rng: np.random.Generator) -> Ints:
    """Return (U,) the number of the part that each sample goes to. parts: K shares, of 1 in all.

    Iterative stratification, algorithm 1 of Sechidis, Tsoumakas and Vlahavas, "On the Stratification of Multi-Label
    Data" (2011): the label with the fewest samples left is shared out first, each of its samples to the part that
    wants the most of it, at a tie to the part that wants the most samples, and then at random. A sample without any
    label stays in part 0.
    """
    order = rng.permutation(len(labels))
    labels = labels[order]
    left = labels.sum(0)
    wanted_samples, wanted = np.multiply(parts, len(labels)), np.outer(left, parts)
    part = np.full(len(labels), -1)
    while left.any():
        rarest = int(np.where(left > 0, left, len(labels) + 1).argmin())
        for at in np.flatnonzero(labels[:, rarest] & (part < 0)).tolist():
            part[at] = chosen = _most_wanting(wanted[rarest], wanted_samples, rng)
            wanted[labels[at], chosen] -= 1
            wanted_samples[chosen] -= 1
            left -= labels[at]
    found = np.zeros(len(labels), np.int64)
    found[order] = np.maximum(part, 0)
    return found


def _most_wanting(wanted: Floats, wanted_samples: Floats, rng: np.random.Generator) -> int:
    """Return the part with the highest numbers (K,), the first array before the second."""
    best = np.flatnonzero(wanted == wanted.max())
    best = best[wanted_samples[best] == wanted_samples[best].max()]
    return int(best[0] if len(best) == 1 else rng.choice(best))
