from __future__ import annotations

from pathlib import Path

import pytest
import torch
from painted_files import Folder, paint_files

from detaug.converters import voc_to_coco

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return str(request.param)


@pytest.fixture(scope="session")
def bccd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(image folder, json) of the 205 photographs of BCCD's train split."""
    root = SHARED_DATA / "bccd"
    if not root.is_dir():
        pytest.skip(f"the BCCD photographs are not at {root}")
    json = tmp_path_factory.mktemp("bccd") / "train.json"
    voc_to_coco(root, json, split="train")
    return root / "JPEGImages", json


@pytest.fixture
def painted(tmp_path: Path) -> Folder:
    """21 painted PNG files of three sizes, and their json; the last one has no boxes."""
    return paint_files(tmp_path)
