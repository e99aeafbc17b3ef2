"""Read pipelines of Albumentations and torchvision as data: live objects, and what `A.to_dict` and `A.save` gave."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]

from detaug.arguments import to_python
from detaug.errors import InputError
from detaug.files.text import parse_yaml, read_text, unique_keys

Library = Literal["albumentations", "torchvision", "ultralytics"]

COMPOSE = ("Compose", "ReplayCompose", "Albu", "Albumentations")
"""What runs a list of ops one after the other; the last two are MMDetection's."""
ALL_OR_NONE = (*COMPOSE, "Sequential", "RandomApply")
ONE = ("OneOf", "OneOrOther", "RandomChoice")
SOME = ("SomeOf", "RandomOrder")
CONTAINERS = (*ALL_OR_NONE, *ONE, *SOME)
SAVED = (".json", ".yaml", ".yml")
TAKEN = (
    "of Albumentations or torchvision (a Compose, an op, or a list of them), what A.to_dict or A.save gave, "
    "RF-DETR's aug_config, Ultralytics' augmentation settings, or FILE.py:NAME"
)
_CLASS = "__class_fullname__"
_MOST_VALUES = 100_000
_MODULES: dict[str, Library] = {"albumentations": "albumentations", "torchvision.transforms": "torchvision"}
_RENAMED = {("RandomIoUCrop", "sampler_options"): "options"}
"""Arguments of torchvision's ops that are attributes of another name."""
_TORCH_CONTAINERS = ("Sequential", "ModuleList")
_CODE = "it runs code of its own"


@dataclass(frozen=True)
class LibraryOp:
    """An op or a container of another library. The ops in a container are `arguments["transforms"]`."""

    library: Library
    name: str
    arguments: Mapping[str, Any]
    version: int = 2
    """The major version of the library, which decides what some arguments mean."""
    unreadable: str = ""
    """Why the arguments are not known: for functions, and for ops that the user wrote."""


# ------------------------------------------------------------------------------------------- live objects


def read_pipeline(pipeline: Any) -> LibraryOp:
    """Return a live pipeline, or a dict of `A.to_dict`, as data. Raises InputError for any other object."""
    if isinstance(pipeline, Mapping) and _saved_in(pipeline):
        return _read_saved(pipeline)
    if isinstance(pipeline, list | tuple):
        ops = [_child(op, "torchvision") for op in pipeline]
        if len(ops) > 1 and all(op.name in COMPOSE for op in ops):
            raise InputError(f"{len(ops)} pipelines: choose one, in Python with [0], for the command with NAME.0")
        known = [op for op in ops if not op.unreadable]
        if known:
            return LibraryOp(known[0].library, "Compose", {"transforms": ops}, known[0].version)
    elif op := _read_op(pipeline):
        return op
    raise InputError(f"the pipeline must be {TAKEN}; got {_described(pipeline)}")


def is_pipeline(value: Any) -> bool:
    """Return whether `read_pipeline` takes a value, or names what to choose from it: a tuple of pipelines."""
    if isinstance(value, list | tuple):
        return any(not isinstance(op, list | tuple) and is_pipeline(op) for op in value)
    if isinstance(value, Mapping):
        return _saved_in(value) is not None
    return _is_torch_container(value) or _library_of(value) is not None


def _described(value: Any) -> str:
    """Return what a value is, and what in it could be imported instead."""
    if isinstance(value, type):
        return f"the class {value.__name__}: call it first"
    kind = f"an object of {type(value).__name__}"
    parts = value if isinstance(value, Mapping) else vars(value) if hasattr(value, "__dict__") else {}
    pipelines = [str(name) for name, part in parts.items() if is_pipeline(part)]
    if not pipelines:
        return kind
    return f"{kind}, which has pipelines: {', '.join(pipelines)}; choose one, for the command with NAME.{pipelines[0]}"


def _library_of(value: Any) -> Library | None:
    """Return the library that an op or a container is of; None for all other objects, also those derived from them."""
    module = type(value).__module__
    names = [library for name, library in _MODULES.items() if f"{module}.".startswith(f"{name}.")]
    return names[0] if names and callable(value) and not isinstance(value, type) else None


def _is_torch_container(value: Any) -> bool:
    container = type(value).__module__ == "torch.nn.modules.container" and type(value).__name__ in _TORCH_CONTAINERS
    return container and any(map(is_pipeline, value))


def _read_op(value: Any) -> LibraryOp | None:
    """Return an object of one of the libraries as data, None for any other object."""
    if _is_torch_container(value):
        return LibraryOp("torchvision", "Compose", {"transforms": [_child(op, "torchvision") for op in value]})
    library, name = _library_of(value), type(value).__name__
    if library is None:
        return None
    if name == "Lambda":
        return LibraryOp(library, name, {"p": getattr(value, "p", 1.0)}, unreadable=_CODE)
    version = _major(sys.modules["albumentations"].__version__) if library == "albumentations" else 2
    if name in CONTAINERS:
        return LibraryOp(library, name, _container_arguments(value, library), version)
    if library == "torchvision":
        return LibraryOp(library, name, _attributes(value))
    try:
        arguments = value.to_dict()["transform"]
    except (NotImplementedError, ValueError) as error:
        return LibraryOp(library, name, {"p": value.p}, version, f"its arguments cannot be read ({error})")
    return LibraryOp(library, name, {key: _plain(arguments[key]) for key in arguments if key != _CLASS}, version)


def _child(value: Any, library: Library) -> LibraryOp:
    """Return an op of a container as data; a function, or an op that the user wrote, is unreadable."""
    if isinstance(value, Mapping):
        return _read_saved(value)
    name = getattr(value, "__name__", type(value).__name__)
    return _read_op(value) or LibraryOp(library, name, {"p": getattr(value, "p", 1.0)}, unreadable=_CODE)


def _container_arguments(value: Any, library: Library) -> dict[str, Any]:
    """Return the arguments of a container. Those in it may be unreadable, so the library cannot write it whole."""
    arguments = {name: getattr(value, name) for name in ("p", "n", "replace") if hasattr(value, name)}
    arguments["transforms"] = [_child(op, library) for op in value.transforms]
    processors = getattr(value, "processors", {})
    for name, key in (("bbox_params", "bboxes"), ("keypoint_params", "keypoints")):
        if key in processors:
            arguments[name] = _plain(vars(processors[key].params))
    if others := getattr(value, "additional_targets", None):
        arguments["additional_targets"] = _plain(others)
    return arguments


def _attributes(value: Any) -> dict[str, Any]:
    """Return the arguments of an op of torchvision, which keeps each as an attribute."""
    arguments = {}
    for name, parameter in inspect.signature(type(value)).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = None if parameter.default is parameter.empty else parameter.default
            arguments[name] = _plain(getattr(value, _RENAMED.get((type(value).__name__, name), name), default))
    if type(value).__name__ == "RandomErasing" and arguments["value"] is None:
        arguments["value"] = "random"  # which v2 keeps as None
    if type(value).__name__ == "RandomCrop" and ".v2" in type(value).__module__ and arguments.get("padding"):
        left, right, top, bottom = arguments["padding"]  # v2 keeps this order, in RandomCrop alone
        arguments["padding"] = [left, top, right, bottom]
    return arguments


def _plain(value: Any) -> Any:
    """Return a value without tensors, arrays and enums; keys that are classes, such as tv_tensors.Image, as names."""
    if isinstance(value, Mapping):
        return {getattr(key, "__name__", key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return value.tolist() if hasattr(value, "tolist") else to_python(value)


# ----------------------------------------------------------------------------------------- saved pipelines


def read_saved_file(path: Path) -> LibraryOp:
    """Return the pipeline of a file that `A.save` wrote; nothing in it is executed. Raises InputError if it is none."""
    text = read_text(path)
    try:
        document = json.loads(text, object_pairs_hook=unique_keys) if path.suffix == ".json" else parse_yaml(text)
    except (json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"neither JSON nor YAML ({' '.join(str(error).split())})") from None
    return _read_saved(document)


def _saved_in(document: Any) -> Mapping[str, Any] | None:
    """Return the pipeline in what `A.to_dict` gave, None if there is none."""
    pipeline = document.get("transform", document) if isinstance(document, Mapping) else None
    return pipeline if isinstance(pipeline, Mapping) and _name_of(pipeline) else None


def _read_saved(document: Any) -> LibraryOp:
    pipeline = _saved_in(document)
    if pipeline is None:
        raise InputError("must be what A.save writes: a dict whose 'transform' has a '__class_fullname__'")
    return _as_op(pipeline, _major(document.get("__version__")), iter(range(_MOST_VALUES)))


def _major(version: Any) -> int:
    """Return 1 for versions before 2, such as "1.4.15", else 2."""
    return 1 if str(version).split(".")[0] in ("0", "1") else 2


def _name_of(entry: Mapping[str, Any]) -> str:
    """Return the name of an op; `dict(type="Blur", ...)` is MMDetection's way of writing it. "" if it is not an op."""
    name = entry.get(_CLASS, entry.get("type"))
    return name if isinstance(name, str) else ""


def _as_op(entry: Mapping[str, Any], version: int, budget: Iterator[int]) -> LibraryOp:
    arguments = {key: _value(value, version, budget) for key, value in entry.items() if key not in (_CLASS, "type")}
    name = _name_of(entry)
    written = "." in name and not name.startswith("albumentations.")
    name = name.rpartition(".")[2]
    return LibraryOp("albumentations", name, arguments, version, _CODE if written or name == "Lambda" else "")


def _value(value: Any, version: int, budget: Iterator[int]) -> Any:
    """Return a value with its ops as data. A number of `budget` is used for each: aliases of YAML may repeat a lot."""
    if next(budget, None) is None:
        raise InputError(f"has more than {_MOST_VALUES:,} values")
    if isinstance(value, Mapping) and _name_of(value):
        return _as_op(value, version, budget)
    if isinstance(value, Mapping):
        return {key: _value(entry, version, budget) for key, entry in value.items()}
    return [_value(entry, version, budget) for entry in value] if isinstance(value, list | tuple) else _plain(value)
