"""Write the pages of the API reference: one for each group of public names, from their modules."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import detaug as da
from detaug import converters

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "loading": ("Loader and batches", ("detaug.loading", "detaug.samples")),
    "sources": (
        "Sources",
        ("detaug.sources", "detaug.maps", "detaug.pixel_format", "detaug.tiles", "detaug.video", "detaug.converters"),
    ),
    "geometric-ops": (
        "Geometric ops",
        (
            "detaug.ops.flips_and_crops",
            "detaug.ops.affine",
            "detaug.ops.iou_crop",
            "detaug.ops.resize",
            "detaug.ops.resized_crop",
            "detaug.ops.distortion",
            "detaug.ops.sanitize",
        ),
    ),
    "pixel-ops": (
        "Pixel ops",
        (
            "detaug.ops.color_ops",
            "detaug.ops.filters",
            "detaug.ops.camera",
            "detaug.ops.weather",
            "detaug.ops.noise",
            "detaug.ops.normalize",
            "detaug.ops.optical_flow",
        ),
    ),
    "mixing-ops": ("Mixing and erasing", ("detaug.ops.mixing", "detaug.ops.copy_paste", "detaug.ops.erasing")),
    "containers": ("Containers and automatic augmentation", ("detaug.ops.containers", "detaug.ops.auto_augment")),
    "op": (
        "Recipes, and ops of your own",
        (
            "detaug.ops.op",
            "detaug.boxes",
            "detaug.recipes.recipe_file",
            "detaug.recipes.stages",
            "detaug.importing",
            "detaug.errors",
        ),
    ),
    "dali": ("In a DALI pipeline", ("detaug.dali",)),
    "evaluation": ("Evaluation", ("detaug.evaluation",)),
    "trained-models": ("Trained models", ("detaug.training",)),
}
"""Page: its title, and the modules whose public names are on it."""

MODULES = {
    "presets": "Presets",
    "targets": "Training targets",
    "testing": "Testing an op",
}
"""Public modules with a page each."""

MEMBERS = {
    "Views": "boxes, labels, visible, size, matrix, fill, turned, outlines, epoch, crop_to, warp, quarter_turns, "
    "fill_outside, clip, keep, pixel_boxes",
}
"""Members to show of a class that has more for the library itself."""


def public_modules() -> dict[str, str]:
    """Return the module of each public name, as `__init__.pyi` imports it."""
    stub = ast.parse(Path(da.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def names_of(prefixes: tuple[str, ...]) -> list[str]:
    """Return the public names that modules of these names, or below them, define, in the order of the modules."""
    return [
        name
        for prefix in prefixes
        for name, module in public_modules().items()
        if module == prefix or module.startswith(f"{prefix}.")
    ]


def write_api(folder: Path) -> list[str]:
    """Write the pages and return their names, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {page: class_page(title, names_of(prefixes)) for page, (title, prefixes) in GROUPS.items()}
    pages["dali"] += module_part("detaug.dali.fn", "detaug.fn", "detaug.dali.")
    pages |= {name: f"{heading(title)}{module_part(f'detaug.{name}')}" for name, title in MODULES.items()}
    pages["converters"] = heading("Converters") + "".join(
        directive(f"detaug.converters.{name}") for name in converters.__all__ if name not in {"KINDS", *da.__all__}
    )
    for page, text in pages.items():
        (folder / f"{page}.rst").write_text(text, encoding="utf-8")
    return list(pages)


def class_page(title: str, names: list[str]) -> str:
    return heading(title) + "".join(directive(f"detaug.{name}") for name in names if name != "fn")


def heading(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"


def directive(path: str) -> str:
    """Return autodoc's directive for a public name, with the members of a class that is not an op."""
    module, _, name = path.rpartition(".")
    thing = getattr(converters if module.endswith("converters") else da, name)
    if not isinstance(thing, type):
        return f".. autofunction:: {path}\n\n"
    is_op = issubclass(thing, da.Op) and not name.endswith("Op")
    shown = f"   :members: {MEMBERS.get(name, '')}".rstrip()
    members = "" if is_op or issubclass(thing, Exception) else f"{shown}\n"
    return f".. autoclass:: {path}\n{members}\n"


def module_part(module: str, shown: str = "", defined_in: str = "") -> str:
    """Return autodoc's directives for a public module: its text and its functions, under its public name."""
    shown = shown or module
    thing = getattr(da, shown.rpartition(".")[2])
    functions = [
        name
        for name, value in vars(thing).items()
        if inspect.isfunction(value) and value.__module__.startswith(defined_in or module) and not name.startswith("_")
    ]
    module_text = f".. automodule:: {module}\n   :no-index:\n\n"
    return module_text + "".join(f".. autofunction:: {shown}.{name}\n\n" for name in functions)


# ---------------------------------------------------------------- docstrings

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
ARGUMENT = r"`?[a-z_]+`?(?:, `?[a-z_]+`?)*: "
PART = re.compile(rf"^(?={ARGUMENT}|(?:Raises?|Returns?|Sources?) )", re.M)
EXAMPLE = re.compile(r"^(?=>>> )", re.M)


def to_rst(docstring: str) -> str:
    """Convert a docstring: names in backticks to links or code, each line `argument: ...` to an item of a list.

    >>> print(to_rst("`size`: see `Resize`,\\nor `x`."))
    * ``size``: see :py:obj:`Resize <detaug.Resize>`,
      or ``x``.
    """
    return "\n\n".join(map(paragraph, docstring.split("\n\n")))


def paragraph(text: str) -> str:
    """Convert one paragraph; an example stays as it is."""
    words, *examples = EXAMPLE.split(text, maxsplit=1)
    parts = [item(part) if re.match(ARGUMENT, part) else inline(part) for part in PART.split(words)]
    return "\n\n".join([*(part.rstrip("\n") for part in parts if part), *examples])


def item(text: str) -> str:
    """Return an item of a list, its later lines indented."""
    return "* " + "\n  ".join(line.strip() for line in inline(text).splitlines())


def inline(text: str) -> str:
    """Convert backticks outside code and escape what reStructuredText would take for markup.

    >>> inline("`Resize`, like torchvision's `Resize`")
    ":py:obj:`Resize <detaug.Resize>`, like torchvision's ``Resize``"
    """
    words, names = CODE.split(text)[::2], CODE.findall(text)
    plain = [re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", word) for word in words]
    linked = [
        f"``{name}``" if before.endswith(("'s ", "' ")) else code(name)
        for before, name in zip(words, names, strict=False)
    ]
    return plain[0] + "".join(map(str.__add__, linked, plain[1:]))


def code(text: str) -> str:
    """Return a link to a public name, or the text as code."""
    name = text.removeprefix("da.").removesuffix("()")
    first, _, member = name.partition(".")
    known = first in da.__all__ and (not member or hasattr(getattr(da, first), member))
    return f":py:obj:`{text} <detaug.{name}>`" if known and is_documented(first, member) else f"``{text}``"


def is_documented(first: str, member: str) -> bool:
    """Return whether the reference has an entry of the name: modules have none, nor have attributes of instances."""
    if not member:
        return first not in {*MODULES, "fn"}
    return bool(getattr(getattr(getattr(da, first), member), "__doc__", "")) and not member.startswith("_")
