"""Save and load recipes as JSON or YAML: a list of ops by name, each with its arguments.

- RandomZoomOut: {max_ratio: 3.0, p: 0.5}
- RandomApply:
    ops: [RandomHorizontalFlip, RandomRotation: {degrees: 10}]
    p: 0.3
- Resize: {size: [300, 300]}

`Stages` are a list of {from_epoch: 0, ops: [...]}, by step of {from_step: 0, ops: [...]}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml  # type: ignore[import-untyped]

from detaug.arguments import check_names, checks_names
from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.files.text import parse_yaml, unique_keys
from detaug.named_options import option
from detaug.ops.op import GeometricOp, Op, PixelOp
from detaug.recipes.public_names import name_here, public_names
from detaug.recipes.stages import By, Stages

Types = Mapping[str, type[Op]]

_FROM: dict[By, str] = {"epoch": "from_epoch", "step": "from_step"}
_OPS = "ops"
"""The keys of a stage."""
_STAGE = {by: f"{{{key}: 0, {_OPS}: [...]}}" for by, key in _FROM.items()}


@checks_names
def save_recipe(ops: Iterable[Op] | Stages, path: str | Path, *, comment: str = "") -> None:
    """Write ops, or `Stages`, with all arguments, also defaults, to a file: JSON if it ends in .json, else YAML.

    Args:
        ops: The recipe, or `Stages`.
        path: The file: JSON if it ends in .json, else YAML.
        comment: Text to write above the ops; JSON has no comments and leaves it out.

    >>> from pathlib import Path
    >>> da.save_recipe([da.RandomHorizontalFlip(), da.RandomZoomOut(fill=(0, 0, 0))], "recipe.yaml")
    >>> print(Path("recipe.yaml").read_text())
    - RandomHorizontalFlip:
        p: 0.5
    - RandomZoomOut:
        max_ratio: 4.0
        p: 0.5
        fill:
        - 0.0
        - 0.0
        - 0.0
        min_ratio: 1.0
    """
    if isinstance(ops, Stages):
        key = _FROM[ops.by]
        entries = [{key: start, _OPS: [_entry(op) for op in stage_ops]} for start, stage_ops in ops.stages]
    else:
        entries = [_entry(op) for op in ops]
    is_json = Path(path).suffix == ".json"
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    text = (
        json.dumps(entries, indent=1) + "\n" if is_json else head + yaml.safe_dump(entries, sort_keys=False, width=120)
    )
    write_atomically(path, [text])


@checks_names
def load_recipe(path: str | Path, ops: Iterable[type[Op]] = ()) -> list[Op] | Stages:
    """Load the ops, or `Stages`, of a JSON or YAML file. `ops`: classes of your own that it may name.

    Raises InputError that names the file, the entry and the fault.

    Args:
        path: The JSON or YAML file.
        ops: Classes of your own that it may name.

    >>> da.save_recipe(da.presets.ssd300(), "ssd300.json")
    >>> da.load_recipe("ssd300.json") == da.presets.ssd300()
    True
    """
    types = library() | {op.__name__: op for op in ops}
    try:
        text = Path(path).read_text(encoding="utf-8")
        entries = json.loads(text, object_pairs_hook=unique_keys) if Path(path).suffix == ".json" else parse_yaml(text)
        _check_number_of_values(entries)
        if not isinstance(entries, list):
            raise InputError(
                f"a recipe is a list of ops, or of stages, {_STAGE['epoch']}; got {type(entries).__name__}"
            )
        keys = {key for entry in entries if isinstance(entry, dict) for key in entry}
        if keys & {*_FROM.values(), _OPS}:
            by: By = "step" if _FROM["step"] in keys else "epoch"
            stages = (_load_stage(f"entry {number}", entry, by, types) for number, entry in enumerate(entries, 1))
            return Stages(stages, by=by)
        return [_load_entry(f"entry {number}", entry, types) for number, entry in enumerate(entries, 1)]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    except RecursionError:
        raise InputError(f"{path}: entries lie in each other too deeply, or an alias refers to itself") from None
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: neither JSON nor YAML ({' '.join(str(error).split())})") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


_MOST_VALUES = 100_000
"""Of a recipe file: aliases of YAML in each other make more of a few lines than a memory holds."""


def _check_number_of_values(value: Any, left: int = _MOST_VALUES) -> int:
    """Return how many values may follow. Raises InputError after too many, each as often as aliases repeat it."""
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        if left < 1:
            raise InputError(f"has more than {_MOST_VALUES:,} values, aliases repeated")
        left = _check_number_of_values(part, left - 1)
    return left


def import_ops(module: str) -> list[type[Op]]:
    """Import a module of the user's, which runs it, and return the ops that it has. For `load_recipe(path, ops=...)`.

    `module`: its name, in the working folder or installed, or a file FILE.py. Raises InputError where it cannot be
    imported, or has no ops.
    """
    path = Path(module)
    is_file = path.suffix == ".py"
    folder = str(path.parent) if is_file else ""
    sys.path.insert(0, folder)
    try:
        content = _run_file(path) if is_file else import_module(module)
    except Exception as error:  # of the user's code
        raise InputError(f"{option('ops', module)} cannot be imported ({type(error).__name__}: {error})") from error
    finally:
        sys.path.remove(folder)
    ours = {*library().values(), Op, GeometricOp, PixelOp}
    ops = [member for member in vars(content).values() if isinstance(member, type) and issubclass(member, Op)]
    if not {*ops} - ours:
        raise InputError(f"{option('ops', module)} has no op: a dataclass derived from da.GeometricOp or da.PixelOp")
    return [op for op in ops if op not in ours]


def _run_file(path: Path) -> ModuleType:
    """Import a file under a name that no other module has."""
    spec = spec_from_file_location(f"ops_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    content = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(content)
    return content


def library() -> dict[str, type[Op]]:
    """Return the ops of detaug by name."""
    modules = {name: module for name, module in public_names().items() if module.startswith("detaug.ops.")}
    public = {name: getattr(import_module(module), name) for name, module in sorted(modules.items())}
    ops = {name: member for name, member in public.items() if isinstance(member, type) and issubclass(member, Op)}
    return {name: op for name, op in ops.items() if op.__module__ != Op.__module__}


def _entry(op: Op) -> dict[str, Any]:
    return {type(op).__name__: {name: _plain(getattr(op, name)) for name in _arguments(type(op))}}


def _arguments(op: type[Op]) -> list[str]:
    return [field.name for field in fields(op) if field.init]  # type: ignore[arg-type]  # it is a dataclass


def _plain(value: Any) -> Any:
    if isinstance(value, Op):
        return _entry(value)
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _load_stage(position: str, entry: Any, by: By, types: Types) -> tuple[int, list[Op]]:
    """Return a stage of `Stages`; errors name its position."""
    if not (isinstance(entry, dict) and set(entry) == {_FROM[by], _OPS} and isinstance(entry[_OPS], list)):
        raise InputError(f"{position}: a stage is {_STAGE[by]}; got {entry!r:.80}")
    ops = enumerate(entry[_OPS], 1)
    return entry[_FROM[by]], [_load_entry(f"{position}, op {number}", inner, types) for number, inner in ops]


def _load_entry(position: str, entry: Any, types: Types) -> Op:
    """Make the op of an entry; errors name its position."""
    try:
        return _make_op(entry, types)
    except (TypeError, ValueError) as error:
        raise InputError(f"{position}: {error}") from None


def _make_op(entry: Any, types: Types) -> Op:
    """Make an op from its name, or from a dict of its name and arguments."""
    named = {entry: {}} if isinstance(entry, str) else entry
    if not (
        isinstance(named, dict) and len(named) == 1 and all(isinstance(arguments, dict) for arguments in named.values())
    ):
        raise InputError(f"an op is a name, or {{name: {{argument: value, ...}}}}; got {entry!r}")
    ((name, arguments),) = named.items()
    if name not in types:
        raise InputError(_explain_unknown(str(name), types))
    old_names = getattr(types[name].__init__, "old_names", {})
    check_names(name, [argument for argument in arguments if argument not in old_names], _arguments(types[name]))
    return types[name](**{argument: _value(argument, value, types) for argument, value in arguments.items()})


def _explain_unknown(name: str, types: Types) -> str:
    close, here = get_close_matches(name, types, 1), name_here(name, ())
    guess = f"use {here} (docs/ops.md has the names of other libraries); an" if here else "an"
    if close and not here:
        guess = f"is it {close[0]}? An"
    own = f"op of your own is given by --ops MODULE, or in Python by da.load_recipe(FILE, ops=[{name}])"
    return f"no op is called {name!r}; {guess} {own}"


def _value(argument: str, value: Any, types: Types) -> Any:
    if argument == "ops" and isinstance(value, list):
        return tuple(_load_entry(f"op {number}", inner, types) for number, inner in enumerate(value, 1))
    if isinstance(value, list):
        return tuple(_value("", item, types) for item in value)
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and set(value) <= set(types) and isinstance(next(iter(value.values())), dict):
        return _make_op(value, types)
    return {name: _value("", member, types) for name, member in value.items()}
