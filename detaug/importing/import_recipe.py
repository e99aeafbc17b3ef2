"""`import_recipe`: from a file with a pipeline of Albumentations or torchvision v2 to a recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detaug.converters.files.text import read_text
from detaug.errors import InputError
from detaug.importing.arrange import Size, arrange
from detaug.importing.calls import Pipeline
from detaug.importing.given import Entry, Status
from detaug.importing.python_source import read_python
from detaug.importing.serialized import read_serialized
from detaug.importing.translate import Translator
from detaug.ops.op import Op
from detaug.ops.recipe_file import save_recipe

_SERIALIZED = (".json", ".yaml", ".yml")
_COUNTS: tuple[tuple[Status, str], ...] = (("same", "mean the same"), ("differs", "differ"), ("left out", "left out"))


@dataclass(frozen=True)
class ImportedRecipe:
    """A translated pipeline: the recipe, and what became of each op. str() is the report of `detaug import-recipe`.

    >>> from pathlib import Path
    >>> source = "import albumentations as A\\nt = A.Compose([A.Resize(64, 96), A.MedianBlur()])\\n"
    >>> _ = Path("augment.py").write_text(source)
    >>> imported = da.import_recipe("augment.py")
    >>> print(isinstance(imported, da.ImportedRecipe), len(imported.ops), imported.differing, imported.left_out)
    True 1 0 1
    """

    title: str
    """The file and the pipeline."""
    ops: tuple[Op, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @property
    def left_out(self) -> int:
        """Return the number of ops that are not in the recipe."""
        return self.count("left out")

    @property
    def differing(self) -> int:
        """Return the number of ops that do something near."""
        return self.count("differs")

    def count(self, status: Status) -> int:
        """Return the number of ops of a status: "same", "differs" or "left out"."""
        return Counter(entry.status for entry in self.entries)[status]

    def save(self, path: str | Path) -> None:
        """Write the recipe as `save_recipe` does; a YAML file begins with the ops that differ or are left out."""
        save_recipe(self.ops, path, comment="\n".join([self.title, *self._lines(same=False), self._summary()]))

    def __str__(self) -> str:
        return "\n".join([self.title, *self._lines(same=True), self._summary()])

    def _lines(self, *, same: bool) -> list[str]:
        shown = [entry for entry in self.entries if same or entry.status != "same"]
        return [_line(entry) for entry in shown] + [f"note: {note}" for note in self.notes]

    def _summary(self) -> str:
        return ", ".join(f"{self.count(status)} {verb}" for status, verb in _COUNTS)


def import_recipe(
    path: str | Path, *, name: str | None = None, size: Size | None = None, settings: Mapping[str, Any] | None = None
) -> ImportedRecipe:
    """Translate a pipeline of Albumentations or torchvision v2 to a recipe.

    `path`: what `A.save` wrote, .json or .yaml; or a Python file, which is read and never executed. `name`: which of
    several pipelines, by its variable, function or key. `size`: (H, W) pixels or the shorter side, for a pipeline that
    sets no size. `settings`: values that the file alone does not give, by name, such as {"train": True}.

    Raises InputError that names the file, the line and the remedy: for a file without a pipeline, a value that is no
    constant, a wrong argument. An op that has no counterpart is no error: see `entries`. In Python, arguments that are
    left out have the defaults of Albumentations 2.0, or of 1.x if some op or argument is of 1.x only.

    >>> from pathlib import Path
    >>> source = "import albumentations as A\\nt = A.Compose([A.HorizontalFlip(), A.Resize(64, 96), A.MedianBlur()])\\n"
    >>> _ = Path("augment.py").write_text(source)
    >>> imported = da.import_recipe("augment.py")
    >>> print(imported)
    augment.py: t (line 2)
    same      HorizontalFlip (line 2) -> RandomHorizontalFlip
    same      Resize (line 2) -> Resize
    left out  MedianBlur (line 2): detaug has no such op; nearest: GaussianBlur
    2 mean the same, 0 differ, 1 left out
    >>> imported.ops[0]
    RandomHorizontalFlip(p=0.5)
    """
    path = Path(path)
    try:
        pipeline = _chosen(_read(path, settings or {}), name)
        translator = Translator()
        ops, notes = arrange(translator.pipeline(pipeline.call), size)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: its values are nested too deep") from None
    if translator.old and pipeline.call.version > 1:
        notes.append("it has names of Albumentations 1.x, so what it leaves out has the defaults of 1.x")
    return ImportedRecipe(f"{path}: {pipeline.title}", tuple(ops), tuple(translator.entries), tuple(notes))


def _read(path: Path, settings: Mapping[str, Any]) -> list[Pipeline]:
    if path.suffix in _SERIALIZED:
        return read_serialized(read_text(path), is_json=path.suffix == ".json")
    if path.suffix != ".py":
        raise InputError(
            "must end in .py, .json or .yaml; from a notebook, copy the cell with the pipeline to a .py file"
        )
    found = read_python(read_text(path), settings)
    if not found:
        raise InputError("no pipeline: none of its names is a Compose of albumentations or torchvision.transforms.v2")
    return found


def _chosen(pipelines: list[Pipeline], name: str | None) -> Pipeline:
    """Return the pipeline of this name, or the only one."""
    named = [each for each in pipelines if name in (None, each.name)]
    titles = ", ".join(each.title for each in pipelines)
    if not named:
        raise InputError(f"no pipeline is called {name!r}; there are {titles}")
    if len(named) > 1:
        raise InputError(f"has {len(named)} pipelines: {titles}; choose one with --name")
    return named[0]


def _line(entry: Entry) -> str:
    """Return "differs   Blur (line 3) -> GaussianBlur: why"."""
    reasons = "; ".join(entry.reasons)
    if entry.left_out:
        return f"{entry.status:10}{entry.call}: {reasons}" + (f"; nearest: {entry.became}" if entry.became else "")
    became = f" -> {entry.became}" if entry.became else " -> nothing is needed"
    return f"{entry.status:10}{entry.call}{became}" + (f": {reasons}" if reasons else "")
