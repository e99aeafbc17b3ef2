"""SegFormer and Mask2Former of transformers, tiny and with random weights, learn eight images from our batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from semantic_files import NAMES, paint_folder
from torch import Tensor

import detaug as da

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

Step = Callable[[da.Batch], Tensor]


def segformer() -> tuple[torch.nn.Module, Step, Step]:
    """Return a model, its loss of a batch, and its scores of the classes of pixels, at a fourth of the size."""
    config = transformers.SegformerConfig(
        num_labels=3,
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 48, 64],
        decoder_hidden_size=64,
        num_attention_heads=[1, 1, 2, 2],
        semantic_loss_ignore_index=255,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
    model: Any = transformers.SegformerForSemanticSegmentation(config)

    def loss(batch: da.Batch) -> Any:
        images, labels = batch.as_semantic()
        return model(pixel_values=images, labels=labels).loss

    return model, loss, lambda batch: model(pixel_values=batch.images).logits


def mask2former() -> tuple[torch.nn.Module, Step, Step]:
    """Return the same; scores are those of masks by that of their classes, as transformers computes them."""
    backbone = transformers.SwinConfig(
        image_size=64,
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 2, 2],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        drop_path_rate=0.0,
    )
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone,
        num_labels=3,
        hidden_dim=32,
        feature_size=32,
        mask_feature_size=32,
        encoder_layers=1,
        decoder_layers=3,
        num_attention_heads=2,
        dim_feedforward=64,
        encoder_feedforward_dim=64,
        num_queries=6,
        train_num_points=1024,
    )
    model: Any = transformers.Mask2FormerForUniversalSegmentation(config)

    def scores(batch: da.Batch) -> Any:
        found = model(pixel_values=batch.images)
        classes, masks = found.class_queries_logits.softmax(-1)[..., :-1], found.masks_queries_logits.sigmoid()
        return torch.einsum("nqc,nqhw->nchw", classes, masks)

    return model, lambda batch: model(**batch.as_mask2former(map="semantic")).loss, scores


@pytest.mark.parametrize(("make", "steps", "least"), [(segformer, 120, 0.9), (mask2former, 240, 0.75)])
def test_a_model_learns_eight_images(tmp_path: Path, make: Any, steps: int, least: float) -> None:
    """Scores are at a fourth of the size, so that borders are not exact."""
    torch.manual_seed(0)
    root = paint_folder(tmp_path, 8)
    reader = da.MapReader(root / "images", root / "masks", classes=NAMES)
    resized = [da.Resize((64, 64)), da.Normalize()]
    model, loss_of, scores_of = make()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    loader = da.Loader(reader, [da.RandomHorizontalFlip(), *resized], 8, device="cpu")
    for _ in range(steps):
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(batch)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    model.eval()
    evaluator = da.SemanticEvaluator()
    with torch.no_grad():
        for batch in da.Loader(reader, resized, 8, train=False, device="cpu"):
            evaluator.update(batch, scores_of(batch))
    assert evaluator.compute().mIoU > least
