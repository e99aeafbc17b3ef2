"""Load the weights of a detector from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from detaug.errors import InputError
from detaug.named_options import option
from detaug.packages import require
from detaug.training.model_table import Detector
from detaug.training.torch_files import read_torch_file


def read_weights(path: Path) -> dict[str, Any]:
    """Read a file of torch.save, or of safetensors, as Hugging Face's hub has them. Raises InputError for others."""
    if path.suffix != ".safetensors":
        return read_torch_file(path)
    require(os.fspath(path), "safetensors")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise InputError(f"{path} is not a file of safetensors, or is damaged ({error})") from None


class Loaded(NamedTuple):
    """A detector with weights of a file."""

    detector: Detector
    missing: list[str]
    """The names of the weights that the file did not have: they are random."""
    class_names: tuple[str, ...] | None
    """The classes that a model.pt was trained for; None for other files."""


def load_weights(detector: Detector, path: Path) -> Loaded:
    """Load the weights of a file into a detector.

    `path`: a state dict of the package's model, the model.pt of `detaug train`, or a state dict of the backbone alone,
    as the detector or torchvision's classifier has it. What the file does not have stays as it is, and is named in
    `missing`: a head with another number of classes or keypoints; of a backbone, the rest. Raises InputError where the
    file is not a state dict, or is another model's.
    """
    content = read_weights(path)
    weights: Any = content.get("model", content)
    if not (isinstance(weights, Mapping) and weights and all(isinstance(value, Tensor) for value in weights.values())):
        raise InputError(f"{path} holds no state dict; save one with torch.save(model.state_dict(), ...)")
    own = detector.model.state_dict()
    if not any(
        name in own for name in weights
    ):  # of transformers and rfdetr, whose models are `net` of a `DetrDetector`
        inside = {f"net.{name}": value for name, value in weights.items()}
        weights = inside if any(name in own for name in inside) else weights
    of_backbone = {} if any(name in own for name in weights) else _of_backbone(own, weights)
    weights = of_backbone or weights
    fitting = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
    missing = [name for name in own if name not in fitting and not name.endswith("num_batches_tracked")]
    _check_same_model(path, own, weights, [name for name in missing if name in weights or not of_backbone])
    detector.model.load_state_dict(fitting, strict=False)
    mean, std = content.get("mean", detector.mean_of_weights), content.get("std", detector.std_of_weights)
    names = content.get("class_names")
    class_names = tuple(map(str, names)) if isinstance(names, list | tuple) else None
    return Loaded(detector._replace(mean=tuple(mean), std=tuple(std)), missing, class_names)


def _of_backbone(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a backbone by their names in the detector; {} where it has no such.

    A ResNet's keep their names, behind those of its place. A VGG's have the same order.
    """
    body = {name: value for name, value in weights.items() if not name.startswith(("fc.", "classifier."))}
    if any(name.startswith("net.backbone.0.") for name in own):  # torchvision's LR-ASPP has its layers by number
        return {f"net.backbone.{name.removeprefix('features.')}": value for name, value in body.items()}
    for place in ("backbone.", "backbone.body."):
        if any(place + name in own for name in body) and not any(name.startswith("features.") for name in body):
            return {place + name: value for name, value in body.items()}
    names = [name for name in own if name.startswith(("backbone.features.", "backbone.extra."))][: len(body)]
    return dict(zip(names, body.values(), strict=True)) if len(names) == len(body) else {}


def _check_same_model(path: Path, own: Any, weights: Mapping[str, Tensor], missing: Sequence[str]) -> None:
    """Raise InputError unless all weights but the heads' have the names and shapes of the model."""
    heads = ("head.", "_predictor.", "class_embed", "_classifier.")  # the last two of DETRs and of LR-ASPP
    foreign = [name for name in missing if not any(head in name for head in heads)]
    foreign += [name for name in weights if name not in own]
    if foreign:
        raise InputError(
            f"{path} does not fit the model: {len(foreign)} weights outside the head differ, the first is "
            f"{foreign[0]!r}; give {option('model')} the one it was trained with"
        )
