"""A list of objects that a file lacks is a finding: an image without objects has an empty one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_shared_options import converted, written

from detaug.converters import ConversionError

Change = Callable[[Any], dict[str, Any]]
"""Returns the entry of a document that has the list."""

LISTS: dict[str, tuple[str, Change]] = {
    "createml": ("annotations", lambda document: document[1]),
    "label-studio": ("result", lambda document: document[1]["annotations"][0]),
    "labelme": ("shapes", lambda document: document),
    "segment-anything": ("annotations", lambda document: document),
    "supervisely": ("objects", lambda document: document),
    "via": ("regions", lambda document: [*document["_via_img_metadata"].values()][1]),
    "via/3": ("vid", lambda document: [*document["metadata"].values()][1]),
}


@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize("form", LISTS)
def test_a_list_that_is_not_there(form: str, null: bool, tmp_path: Path) -> None:
    root = written(tmp_path, form)
    whole = converted(root, form)[2]
    files = [path for path in ([root] if root.is_file() else sorted(root.rglob("*.json"))) if path.is_file()]
    (path, *_) = (path for path in files if path.stat().st_size > 100)
    document = json.loads(path.read_text())
    key, entry_of = LISTS[form]
    entry = entry_of(document)
    assert entry[key]
    if null:
        entry[key] = None
    else:
        del entry[key]
    path.write_text(json.dumps(document))
    with pytest.raises(ConversionError, match=r"must|which has a list of shapes"):
        converted(root, form)
    if form.startswith("via"):  # one file has all images
        with pytest.raises(ConversionError, match=rf"via.json: {key} of '\w+' must be"):
            converted(root, form, on_error="skip")
        return
    summary = converted(root, form, on_error="skip")[2]
    assert len(summary.findings) > len(whole.findings)
    assert summary.images < whole.images or summary.boxes < whole.boxes
