"""The documents use the words of the field: those of torchvision, COCO and Ultralytics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import prose
from places import REPOSITORY

WORDS = {
    r"data sets?": "dataset",
    r"key points?": "keypoint",
    r"pictures?": "image",
    r"photographs?": "image",
    r"run lengths": "RLE",
    r"found out": "detected",
    r"change places": "are swapped",
    r"mend(?:s|ed|ing)?": "correct",
    r"colours?|coloured|greys?|centres?|neighbours?|behaviour": "US spelling",
    r"labell\w+|unlabelled|normalis\w+|recognis\w+|synchronis\w+": "US spelling",
    r"(?<![.\w/])jsons?(?![\w.])": "JSON file",
    r"images(?:/s)? a (?:second(?! time)|process)": "per second, per process",
}
"""By the pattern of a word of ours, that of the field."""

EXCEPTIONS: dict[str, set[str]] = {}
"""By document, words that must stay, each with its reason beside it."""

PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(path for path in sorted(REPOSITORY.glob("docs/*.md")) if path.stem not in ("commands", "findings")),
    *sorted(REPOSITORY.glob("docs/trainers/*.md")),
]
"""commands.md and findings.md are made from the program."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_documents_use_the_words_of_the_field(path: Path) -> None:
    names = r"`[^`]*`|\]\([^)]*\)|https?://\S+|<[^>\n]*>"  # code, and the targets of links
    text = " ".join(re.sub(names, " ", prose(path.read_text(encoding="utf-8"))).split())
    found = {
        match[0]: word
        for pattern, word in WORDS.items()
        for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.I)
    }
    allowed = EXCEPTIONS.get(path.name, set())
    assert {old: new for old, new in found.items() if old not in allowed and old.islower()} == {}
