"""Random XML and random image headers: every file is either converted correctly or refused with a finding."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from properties import check_examples, few_or_many
from voc_files import HEIGHT, WIDTH, assert_valid, box_xml, devkit, image_bytes, voc_xml, with_segment

from detaug.converters import voc_to_coco
from detaug.converters.voc.xml import XmlError, parse_voc_xml, to_coco_box
from detaug.files.image_headers import ImageError, exif_orientation, read_image_header

TAGS = [
    "annotation",
    "object",
    "name",
    "bndbox",
    "xmin",
    "ymin",
    "xmax",
    "ymax",
    "size",
    "width",
    "part",
    "difficult",
]
numbers = st.one_of(
    st.integers(-5, 120).map(str),
    st.floats().map(repr),
    st.sampled_from(["1e1", "-0", "1e400", "", " 7 ", "\uff11\uff12", "0x1", "9" * 400]),
)
texts = st.one_of(numbers, st.text(max_size=8), st.sampled_from(["cat", " cat ", "猫", "&amp;", "&x;", "<!DOCTYPE a>"]))
elements = st.recursive(
    texts,
    lambda inner: st.builds(
        lambda tag, children: f"<{tag}>{''.join(children)}</{tag}>",
        st.sampled_from(TAGS),
        st.lists(inner, max_size=4),
    ),
    max_leaves=30,
)
corner_elements = st.tuples(numbers, numbers, numbers, numbers).map(
    lambda c: f"<bndbox><xmin>{c[0]}</xmin><ymin>{c[1]}</ymin><xmax>{c[2]}</xmax><ymax>{c[3]}</ymax></bndbox>"
)
objects = st.builds(lambda box, more: f"<object><name>cat</name>{box}{more}</object>", corner_elements, elements)
annotations = st.lists(st.one_of(objects, elements), max_size=5).map(
    lambda parts: f"<annotation>{''.join(parts)}</annotation>"
)
encoded = st.builds(
    lambda text, encoding, cut: text.encode(encoding, "surrogatepass")[: cut or None],
    annotations,
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.sampled_from([None, None, None, -1, -20]),
)
finite = st.floats(allow_nan=False, allow_infinity=False)


@few_or_many(150)
def test_any_xml_is_converted_or_refused(examples: int) -> None:
    def check(xmls: list[bytes], origin: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            stems = {f"{n}": data for n, data in enumerate(xmls)}
            images = {f"{stem}.jpg": with_segment(image_bytes(), stem.encode(), 0xFE) for stem in (*stems, "good")}
            root = devkit(Path(folder) / "voc", stems | {"good": voc_xml(box_xml(1, 1, 9, 9))}, images)
            output = Path(folder) / "out.json"
            summary = voc_to_coco(root, output, origin=origin, on_error="skip")  # type: ignore[arg-type]
            document = json.loads(output.read_bytes())
        assert_valid(document, summary)
        refused = {finding.file for finding in summary.findings if finding.effect == "error"}
        assert len(document["images"]) + len(refused) == len(xmls) + 1

    check_examples(examples, check, st.lists(encoded, min_size=1, max_size=3), st.sampled_from(["one", "zero"]))


@few_or_many(150)
def test_the_parser_raises_nothing_but_its_error(examples: int) -> None:
    def check(data: bytes) -> None:
        with suppress(XmlError):
            assert all(item.class_name.strip() for item in parse_voc_xml(data).objects)

    check_examples(examples, check, st.one_of(encoded, st.binary(max_size=200)))


@given(st.tuples(finite, finite, finite, finite), st.sampled_from(["one", "zero"]))
def test_any_corners_give_a_box_inside_or_none(corners: tuple[float, float, float, float], origin: str) -> None:
    box, kinds = to_coco_box(corners, origin, (HEIGHT, WIDTH))  # type: ignore[arg-type]
    if box is None:
        assert {"box-outside", "box-empty"} & set(kinds)
        return
    x, y, width, height = box
    assert 0 <= x < x + width <= WIDTH
    assert 0 <= y < y + height <= HEIGHT


inside = st.tuples(st.integers(1, WIDTH), st.integers(1, HEIGHT), st.integers(1, WIDTH), st.integers(1, HEIGHT))


@given(inside)
def test_integer_corners_come_back(corners: tuple[int, int, int, int]) -> None:
    xmin, xmax = sorted(corners[::2])
    ymin, ymax = sorted(corners[1::2])
    box, _ = to_coco_box((xmin, ymin, xmax, ymax), "one", (HEIGHT, WIDTH))
    assert box is not None
    x, y, width, height = box
    assert (x + 1, y + 1, x + width, y + height) == (xmin, ymin, xmax, ymax)


@few_or_many(150)
def test_broken_image_headers_are_read_or_refused(examples: int) -> None:
    def check(data: bytes, changes: list[tuple[int, int]], length: int) -> None:
        changed = bytearray(data)
        for position, value in changes:
            changed[position % len(changed)] = value
        with tempfile.NamedTemporaryFile() as file:
            file.write(changed[:length] if length % 2 else changed)
            file.flush()
            with suppress(ImageError):
                header = read_image_header(file.name)
                assert min(header.width, header.height) > 0

    check_examples(
        examples,
        check,
        st.sampled_from([image_bytes(kind=kind) for kind in ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")]),
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
        st.integers(0, 600),
    )


@given(st.binary(max_size=60), st.sampled_from([b"", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08"]))
def test_any_exif_block_gives_an_orientation(tail: bytes, head: bytes) -> None:
    assert 0 <= exif_orientation(head + tail) <= 0xFFFF
