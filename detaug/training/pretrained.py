"""torchvision's weights, fetched by torchvision into torch's own cache, only when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from detaug.errors import InputError

Pretrained = Literal["coco", "backbone"]

_VGG = "VGG16_Weights.IMAGENET1K_FEATURES"
_RESNET = "ResNet50_Weights.IMAGENET1K_V1"
"""The weights that torchvision's references train the models from, and with which the others have a ResNet-50."""


def pretrained_file(model: str, which: Pretrained, say: Callable[[str], None]) -> Path:
    """Return the file of weights, and fetch it unless it is there: of the whole model, or of its backbone.

    Says first what is fetched, how large it is, from where, and where it is kept. Raises InputError with the address
    and the place of the file if it cannot be fetched.
    """
    from torchvision import models  # the detector was made, so it is installed

    if which == "backbone" and model.startswith("ssdlite"):
        raise InputError(f"the backbone of {model} is narrower than ImageNet's weights; take pretrained 'coco'")
    of_backbone = _VGG if model == "ssd300_vgg16" else _RESNET
    chosen: Any = models.get_model_weights(model).DEFAULT if which == "coco" else models.get_weight(of_backbone)
    path = Path(torch.hub.get_dir(), "checkpoints", chosen.url.rpartition("/")[2])
    if path.is_file():
        say(f"{chosen}: {path}")
        return path
    say(f"{chosen}: fetching {chosen.meta['_file_size']:.0f} MB from {chosen.url}, kept as {path}")
    try:
        chosen.get_state_dict(progress=sys.stderr.isatty(), check_hash=True, weights_only=True)
    except (OSError, RuntimeError) as error:  # no network, a full disk; another checksum
        reason = getattr(error, "reason", None) or error
        raise InputError(f"cannot fetch {chosen.url} ({reason}); bring the file to {path}") from None
    return path
