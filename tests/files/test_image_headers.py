"""Image headers compared with what DALI decodes."""

from __future__ import annotations

import io
import struct
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from voc_files import exif, image_bytes, png_chunk, rotated_jpeg, several, with_segment

from detaug.files.image_headers import (
    ImageError,
    parse_image_header,
    read_image_header,
    read_orientation,
    upright,
)
from detaug.files.large_images import without_pillows_warnings


def turned(orientation: int = 6) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def png_with(orientation: int, before: bytes) -> bytes:
    """Return a PNG with an eXIf chunk before the chunk of that name."""
    data = image_bytes(kind="PNG")
    position = data.index(before) - 4
    return data[:position] + png_chunk(b"eXIf", exif(orientation)) + data[position:]


def bmp() -> bytes:
    """Return a file that Pillow reads the header of."""
    file = io.BytesIO()
    Image.new("RGB", (9, 7)).save(file, "BMP")
    return file.getvalue()


def test_threads_leave_the_filters_of_warnings_as_they_are() -> None:
    """In 8 threads, which take turns often, `warnings.catch_warnings` would leave those of another thread."""
    before, interval, content = [*warnings.filters], sys.getswitchinterval(), bmp()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            sizes = [*pool.map(lambda _: parse_image_header(io.BytesIO(content)).width, range(2000))]
    finally:
        sys.setswitchinterval(interval)
    assert sizes == [9] * 2000
    assert [*warnings.filters] == before


def test_only_warnings_of_pillow_are_ignored() -> None:
    with without_pillows_warnings():
        with pytest.warns(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)
        with warnings.catch_warnings(record=True) as seen:
            warnings.warn_explicit("Corrupt EXIF data", UserWarning, "TiffImagePlugin.py", 1, "PIL.TiffImagePlugin")
            with without_pillows_warnings():
                pass
            warnings.warn_explicit("Corrupt EXIF data", UserWarning, "TiffImagePlugin.py", 1, "PIL.TiffImagePlugin")
        assert not seen
    with pytest.warns(UserWarning, match="Corrupt"):
        warnings.warn_explicit("Corrupt EXIF data", UserWarning, "TiffImagePlugin.py", 1, "PIL.TiffImagePlugin")


def exif_segment(tiff: bytes) -> bytes:
    return b"Exif\0\0" + tiff


XMP = b'http://ns.adobe.com/xap/1.0/\0<x xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
JPEG = image_bytes()
START_OF_SCAN = JPEG.index(b"\xff\xda")
LATE_EXIF = with_segment(b"\xff\xd8" + JPEG[START_OF_SCAN:], exif_segment(exif(6)))[2:]
IMAGES = {
    "plain": JPEG,
    "gray": image_bytes(mode="L"),
    "cmyk": image_bytes(mode="CMYK"),
    "progressive": image_bytes(progressive=True),
    "4:4:4": image_bytes(subsampling=0),
    **{f"orientation {n}": rotated_jpeg(n) for n in (*range(10), 300)},
    "gray, orientation 6": rotated_jpeg(6, mode="L"),
    "big endian": with_segment(JPEG, exif_segment(exif(6, ">"))),
    "as a long": with_segment(JPEG, exif_segment(exif(6, type_=4))),
    "as a big endian long": with_segment(JPEG, exif_segment(exif(6, ">", type_=4))),
    "6, then 1": with_segment(with_segment(JPEG, exif_segment(exif(1))), exif_segment(exif(6))),
    "1, then 6": with_segment(with_segment(JPEG, exif_segment(exif(6))), exif_segment(exif(1))),
    "in XMP only": with_segment(JPEG, XMP),
    "not TIFF": with_segment(JPEG, exif_segment(b"garbage!")),
    "directory outside": with_segment(JPEG, exif_segment(b"II*\0\xff\xff\xff\xff")),
    "directory too long": with_segment(JPEG, exif_segment(exif(6)[:8] + b"\xff\0" + exif(6)[10:])),
    "value at the very end": with_segment(JPEG, exif_segment(exif(6)[:-6])),
    "empty": with_segment(JPEG, exif_segment(b"")),
    "fill bytes": JPEG[:2] + b"\xff\xff" + JPEG[2:],
    "EXIF behind the frame header": JPEG[:START_OF_SCAN] + LATE_EXIF,
    "behind 4 KiB": with_segment(rotated_jpeg(6), b"x" * 6000, 0xFE),
    "behind 400 KiB": b"".join(
        [JPEG[:2], *[with_segment(b"\xff\xd8", b"x" * 65000, 0xFE)[2:]] * 7, rotated_jpeg(6)[2:]]
    ),
    "png": image_bytes(kind="PNG"),
    "png, orientation 6": png_with(6, b"IDAT"),
    "png, orientation 6 behind the pixels": png_with(6, b"IEND"),
    "webp, orientation 6": image_bytes(kind="WEBP", exif=turned()),
    "tiff, orientation 6": image_bytes(kind="TIFF", exif=turned()),
    "tiff, orientation 9": image_bytes(kind="TIFF", exif=turned(9)),
    "bmp": image_bytes(kind="BMP"),
    "ppm": image_bytes(kind="PPM"),
    "jpeg 2000": image_bytes(kind="JPEG2000"),
}


@pytest.fixture(scope="module")
def decoded_sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """Return (width, height) of each image as DALI decodes it on the CPU."""
    import nvidia.dali.fn as fn
    from nvidia.dali import pipeline_def

    folder = tmp_path_factory.mktemp("images")
    files = []
    for n, data in enumerate(IMAGES.values()):
        files.append(str(folder / f"{n}.img"))
        Path(files[-1]).write_bytes(data)

    @pipeline_def(batch_size=len(files), num_threads=2, device_id=None)  # type: ignore[untyped-decorator]
    def decode() -> object:
        encoded, _ = fn.readers.file(files=files)
        return fn.decoders.image(encoded)

    pipeline = decode()
    pipeline.build()
    (images,) = pipeline.run()
    return {name: images.at(n).shape[1::-1] for n, name in enumerate(IMAGES)}


@pytest.mark.parametrize("name", IMAGES)
def test_size_is_that_of_the_decoded_image(
    tmp_path: Path, decoded_sizes: dict[str, tuple[int, int]], name: str
) -> None:
    path = tmp_path / "image"
    path.write_bytes(IMAGES[name])
    header = read_image_header(str(path))
    assert (header.width, header.height) == decoded_sizes[name]
    assert header.file_bytes == len(IMAGES[name])
    assert header.stored_size == (100, 80)


def test_the_images_above_try_both_ways_up(decoded_sizes: dict[str, tuple[int, int]]) -> None:
    assert set(decoded_sizes.values()) == {(100, 80), (80, 100)}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (JPEG[:2] + b"\0\0" + JPEG[2:], "header is broken"),  # DALI refuses these, too
        (JPEG[:2] + b"\xff\x01" + JPEG[2:], "header is broken"),
        (JPEG[:150], "header is broken"),
        (JPEG[:2] + b"\xff\xe0\0\0" + JPEG[2:], "header is broken"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "is not an image"),
        (image_bytes(kind="GIF"), "is GIF, which DALI does not decode"),
        (png_with(6, b"IDAT").replace(b"IDAT", b"eXIf", 1), "two eXIf chunks"),
    ],
)
def test_what_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "image"
    path.write_bytes(data)
    with pytest.raises(ImageError, match=message):
        read_image_header(str(path))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_upright_turns_once(kind: str, orientation: int) -> None:
    data = image_bytes(kind=kind, exif=turned(orientation))
    with Image.open(io.BytesIO(image_bytes(kind=kind))) as image:
        stored = np.asarray(image)
    expected = {1: stored, 2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1], 5: stored.swapaxes(0, 1)}
    expected |= {6: np.rot90(stored, -1), 7: stored[::-1, ::-1].swapaxes(0, 1), 8: np.rot90(stored)}
    with Image.open(io.BytesIO(data)) as image:
        shown = np.asarray(upright(image, read_orientation(io.BytesIO(data))))
    np.testing.assert_array_equal(shown, expected[orientation])


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_files_with_several_images_are_known(kind: str) -> None:
    """Pillow itself counts them."""
    for count in (1, 2, 5):
        data = several(kind, count)
        with Image.open(io.BytesIO(data)) as image:
            assert getattr(image, "n_frames", 1) == count
        assert parse_image_header(io.BytesIO(data)).has_more == (count > 1)


@pytest.mark.parametrize("frames", [1, 2])
def test_an_animation_of_one_frame_is_one_image(frames: int) -> None:
    png = image_bytes(kind="PNG")
    chunk = png_chunk(b"acTL", struct.pack(">II", frames, 0))
    assert parse_image_header(io.BytesIO(png[:33] + chunk + png[33:])).has_more == (frames > 1)


def tiff(*kinds: int, order: str = "<", end: int = 0) -> bytes:
    """Return a TIFF whose directories have the tag 254 with these values; the last one leads to `end`."""
    directories, start = b"", 8
    for number, kind in enumerate(kinds):
        tags = [(254, 4, kind), (256, 4, 3), (257, 4, 2), (258, 4, 8), (262, 4, 1), (277, 4, 1)]
        rows = b"".join(struct.pack(order + "HHII", tag, form, 1, value) for tag, form, value in tags)
        after = start + 2 + len(rows) + 4
        following = end if number == len(kinds) - 1 else after
        directories += struct.pack(order + "H", len(tags)) + rows + struct.pack(order + "I", following)
        start = after
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + directories


@pytest.mark.parametrize("order", ["<", ">"])
def test_smaller_copies_and_masks_in_a_tiff_are_not_pages(order: str) -> None:
    """As in a Cloud Optimized GeoTIFF. A chain of directories may be a circle, or lead beyond the file."""
    for kinds, has_more in [((0,), False), ((0, 1), False), ((0, 4), False), ((0, 5, 1), False), ((0, 2), True),
                            ((0, 1, 0), True), ((2, 2), True)]:  # fmt: skip
        assert parse_image_header(io.BytesIO(tiff(*kinds, order=order))).has_more == has_more, kinds
    assert not parse_image_header(io.BytesIO(tiff(0, 1, order=order, end=1 << 20))).has_more
    assert not parse_image_header(io.BytesIO(tiff(0, 1, order=order, end=8))).has_more
