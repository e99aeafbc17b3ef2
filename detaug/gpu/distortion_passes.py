"""The pass over rendered images that bends them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from detaug.arguments import RGB
from detaug.arrays import Arrays
from detaug.boxes.fields import NOT_SHIFTED
from detaug.boxes.views import Views
from detaug.gpu.passes import Tensors, color_arguments, color_columns, numbers_of, rendered
from detaug.pixel_format import PixelFormat


@dataclass(frozen=True)
class DistortionPass:
    """Resamples images through the fields that were planned as "lens", or as "control" and "spacing"."""

    pixels: PixelFormat
    fill: RGB

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        nothing = np.zeros(len(views))
        spacing = np.where((stated := inputs.get("spacing", nothing)) > 0, stated, NOT_SHIFTED)  # 0 where left out
        color = color_columns(self.pixels, self.fill, len(views))
        numbers = numbers_of(views, inputs.get("lens", nothing), spacing, *color)
        return {"numbers": numbers, **({"control": inputs["control"]} if "control" in inputs else {})}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.distortion_kernels import resample

        color = color_arguments(self.pixels, self.fill)
        numbers = parameters["numbers"]
        control = parameters.get("control", numbers)
        points_down, points_across = control.shape[1:3] if control.ndim == 4 else (0, 0)
        return rendered(
            resample, images, numbers, control, **color, points_down=points_down, points_across=points_across,
            SHIFTS=control.ndim == 4,
        )  # fmt: skip
