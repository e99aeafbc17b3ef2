"""Read pipelines from Python source, by its syntax tree: the file is never executed or imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from detaug.converters.findings.errors import InputError
from detaug.importing.calls import COMPOSE, Call, Pipeline, Unknown, calls_in, unique
from detaug.importing.expressions import Scope

_ALBU = ("Albu", "Albumentations")
"""MMDetection's names of the step that runs a list of Albumentations' ops."""


def read_python(text: str, settings: Mapping[str, Any]) -> list[Pipeline]:
    """Return the pipelines of a Python file, in their order. Raises InputError for a syntax error, with its line.

    `settings`: values by dotted name, such as {"cfg.size": 640}, which come before what the file says.
    """
    try:
        tree = ast.parse(text)
        _check_names(settings, tree)
        reader = _Reader()
        reader.run(tree.body, Scope(settings), "")
    except SyntaxError as error:
        raise InputError(f"line {error.lineno}: not Python ({error.msg})") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise InputError(f"not Python that can be read ({error or 'too deep'})") from None
    return unique(reader.pipelines or reader.lists)


def _check_names(settings: Mapping[str, Any], tree: ast.Module) -> None:
    """Raise InputError for a setting of a name that the file does not have."""
    read = (ast.unparse(each) for each in ast.walk(tree) if isinstance(each, ast.Name | ast.Attribute | ast.Subscript))
    names = {*read, *(each.arg for each in ast.walk(tree) if isinstance(each, ast.arg))}
    for name in settings:
        if name not in names:
            raise InputError(f"it has no name {name!r}, to which the settings give a value")


class _Reader:
    """Walks through statements, keeps the values of names, and collects the pipelines."""

    def __init__(self) -> None:
        self.pipelines: list[Pipeline] = []
        self.lists: list[Pipeline] = []
        """Lists of MMDetection's configs, which are pipelines where no step names them."""

    def run(self, body: Iterable[ast.stmt], scope: Scope, function: str) -> bool:
        """Run statements. `function`: the name of the function around them. Returns whether one returned."""
        return any(self._run_one(each, scope, function) for each in body)

    def _run_one(self, node: ast.stmt, scope: Scope, function: str) -> bool:
        if isinstance(node, ast.Return):
            self._collect(function, scope.value(node.value))
            return True
        if isinstance(node, ast.If):
            return self._branch(node, scope, function)
        if isinstance(node, ast.Import | ast.ImportFrom):
            _import(node, scope)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            self._assign(node, scope)
        elif isinstance(node, ast.AugAssign):
            _extend(scope, ast.unparse(node.target), scope.value(node.value))
        elif isinstance(node, ast.Expr):
            self._expression(node.value, scope, function)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._function(node, scope)
        elif isinstance(node, ast.ClassDef):
            inner = Scope(scope.settings, scope)
            scope.values[node.name] = inner
            self.run(node.body, inner, node.name)
        elif isinstance(node, ast.For | ast.While):
            head = ast.unparse(node).partition("\n")[0].rstrip(":")
            self._run_uncertain((node.body,), scope, function, Unknown(head, node.lineno, ""))
        elif isinstance(node, ast.Try | ast.With):
            return self.run(node.body, scope, function)
        return False

    def _branch(self, node: ast.If, scope: Scope, function: str) -> bool:
        """Run the branch that the condition selects; if it is unknown, both, and what they add to lists is unknown."""
        test = scope.value(node.test)
        if not isinstance(test, Unknown):
            return self.run(node.body if test else node.orelse, scope, function)
        setting = test.setting or _first_name(node.test)
        self._run_uncertain(
            (node.body, node.orelse), scope, function, Unknown(ast.unparse(node.test), node.lineno, setting)
        )
        return False

    def _run_uncertain(
        self, branches: Iterable[list[ast.stmt]], scope: Scope, function: str, condition: Unknown
    ) -> None:
        """Run each branch by itself; what it adds to lists is unknown."""
        before = {name: list(each) for name, each in scope.values.items() if isinstance(each, list)}
        for branch in branches:
            inner = Scope(scope.settings, scope)
            inner.values |= {name: list(each) for name, each in before.items()}
            self.run(branch, inner, function)
            for name, each in inner.values.items():
                if name in before and each != before[name]:
                    scope.values[name] = [*before[name], condition]

    def _assign(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
        value = scope.value(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, list) and len(value) == len(target.elts):
                pairs = list(zip(target.elts, value, strict=True))
            for each, part in pairs:
                name = ast.unparse(each)
                scope.values[name] = part
                self._collect(name.removeprefix("self."), part)
            if isinstance(node.value, ast.Call) and isinstance(value, Unknown):
                self._collect_arguments(ast.unparse(target).removeprefix("self."), node.value, scope)

    def _collect_arguments(self, name: str, node: ast.Call, scope: Scope) -> None:
        """Collect pipelines that are arguments of another call, such as `Data(root, transform=A.Compose([...]))`."""
        self._collect(name, [scope.value(each) for each in [*node.args, *(each.value for each in node.keywords)]])

    def _expression(self, node: ast.expr, scope: Scope, function: str) -> None:
        """Run `ops.append(op)` or `ops.extend(ops)`; collect pipelines that are arguments of other calls."""
        if not isinstance(node, ast.Call):
            return
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in ("append", "extend") and len(node.args) == 1:
            added = scope.value(node.args[0])
            _extend(scope, ast.unparse(method.value), [added] if method.attr == "append" else added)
        else:
            self._collect_arguments(function or "pipeline", node, scope)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        inner = Scope(scope.settings, scope)
        given = [*node.args.posonlyargs, *node.args.args]
        defaults = zip(given[len(given) - len(node.args.defaults) :], node.args.defaults, strict=True)
        every = [*given, *node.args.kwonlyargs]
        for argument in every:
            inner.values.pop(argument.arg, None)
        for argument, default in [*defaults, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
            if default is not None:
                inner.values[argument.arg] = scope.value(default)
        self.run(node.body, inner, node.name)

    def _collect(self, name: str, value: Any) -> None:
        """Collect the pipelines of a value that has this name; those in a dict have their keys as names."""
        if isinstance(value, dict) and value.get("type") in _ALBU:
            step = {key: value[key] for key in ("transforms", "bbox_params") if key in value}
            self.pipelines.append(Pipeline(name, Call("albumentations", "Compose", (), step)))
        elif isinstance(value, dict):
            for key, each in value.items():
                self._collect(key, each)
        elif isinstance(value, list) and value and all(isinstance(each, dict) and "type" in each for each in value):
            if "albu" in name.lower():
                self.lists.append(Pipeline(name, Call("albumentations", "Compose", (value,))))
            for each in value:
                self._collect(name, each)
        else:
            self.pipelines += [Pipeline(name, call) for call in calls_in(value) if call.name in COMPOSE]


def _extend(scope: Scope, name: str, added: Any) -> None:
    """Add to the list of this name, if it is one."""
    if isinstance(scope.values.get(name), list):
        scope.values[name] = [*scope.values[name], *(added if isinstance(added, list) else [added])]


def _import(node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            scope.modules[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
        elif alias.asname:
            scope.modules[alias.asname] = alias.name
        else:
            scope.modules[alias.name.partition(".")[0]] = alias.name.partition(".")[0]


def _first_name(test: ast.expr) -> str:
    """Return the first name in a condition, such as "train"."""
    names = (ast.unparse(each) for each in ast.walk(test) if isinstance(each, ast.Name | ast.Attribute))
    return next(names, "")
