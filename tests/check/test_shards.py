"""`check`, `--clean`, `preview` and `merge` on a JSON file with images in shards: as on the same images in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from painted_files import Folder, paint_files
from PIL import Image
from seeds import slow
from test_sources import put_into_shards

import detaug as da
from detaug.__main__ import main
from detaug.check.summary import CheckSummary
from detaug.converters import check_coco, merge_coco


@pytest.fixture
def painted(tmp_path: Path) -> Folder:
    (tmp_path / "painted").mkdir()
    return paint_files(tmp_path / "painted")


def break_some(painted: Folder) -> None:
    """A cut image, one that is no image, one twice, one of another size."""
    folder = painted[0]
    (folder / "03.png").write_bytes((folder / "03.png").read_bytes()[:-20])
    (folder / "05.png").write_bytes(b"no image at all")
    (folder / "08.png").write_bytes((folder / "02.png").read_bytes())
    Image.new("RGB", (33, 44)).save(folder / "11.png")


def findings(summary: CheckSummary) -> list[tuple[str, str, str]]:
    return [(found.kind, found.entry, found.message) for found in summary.findings]


@pytest.mark.parametrize("decode", [False, *slow(True)])
def test_check_finds_what_it_finds_in_files(decode: bool, painted: Folder) -> None:
    break_some(painted)
    folder, path = put_into_shards(painted, painted[0].parent / "shards")
    expected = check_coco(painted[1], painted[0], decode=decode)
    assert expected.errors == 3
    found = check_coco(path, folder, decode=decode)
    assert findings(found) == findings(expected)


@pytest.mark.slow
def test_check_finds_an_image_that_only_decoding_finds(painted: Folder) -> None:
    content = bytearray((painted[0] / "04.png").read_bytes())
    at = content.index(b"IDAT") + 20
    content[at : at + 40] = bytes(40)
    (painted[0] / "04.png").write_bytes(content)
    folder, path = put_into_shards(painted, painted[0].parent / "shards")
    assert check_coco(path, folder).errors == 0
    found = check_coco(path, folder, decode=True)
    assert [(each.kind, each.entry) for each in found.findings] == [("image-broken", "images[4]")]


def test_clean_keeps_the_places(painted: Folder) -> None:
    break_some(painted)
    folder, path = put_into_shards(painted, painted[0].parent / "shards")
    summary = check_coco(path, folder, clean=folder / "clean.json")
    assert summary.cleaned
    assert summary.cleaned.images == 3
    batches = list(da.Loader(da.CocoReader(folder, folder / "clean.json"), [da.Resize((20, 20))], 6, train=False))
    assert sum(map(len, batches)) == 18


@pytest.mark.parametrize("lost", ["missing", "cut"])
def test_check_of_a_shard_that_is_not_whole(lost: str, painted: Folder) -> None:
    folder, path = put_into_shards(painted, painted[0].parent / "shards")
    shard = folder / "1.bin"
    shard.unlink() if lost == "missing" else shard.write_bytes(shard.read_bytes()[:-1])
    found = [each for each in check_coco(path, folder).findings if each.kind.startswith("image-")]
    if lost == "missing":
        assert {(each.kind, each.message) for each in found} == {
            ("image-missing", "its shard '1.bin' is not in the image folder")
        }
        assert len(found) == 8
    else:
        assert [(each.kind, each.entry) for each in found] == [("image-unreadable", "images[15]")]
        assert "its shard has" in found[0].message


def test_check_against_the_same_images_in_files(painted: Folder) -> None:
    folder, path = put_into_shards(painted, painted[0].parent / "shards")
    summary = check_coco(path, folder, against=[painted[1]])
    assert summary.kind_counts["image-leaked"] == 21


def test_preview_and_html_report(painted: Folder, tmp_path: Path) -> None:
    folder, path = put_into_shards(painted, painted[0].parent / "shards")
    for name, source in (("files", painted), ("shards", (folder, path))):
        assert main(["preview", str(source[1]), str(source[0]), "-o", str(tmp_path / f"{name}.png")]) == 0
    files, shards = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in ("files", "shards"))
    assert np.array_equal(files, shards)
    document: dict[str, Any] = json.loads(path.read_bytes())
    document["annotations"][0]["bbox"] = [500, 500, 9, 9]
    path.write_text(json.dumps(document))
    assert main(["check", str(path), str(folder), "--html", str(tmp_path / "report.html")]) == 1
    assert "data:image/" in (tmp_path / "report.html").read_text()


def test_merge_of_shards_and_files(painted: Folder, tmp_path: Path) -> None:
    folder, path = put_into_shards(painted, tmp_path / "shards")
    merged = tmp_path / "merged.json"
    summary = merge_coco([path, painted[1]], merged, images=[folder, painted[0]])
    assert summary.images == 42
    loader = da.Loader(da.CocoReader(tmp_path, merged), [da.Resize((40, 60))], 21, train=False)
    one, two = loader
    assert (one.images == two.images).all()
    assert (one.boxes == two.boxes).all()
