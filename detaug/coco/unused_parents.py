"""Leave out categories that only group others: the rule of RF-DETR's own loader.

Source: `filter_parent_categories` in rfdetr/datasets/coco.py of https://github.com/roboflow/rf-detr, version 1.11.2.
Exports of Roboflow begin with such a category.
"""

from __future__ import annotations

from dataclasses import replace

from detaug.coco.annotations import Annotations

NO_PARENT = {"", "none", "null"}
"""What a `supercategory` says that is not a name of a category."""


def without_unused_parents(data: Annotations) -> Annotations:
    """Return the annotations without each category that is the `supercategory` of another one and that nothing has.

    An annotation has it, a crowd too, or an image as a whole. All categories stay if none would be left.
    """
    named = ((number, keys.get("supercategory")) for number, keys in data.category_keys.items())
    parents = {parent for number, parent in named if isinstance(parent, str) and parent != data.categories[number]}
    parents -= NO_PARENT
    used = {*data.category_ids.tolist(), *data.image_categories.tolist()}
    kept = {number: name for number, name in data.categories.items() if name not in parents or number in used}
    if not kept:
        return data
    return replace(data, categories=kept, category_keys={number: data.category_keys[number] for number in kept})
