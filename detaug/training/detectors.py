"""torchvision's detectors, to be fed with batches of `Loader`: built without downloads, weights from a file."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from detaug.presets import IMAGENET_MEAN, IMAGENET_STD, Triple


class Defaults(NamedTuple):
    """How torchvision's reference trains a model: its input, and a learning rate for a number of images a step."""

    size: int | tuple[int, int]
    """Output of the loader, as `Resize` takes it."""
    lr: float
    images: int
    weight_decay: float


DETECTORS = {
    "ssd300_vgg16": Defaults((300, 300), 0.002, 32, 0.0005),
    "ssdlite320_mobilenet_v3_large": Defaults((320, 320), 0.15, 192, 0.00002),
    "retinanet_resnet50_fpn_v2": Defaults(800, 0.01, 16, 0.0001),
    "fcos_resnet50_fpn": Defaults(800, 0.01, 16, 0.0001),
}
"""torchvision/references/detection/README.md: batch sizes and learning rates of all its GPUs together."""


class Detector(NamedTuple):
    """A model that is called as torchvision's detectors are, and how its input is to be normalised."""

    model: nn.Module
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    mean_of_weights: Triple = IMAGENET_MEAN
    """What torchvision's weights for the model expect; so the std."""
    std_of_weights: Triple = IMAGENET_STD


def make_detector(name: str, num_classes: int) -> Detector:
    """A detector without weights. `num_classes` counts the background, as torchvision does.

    Its backbone is torchvision's, initialised at random, with batch norm where torchvision has frozen statistics.
    The mean and the std are ImageNet's: torchvision's std of 1/255 for SSD is made for the weights of its VGG, and
    without them the loss would not be finite for long.
    """
    if name not in DETECTORS:
        raise ValueError(f"model must be one of {', '.join(DETECTORS)}, got {name!r}")
    detection = _torchvision_detection()
    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=num_classes)
    mean, std = tuple(model.transform.image_mean), tuple(model.transform.image_std)
    return Detector(as_it_comes(model), mean_of_weights=mean, std_of_weights=std)


def _torchvision_detection() -> Any:
    try:
        from torchvision.models import detection
        from torchvision.ops import nms

        nms(torch.zeros(1, 4), torch.zeros(1), 0.5)  # a part that is compiled
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        raise ValueError(
            "detaug train needs a torchvision that fits the installed torch; pip install 'detaug[train]' brings it "
            f"({reason})"
        ) from None
    return detection


def as_it_comes(model: Any) -> nn.Module:
    """The same detector, which takes batches as `Loader` gives them.

    torchvision's transform, which would resize and normalise every image again and stack them, is taken out. What the
    heads give is made float32, so that under autocast boxes are not decoded, and losses not computed, in 16 bits.
    """
    model.transform = Stacked()
    model.head.register_forward_hook(lambda _module, _inputs, output: _to_float32(output))
    detector: nn.Module = model
    return detector


class Stacked(nn.Module):
    """In place of torchvision's GeneralizedRCNNTransform: images are (N, 3, H, W) and ready."""

    def forward(self, images: Tensor, targets: Any = None) -> tuple[Any, Any]:
        from torchvision.models.detection.image_list import ImageList

        height, width = images.shape[-2:]
        return ImageList(images, [(height, width)] * len(images)), targets

    def postprocess(self, result: Any, _image_sizes: Any, _original_sizes: Any) -> Any:
        return result


def _to_float32(output: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in output.items()}


# ---------------------------------------------------------------- weights


def load_weights(detector: Detector, path: Path) -> tuple[Detector, list[str]]:
    """The detector with the weights of a file, and the names of those that it does not hold: a head of other classes.

    `path`: a state dict of torchvision's model, or the model.pt of `detaug train`. What has another shape in the file
    stays as it is made, and is named. Raises ValueError where the file is no such thing or is another model's.
    """
    content = read_torch_file(path)
    weights = content.get("model", content)
    if not (isinstance(weights, Mapping) and weights and all(isinstance(each, Tensor) for each in weights.values())):
        raise ValueError(f"{path} holds no state dict; save one with torch.save(model.state_dict(), ...)")
    own = detector.model.state_dict()
    fitting = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
    missing = [name for name in own if name not in fitting and not name.endswith("num_batches_tracked")]
    _check_same_model(path, own, weights, missing)
    detector.model.load_state_dict(fitting, strict=False)
    mean, std = content.get("mean", detector.mean_of_weights), content.get("std", detector.std_of_weights)
    return detector._replace(mean=tuple(mean), std=tuple(std)), missing


def _check_same_model(path: Path, own: Any, weights: Mapping[str, Tensor], missing: Sequence[str]) -> None:
    """Only a classification head may differ: all else must have the names and shapes of the model."""
    foreign = [name for name in missing if "head." not in name] + [name for name in weights if name not in own]
    if foreign:
        raise ValueError(
            f"{path} does not fit the model: {len(foreign)} weights differ beside the head, the first is "
            f"{foreign[0]!r}; give --model the one it was trained with"
        )


def read_torch_file(path: Path) -> dict[str, Any]:
    """What torch.save wrote: tensors and plain values, no code is run."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is not a file of torch.save ({(str(error).splitlines() or ['?'])[0]})") from None
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} must hold a dict of tensors, got {type(content).__name__}")
    return dict(content)
