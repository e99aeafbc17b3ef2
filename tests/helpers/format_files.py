"""Convert files of any format in the tests, check what every JSON file must fulfil, and damage files in many ways."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from coco_files import Document
from pycocotools.coco import COCO
from voc_files import assert_valid, image_bytes, with_segment, write_files

from detaug.converters import ConversionError, Summary, check_coco, convert_to_coco
from detaug.files.formats import FORMATS

_HOSTILE = (
    *("null", "-1", "0", "1e999", "NaN", '"x"', "[]", "{}", "true", "9" * 400, "1e9", "-1e8", "0.5", '""', "[[]]"),
    *("\u00e9", "\x00", "<", "&x;", '"', "]", "}", ",", " ", "\n", "../../a.jpg", "/etc/passwd", "\\", "1_000", ";"),
)
_VALUES: tuple[Any, ...] = (
    *(None, -1, 0, 1e308, float("nan"), float("inf"), 10**400, -1e8, 0.5, True, False, 7, 2**63),
    *(
        "",
        "x",
        "http://[",
        "1e9",
        "\ud800",
        "../../a.jpg",
        "/etc/passwd",
        "\x00",
        [],
        [[]],
        {},
        {"a": 1},
        [None],
        [1, 2, 3],
    ),
)
_TOKEN = re.compile(r'"[^"]*"|-?\d+(?:\.\d+)?|\w+|[^\w\s]')


def data_set(folder: Path, files: Mapping[str, str | bytes], *images: str) -> Path:
    """Write annotation files, and JPEGs of 100 x 80 pixels, all different."""
    write_files(folder, {name: with_segment(image_bytes(), name.encode(), 0xFE) for name in images})
    return write_files(folder, files)


Example = tuple[str, str, str, Mapping[str, str], tuple[str, ...]]
"""A file of a format: its form, its name, its content; the other files and the images of the dataset."""


def modules_of_other_formats(listed: Collection[str]) -> Iterator[tuple[str, ModuleType]]:
    """Yield each format that a test of all formats does not list, and tests/converters/test_NAME.py.

    That module has EXAMPLES, of each form of the format, and write_set(folder, count), which writes so many images with
    the boxes of benchmarks/convert_speed.py, into an empty folder.
    """
    for format in FORMATS:
        if format.name not in listed and not format.folders:  # of maps, no text: test_label_maps.py
            yield format.name, import_module(f"test_{format.name.replace('-', '_')}")


def converted(path: Path, *, check: bool = True, **options: Any) -> tuple[Document, Summary]:
    """Convert, and check what every written file must fulfil. check: also with pycocotools and `detaug check`."""
    output = path.parent / f"{path.name}-out.json"
    summary = convert_to_coco(path, output, **options)
    document = json.loads(output.read_bytes())
    objects, regions = document["annotations"][: summary.boxes], document["annotations"][summary.boxes :]
    assert_valid(document | {"annotations": objects}, summary)
    assert len(regions) <= summary.kind_counts.get("region-ignored", 0) * len(document["categories"])
    assert all(row["iscrowd"] for row in regions)
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


def mutants(text: str, count: int, seed: int = 0) -> Iterator[str]:
    """Yield damaged texts, always the same ones: JSON values, or tokens, are replaced, left out or repeated."""
    chance = random.Random(seed)
    is_json = text.lstrip()[:1] in ("{", "[")
    for _ in range(count):
        times = chance.choice((1, 1, 2, 5))
        yield (
            _other_values(text, times, chance)
            if is_json and chance.random() < 0.8
            else _other_tokens(text, times, chance)
        )


def _other_tokens(text: str, times: int, chance: random.Random) -> str:
    tokens = list(_TOKEN.finditer(text))
    for _ in range(times):
        token = chance.choice(tokens)
        start, end = token.span()
        hostile, other = chance.choice(_HOSTILE), chance.choice(tokens)[0]
        new = chance.choice((hostile, hostile, "", 2 * token[0], other))
        text = text[:start] + new + text[end:] if len(text) >= end else text
    return text[: chance.randrange(len(text))] if chance.random() < 0.05 and text else text


def _other_values(text: str, times: int, chance: random.Random) -> str:
    lines = text.splitlines()
    if text[:1] == "{" and len(lines) > 1 and lines[0][-1:] == "}":  # a JSON file on each line
        at = chance.randrange(len(lines))
        return "\n".join([*lines[:at], _other_values(lines[at], times, chance), *lines[at + 1 :]])
    document = json.loads(text)
    for _ in range(times):
        places: list[tuple[Any, Any]] = []
        waiting = [document]
        while waiting:
            each = waiting.pop()
            keys = each.keys() if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
            places += [(each, key) for key in keys]
            waiting += [each[key] for key in keys]
        owner, key = chance.choice(places)
        if chance.random() < 0.2:
            del owner[key]
        else:
            other, another = chance.choice(places)
            new = chance.choice((*_VALUES, other[another]))
            owner[key] = json.loads(json.dumps(new))  # not one object in two places
        if not document:
            break
    return json.dumps(document)


def assert_damage_ends_in_a_sentence(folder: Path, file: str, format: str, count: int = 120, seed: int = 0) -> None:
    """Check that damaged copies of one file convert to a valid JSON, or end in a ConversionError; nothing else."""
    whole = (folder / file).read_text(encoding="utf-8")
    output = folder.parent / f"{folder.name}-out.json"
    parsed = 0
    for at, text in enumerate(mutants(whole, count, seed)):
        (folder / file).write_bytes(text.encode("utf-8", "surrogatepass"))
        output.unlink(missing_ok=True)
        try:
            converted(folder, check=at % 20 == 0, format=format, on_error="skip")
        except ConversionError as error:
            assert not output.exists()
            parsed += "no object is left" in str(error)
        else:
            parsed += 1
        assert not [*folder.parent.glob(".*.partial")]
    assert parsed > count / 10, "the damage is too large to test what is behind the parser"
