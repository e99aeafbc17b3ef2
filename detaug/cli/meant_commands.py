"""Which commands are meant by a word that is not one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

ELSEWHERE = {
    "val": ("evaluate",),
    "validate": ("evaluate", "check"),
    "valid": ("evaluate",),
    "eval": ("evaluate",),
    "test": ("evaluate",),
    "score": ("evaluate",),
    "metrics": ("evaluate",),
    "map": ("evaluate",),
    "detect": ("predict",),
    "infer": ("predict",),
    "inference": ("predict",),
    "track": ("predict",),
    "label": ("predict",),
    "augment": ("preview",),
    "transform": ("preview", "import-recipe"),
    "show": ("preview",),
    "view": ("preview",),
    "visualize": ("preview",),
    "visualise": ("preview",),
    "plot": ("preview",),
    "draw": ("preview",),
    "fit": ("train",),
    "finetune": ("train",),
    "resume": ("train",),
    "data": ("convert", "check"),
    "dataset": ("convert", "check"),
    "datasets": ("convert", "check"),
    "import": ("convert", "import-recipe"),
    "lint": ("check",),
    "verify": ("check",),
    "clean": ("check",),
    "stats": ("check",),
    "info": ("check",),
    "analyze": ("check",),
    "health": ("check",),
    "slice": ("tile",),
    "sahi": ("tile",),
    "crop": ("tile",),
    "join": ("merge",),
    "concat": ("merge",),
    "onnx": ("export",),
    "benchmark": ("bench",),
    "speed": ("bench",),
    "shard": ("pack",),
    "list": ("formats",),
    "models": ("train",),
    "example": ("demo",),
    "quickstart": ("demo",),
}
"""By a word that other tools have, such as `yolo val`, `yolo detect predict` and `datum stats`: what does it here."""


def likely_commands(word: str, commands: Sequence[str]) -> list[str]:
    """Return the commands that are meant by a word that is not one: of other tools, misspelled, or a part of a name."""
    word = word.lower().replace("_", "-")
    if word in ELSEWHERE:
        return [*ELSEWHERE[word]]
    own = [word] if word in commands else get_close_matches(word, commands, 3, cutoff=0.75)
    parts = [name for name in commands if len(word) > 2 and word in name.split("-")]
    if own or parts:
        return own or parts[:4]
    close = get_close_matches(word, ELSEWHERE, 1, cutoff=0.8)
    return [*ELSEWHERE[close[0]]] if close else []
