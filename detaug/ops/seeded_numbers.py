"""Random numbers from a seed for each image: an op can draw any number of them, for any images at once.

A generator's numbers depend on who drew before. These depend on a seed and a counter only, so an image gets the same
ones beside any other images.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints

Seeds: TypeAlias = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = [(np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))]
_LAST_SHIFT = np.uint64(31)
_HALF, _SIGN_AND_EXPONENT = np.uint64(32), np.uint64(12)
_ONE = np.float64(1).view(np.uint64)


def pairs_of_numbers(seeds: Seeds, counters: Ints) -> Floats:
    """Return (2, ...): two numbers in [0, 1) for each seed and counter, which broadcast to the shape "...".

    The two are the halves of one output of SplitMix64 (Steele et al. 2014, Fast Splittable Pseudorandom Number
    Generators), whose state goes up by a constant for each counter.
    """
    bits = seeds + counters.astype(np.uint64) * _STEP
    shifted = np.empty_like(bits)
    for shift, factor in _MIX:
        bits ^= np.right_shift(bits, shift, out=shifted)
        bits *= factor
    bits ^= np.right_shift(bits, _LAST_SHIFT, out=shifted)
    numbers = np.empty((2, *bits.shape))
    mantissas = numbers.view(np.uint64)  # of numbers in 1..2: faster than a conversion
    np.right_shift(bits, _SIGN_AND_EXPONENT, out=mantissas[0])
    np.right_shift(np.left_shift(bits, _HALF, out=bits), _SIGN_AND_EXPONENT, out=mantissas[1])
    mantissas |= _ONE
    numbers -= 1
    return numbers
