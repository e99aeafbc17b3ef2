"""Detectors of Hugging Face's transformers with few, random weights, made from their configs: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def detr(classes: int) -> Any:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    transformer = {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    own = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": backbone}
    return DetrForObjectDetection(DetrConfig(**own, **transformer, num_labels=classes, d_model=32, num_queries=20))


def rt_detr_v2(classes: int) -> Any:
    from transformers import RTDetrResNetConfig, RTDetrV2Config, RTDetrV2ForObjectDetection

    stages = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
    backbone = RTDetrResNetConfig(embedding_size=8, layer_type="basic", **stages)
    return RTDetrV2ForObjectDetection(
        RTDetrV2Config(backbone_config=backbone, encoder_in_channels=[16, 16, 32], num_labels=classes, **SMALL)
    )


def d_fine(classes: int) -> Any:
    from transformers import DFineConfig, DFineForObjectDetection, HGNetV2Config

    backbone = HGNetV2Config(
        embedding_size=8,
        stem_channels=[3, 8, 8],
        stage_in_channels=[8, 16, 16, 32],
        stage_mid_channels=[8, 8, 16, 16],
        stage_out_channels=[16, 16, 32, 32],
        stage_num_blocks=[1, 1, 1, 1],
        stage_numb_of_layers=[1, 1, 1, 1],
        stage_light_block=[False] * 4,
        stage_kernel_size=[3, 3, 3, 3],
        hidden_sizes=[16, 16, 32, 32],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )
    return DFineForObjectDetection(
        DFineConfig(backbone_config=backbone, encoder_in_channels=[16, 32, 32], num_labels=classes, **SMALL)
    )


def mask2former(classes: int) -> Any:
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig

    stages = {"depths": [1] * 4, "num_heads": [1, 1, 2, 2], "out_features": [f"stage{at}" for at in range(1, 5)]}
    backbone = SwinConfig(image_size=96, embed_dim=8, window_size=3, **stages)
    widths = ["feature_size", "mask_feature_size", "hidden_dim", "encoder_feedforward_dim", "dim_feedforward"]
    small = dict.fromkeys(widths, 32) | {"encoder_layers": 1, "decoder_layers": 2, "num_attention_heads": 2}
    config = Mask2FormerConfig(
        backbone_config=backbone, **small, num_queries=20, num_labels=classes, train_num_points=512
    )
    return Mask2FormerForUniversalSegmentation(config)


SMALL: dict[str, Any] = {
    "d_model": 32,
    "encoder_hidden_dim": 32,
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "num_queries": 20,
    "num_denoising": 10,
}


def made(make: Callable[[int], Any], classes: int) -> Any:
    """Return the detector in training mode, with the same weights each time."""
    torch.manual_seed(0)
    return make(classes).train()
