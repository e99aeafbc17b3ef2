"""Documents, help, messages, docstrings and comments use the words of torchvision, COCO and Ultralytics."""

from __future__ import annotations

import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import blocks, prose
from places import REPOSITORY

WORDS = {
    r"data sets?": "dataset",
    r"key[ -]points?": "keypoint",
    r"pictures?": "image",
    r"photographs?": "image",
    r"run lengths": "RLE",
    r"found out": "detected",
    r"change places": "are swapped",
    r"mend(?:s|ed|ing)?": "correct",
    r"colours?|coloured|greys?|centres?|neighbours?|behaviour": "US spelling",
    r"labell\w+|unlabelled|normalis\w+|recognis\w+|synchronis\w+|rasteris\w+": "US spelling",
    r"(?<![.\w/])jsons?": "JSON, JSON file",
    r"(?:images|frames)(?:/s)? a (?:second(?! time)|process|step)": "per second, per process, per step",
    r"turned (?:box|image|object)(?:es|s)?|mirrored (?:image|object)s?": "rotated, flipped",
    r"what (?:is|was) (?:seen|found|masked)": "the visible part, detections",
    r"so many": "this number of",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|sharper)\w+": "is not a",
    r"form of results": "COCO results JSON file, results format",
    r"score from which": "confidence threshold",
    r"shared out": "stratified",
}
"""By the pattern of a word of ours, that of the field."""

EXCEPTIONS: dict[str, set[str]] = {
    "formats.py": {"json"},  # the extension of a member, in the index that DALI reads
    "convert_speed.py": {"json"},  # imported by a program in a string
    "first_batch.py": {"json"},  # as above
}
"""By file, words that must stay, each with its reason beside it."""

PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md")),
    *sorted(REPOSITORY.glob("docs/*.md")),
    REPOSITORY / "docs/site/landing.md",
    *sorted(REPOSITORY.glob("docs/trainers/*.md")),
    *sorted(REPOSITORY.glob("notebooks/*.ipynb")),
]
ROOMS = ("detaug", "converters", "benchmarks", "docs")
CODE = [path for room in ROOMS for path in sorted((REPOSITORY / room).rglob("*.py"))]
NAMES = r"`[^`]*`|\]\([^)]*\)|https?://\S+|<[^>\n]*>|\{[^{}]*\}|--[\w-]+|[\w./*]+\.json\b|\bjson\.\w+|>>> .*|\.\.\. .*"
"""Code, names of options and files, what is filled in, and the targets of links."""


def text_of(path: Path) -> str:
    """Return the prose of a page and its blocks other than Python, such as help and printed outputs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return prose("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"))
    return "\n\n".join([prose(text), *(block.text for block in blocks(text) if not block.kind.startswith("python"))])


def wrong_words(text: str, allowed: set[str]) -> dict[str, str]:
    text = re.sub(r"^ +\w+(, \w+)*: ", " ", text, flags=re.M)  # names of arguments in a docstring
    text = " ".join(re.sub(NAMES, " ", text).split())
    return {
        match[0]: word
        for pattern, word in WORDS.items()
        for match in re.finditer(rf"(?<![\w.-])(?:{pattern})(?![\w(=]|\.\w|-\w)", text, re.I)
        if match[0] not in allowed and (match[0].islower() or " " in match[0])
    }


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines and the texts of the strings and comments of a module that are more than one word."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_text = token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None))
            if is_text and " " in token.string.strip():
                yield token.start[0], token.string


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_documents_use_the_words_of_the_field(path: Path) -> None:
    assert wrong_words(text_of(path), EXCEPTIONS.get(path.name, set())) == {}


@pytest.mark.slow
def test_help_messages_docstrings_and_comments_use_the_words_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line}: {old} -> {new}"
        for path in CODE
        for line, text in texts_of(path)
        for old, new in wrong_words(text, EXCEPTIONS.get(path.name, set())).items()
    ]
    assert wrong == []


def test_words_that_are_wrong_are_found() -> None:
    text = "A data set of pictures; {picture} in `jsons` of out.json, 5 images a second, keypoints of a coloured json."
    assert set(wrong_words(text, set())) == {"data set", "pictures", "images a second", "coloured", "json"}
