"""DETRs of other packages, with the interface of torchvision's detectors: RT-DETRv2 and D-FINE, RF-DETR.

The packages build the models and compute the losses; batches are those of `Batch.as_hf` and `Batch.as_detr`. All
models of this family score each pair of a query and a class, so the best pairs are the detections: there is no
non-maximum suppression.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from detaug.loading.batch import Batch
from detaug.packages import require
from detaug.presets import NO_MEAN, UNIT_STD
from detaug.training.model_table import MODELS, Detector
from detaug.training.torchvision_models import to_float32


class Outputs(NamedTuple):
    """What a model says of N images, for Q queries and C classes."""

    logits: Tensor
    """(N, Q, C)."""
    boxes: Tensor
    """(N, Q, 4): center x, y, width, height, relative to the input."""
    masks: Tensor | None = None
    """(N, Q, h, w) logits, smaller than the input."""


class DetrDetector(nn.Module):
    """A DETR `net`: in training it returns losses by their kind, else the detections of each image.

    `inputs` makes the arguments of a training step of a batch.
    """

    def __init__(self, net: nn.Module, most: int) -> None:
        super().__init__()
        self.net = net
        self.most = most
        """Detections per image."""

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        """Return the losses of images (N, 3, H, W) and targets of `inputs`; without targets, detections.

        Detections are those of torchvision: boxes (K, 4) XYXY in pixels of the input, scores (K,), best first, labels
        (K,) from 1; of a model of masks also masks (K, 1, H, W), the probability of each pixel.
        """
        if targets is not None:
            return _sums_by_kind(self.losses(images, targets))
        height, width = images.shape[-2:]
        outputs = self.outputs(images)
        boxes, scores, labels, queries = best_pairs(outputs.logits, outputs.boxes, (height, width), self.most)
        detections = []
        for n in range(len(images)):
            detections.append({"boxes": boxes[n], "scores": scores[n], "labels": labels[n]})
            if outputs.masks is not None:
                masks = interpolate(outputs.masks[n, queries[n], None].float(), (height, width), mode="bilinear")
                detections[-1]["masks"] = masks.sigmoid()
        return detections

    def inputs(self, batch: Batch) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Return the images (N, 3, H, W) of a batch, and the targets as the model's package takes them."""
        raise NotImplementedError

    def losses(self, images: Tensor, targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the weighted losses: of all layers of the decoder, and of denoising."""
        raise NotImplementedError

    def outputs(self, images: Tensor) -> Outputs:
        raise NotImplementedError

    def for_tracing(self) -> DetrDetector:
        """Return the detector, or a copy of it, whose `outputs` can be traced."""
        return self

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return groups for an optimizer, each with `lr_factor`, its learning rate in units of the highest."""
        raise NotImplementedError


def best_pairs(
    logits: Tensor, boxes: Tensor, size: tuple[int, int], most: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best pairs of a query and a class: boxes (N, K, 4), scores, labels from 1, and queries (N, K).

    As `post_process_object_detection` of transformers and `PostProcess` of rfdetr choose them. Boxes are XYXY in pixels
    of the input, `size` (H, W), and do not leave it.
    """
    _, queries, classes = logits.shape
    scores, pairs = logits.float().sigmoid().flatten(1).topk(min(most, queries * classes), dim=1)
    chosen = torch.div(pairs, classes, rounding_mode="floor")
    boxes = boxes.float().gather(1, chosen[..., None].expand(-1, -1, 4))
    half = boxes[..., 2:] / 2
    corners = torch.cat([boxes[..., :2] - half, boxes[..., :2] + half], -1).clamp(0, 1)
    height, width = size
    return corners * corners.new_tensor([width, height, width, height]), scores, pairs % classes + 1, chosen


def make_detr(name: str, num_classes: int) -> Detector:
    """Build a detector of transformers or rfdetr with random weights. `num_classes` counts the background.

    RF-DETR's input is normalized as ImageNet's, the others' is in 0..1. Raises MissingPackageError
    where the package is missing.
    """
    package = MODELS[name].package
    require(name, package)
    return (_make_transformers if package == "transformers" else _make_rfdetr)(name, num_classes - 1)


class TransformersDetector(DetrDetector):
    """RT-DETRv2 or D-FINE of transformers."""

    def __init__(self, net: Any, backbone_lr: float) -> None:
        super().__init__(net, net.config.num_queries)
        self.backbone_lr = backbone_lr
        loss = net.loss_function
        net.loss_function = lambda logits, *more, **named: _in_float32(logits.device, loss, logits, *more, **named)

    def inputs(self, batch: Batch) -> tuple[Tensor, list[dict[str, Tensor]]]:
        inputs = batch.as_hf()
        return inputs["pixel_values"], inputs["labels"]

    def losses(self, images: Tensor, targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self.net(pixel_values=images, labels=targets).loss_dict
        return losses

    def outputs(self, images: Tensor) -> Outputs:
        outputs = self.net(pixel_values=images)
        return Outputs(outputs.logits, outputs.pred_boxes)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return the backbone's parameters and the others, with weight decay or, biases and norms, without."""
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                groups.setdefault((".backbone." in name, parameter.ndim > 1), []).append(parameter)
        return [
            {
                "params": parameters,
                "lr_factor": self.backbone_lr if in_backbone else 1.0,
                "weight_decay": weight_decay if decays else 0.0,
            }
            for (in_backbone, decays), parameters in groups.items()
        ]


def _make_transformers(name: str, classes: int) -> Detector:
    """Build a model as the file of its weights has it.

    The numbers are those of rtdetrv2_r18vd, dfine_n and dfine_s in convert_rt_detr_v2_weights_to_hf.py and
    convert_d_fine_original_pytorch_checkpoint_to_hf.py of https://github.com/huggingface/transformers. The backbone has
    batch norm: its statistics are not frozen, as in the authors' configurations.
    """
    import transformers as hf

    common: dict[str, Any] = {
        "num_labels": classes,
        "freeze_backbone_batch_norms": False,
        "initializer_bias_prior_prob": 0.01,  # the authors'; that of transformers, 1 / (classes + 1), is far too high
    }
    if name == "rt-detr-v2-r18":
        backbone = hf.RTDetrResNetConfig(
            hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", out_features=_LAST_THREE
        )
        config = hf.RTDetrV2Config(
            backbone_config=backbone, encoder_in_channels=[128, 256, 512], hidden_expansion=0.5, decoder_layers=3,
            **common,
        )  # fmt: skip
        return _without_normalization(hf.RTDetrV2ForObjectDetection(config), name)
    b0 = {
        "hidden_sizes": [128, 256, 512, 1024], "stem_channels": [3, 16, 16], "stage_in_channels": [16, 64, 256, 512],
        "stage_mid_channels": [16, 32, 64, 128], "stage_out_channels": [64, 256, 512, 1024],
        "stage_num_blocks": [1, 1, 2, 1], "stage_downsample": [False, True, True, True],
        "stage_light_block": [False, False, True, True], "stage_kernel_size": [3, 3, 5, 5],
        "stage_numb_of_layers": [3, 3, 3, 3], "use_learnable_affine_block": True,
    }  # fmt: skip
    if name == "d-fine-nano":
        config = hf.DFineConfig(
            backbone_config=hf.HGNetV2Config(**b0, out_features=_LAST_THREE[1:]), encoder_in_channels=[512, 1024],
            num_feature_levels=2, feat_strides=[16, 32], encode_proj_layers=[1], encoder_hidden_dim=128,
            encoder_ffn_dim=512, d_model=128, decoder_in_channels=[128, 128], decoder_ffn_dim=512,
            decoder_n_points=[6, 6], decoder_layers=3, hidden_expansion=0.34, depth_mult=0.5, **common,
        )  # fmt: skip
    else:
        config = hf.DFineConfig(
            backbone_config=hf.HGNetV2Config(**b0, out_features=_LAST_THREE), encoder_in_channels=[256, 512, 1024],
            decoder_n_points=[3, 6, 3], decoder_layers=3, hidden_expansion=0.5, depth_mult=0.34, **common,
        )  # fmt: skip
    return _without_normalization(hf.DFineForObjectDetection(config), name)


_LAST_THREE = ["stage2", "stage3", "stage4"]


def _without_normalization(net: nn.Module, name: str) -> Detector:
    detector = TransformersDetector(net, MODELS[name].backbone_lr)
    return Detector(detector, NO_MEAN, UNIT_STD, NO_MEAN, UNIT_STD)


class RfDetrDetector(DetrDetector):
    """RF-DETR of rfdetr, for boxes or for masks."""

    def __init__(self, config: Any, classes: int) -> None:
        from rfdetr.models import build_criterion_from_config, build_model_from_config

        super().__init__(build_model_from_config(config), config.num_select)
        self.config, self.classes, self.traced = config, classes, False
        criterion, _ = build_criterion_from_config(config, _train_config(config))
        self._criterion = [criterion]  # in a list, so that model.pt and the optimizer have nothing of it

    def inputs(self, batch: Batch) -> tuple[Tensor, list[dict[str, Tensor]]]:
        images, targets = batch.as_detr(first_label=0, masks=self.config.segmentation_head)
        return images.tensors, targets

    def losses(self, images: Tensor, targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        (criterion,) = self._criterion
        losses = _in_float32(images.device, criterion.train(), self.net(_nested(images), targets), targets)
        weights = criterion.weight_dict
        return {name: weights[name] * loss for name, loss in losses.items() if name in weights}

    def outputs(self, images: Tensor) -> Outputs:
        net: Any = self.net
        if self.traced:
            boxes, logits, *masks = net(images)
            return Outputs(logits[..., : self.classes], boxes, *masks)
        outputs = net(_nested(images))
        # It has one class more than the dataset, which nothing is trained to be.
        return Outputs(outputs["pred_logits"][..., : self.classes], outputs["pred_boxes"], outputs.get("pred_masks"))

    def for_tracing(self) -> DetrDetector:
        """Return a copy whose net takes tensors alone."""
        traced = copy.deepcopy(self)
        net: Any = traced.net
        net.export()
        traced.traced = True
        return traced

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return the groups of RF-DETR's training: in the backbone the learning rate grows with each layer's depth.

        As `get_param_dict` of rfdetr.training, whose import needs packages that only its own trainer does.
        """
        own = _train_config(self.config)
        numbers = SimpleNamespace(
            lr_encoder=own.lr_encoder / own.lr,
            weight_decay=weight_decay,
            lr_vit_layer_decay=own.lr_vit_layer_decay,
            lr_component_decay=own.lr_component_decay,
            out_feature_indexes=self.config.out_feature_indexes,
        )
        net: Any = self.net
        of_backbone = net.backbone[0].get_named_param_lr_pairs(numbers, prefix="backbone.0")
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in net.named_parameters():
            if name in of_backbone:
                key = of_backbone[name]["lr"], of_backbone[name]["weight_decay"]
            else:
                key = own.lr_component_decay if "transformer.decoder" in name else 1.0, weight_decay
            if parameter.requires_grad:
                groups.setdefault(key, []).append(parameter)
        return [
            {"params": parameters, "lr_factor": factor, "weight_decay": decay}
            for (factor, decay), parameters in groups.items()
        ]


def _make_rfdetr(name: str, classes: int) -> Detector:
    from rfdetr import config

    logger = logging.getLogger("rf-detr")
    level = logger.level
    logger.setLevel(logging.ERROR)  # both warn that the model and its backbone have no weights, which the caller knows
    kind = "".join(part.capitalize() for part in name.removeprefix("rf-detr-").split("-"))
    make_config = getattr(config, f"RFDETR{kind}Config")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", config.PretrainWeightsCompatibilityWarning)
            settings = make_config(num_classes=classes, pretrain_weights=None, device="cpu")
        return Detector(RfDetrDetector(settings, classes))
    finally:
        logger.setLevel(level)


def _train_config(config: Any) -> Any:
    """Return RF-DETR's own training options; nothing is read from or written to their folders."""
    from rfdetr.config import SegmentationTrainConfig, TrainConfig

    return (SegmentationTrainConfig if config.segmentation_head else TrainConfig)(dataset_dir=".", output_dir=".")


def _nested(images: Tensor) -> Any:
    from rfdetr.utilities.tensors import NestedTensor

    mask = images.new_zeros(images.shape[0], *images.shape[-2:], dtype=torch.bool)
    return NestedTensor(images, mask, no_padding=True)


def _in_float32(device: torch.device, function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a loss in float32: 16 bits are too few for it, and SciPy's matching takes no bfloat16."""
    with torch.autocast(device.type, enabled=False):
        return function(*map(to_float32, arguments), **{name: to_float32(value) for name, value in named.items()})


def _sums_by_kind(losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add up the losses of one kind: loss_bbox, loss_bbox_aux_1, loss_bbox_dn_0, loss_bbox_enc."""
    sums: dict[str, Tensor] = {}
    for name, loss in losses.items():
        kind = re.sub(r"(_aux|_dn|_enc|_\d+)+$", "", name)
        sums[kind] = sums[kind] + loss if kind in sums else loss
    return sums
