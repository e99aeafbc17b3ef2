"""Read maps as the command line names them: NAME=FOLDER,KEY=VALUE,..., such as semantic=SegmentationClass,ignore=0."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from detaug.coco.classes_and_images import read_class_names
from detaug.errors import InputError
from detaug.files.atomic import write_atomically, write_json
from detaug.findings.finding import listed, shown
from detaug.maps.kinds import PRESETS, ClassMap, DepthMap, MapKind, PanopticMap

KINDS: Mapping[str, type[MapKind]] = {"classes": ClassMap, "depth": DepthMap, "panoptic": PanopticMap}
"""By the value of `kind=`."""

EXAMPLE = "semantic=SegmentationClass or semantic=masks,ignore=0,suffix=_mask"


def read_map(text: str, *, plain: bool = False) -> tuple[str, MapKind]:
    """Return the name and the kind of a map. Raises InputError for text that names none; plain: or a panoptic one.

    Its kind is `kind=classes`, `kind=panoptic` or `kind=depth`; by default that of its name, if it is panoptic or
    depth, else classes. Other keys are the arguments of `ClassMap`, `PanopticMap` and `DepthMap`; `classes` is a,b,c or
    a file, one name per line; `table` is a preset, or a JSON file of numbers or colors "r,g,b" to classes.

    >>> from detaug.maps.named import read_map
    >>> read_map("semantic=masks,ignore=0")[1].ignore
    0
    """
    name, equals, rest = text.partition("=")
    folder, *settings = re.split(r",(?=\w+=)", rest)
    if not (name and equals and folder):
        raise InputError(f"map must be NAME=FOLDER, such as {EXAMPLE}, got {text!r}")
    texts = dict(setting.split("=", 1) for setting in settings)
    if len(texts) < len(settings):
        raise InputError(f"the map {name!r} must have each key once, got {','.join(settings)}")
    kind = texts.pop("kind", name if name in KINDS else "classes")
    kinds = [kind_name for kind_name in KINDS if not plain or kind_name != "panoptic"]
    if kind not in kinds:
        of_panoptic = "; da.CocoReader(maps=) checks panoptic maps, and detaug evaluate scores them"
        rule = f"kind of the map {name!r} must be {', '.join(kinds[:-1])} or {kinds[-1]}, got {kind!r}"
        raise InputError(rule + of_panoptic * (kind == "panoptic"))
    names = {field.name for field in fields(KINDS[kind])} & _READ.keys()
    for key in texts:
        if key not in names:
            raise InputError(f"the map {name!r} must have keys of {', '.join(sorted(names))} and kind, got {key!r}")
    return name, KINDS[kind](folder, **{key: _READ[key](key, value) for key, value in texts.items()})


def read_class_map(text: str) -> ClassMap:
    """Return the map of classes named semantic. Raises InputError for another name or kind, as `read_map` does.

    >>> from detaug.maps.named import read_class_map
    >>> read_class_map("semantic=masks,table=ade20k").table
    'ade20k'
    """
    name, kind = read_map(text)
    if name != "semantic" or not isinstance(kind, ClassMap):
        raise InputError(f"map must be semantic=FOLDER, a map of classes, which alone can be learned; got {text!r}")
    return kind


def python_text(kind: ClassMap) -> str:
    """Return Python that makes a map, without the names of its classes, which may be many.

    >>> from detaug.maps.named import python_text
    >>> python_text(da.ClassMap("masks", table="ade20k", classes=["wall", "building"]))
    'da.ClassMap("masks", table="ade20k")'
    >>> python_text(da.ClassMap("masks", table={0: 0, 255: 1}))
    'da.ClassMap("masks", table={0: 0, 255: 1})'
    """
    arguments = [json.dumps(os.fspath(kind.folder))]
    texts = {
        key: json.dumps(value) if isinstance(value, str) else repr(value) for key, value in _settings(kind).items()
    }
    arguments += [f"{key}={text}" for key, text in texts.items()]
    return f"da.ClassMap({', '.join(arguments)})"


def map_text(name: str, kind: ClassMap, folder: Path) -> str:
    """Return a map as `read_map` takes it. The names of its classes, and a table, become files in `folder`."""
    settings = _settings(kind)
    if kind.classes is not None:
        settings["classes"] = folder / "class_names.txt"
        write_atomically(settings["classes"], ["".join(f"{class_name}\n" for class_name in kind.classes)])
    if isinstance(kind.table, Mapping):
        settings["table"] = folder / "table.json"
        keys = [",".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in kind.table]
        write_json(settings["table"], dict(zip(keys, kind.table.values(), strict=True)))
    return ",".join([f"{name}={os.fspath(kind.folder)}", *(f"{key}={value}" for key, value in settings.items())])


def refuse_other_classes(kind: ClassMap, trained: ClassMap, what: str) -> None:
    """Raise InputError for maps whose numbers may mean other classes than those that a model was trained with.

    The names of the classes must be the same, if `kind` has some, and the numbers in the files must mean the same,
    unless it has both names and a table of its own. `what`: what has the maps, for the message.
    """
    classes, own = trained.classes or (), kind.classes
    if own is not None and tuple(own) != tuple(classes):
        raise InputError(
            f"{what} has the classes {listed(own)}, and the model those of its training, {listed(classes)}; give the "
            "map these, in their order, with classes="
        )
    if kind.numbering != trained.numbering and (kind.table is None or own is None):
        raise InputError(
            f"{what} has {_numbering_text(kind)}, and the model was trained with {_numbering_text(trained)}: a number "
            "in a file would mean another class; give the map the same, or, if its files have other numbers for the "
            "classes of the training, their table= and classes="
        )


def _numbering_text(kind: ClassMap) -> str:
    table = dict(kind.table) if isinstance(kind.table, Mapping) else kind.table
    return f"ignore={kind.ignore} and {'no table' if table is None else f'table={shown(table)}'}"


def _settings(kind: ClassMap) -> dict[str, Any]:
    """Return the arguments of a map that are not its defaults, but for the folder and the names of classes."""
    values = {
        field.name: getattr(kind, field.name) for field in fields(kind) if field.default != getattr(kind, field.name)
    }
    return {key: value for key, value in values.items() if key not in ("folder", "classes")}


def _number(read: Callable[[str], Any]) -> Callable[[str, str], Any]:
    def number(key: str, text: str) -> Any:
        try:
            return read(text)
        except (ValueError, ZeroDivisionError):
            raise InputError(f"{key} of a map must be a number, got {text!r}") from None

    return number


def _table(_: str, text: str) -> Any:
    if text in PRESETS:
        return text
    rule = f"table of a map must be {', '.join(PRESETS)} or a JSON file of numbers or colors to classes"
    try:
        content = json.loads(Path(text).read_text("utf-8-sig"))
        pairs = [([int(part) for part in key.split(",")], value) for key, value in content.items()]
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f'{rule}, such as {{"0": 0, "255": 1}} or {{"128,64,128": 0}}; {text}: {error}') from None
    return {key[0] if len(key) == 1 else tuple(key): value for key, value in pairs}


_READ: Mapping[str, Callable[[str, str], Any]] = {
    "ignore": _number(int),
    "scale": _number(lambda text: float(Fraction(text))),
    "invalid": _number(float),
    "annotations": lambda _, text: text,
    "suffix": lambda _, text: text,
    "missing": lambda _, text: text,
    "classes": lambda _, text: tuple(read_class_names(text)),
    "table": _table,
}
"""By key, from text to the argument of a kind."""
