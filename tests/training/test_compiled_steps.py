"""docs/trainers/torch_compile.md: a compiled step takes batches of static shapes without being compiled again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from places import REPOSITORY

import detaug as da

PAGE = REPOSITORY / "docs/trainers/torch_compile.md"
RECIPE = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((32, 32)), da.Mosaic(), da.Normalize()]


@pytest.fixture(autouse=True)
def graphs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The graphs that are compiled. They run as they are: what is compiled again depends on the shapes alone."""
    compiled: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch._dynamo.reset()
    yield compiled
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
def test_the_page_as_written(graphs: list[Any]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(block, names)
    names["loader"].close()
    assert names["epoch"] == 2
    assert len(graphs) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("max_boxes", [24, None])
def test_targets_of_detr_are_compiled_once(graphs: list[Any], max_boxes: int | None) -> None:
    """With a fixed number of rows; without one they are compiled again."""

    @torch.compile(dynamic=False)
    def loss_of(images: torch.Tensor, targets: list[dict[str, torch.Tensor]]) -> torch.Tensor:
        boxes = torch.cat([target["boxes"] for target in targets])
        valid = torch.cat([target.get("valid", target["labels"] >= 0) for target in targets])
        return (boxes.sum(1) * valid).sum() + images.mean()

    reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    options: dict[str, Any] = {"max_boxes": max_boxes, "device": "cpu"}
    with da.Loader(reader, RECIPE, 8, **options) as loader:
        after = []
        for _ in range(2):
            for batch in loader:
                (images, _), targets = batch.as_detr(first_label=0, max_boxes=max_boxes)
                loss_of(images, targets)
            after.append(len(graphs))
    assert after == [1, 1] if max_boxes else after[1] > after[0] > 1
