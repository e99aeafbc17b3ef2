"""`OpticalFlow`, which gives clips the motion of their pixels."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.arguments import check, is_number, is_whole
from detaug.arrays import Arrays
from detaug.boxes.views import Views
from detaug.ops.op import PixelOp


@dataclass(frozen=True)
class OpticalFlow(PixelOp):
    """Give batches of clips `ClipBatch.flow`, the motion from each frame to the next. It changes no pixels.

    For a `Loader` of clips on a GPU, whose optical flow engine computes it (Turing or later). It is the last op, or the
    last before `Normalize`: the motion is that of the finished frames, with their crops, flips and sizes.

    Args:
        preset: 0 is slow and exact, 0.5 is between, 1 is fast, as in DALI's `fn.optical_flow`.
        grid: Pixels in x and y that have one vector: 1, 2 or 4.

    >>> da.OpticalFlow(grid=2)
    OpticalFlow(preset=1.0, grid=2)
    """

    preset: float = 1.0
    grid: int = 4

    def check_arguments(self) -> None:
        check("preset", self.preset, is_number(self.preset) and self.preset in (0, 0.5, 1), "0, 0.5 or 1")
        check("grid", self.grid, is_whole(self.grid) and self.grid in (1, 2, 4), "1, 2 or 4")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return views, {}
