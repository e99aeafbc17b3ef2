"""Read pipelines that Albumentations wrote: the JSON or YAML of `A.save` and `A.to_dict`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from detaug.errors import InputError
from detaug.importing.calls import Call, Pipeline

_CLASS = "__class_fullname__"
_MOST_VALUES = 100_000


def read_serialized(text: str, *, is_json: bool) -> list[Pipeline]:
    """Return the pipeline of a file that Albumentations wrote. Raises InputError if it is none."""
    try:
        document = json.loads(text) if is_json else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"neither JSON nor YAML ({' '.join(str(error).split())})") from None
    pipeline = document.get("transform", document) if isinstance(document, dict) else None
    if not isinstance(pipeline, dict) or _CLASS not in pipeline:
        raise InputError("must be what A.save writes: a dict whose 'transform' has a '__class_fullname__'")
    version = _major(document.get("__version__"))
    return [Pipeline("transform", _as_call(pipeline, version, iter(range(_MOST_VALUES))))]


def _major(version: Any) -> int:
    """Return 1 for versions before 2, such as "1.4.15", else 2."""
    return 1 if str(version).split(".")[0] in ("0", "1") else 2


def _as_call(entry: dict[str, Any], version: int, budget: Iterator[int]) -> Call:
    name = str(entry[_CLASS]).rpartition(".")[2]
    named = {key: _value(each, version, budget) for key, each in entry.items() if key != _CLASS}
    return Call("albumentations", name, (), named, None, version)


def _value(value: Any, version: int, budget: Iterator[int]) -> Any:
    """Return a value with its ops as calls. A number of `budget` is used for each: aliases of YAML may repeat a lot."""
    if next(budget, None) is None:
        raise InputError(f"has more than {_MOST_VALUES:,} values")
    if isinstance(value, dict) and _CLASS in value:
        return _as_call(value, version, budget)
    if isinstance(value, dict):
        return {key: _value(each, version, budget) for key, each in value.items()}
    return [_value(each, version, budget) for each in value] if isinstance(value, list) else value
