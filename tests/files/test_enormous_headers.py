"""Files of a kilobyte whose header says 60,000 x 60,000 pixels; and images above Pillow's limit that are good."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from command import detaug, usage_error
from PIL import Image
from places import HELPERS
from seeds import slow

import detaug as da
from detaug.converters import check_coco
from detaug.files.large_images import too_few_bytes
from detaug.training.predict import pixels_of

SIDE = 60_000
SMALL = Image.new("RGB", (100, 100), (9, 200, 30))


def encode(kind: str) -> bytes:
    content = io.BytesIO()
    SMALL.save(content, kind)
    return content.getvalue()


def png(bits: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, bits, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100_000))) + chunk(b"IEND", b"")


def jpeg() -> bytes:
    content = encode("JPEG")
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", SIDE, SIDE) + content[at + 4 :]


def tiff(dtype: str, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros((16, 16, 3), dtype), photometric="rgb", **options)
    content = bytearray(file.getvalue())
    for at in range(10, 10 + 12 * struct.unpack_from("<H", content, 8)[0], 12):
        if struct.unpack_from("<H", content, at)[0] in (256, 257, 278):  # ImageWidth, ImageLength, RowsPerStrip
            struct.pack_into("<HII", content, at + 2, 4, 1, SIDE)
    return bytes(content)


def bmp() -> bytes:
    content = encode("BMP")[:1000]
    return content[:18] + struct.pack("<ii", SIDE, SIDE) + content[26:]


FILES = {
    "a.png": png(8),
    "a.jpg": jpeg(),
    "a.tif": tiff("uint8"),
    "tiles.tif": tiff("uint8", tile=(16, 16)),
    "a.bmp": bmp(),
    "a.ppm": b"P6\n%d %d\n255\n" % (SIDE, SIDE) + bytes(500),
    "16.png": png(16),
    "16.tif": tiff("uint16", tile=(16, 16)),
    "16.ppm": b"P6\n%d %d\n65535\n" % (SIDE, SIDE) + bytes(500),
}


def write(folder: Path, files: dict[str, bytes], side: int = SIDE) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    images = [{"id": at, "file_name": name, "width": side, "height": side} for at, name in enumerate(files, 1)]
    boxes = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 20, 20], "area": 400, "iscrowd": 0}]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "train.json").write_text(json.dumps(document))
    return folder, folder / "train.json"


@pytest.mark.parametrize("name", ["a.jpg", "16.tif", *slow(*sorted({*FILES} - {"a.jpg", "16.tif"}))])
def test_each_entrance_says_it_in_a_sentence(name: str, tmp_path: Path) -> None:
    assert len(FILES[name]) < 2000
    reading: Any = {"dtype": "uint16"} if name.startswith("16") else {}
    reader = da.CocoReader(*write(tmp_path / "in", {name: FILES[name]}), **reading)
    ways = {
        "loader": lambda: list(da.Loader(reader, [da.Resize((300, 300))], 1, train=False, device="cpu")),
        "tiles": lambda: list(
            da.Loader(da.TileReader(reader, overlap=0), [da.Resize((300, 300))], 1, train=False, device="cpu")
        ),
    }
    for way, run in ways.items():
        with pytest.raises(da.DataError, match=name) as found:
            run()
        assert "\n" not in str(found.value), way
    with pytest.raises(OSError, match="too many for its"):
        da.StackReader([reader]).contents(np.array([0]))
    if not reading:
        with pytest.raises(da.InputError, match=name):
            pixels_of(reader.path(0))
        assert name in usage_error("tile", reader.annotations, reader.images, "-o", tmp_path / "out")
        assert name in usage_error("preview", reader.annotations, reader.images, "-o", tmp_path / "out.png")
    assert not [*tmp_path.glob("out*")]


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_enormous_headers import FILES, test_each_entrance_says_it_in_a_sentence
for name in FILES:
    (folder := Path(sys.argv[1], name)).mkdir()
    test_each_entrance_says_it_in_a_sentence(name, folder)
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""


@pytest.mark.slow
def test_nothing_of_that_size_is_allocated(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent), str(HELPERS)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    assert 0.3e6 < int(done.stdout.split()[-1]) < 1.5e6


def test_the_page_of_check_says_why_it_has_no_picture(tmp_path: Path) -> None:
    folder, path = write(tmp_path / "in", {"a.png": FILES["a.png"]})
    assert detaug("check", path, folder, "--html", tmp_path / "page.html").code == 1
    assert "no image: too many pixels" in (tmp_path / "page.html").read_text()


def test_a_single_colour_is_no_enormous_header() -> None:
    """JPEG has 512 of its pixels in a byte; and below 2^27 pixels any file is left to the decoder."""
    assert too_few_bytes(SIDE, SIDE, SIDE * SIDE // 512) == ""
    assert "has 60000 x 60000 pixels in its header" in too_few_bytes(SIDE, SIDE, SIDE * SIDE // 2000)
    assert too_few_bytes(11_000, 12_000, 700) == ""
    assert too_few_bytes(12_000, 12_000, 700)


@pytest.mark.slow
def test_check_names_each(tmp_path: Path) -> None:
    folder, path = write(tmp_path / "in", {name: each for name, each in FILES.items() if name[0] != "1"})
    found = {each.entry: each.kind for each in check_coco(path, folder, decode=True).findings if "box" not in each.kind}
    assert found == {f"images[{at}]": "image-broken" for at in range(len(FILES) - 3)}


def test_good_pictures_may_be_larger_than_the_limit_of_pillow(tmp_path: Path, monkeypatch: Any) -> None:
    """Also beside a broken one, which is found by opening all of a batch."""
    pictures = {f"{kind}.{kind}": encode(kind) for kind in ("png", "jpeg", "tiff", "bmp", "webp")}
    folder, path = write(tmp_path / "in", {"broken.png": encode("PNG")[:70], **pictures}, 100)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4500)
    for reader in (da.CocoReader(folder, path), da.TileReader(da.CocoReader(folder, path), 30, overlap=0)):
        options: Any = {"on_error": "skip", "max_skipped": 0.9, "train": False, "device": "cpu"}
        with pytest.warns(UserWarning, match=r"broken\.png") as said:
            batches = [*da.Loader(reader, [da.Resize((64, 64)), da.Normalize(dtype="uint8")], 6, **options)]
        assert not [each for each in said if "png.png" in str(each.message)]
        assert {int(i) for batch in batches for i in batch.image_id} == {
            at + 1 for at in range(len(reader)) if reader.path(at).name != "broken.png"
        }
    write(folder, pictures, 100)
    assert detaug("preview", path, folder, "-o", tmp_path / "out.png").code == 0
    assert detaug("tile", path, folder, "-o", tmp_path / "tiles", "--size", 30, "-q").code == 0
    assert pixels_of(folder / "tiff.tiff").shape == (100, 100, 3)
    assert Image.MAX_IMAGE_PIXELS == 4500
