"""The pass of a GPU that bends rendered images: see `pixel_passes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from detaug.boxes.views import Views
from detaug.gpu.passes import Tensors, numbers_of, own_inputs, rendered
from detaug.ops.distortion import Distortion
from detaug.ops.op import Arrays
from detaug.ops.recipe import PixelStep


@dataclass(frozen=True)
class DistortionPass:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"numbers": numbers_of(views, own_inputs(self.step, inputs)["lens"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.distortion_kernels import resample

        red, green, blue = map(float, cast(Distortion, self.step.op).fill)
        return rendered(resample, images, parameters["numbers"], red=red, green=green, blue=blue)
