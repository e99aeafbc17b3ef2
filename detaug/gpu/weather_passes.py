"""Passes that lay shadows, fog and rain over rendered images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from detaug.arguments import RGB
from detaug.arrays import Arrays
from detaug.boxes.views import Views
from detaug.gpu.passes import Tensors, blur_numbers, blurred, launch_pass, numbers_of


@dataclass(frozen=True)
class ShadowPass:
    corners: int
    """Of each polygon."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        shadows = np.concatenate(
            [inputs["intensity"][..., None], inputs["corners"].reshape(*inputs["corners"].shape[:2], -1)], 2
        )
        return {"numbers": numbers_of(views, inputs["apply"], shadows.reshape(len(views), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_shadows

        launch_pass(add_shadows, images, parameters["numbers"], CORNERS=self.corners)
        return images


@dataclass(frozen=True)
class FogPass:
    cells: int
    """Along each side of an image."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        numbers = numbers_of(views, inputs["apply"], inputs["grid"].reshape(len(views), -1))
        return {"numbers": numbers, "blur": blur_numbers(views, inputs)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_fog

        launch_pass(add_fog, images, parameters["numbers"], CELLS=self.cells)
        return blurred(images, parameters["blur"])


@dataclass(frozen=True)
class RainPass:
    color: RGB
    width: int
    blur: int
    brightness: float

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        streak = inputs["streak"].clip([-np.inf, 1e-3])  # 0 where a container left it out
        return {"numbers": numbers_of(views, inputs["apply"], streak, inputs["ends"].reshape(len(views), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_rain

        red, green, blue = self.color  # all are floats, or Triton would compile a kernel for each number
        more = {"brightness": self.brightness, "thickness": float(self.width), "blur": float(self.blur)}
        launch_pass(add_rain, images, parameters["numbers"], red=red, green=green, blue=blue, **more)
        return images
