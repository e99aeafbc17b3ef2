"""Passes of a GPU that lay shadows, fog and rain over rendered images: see `pixel_passes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor

from detaug.boxes.views import Views
from detaug.gpu.passes import Tensors, blur_numbers, blurred, launch_pass, numbers_of, own_inputs
from detaug.ops.op import Arrays
from detaug.ops.recipe import PixelStep
from detaug.ops.weather import FOG_CELLS, RandomRain, RandomShadow


@dataclass(frozen=True)
class ShadowPass:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        shadows = np.concatenate(
            [own["intensity"][..., None], own["corners"].reshape(*own["corners"].shape[:2], -1)], 2
        )
        return {"numbers": numbers_of(views, own["apply"], shadows.reshape(len(views), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_shadows

        launch_pass(add_shadows, images, parameters["numbers"], CORNERS=cast(RandomShadow, self.step.op).corners)
        return images


@dataclass(frozen=True)
class FogPass:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        numbers = numbers_of(views, own["apply"], own["grid"].reshape(len(views), -1))
        return {"numbers": numbers, "blur": blur_numbers(views, own)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_fog

        launch_pass(add_fog, images, parameters["numbers"], CELLS=FOG_CELLS)
        return blurred(images, parameters["blur"])


@dataclass(frozen=True)
class RainPass:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        streak = own["streak"].clip([-np.inf, 1e-3])  # 0 where a container left it out
        return {"numbers": numbers_of(views, own["apply"], streak, own["ends"].reshape(len(views), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_rain

        op = cast(RandomRain, self.step.op)
        red, green, blue = op.color  # all are floats, or Triton would compile a kernel for each number
        more = {"brightness": op.brightness, "thickness": float(op.width), "blur": float(op.blur)}
        launch_pass(add_rain, images, parameters["numbers"], red=red, green=green, blue=blue, **more)
        return images
