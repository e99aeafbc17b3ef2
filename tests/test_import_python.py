"""Python source that is read means what it means when it runs: the same programs are run with a stand-in library."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from imported import import_text

import detaug as da
from detaug.importing.calls import Call, Unknown
from detaug.importing.python_source import read_python

IMPORTS = "import albumentations as A\n"


@dataclass
class Made:
    """What a stand-in for an op or a container was made with."""

    name: str
    positional: list[Any]
    named: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return self.named.get(name) or self.positional[0]

    def __setattr__(self, name: str, value: Any) -> None:
        target = self.named if name in ("transforms", "p") else self.__dict__
        target[name] = value


def stand_in() -> ModuleType:
    """Return a module of which each name makes a `Made`."""
    module = ModuleType("albumentations")
    module.__getattr__ = lambda name: lambda *args, **named: Made(name, list(args), named)  # type: ignore[method-assign]
    return module


def written(value: Any) -> Any:
    """Return a value with each call or stand-in as a tuple; "unknown" for all that holds an unknown value."""
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Call | Made):
        parts = (value.name, written(list(value.positional)), written(value.named))
        return "unknown" if "unknown" in parts else parts
    if isinstance(value, dict):
        parts = {key: written(each) for key, each in value.items()}
        return "unknown" if "unknown" in parts.values() else parts
    if isinstance(value, list | tuple):
        parts = [written(each) for each in value]
        return "unknown" if "unknown" in parts else parts
    return value


def run(text: str, known: dict[str, Any]) -> Any:
    """Return what the name `t` stands for after a program ran, with names that the file does not give."""
    names = {"A": stand_in(), **known}
    exec(text.removeprefix(IMPORTS), names)
    return written(names["t"])


# ------------------------------------------------------------------------------- one construct at a time


@pytest.mark.parametrize(
    "text",
    [
        "ops = [A.Blur(3)]\nops.insert(0, A.Resize(64, 32))\nt = A.Compose(ops)",
        "ops = [A.Resize(64, 32), A.Blur(3)]\nlast = ops.pop()\nt = A.Compose([*ops, last])",
        "ops = [A.Blur(3), A.Blur(5)]\ndel ops[0]\nt = A.Compose(ops)",
        "ops = [A.Blur(3), A.Blur(5)]\nops[0] = A.Resize(64, 32)\nt = A.Compose(ops)",
        "ops = [A.Blur(3)]\nops.clear()\nt = A.Compose(ops)",
        "ops = [A.Blur(3), A.Blur(5)]\nops.reverse()\nt = A.Compose(ops)",
        "ops = [A.Blur(3)]\nother = ops\nother.append(A.Blur(5))\nt = A.Compose(ops)",
        "ops = [A.Blur(3)]\nt = A.Compose(ops)\nops.append(A.Blur(5))",
        "t = A.Compose([A.Blur(3)])\nt.transforms.append(A.Blur(5))",
        "t = A.Compose([A.Blur(3)])\nt.transforms = [A.Blur(5)]",
        "t = A.Compose([A.Blur(3)])\nt.transforms[0].p = 0.2",
        "d = {'train': [A.Blur(3)]}\nd['train'].append(A.Blur(5))\nt = A.Compose(d['train'])",
        "S = 3\nS *= 2\nS += 1\nt = A.Compose([A.Blur(S)])",
        "cfg = {'s': 3}\ncfg['s'] = 5\nt = A.Compose([A.Blur(cfg['s'])])",
        "cfg = {'s': 3}\ncfg.update(s=5)\nt = A.Compose([A.Blur(cfg.get('s'))])",
        "cfg = {'s': 3}\ncfg = {**cfg, 's': 5}\nt = A.Compose([A.Blur(**{'blur_limit': cfg['s']})])",
        "cfg = dict({'s': 3, 'q': 1}, s=5)\nt = A.Compose([A.Blur(cfg['s'], p=cfg['q'])])",
        "class C:\n    s = 3\nC.s = 5\nt = A.Compose([A.Blur(C.s)])",
        "class C:\n    s = 3\nclass D(C):\n    pass\nD.s = 5\nt = A.Compose([A.Blur(C.s)])",
        "(a, *b), c = ([3, 5, 7], 9)\nt = A.Compose([A.Blur(c)])",
        "a = b = [A.Blur(3)]\na += [A.Blur(5)]\nt = A.Compose(b)",
        "ops = (A.Blur(3),)\nother = ops\nops += (A.Blur(5),)\nt = A.Compose(list(other))",
        "if (n := 3) > 2:\n    pass\nt = A.Compose([A.Blur(n)])",
        "import contextlib\nwith contextlib.suppress(ValueError):\n    S = 5\nt = A.Compose([A.Blur(S)])",
        "t = A.Compose([A.Blur(3)], {'format': 'coco'})",
        "ops = [A.Blur(3)]\ndef show(ops):\n    for op in ops: print(op)\nshow(ops)\nt = A.Compose(ops)",
    ],
)
def test_what_is_read_is_what_runs(text: str) -> None:
    (pipeline,) = read_python(IMPORTS + text, {})
    assert written(pipeline.call) == run(text, {})
    assert written(pipeline.call) != "unknown"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("S = 3\nif flag:\n    S = 5\nt = A.Compose([A.Blur(S)])", "'flag'.* --set flag=VALUE"),
        ("S = 3\nfor S in (5, 7):\n    pass\nt = A.Compose([A.Blur(S)])", r"for S in \(5, 7\)"),
        ("S = 3\nfor _ in range(2):\n    S += 2\nt = A.Compose([A.Blur(S)])", r"for _ in range\(2\)"),
        ("cfg = {'s': 3}\nif flag:\n    cfg['s'] = 5\nt = A.Compose([A.Blur(cfg['s'])])", "'flag'"),
        ("class C:\n    s = 3\nif flag:\n    C.s = 5\nt = A.Compose([A.Blur(C.s)])", "'flag'"),
        ("ops = [A.Blur(3)]\nother = ops\nif flag:\n    other.pop()\nt = A.Compose(ops)", "'flag'"),
        ("t = A.Compose([A.Blur(3)])\nif flag:\n    t.transforms.append(A.Blur(5))", "'flag'"),
        ("t = A.Compose([A.Blur(3, **unknown)])", r"an argument of Blur is '\*\*unknown'"),
        ("t = A.Compose([A.OneOf([A.Blur(3)], **unknown)])", r"an argument of OneOf is '\*\*unknown'"),
        ("cfg = {'s': 3, **unknown}\nt = A.Compose([A.Blur(cfg['s'])])", r"'\*\*unknown'"),
        ("cfg = {'s': 3}\ncfg.update(unknown)\nt = A.Compose([A.Blur(cfg['s'])])", r"cfg.update\(unknown\)"),
        ("ops = [A.Blur(3)]\nadd_more(ops)\nt = A.Compose(ops)", r"add_more\(ops\)"),
        ("ops = [A.Blur(3)]\nimport random\nrandom.shuffle(ops)\nt = A.Compose(ops)", r"random.shuffle\(ops\)"),
        ("ops = [A.Blur(3)]\nops.sort(key=str)\nt = A.Compose(ops)", r"ops.sort\(key=str\)"),
        ("ops = [A.Blur(3)]\nops[:0] = [A.Blur(5)]\nt = A.Compose(ops)", r"ops\[:0\]"),
        ("class C:\n    s = 3\nsetattr(C, 's', 5)\nt = A.Compose([A.Blur(C.s)])", r"setattr\(C, 's', 5\)"),
        ("S = 3\ndef f():\n    global S\n    S = 5\nf()\nt = A.Compose([A.Blur(S)])", "'S'"),
        ("ops = [A.Blur(3)]\ndef f():\n    ops.append(A.Blur(5))\nf()\nt = A.Compose(ops)", r"'f\(\)'"),
        ("S = 3\ndef f():\n    return A.Compose([A.Blur(S)])\nt = f()\nS = 5", "'S'"),
        ("def f(s=3):\n    return A.Compose([A.Blur(s)])\nt = f(5)", "'s'.* --set s=VALUE"),
        ("def f(*, s=3):\n    return A.Compose([A.Blur(s)])\nt = f(**unknown)", "'s'"),
        ("class D:\n    def __init__(self, s=3):\n        self.t = A.Compose([A.Blur(s)])\nt = D(s=5).t", "'s'"),
        (
            "from functools import partial\ndef f(s=3):\n    return A.Compose([A.Blur(s)])\nt = partial(f, s=5)()",
            "'s'",
        ),
        ("S = 3\ntry:\n    import a_module\nexcept ImportError:\n    S = 5\nt = A.Compose([A.Blur(S)])", "'try'"),
        ("S = 3\nmatch flag:\n    case 1:\n        S = 5\nt = A.Compose([A.Blur(S)])", "match flag"),
        ("S = 3\nfrom constants import S\nt = A.Compose([A.Blur(S)])", "'S'"),
    ],
)
def test_what_a_file_leaves_open_is_named(text: str, named: str, tmp_path: Any) -> None:
    with pytest.raises(da.InputError, match=rf"line \d+: .*{named}"):
        import_text(f"{IMPORTS}{text}\n", tmp_path)


def test_unknown_rules_for_boxes_are_told(tmp_path: Any) -> None:
    imported = import_text(f"{IMPORTS}t = A.Compose([A.Resize(8, 8)], bbox_params=rules)\n", tmp_path)
    assert "BboxParams -> nothing: 'rules' is no constant: the rules for boxes are lost" in str(imported)
    assert imported.differing == 1


# -------------------------------------------------------------------------------------- random programs

CHANGES = [
    "a.append(A.Blur(s))",
    "a.insert(0, A.Blur(n))",
    "a.pop()",
    "a[0] = A.Blur(s, p=0.5)",
    "del a[-1]",
    "a += [A.Blur(s)]",
    "a = a + b",
    "a = [*b]",
    "b = a",
    "b.reverse()",
    "b = list(a)",
    "a, b = b, a",
    "b.extend(a[:0] if 0 else [A.Blur(n)])",
    "s += 1",
    "s = n",
    "n = cfg['n']",
    "n = max(n, C.k) - 1",
    "n += g",
    "cfg['n'] = s",
    "cfg['a'].append(A.Blur(n))",
    "cfg['a'] = a",
    "b = cfg['a']",
    "cfg.update({'n': s})",
    "cfg = {**cfg, 'n': 7}",
    "C.k = s",
    "s = C.k",
    "C.k += 1",
    "u.transforms.append(A.Blur(n))",
    "a = u.transforms",
    "u.transforms = b",
    "change(a)",
    "change(b, s)",
    "bump()",
    "u = A.Compose(a)",
    "s = more(s)",
]
HEADS = [
    "if flag:",
    "if s > n:",
    "if not flag and s < 4:",
    "for s in range(2):",
    "for each in [A.Blur(1), A.Blur(2)]:",
    "while next(turns, False):",
    "with open('/dev/null') as s:",
    "try:",
]
START = """
class C:
    k = 3
    def method(self, s=1):
        C.k = s
a = [A.Blur(1)]
b = [A.Blur(2), A.Blur(3)]
g, n, s = 1, 2, 3
cfg = {'n': 3, 'a': [A.Blur(4)]}
u = A.Compose(b)
def change(ops, by=1):
    ops.append(A.Blur(by))
def bump():
    global g
    g += C.k
def more(s):
    cfg['n'] = s
    return s + 1
def made(s=4):
    if s > 4: b.append(A.Blur(s))
    return A.Compose([A.Blur(s), A.Blur(n), *b])
"""
ENDS = ["t = A.Compose(a)", "t = A.Compose(cfg['a'])", "t = A.Compose(u.transforms)", "t = made()", "t = made(s)"]


def block(rng: random.Random, depth: int = 0) -> list[str]:
    """Return the lines of a random block."""
    lines: list[str] = []
    for _ in range(rng.randint(0 if depth == 0 else 1, 4)):
        head = rng.choice(HEADS) if depth < 2 and rng.random() < 0.3 else ""
        lines += [head, *(f"    {line}" for line in block(rng, depth + 1))] if head else [rng.choice(CHANGES)]
        lines += ["except IndexError:", f"    {rng.choice(CHANGES)}"] if head == "try:" else []
    return lines


def program(seed: int) -> tuple[str, int]:
    """Return a random program whose last pipeline is `t`, and the line of its Compose.

    Nothing changes after a call of `made`: a function is read with what it sees at the end.
    """
    rng = random.Random(seed)
    end = rng.choice(ENDS)
    text = "\n".join([IMPORTS + START, *block(rng), *block(rng), end])
    line = 1 + next(at for at, each in enumerate(text.splitlines()) if at_end(each, end))
    return text if "made" in end else "\n".join([text, *block(rng)]), line


def at_end(line: str, end: str) -> bool:
    """Return whether a line makes the pipeline of the last line."""
    return "return A.Compose" in line if "made" in end else line == end


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(at, marks=pytest.mark.slow) for at in range(2, 20))])
def test_random_programs_mean_what_runs_or_are_unknown(part: int) -> None:
    known = unknown = 0
    for seed in range(part * 200, part * 200 + 200):
        text, line = program(seed)
        (read,) = {str(written(each.call)) for each in read_python(text, {}) if each.call.line == line}
        for flag in (False, True):
            try:
                expected = run(text, {"flag": flag, "turns": iter([True, True])})
            except (IndexError, TypeError, AttributeError):
                continue  # it fails: to pop from an empty list, or to add to what `with` gave
            assert read in (str(expected), "unknown"), text
            known, unknown = known + (read != "unknown"), unknown + (read == "unknown")
    assert min(known, unknown) > 20, (known, unknown)
