"""The units of pixel values at a place of a pipeline: 0..255, 0..1, or those behind a Normalize (decision 27)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from detaug.arguments import RGB
from detaug.ops.normalize import Normalize

PerChannel = tuple[float, float, float]


@dataclass(frozen=True)
class Units:
    """A value v there is v * scale + offset in 0..1, by channel; `most`: what the library takes for the largest value.

    `most` goes with the type alone: 1 for floats, also those that Normalize made.
    """

    scale: PerChannel
    offset: PerChannel
    most: float

    @property
    def usual(self) -> bool:
        """Return whether values are in 0..255 as whole numbers, or in 0..1 as floats: those that pixel ops are for."""
        return self in (BYTES, FLOATS)

    def divided(self, mean: Sequence[float], std: Sequence[float]) -> Units:
        """Return the units of (value - mean) / std."""
        channels = [*zip(self.scale, self.offset, mean, std, strict=True)]
        red, green, blue = (scale * by for scale, _, _, by in channels)
        zero = [offset + scale * middle for scale, offset, middle, _ in channels]
        return Units((red, green, blue), (zero[0], zero[1], zero[2]), 1.0)

    def normalize(self) -> Normalize:
        """Return the op that brings pixels to these units."""
        return Normalize(_rounded(self.offset), _rounded(self.scale))

    def color(self, values: Sequence[float]) -> RGB:
        """Return a color of these units in 0..255: whole numbers, since that is what images of 8 bits have."""
        red, green, blue = values
        if self == BYTES:
            return red, green, blue
        channels = zip(values, self.scale, self.offset, strict=True)
        red, green, blue = (round(255 * (value * scale + offset)) for value, scale, offset in channels)
        return red, green, blue

    def level(self, value: float) -> float:
        """Return one value for all channels in 0..255: in the middle of the channels, where these differ."""
        return value if self == BYTES else min(max(sum(self.color([value] * 3)) / 3, 0), 255)

    def step(self, difference: float) -> float:
        """Return a difference of values as a fraction of 255."""
        return difference / 255 if self == BYTES else difference * sum(self.scale) / 3

    def part(self, share: float) -> float:
        """Return a difference that is a fraction of `most` as a fraction of 255."""
        return share if self.usual else self.step(share * self.most)


BYTES = Units((1 / 255,) * 3, (0.0,) * 3, 255.0)
FLOATS = Units((1.0,) * 3, (0.0,) * 3, 1.0)


def _rounded(numbers: PerChannel) -> PerChannel:
    red, green, blue = (round(number, 9) for number in numbers)
    return red, green, blue
