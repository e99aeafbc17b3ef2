"""`import_recipe`: from a pipeline of Albumentations or torchvision, or settings of a trainer, to a recipe."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detaug.arguments import checks_names
from detaug.errors import InputError
from detaug.importing import rf_detr_config, ultralytics_settings
from detaug.importing.arrange import Size, arrange
from detaug.importing.library_ops import SAVED, LibraryOp, read_pipeline, read_saved_file
from detaug.importing.python_file import pipeline_name, run_file, split_name
from detaug.importing.rules import Entry, Status
from detaug.importing.translate import Translator
from detaug.ops.op import Op
from detaug.recipes.recipe_file import save_recipe

_COUNTS: tuple[tuple[Status, str], ...] = (("same", "mean the same"), ("differs", "differ"), ("left out", "left out"))


@dataclass(frozen=True)
class ImportedRecipe:
    """A translated pipeline: the recipe, and what became of each op. str() is the report of `detaug import-recipe`.

    >>> import albumentations as A
    >>> imported = da.import_recipe([A.Resize(64, 96), A.GlassBlur()])
    >>> print(isinstance(imported, da.ImportedRecipe), len(imported.ops), imported.differing, imported.left_out)
    True 1 0 1
    """

    title: str
    """What was translated."""
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
        changed = [entry for entry in self.entries if entry.status != "same"]
        save_recipe(self.ops, path, comment=self._report(changed))

    def __str__(self) -> str:
        return self._report(list(self.entries))

    def _report(self, entries: list[Entry]) -> str:
        summary = ", ".join(f"{self.count(status)} {verb}" for status, verb in _COUNTS)
        return "\n".join([self.title, *map(str, entries), *(f"note: {note}" for note in self.notes), summary])


@checks_names
def import_recipe(pipeline: Any, *, name: str | None = None, size: Size | None = None) -> ImportedRecipe:
    """Translate a pipeline of Albumentations or torchvision to a recipe.

    Also RF-DETR's `aug_config`, a dict such as {"Rotate": {"limit": 45}} or a list of such dicts, which runs after a
    resize to `size`; and Ultralytics' augmentation settings, a dict such as {"degrees": 10, "mosaic": 0.5}, of
    detection: a setting that is not there has its default, `imgsz` or `size` is the size, and `epochs` says where
    `close_mosaic` is.

    Raises InputError for anything else, for a wrong argument of an op, and for a Python file that does not run, with
    the line of the file. An op without a counterpart does not raise, nor does a function or an op that the user wrote:
    see `entries`; in an `aug_config` and in Ultralytics' settings it does, and so does an unknown setting.

    Args:
        pipeline: A Compose or another op of Albumentations, of torchvision's v2, or of its v1 if v2 has the op too; a
            list or tuple of ops; the dict that `A.to_dict` gives; the path of a .json or .yaml file that `A.save`
            wrote, which is read and never executed. Or "FILE.py:NAME": **this runs the file**, as `import` does, and
            takes the pipeline of this name in it, such as "train.py:CONFIG.transform"; a function or a class is called
            without arguments.
        name: What the report and errors call the pipeline.
        size: (H, W) pixels or the shorter side, for a pipeline that sets no size.

    >>> import albumentations as A
    >>> transform = A.Compose([A.HorizontalFlip(), A.Resize(64, 96), A.GlassBlur()])
    >>> imported = da.import_recipe(transform)
    >>> print(imported)
    albumentations.Compose
    same      HorizontalFlip -> RandomHorizontalFlip
    same      Resize -> Resize
    left out  GlassBlur: detaug has no such op; nearest: GaussianBlur
    2 mean the same, 0 differ, 1 left out
    >>> imported.ops[0]
    RandomHorizontalFlip(p=0.5)
    """
    title = name or (str(pipeline) if isinstance(pipeline, str | Path) else "")
    if isinstance(pipeline, str | Path) and (named := split_name(pipeline)):
        pipeline = run_file(named[0], pipeline_name(*named), {})
    try:
        if ultralytics_settings.is_settings(pipeline):
            recipe, entries, hints = ultralytics_settings.recipe_of(pipeline, size)
            own = title or "Ultralytics' augmentation settings"
            return ImportedRecipe(own, tuple(recipe), tuple(entries), tuple(hints))
        if rf_detr_config.is_aug_config(pipeline):
            return _of_aug_config(pipeline, size, title or "RF-DETR's aug_config")
        source = _read_file(Path(pipeline)) if isinstance(pipeline, str | Path) else read_pipeline(pipeline)
        return _translated(source, size, title or f"{source.library}.{source.name}")
    except (InputError, RecursionError) as error:
        reason = "its values are nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{title}: {reason}" if title else reason) from None


def _of_aug_config(config: Any, size: Size | None, title: str) -> ImportedRecipe:
    """Translate RF-DETR's `aug_config`. Raises InputError for an op without a counterpart, as RF-DETR does."""
    imported = _translated(*rf_detr_config.read_aug_config(config, size), title)
    if missing := next((entry for entry in imported.entries if entry.left_out), None):
        nearest = f"take {missing.became}, which is near, in a recipe" if missing.became else "leave it out"
        raise InputError(
            f"aug_config must have ops that detaug has, got {missing.name}: {'; '.join(missing.reasons)}; {nearest}"
        )
    return imported


def _translated(source: LibraryOp, size: Size | None, title: str) -> ImportedRecipe:
    translator = Translator()
    ops, notes = arrange(translator.pipeline(source), size)
    return ImportedRecipe(title, tuple(ops), tuple(translator.entries), tuple(notes))


def _read_file(path: Path) -> Any:
    if path.suffix not in SAVED:
        raise InputError(
            "must end in .json or .yaml, or be FILE.py:NAME; from a notebook, give the pipeline to da.import_recipe"
        )
    return read_saved_file(path)
