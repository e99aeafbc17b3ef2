"""The pass of a GPU that bends rendered images: see `pixel_passes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor

from detaug.boxes.fields import NOT_SHIFTED
from detaug.boxes.views import Views
from detaug.gpu.passes import Tensors, color_arguments, color_columns, numbers_of, own_inputs, rendered
from detaug.ops.distortion import Distortion
from detaug.ops.op import Arrays
from detaug.ops.recipe import PixelStep


@dataclass(frozen=True)
class DistortionPass:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own, nothing = own_inputs(self.step, inputs), np.zeros(len(views))
        spacing = np.where((given := own.get("spacing", nothing)) > 0, given, NOT_SHIFTED)  # 0 where left out
        color = color_columns(self.step.views.pixels, cast(Distortion, self.step.op).fill, len(views))
        numbers = numbers_of(views, own.get("lens", nothing), spacing, *color)
        return {"numbers": numbers, **({"control": own["control"]} if "control" in own else {})}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.distortion_kernels import resample

        color = color_arguments(self.step.views.pixels, cast(Distortion, self.step.op).fill)
        numbers = parameters["numbers"]
        control = parameters.get("control", numbers)
        points_down, points_across = control.shape[1:3] if control.ndim == 4 else (0, 0)
        return rendered(
            resample, images, numbers, control, **color, points_down=points_down, points_across=points_across,
            SHIFTS=control.ndim == 4,
        )  # fmt: skip
