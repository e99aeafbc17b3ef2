"""Take a pipeline out of a Python file: run the file as Python's `import` does, and look a name up in it."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from detaug.errors import InputError
from detaug.files.paths import require_file
from detaug.importing.library_ops import is_pipeline


def split_name(path: str | Path) -> tuple[Path, str] | None:
    """Return the file and the name of "FILE.py:NAME", the name "" where there is none; None for other files."""
    file, _, name = str(path).rpartition(":")
    if file.endswith(".py"):
        return Path(file), name
    return (Path(path), "") if str(path).endswith(".py") else None


def pipeline_name(path: Path, name: str) -> str:
    """Return the name, or that of the only pipeline of the file, before anything runs.

    The only one is the variable or function of the only statement with a Compose. Raises InputError for a file without
    a name that has several or none, with the names that are likely.
    """
    require_file(path)
    if name:
        return name
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: not Python ({error})") from None
    likely = [node for node in body if "Compose(" in ast.unparse(node)]
    names = [variable for node in likely if (variable := _name_of(node))]
    if len(likely) == len(names) == 1 and not isinstance(likely[0], ast.ClassDef):
        return names[0]
    hint = f"such as {', '.join(f'{path}:{variable}' for variable in names)}" if names else "a variable or a function"
    raise InputError(f"{path}: name the pipeline in it, as FILE.py:NAME, {hint}; to get it, all of the file is run")


def _name_of(node: ast.stmt) -> str | None:
    """Return the name that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return ast.unparse(targets[0]) if targets else None


def run_file(path: Path, name: str, settings: Mapping[str, Any]) -> Any:
    """Run a Python file and return the pipeline of this name in it.

    `name`: a variable, an attribute, a key or a number in a list, with dots between them. A function or a class is
    called, with `settings` as its arguments. The file's folder is first on `sys.path`, `sys.argv` is the file alone,
    and what it prints goes to stderr. Raises InputError for an error of the file, with the line in the file.
    """
    source = path.read_bytes()
    with _as_script(path) as module:
        with _errors_of(path):
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        return _Names(path, module, settings).look_up(name)


@contextmanager
def _as_script(path: Path) -> Iterator[ModuleType]:
    """Yield a new module for a file; after it, `sys.path` and `sys.argv` are as they were.

    The modules beside the file are forgotten: another file may mean others by these names, or they may change.
    """
    name = path.stem if path.stem not in sys.modules else f"detaug_imported_{path.stem}"
    spec = spec_from_file_location(name, path.resolve())
    assert spec
    module, before = module_from_spec(spec), set(sys.modules)
    search, arguments, folder = sys.path[:], sys.argv, f"{path.resolve().parent}{os.sep}"
    sys.modules[name], sys.argv = module, [str(path)]
    sys.path.insert(0, folder.rstrip(os.sep))
    try:
        with redirect_stdout(sys.stderr):
            yield module
    finally:
        sys.path[:], sys.argv = search, arguments
        for new in [name for name in sys.modules if name.partition(".")[0] not in before]:
            file = getattr(sys.modules[new], "__file__", None) or ""
            if file.startswith(folder) and "-packages" not in file:  # a virtual environment may lie in the folder
                del sys.modules[new]


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise InputError for all that the file's own code raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise InputError(_explained(path, error)) from error


def _explained(path: Path, error: BaseException) -> str:
    """Return what went wrong, with the line of the file, and what to do."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: not Python ({error.msg})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    place = f"{path}, line {frames[-1].lineno}" if frames else str(path)
    what = f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}"
    if isinstance(error, ModuleNotFoundError):
        return f"{place}: there is no module {error.name!r}: install it, or run this where the file runs"
    if isinstance(error, ImportError):
        return f"{place}: {what}. In Python, import what has the pipeline, and give it to da.import_recipe"
    if isinstance(error, SystemExit):
        what = f"it ends the program (SystemExit: {error.code}), run without arguments as it was"
    return f"{place}: {what}. All of the file is run: what only a training needs goes under if __name__ == '__main__'"


# -------------------------------------------------------------------------------------------- names

_MISSING = object()
_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


@dataclass
class _Names:
    """The names of a file that has run; `settings`: the arguments of the function that is called."""

    path: Path
    module: ModuleType
    settings: Mapping[str, Any]

    def look_up(self, name: str) -> Any:
        """Return the value of a dotted name. A function or class at its end is called, or one without the next part."""
        value: Any = self.module
        unused = bool(self.settings)
        for part in name.split("."):
            inner = _part(value, part)
            if inner is _MISSING and _is_made(value):
                value, unused = self._called(value, name), False
                inner = _part(value, part)
            if inner is _MISSING:
                raise self._error(
                    name, f"there is no {part!r}; the file has {', '.join(self._known()) or 'no pipeline'}"
                )
            value = inner
        if _is_made(value):
            value, unused = self._called(value, name), False
        if unused:
            raise self._error(name, "it is not a function, so --set gives nothing to it: leave --set out")
        return value

    def _error(self, name: str, reason: str) -> InputError:
        return InputError(f"{self.path}:{name}: {reason}")

    def _called(self, function: Any, name: str) -> Any:
        """Return what a function returns. Raises InputError if its arguments are not those of the settings."""
        title = getattr(function, "__name__", "it")
        with _errors_of(self.path):
            parameters = inspect.signature(function).parameters
        starred = [argument for argument, parameter in parameters.items() if parameter.kind in (_ARGS, _KWARGS)]
        names = [argument for argument in parameters if argument not in starred]
        needed = [argument for argument in names if parameters[argument].default is inspect.Parameter.empty]
        missing = [argument for argument in needed if argument not in self.settings]
        if missing[:1] == ["self"]:
            raise self._error(name, f"{title} is a method: make an object of its class in the file, and name that")
        if missing:
            remedy = " ".join(f"--set {argument}=VALUE" for argument in missing)
            raise self._error(name, f"{title} needs {', '.join(missing)}: give it with {remedy}")
        unknown = [argument for argument in self.settings if argument not in names]
        if unknown and not any(parameters[argument].kind is _KWARGS for argument in starred):
            raise self._error(name, f"{title} has no argument {unknown[0]!r}; it has {', '.join(names) or 'none'}")
        with _errors_of(self.path):
            return function(**self.settings)

    def _known(self) -> list[str]:
        """Return the names in the file that hold pipelines, and its functions."""
        values = {name: value for name, value in vars(self.module).items() if not name.startswith("__")}
        inner = {name: list(value.values()) if isinstance(value, dict) else [value] for name, value in values.items()}
        functions = [name for name, value in values.items() if inspect.isfunction(value)]
        pipelines = [name for name, own in inner.items() if any(map(is_pipeline, own))]
        return pipelines + [name for name in functions if values[name].__module__ == self.module.__name__]


def _part(value: Any, name: str) -> Any:
    """Return an entry of a dict or list, or an attribute."""
    if isinstance(value, Mapping):
        return value.get(name, _MISSING)
    if isinstance(value, list | tuple) and name.isdigit():
        return value[int(name)] if int(name) < len(value) else _MISSING
    return getattr(value, name, _MISSING)


def _is_made(value: Any) -> bool:
    """Return whether a value is called for a pipeline: a function, a method, a class or a functools.partial."""
    return isinstance(value, type | partial) or inspect.isroutine(value)
