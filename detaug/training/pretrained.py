"""Weights of torchvision, Hugging Face's hub and Roboflow, fetched only when they are asked for.

Each file is kept where its package keeps it, so that one that is there is not fetched again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from detaug.errors import InputError
from detaug.named_options import option
from detaug.training.model_table import MODELS

Pretrained = Literal["coco", "backbone"]

Say = Callable[[str], None]

_MOBILENET = "MobileNet_V3_Large_Weights.IMAGENET1K_V1"
_VGG = "VGG16_Weights.IMAGENET1K_FEATURES"
_RESNET = "ResNet50_Weights.IMAGENET1K_V1"
"""The weights that torchvision's references train the models from, and with which the others have a ResNet-50."""

_SAME_LAYERS = {"fcos_rotated_resnet50_fpn": "fcos_resnet50_fpn"}
"""Models of ours with the layers of torchvision's, but for the last ones, which are then random."""

_OF_HUB = {
    "rt-detr-v2-r18": "PekingU/rtdetr_v2_r18vd",
    "d-fine-nano": "ustc-community/dfine-nano-coco",
    "d-fine-small": "ustc-community/dfine-small-coco",
}
"""The repositories of the authors' weights on Hugging Face's hub, of COCO."""


def pretrained_file(model: str, which: Pretrained, say: Say) -> Path:
    """Return the file of weights, and fetch it unless it is there: of the whole model, or of its backbone.

    Says first what is fetched, from where, and where it is kept. Raises InputError with the address and the place of
    the file if it cannot be fetched.
    """
    package = MODELS[model].package
    if which == "backbone" and (model.startswith("ssdlite") or package != "torchvision"):
        why = "is narrower than ImageNet's weights" if package == "torchvision" else "has no weights of its own"
        raise InputError(f"the backbone of {model} {why}; take pretrained 'coco'")
    fetch = {"torchvision": _of_torchvision, "transformers": _of_hub, "rfdetr": _of_rfdetr}[package]
    return fetch(model, which, say)


def _of_torchvision(model: str, which: Pretrained, say: Say) -> Path:
    from torchvision import models  # the detector was made, so it is installed

    of_backbone = {"ssd300_vgg16": _VGG, "lraspp_mobilenet_v3_large": _MOBILENET}.get(model, _RESNET)
    of_model = _SAME_LAYERS.get(model, model)
    chosen: Any = models.get_model_weights(of_model).DEFAULT if which == "coco" else models.get_weight(of_backbone)
    path = Path(torch.hub.get_dir(), "checkpoints", chosen.url.rpartition("/")[2])
    if path.is_file():
        say(f"{chosen}: {path}")
        return path
    say(f"{chosen}: fetching {chosen.meta['_file_size']:.0f} MB from {chosen.url}, kept as {path}")
    try:
        chosen.get_state_dict(progress=sys.stderr.isatty(), check_hash=True, weights_only=True)
    except (OSError, RuntimeError) as error:  # no network, a full disk; another checksum
        raise _cannot_fetch(chosen.url, error, path) from None
    return path


def _of_hub(model: str, _: Pretrained, say: Say) -> Path:
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    repository, name = _OF_HUB[model], "model.safetensors"
    cached = try_to_load_from_cache(repository, name)
    if isinstance(cached, str):
        say(f"{repository}: {cached}")
        return Path(cached)
    url = f"{constants.ENDPOINT}/{repository}"
    say(f"{repository}: fetching {name} from {url}, kept in {constants.HF_HUB_CACHE}")
    try:
        return Path(hf_hub_download(repository, name))
    except OSError as error:  # also LocalEntryNotFoundError where there is no network, and HfHubHTTPError
        raise InputError(
            f"cannot fetch {name} from {url} ({_first_line(error)}); bring the file from there and give it as "
            f"{option('weights')}"
        ) from None


def _of_rfdetr(model: str, _: Pretrained, say: Say) -> Path:
    from rfdetr.assets.model_weights import ModelWeights, get_model_cache_dir

    name = f"{model}.pth" if "seg" not in model else f"{model}.pt"
    asset = ModelWeights.from_filename(name)
    assert asset is not None
    assert asset.md5_hash is not None
    path = Path(get_model_cache_dir(), name)
    if path.is_file():
        say(f"{model}: {path}")
        return path
    say(f"{model}: fetching {name} from {asset.url}, kept as {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Whole or not at all, with its checksum, unlike rfdetr's own function, which only logs a wrong one.
        _download(asset.url, path, asset.md5_hash)
    except (OSError, RuntimeError) as error:
        raise _cannot_fetch(asset.url, error, path) from None
    return path


def _download(url: str, path: Path, md5: str) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        torch.hub.download_url_to_file(url, str(partial), progress=sys.stderr.isatty())
        with partial.open("rb") as file:
            digest = hashlib.md5(file.read(), usedforsecurity=False).hexdigest()
        if digest != md5:
            raise RuntimeError(f"its MD5 is {digest} and must be {md5}")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _cannot_fetch(url: str, error: Exception, path: Path) -> InputError:
    reason = getattr(error, "reason", None) or error
    return InputError(f"cannot fetch {url} ({reason}); bring the file to {path}")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
