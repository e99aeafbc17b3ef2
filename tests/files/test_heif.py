"""AVIF and HEIC of phones: sizes, pixels in batches, orientation, and what is said where they are not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, features
from seeds import slow

import detaug as da
from detaug.cli.main import main
from detaug.converters import check_coco, pack_coco
from detaug.files import heif
from detaug.files.image_headers import ImageError, parse_image_header

pillow_heif = pytest.importorskip("pillow_heif")
if not features.check("avif"):
    pytest.skip("this version of Pillow has no AVIF", allow_module_level=True)

WIDTH, HEIGHT = 96, 64
KINDS = {"HEIC": ".heic", "AVIF": ".avif"}


def picture() -> Image.Image:
    """Return an image whose four corners have colors of their own."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[: HEIGHT // 2, : WIDTH // 2] = 220, 30, 30
    pixels[: HEIGHT // 2, WIDTH // 2 :] = 30, 200, 30
    pixels[HEIGHT // 2 :, : WIDTH // 2] = 40, 40, 220
    pixels[HEIGHT // 2 :, WIDTH // 2 :] = 230, 230, 40
    return Image.fromarray(pixels)


def encoded(kind: str, orientation: int = 1) -> bytes:
    """Return a file that shows `picture` when it is turned as its orientation says."""
    undo = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    turn = undo[orientation]
    stored = picture() if turn is None else picture().transpose(turn)
    exif, content = Image.Exif(), BytesIO()
    exif[0x0112] = orientation
    if kind == "AVIF":
        stored.save(content, "AVIF", quality=95, subsampling="4:4:4", exif=exif)
    else:
        pillow_heif.from_pillow(stored).save(content, quality=95, chroma=444, exif=exif.tobytes())
    return content.getvalue()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("orientation", [1, 6, 3, 8])
def test_the_size_is_that_of_the_upright_image(kind: str, orientation: int) -> None:
    header = parse_image_header(BytesIO(encoded(kind, orientation)))
    assert (header.format, header.width, header.height) == (kind, WIDTH, HEIGHT)


def data_set(folder: Path, kind: str, name: str = "") -> tuple[Path, Path]:
    """Write three images of a kind, a PNG and a JPEG, and their JSON file."""
    images = folder / "images"
    images.mkdir()
    for at, orientation in enumerate((1, 6, 8)):
        (images / f"{at}{name or KINDS[kind]}").write_bytes(encoded(kind, orientation))
    picture().save(images / "3.png")
    picture().save(images / "4.jpg", quality=100, subsampling=0)
    names = sorted(path.name for path in images.iterdir())
    document = {
        "images": [{"id": at, "file_name": each, "width": WIDTH, "height": HEIGHT} for at, each in enumerate(names)],
        "annotations": [
            {"id": at + 1, "image_id": at, "category_id": 1, "bbox": [0, 0, 48, 32], "area": 1536, "iscrowd": 0}
            for at in range(len(names))
        ],
        "categories": [{"id": 1, "name": "corner"}],
    }
    (folder / "train.json").write_text(json.dumps(document))
    return images, folder / "train.json"


def in_shards(images: Path, annotations: Path) -> tuple[Path, Path]:
    pack_coco(annotations, images, images.parent / "shards")
    return images.parent / "shards", images.parent / "shards" / annotations.name


@pytest.mark.parametrize("place", ["files", *slow("shards", "cache")])
def test_batches_show_what_the_files_show(tmp_path: Path, kind: str, place: str, device: str) -> None:
    images, annotations = data_set(tmp_path, kind)
    if place == "shards":
        images, annotations = in_shards(images, annotations)
    loader = da.Loader(
        da.CocoReader(images, annotations), [da.Resize((HEIGHT, WIDTH))], 5, train=False, device=device,
        cache="device" if place == "cache" else None,
    )  # fmt: skip
    wanted = np.asarray(picture(), int)
    for _ in range(2):
        (batch,) = loader
        for image in batch.images.cpu().permute(0, 2, 3, 1).numpy():
            difference = np.abs(image.astype(int) - wanted)
            assert difference.mean() < 4
            assert np.median(difference) < 4


@pytest.mark.slow
def test_check_finds_only_what_is_cut_off(tmp_path: Path, kind: str) -> None:
    images, annotations = data_set(tmp_path, kind)
    assert not [*check_coco(annotations, images).findings]
    content = images / f"1{KINDS[kind]}"
    content.write_bytes(content.read_bytes()[:-200])
    (finding,) = check_coco(annotations, images, decode=True).findings
    assert finding.file_name == content.name
    assert finding.kind in {"image-broken", "image-unreadable"}


def test_a_name_that_hides_the_format(tmp_path: Path, kind: str) -> None:
    """The loader and check say the same, and what they advise works."""
    images, annotations = data_set(tmp_path, kind, ".jpeg")
    rule = f"is {kind}, and its name does not say so; rename it to {KINDS[kind]}, also in the JSON file"
    with pytest.raises(da.DataError, match=rf"0\.jpeg {rule}"):
        next(iter(da.Loader(da.CocoReader(images, annotations), [da.Resize((8, 8))], 5, device="cpu")))
    findings = check_coco(annotations, images).findings
    assert [(each.kind, rule in each.message) for each in findings] == [("image-format", True)] * 3
    for path in images.glob("*.jpeg"):
        path.rename(path.with_suffix(KINDS[kind]))
    annotations.write_text(annotations.read_text().replace(".jpeg", KINDS[kind]))
    next(iter(da.Loader(da.CocoReader(images, annotations), [da.Resize((8, 8))], 5, device="cpu")))


def test_a_broken_image_is_named(tmp_path: Path, kind: str) -> None:
    images, annotations = data_set(tmp_path, kind)
    content = images / f"1{KINDS[kind]}"
    content.write_bytes(content.read_bytes()[:-200])
    with pytest.raises(da.DataError, match=rf"1\{KINDS[kind]}"):
        next(iter(da.Loader(da.CocoReader(images, annotations), [da.Resize((8, 8))], 5, device="cpu")))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run without the packages that decode HEIC."""
    from detaug.coco import file_names

    def clear() -> None:
        heif.decodes.cache_clear()
        file_names._undecoded.cache_clear()

    monkeypatch.setattr(heif, "_HEIC_PACKAGES", ("no_such_package",))
    clear()
    yield
    clear()


def test_where_the_package_is_missing(without: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = encoded("HEIC")
    with pytest.raises(ImageError, match=r"is HEIC, which needs the package pi-heif: pip install 'detaug\[heif\]'"):
        parse_image_header(BytesIO(content))
    images, annotations = data_set(tmp_path, "HEIC")
    assert main(["check", str(annotations), str(images)]) == 1
    assert "pip install 'detaug[heif]'" in capsys.readouterr().out
    with pytest.raises(da.InputError, match=r"pip install 'detaug\[heif\]'"):
        da.CocoReader(images, annotations)


BRANDS: list[tuple[bytes, list[bytes], str | None]] = [
    (b"heic", [b"mif1"], "HEIC"), (b"avif", [b"mif1", b"miaf"], "AVIF"), (b"mif1", [b"mif1", b"avif"], "AVIF"),
    (b"mif1", [b"heic"], "HEIC"), (b"msf1", [], "HEIC"), (b"isom", [b"mp42"], None),
]  # fmt: skip


@pytest.mark.parametrize(("brand", "compatible", "wanted"), BRANDS)
def test_brands(brand: bytes, compatible: list[bytes], wanted: Any) -> None:
    box = b"ftyp" + brand + bytes(4) + b"".join(compatible)
    assert heif.format_of((len(box) + 4).to_bytes(4, "big") + box + b"avif" * 9) == wanted
