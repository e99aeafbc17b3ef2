"""A loader of training data for the repositories of D-FINE, DEIM and RT-DETRv2.

Save it there as src/data/detaug_loader.py (DEIM: engine/data/detaug_loader.py). d_fine.md says what else to change.
"""

from __future__ import annotations

from typing import Any

import torch

import detaug as da

from ..core import register  # noqa: TID252
from .dataset.coco_dataset import mscoco_category2label


@register()
class DetaugLoader(da.Loader[Any]):
    """Takes the files, the batch size and the epochs of the YAML file, and makes the batches of its trainer."""

    __inject__ = ["dataset", "collate_fn"]  # noqa: RUF012

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        collate_fn: Any,
        shuffle: bool = True,
        num_workers: int = 0,
        drop_last: bool = True,
    ) -> None:
        reader = da.CocoReader(dataset.img_folder, dataset.ann_file)
        names = mscoco_category2label if dataset.remap_mscoco_category else {each: each for each in reader.category_ids}
        self.labels = torch.tensor([names[each] for each in reader.category_ids[1:]])
        recipe = recipe_of(dataset._transforms.policy, collate_fn)
        super().__init__(reader, recipe, batch_size, last_batch="drop", collate=self.as_pair)
        self.dataset, self.collate_fn, self.sampler = dataset, collate_fn, self  # which the trainer looks at

    def as_pair(self, batch: da.Batch) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
        (images, _), targets = batch.as_detr(first_label=0)
        labels = self.labels.to(images.device)
        return images, [target | {"labels": labels[target["labels"]]} for target in targets]


def recipe_of(policy: dict[str, Any], collate_fn: Any) -> da.Stages:
    """Return DEIM's recipe if the policy has three epochs, else D-FINE's, without `policy["ops"]` at the end."""
    if isinstance(policy["epoch"], list):
        return da.presets.deim(collate_fn.base_size, tuple(policy["epoch"]))
    sizes = [(side, side) for side in collate_fn.scales or [collate_fn.base_size]]
    last = [op for op in da.presets.d_fine(collate_fn.base_size) if type(op).__name__ not in policy["ops"]]
    return da.Stages([(0, da.presets.d_fine(sizes)), (policy["epoch"], last)])
