"""Convert files of any format in the tests, check what every json must fulfil, and damage files in many ways."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coco_files import Document
from pycocotools.coco import COCO
from voc_files import assert_valid, image_bytes, with_segment, write_files

from detaug.converters import ConversionError, Summary, check_coco, convert_to_coco

_HOSTILE = (
    *("null", "-1", "0", "1e999", "NaN", '"x"', "[]", "{}", "true", "9" * 400, "1e9", "-1e8", "0.5", '""', "[[]]"),
    *("\u00e9", "\x00", "<", "&x;", '"', "]", "}", ",", " ", "\n", "../../a.jpg", "/etc/passwd", "\\", "1_000", ";"),
)
_TOKEN = re.compile(r'"[^"]*"|-?\d+(?:\.\d+)?|\w+|[^\w\s]')


def data_set(folder: Path, files: Mapping[str, str | bytes], *images: str) -> Path:
    """Write annotation files, and JPEGs of 100 x 80 pixels, all different."""
    write_files(folder, {name: with_segment(image_bytes(), name.encode(), 0xFE) for name in images})
    return write_files(folder, files)


def converted(path: Path, *, check: bool = True, **options: Any) -> tuple[Document, Summary]:
    """Convert, and check what every written file must fulfil. check: also with pycocotools and `detaug check`."""
    output = path.parent / f"{path.name}-out.json"
    summary = convert_to_coco(path, output, **options)
    document = json.loads(output.read_bytes())
    assert_valid(document, summary)
    if not check:
        return document, summary
    if document["annotations"]:
        COCO(str(output))
    checked = check_coco(output, summary.image_folder)
    errors = [group.kind for group in checked.groups if group.severity == "error"]
    assert set(errors) <= {"crowds-only"} | (set() if document["annotations"] else {"categories-empty"}), errors
    return document, summary


def kinds(summary: Summary) -> dict[str, int]:
    """Return how many findings of each kind there are."""
    return summary.kind_counts


def refused(path: Path, **options: Any) -> str:
    """Return the message of a conversion that must fail and write nothing."""
    output = path.parent / f"{path.name}-out.json"
    before = sorted(path.parent.iterdir())
    try:
        convert_to_coco(path, output, **options)
    except ConversionError as error:
        assert sorted(path.parent.iterdir()) == before
        return str(error)
    raise AssertionError("nothing was refused")


def mutants(text: str, count: int) -> Iterator[str]:
    """Yield texts with tokens replaced, left out, repeated or swapped, or an end cut off; always the same ones."""
    chance = random.Random(0)
    tokens = list(_TOKEN.finditer(text))
    for _ in range(count):
        changed = text
        for _ in range(chance.choice((1, 1, 2, 5))):
            token = chance.choice(tokens)
            start, end = token.span()
            hostile, other = chance.choice(_HOSTILE), chance.choice(tokens)[0]
            new = chance.choice((hostile, hostile, "", 2 * token[0], other))
            changed = changed[:start] + new + changed[end:] if len(changed) >= end else changed
        yield changed[: chance.randrange(len(changed))] if chance.random() < 0.05 and changed else changed


def assert_damage_ends_in_a_sentence(folder: Path, file: str, format: str, count: int = 120) -> None:
    """Check that damaged copies of one file convert to a valid json, or end in a ConversionError; nothing else."""
    whole = (folder / file).read_text(encoding="utf-8")
    output = folder.parent / f"{folder.name}-out.json"
    written = 0
    for at, text in enumerate(mutants(whole, count)):
        (folder / file).write_bytes(text.encode("utf-8", "surrogatepass"))
        output.unlink(missing_ok=True)
        try:
            converted(folder, check=at % 20 == 0, format=format, on_error="skip")
        except ConversionError:
            assert not output.exists()
        else:
            written += 1
        assert not [*folder.parent.glob(".*.partial")]
    assert written > count / 10, "the damage is too large to test what is behind the parser"
