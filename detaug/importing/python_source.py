"""Read pipelines from Python source, by its syntax tree: the file is never executed or imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from detaug.errors import InputError
from detaug.importing.calls import COMPOSE, Call, Pipeline, Unknown, calls_in, unique
from detaug.importing.expressions import Scope, forget, may_be
from detaug.importing.functions import Calls, Defined, Function, called, defaults
from detaug.importing.targets import assign, change, delete
from detaug.importing.uncertain import Fork, Snapshot, snapshot

_ALBU = ("Albu", "Albumentations")
"""MMDetection's names of the step that runs a list of Albumentations' ops."""
_OF_A_LIBRARY = re.compile("albu|torchvision|transforms|Sequential", re.IGNORECASE)
"""What is in each file with a pipeline: others are not read further, which may take long."""
_SHOWING = ("print", "pprint", "debug", "info", "log")
"""Functions that change none of their arguments."""
_SETTING = ("delattr", "setattr", "shuffle")
"""Functions that change their first argument."""


def read_python(text: str, settings: Mapping[str, Any]) -> list[Pipeline]:
    """Return the pipelines of a Python file, in their order. Raises InputError for a syntax error, with its line.

    `settings`: values by dotted name, such as {"cfg.size": 640}, which come before what the file says.
    """
    try:
        tree = ast.parse(text)
        _check_names(settings, tree)
        if not _OF_A_LIBRARY.search(text):
            return []
        return _pipelines(_Reader(Calls(tree)).read(tree, settings))
    except SyntaxError as error:
        raise InputError(f"line {error.lineno}: not Python ({error.msg})") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise InputError(f"not Python that can be read ({error or 'too deep'})") from None


def _check_names(settings: Mapping[str, Any], tree: ast.Module) -> None:
    """Raise InputError for a setting of a name that the file does not have."""
    read = (ast.unparse(each) for each in ast.walk(tree) if isinstance(each, ast.Name | ast.Attribute | ast.Subscript))
    names = {*read, *(each.arg for each in ast.walk(tree) if isinstance(each, ast.arg))}
    for name in settings:
        if name not in names:
            raise InputError(f"it has no name {name!r}, to which the settings give a value")


class _Reader:
    """Walks through statements, keeps the values of names, and collects those that may hold pipelines."""

    def __init__(self, calls: Calls, *, in_loop: bool = False, running: tuple[Function, ...] = ()) -> None:
        self.found: list[tuple[str, Any]] = []
        self._calls, self._in_loop, self._running = calls, in_loop, running
        self._later: list[tuple[Defined, Snapshot]] = []
        """Functions, which are read after the module, when what they see has its last value."""

    def read(self, tree: ast.Module, settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return the values of a file that may hold pipelines, by name."""
        shared = (each.names for each in ast.walk(tree) if isinstance(each, ast.Global | ast.Nonlocal))
        scope = Scope(settings)
        scope.unsteady = frozenset(name for names in shared for name in names)
        self._run(tree.body, scope, "")
        while self._later:
            self._run_function(*self._later.pop(0))
        return self.found

    def _run(self, body: Iterable[ast.stmt], scope: Scope, function: str) -> bool:
        """Run statements. `function`: the name of the function around them. Returns whether one returned."""
        return any(self._run_one(each, scope, function) for each in body)

    def _run_one(self, node: ast.stmt, scope: Scope, function: str) -> bool:
        for each, call in called(node, scope):
            self._run_called(each, call, scope)
        if isinstance(node, ast.Raise):
            return bool(function)
        if isinstance(node, ast.Return):
            self.found.append((function, scope.value(node.value)))
            return True
        if isinstance(node, ast.If):
            return self._branch(node, scope, function)
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try):
            return self._block(node, scope, function)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._loop(node, scope, function)
        elif isinstance(node, ast.Match):
            self._run_uncertain([each.body for each in node.cases], scope, function, _unknown(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            _import(node, scope)
        elif isinstance(node, ast.ClassDef):
            self._class(node, scope)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._define(node, scope)
        else:
            self._change(node, scope, function)
        return False

    def _change(self, node: ast.stmt, scope: Scope, function: str) -> None:
        """Run a statement without others in it."""
        if isinstance(node, ast.Assign):
            value = scope.value(node.value)
            self.found += [pair for target in node.targets for pair in assign(target, value, scope)]
        elif isinstance(node, ast.AnnAssign) and node.value:
            self.found += assign(node.target, scope.value(node.value), scope)
        elif isinstance(node, ast.AugAssign):
            self.found += change(node, scope)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                delete(target, scope)
        elif isinstance(node, ast.Expr):
            self._call(node.value, scope, function)

    def _call(self, node: ast.expr, scope: Scope, function: str) -> None:
        """Run a call for what it does: a function may change the ops that it gets."""
        value = scope.value(node)
        if isinstance(value, Unknown) and isinstance(node, ast.Call):
            self.found.append((function or "pipeline", value))
            name = ast.unparse(node.func).rpartition(".")[2]
            harmless = name in _SHOWING or name[:1].isupper() or isinstance(scope.value(node.func), Defined)
            for each in () if harmless else value.arguments:
                if name in _SETTING or (isinstance(each, list) and any(calls_in(each))):
                    forget(each, Unknown(ast.unparse(node), node.lineno))

    def _branch(self, node: ast.If, scope: Scope, function: str) -> bool:
        """Run the branch that the condition selects; if it is unknown, both, and what they change is unknown."""
        test = scope.truth(node.test)
        if not isinstance(test, Unknown):
            return self._run(node.body if test else node.orelse, scope, function)
        setting = test.setting or _first_name(node.test)
        condition = Unknown(ast.unparse(node.test), node.lineno, setting)
        self._run_uncertain([node.body, node.orelse], scope, function, condition)
        return False

    def _block(self, node: ast.With | ast.AsyncWith | ast.Try, scope: Scope, function: str) -> bool:
        """Run what always runs of `with` and `try`; what an error leads to is unknown."""
        if isinstance(node, ast.Try):
            returned = self._run([*node.body, *node.orelse], scope, function)
            self._run_uncertain([each.body for each in node.handlers], scope, function, _unknown(node))
            return self._run(node.finalbody, scope, function) or returned
        for each in node.items:
            value = scope.value(each.context_expr)
            self.found += assign(each.optional_vars, value, scope) if each.optional_vars else []
        return self._run(node.body, scope, function)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope, function: str) -> None:
        """Run the body once; what it changes is unknown in it too, since it may run again."""
        body, unknown = [*node.body, *node.orelse], _unknown(node)
        self.found += [] if isinstance(node, ast.While) else assign(node.target, unknown, scope)
        if not self._in_loop:
            first = _Reader(self._calls, in_loop=True, running=self._running)
            first._run_uncertain([body], scope, function, unknown)
        self._run_uncertain([body], scope, function, unknown)

    def _run_uncertain(
        self, branches: Iterable[list[ast.stmt]], scope: Scope, function: str, condition: Unknown
    ) -> None:
        """Run each branch by itself; what it changes is unknown after it."""
        forks = [(branch, Fork(scope)) for branch in branches]
        for branch, fork in forks:
            self._run(branch, fork.scope, function)
        for _, fork in forks:
            fork.join(condition)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        inner = Scope(scope.settings, scope, node.name)
        self._run(node.body, inner, node.name)
        scope.bind(node.name, inner)

    def _define(self, node: Function, scope: Scope) -> None:
        """Note a function, to be run later."""
        function = Defined(node, scope, defaults(node, scope, self._calls.of(node, scope.class_name)))
        scope.bind(node.name, function)
        self._later.append((function, snapshot(scope)))

    def _run_function(self, function: Defined, before: Snapshot) -> None:
        """Collect what a function makes; what changed of the names around it since it was defined is unknown in it."""
        fork = Fork(function.scope)
        fork.note(before)
        inner = function.inside(fork.scope, function.arguments)
        self._run(function.node.body, inner, function.node.name)
        fork.join(_unknown(function.node))

    def _run_called(self, function: Defined, call: ast.Call, scope: Scope) -> None:
        """Run a function of the file for what it changes, which is unknown after it."""
        if function.node in self._running:
            return
        self._calls.count()
        names = (each for each in ast.walk(call) if isinstance(each, ast.Name))
        given = tuple(each for name in names for each in may_be(scope.value(name)))
        arguments = {name: Unknown(name, 0, name, (), given) for name in function.arguments}
        fork = Fork(function.inside(function.scope, arguments))
        reader = _Reader(self._calls, running=(*self._running, function.node))
        reader._run(function.node.body, fork.scope, function.node.name)
        fork.join(Unknown(ast.unparse(call), call.lineno))


def _pipelines(found: list[tuple[str, Any]]) -> list[Pipeline]:
    """Return the pipelines in values; if none is a Compose, the lists of MMDetection's configs."""
    pipelines = [pipeline for name, value in found for pipeline in _within(name, value)]
    lists = [pipeline for name, value in found for pipeline in _lists(name, value)]
    return unique(pipelines or lists)


def _within(name: str, value: Any) -> Iterable[Pipeline]:
    """Yield the pipelines of a value that has this name; those in a dict have their keys as names."""
    if isinstance(value, Unknown):
        yield from _within(name, [*value.arguments])
    elif isinstance(value, dict) and value.get("type") in _ALBU:
        step = {key: value[key] for key in ("transforms", "bbox_params") if key in value}
        yield Pipeline(name, Call("albumentations", "Compose", (), step))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _within(key, each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _within(name, each)
    elif isinstance(value, Call) and value.name in COMPOSE:
        yield Pipeline(name, value)


def _lists(name: str, value: Any) -> Iterable[Pipeline]:
    """Yield the lists of steps that are called "albu_..."."""
    if isinstance(value, dict) and "type" not in value:
        for key, each in value.items():
            yield from _lists(key, each)
    elif "albu" in name.lower() and isinstance(value, list) and value and all(map(_is_step, value)):
        yield Pipeline(name, Call("albumentations", "Compose", (value,)))


def _is_step(value: Any) -> bool:
    return isinstance(value, dict) and "type" in value


def _import(node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        module = f"{node.module or ''}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        scope.bind(name, Unknown(name, 0, name))
        scope.modules[name] = module if alias.asname or isinstance(node, ast.ImportFrom) else name


def _unknown(node: ast.stmt) -> Unknown:
    """Return the unknown value that a statement leaves, named by its first line."""
    return Unknown(ast.unparse(node).partition("\n")[0].rstrip(":"), node.lineno)


def _first_name(test: ast.expr) -> str:
    """Return the first name in a condition, such as "train"."""
    names = (ast.unparse(each) for each in ast.walk(test) if isinstance(each, ast.Name | ast.Attribute))
    return next(names, "")
