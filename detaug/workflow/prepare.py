"""Make data/train.json and data/val.json of a run from a dataset in any format: convert, check, split."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from detaug.check.clean import NotCleaned
from detaug.coco.merge import merge_coco
from detaug.coco.other_folders import other_folder_with
from detaug.coco.parts import refuse_part
from detaug.coco.split import split_coco
from detaug.coco.table import load_coco
from detaug.converters.formats.convert import convert_to_coco
from detaug.converters.formats.recognise import Recognised, recognise, recognise_maps
from detaug.converters.formats.splits import OwnSplit, own_splits
from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.findings.finding import counted, listed, shown
from detaug.maps.named import map_text, read_class_map
from detaug.named_options import on_command_line
from detaug.outputs.folder import made_folder, made_run_folder
from detaug.outputs.guards import output_files
from detaug.report import check_to_html
from detaug.workflow.steps import Steps

RATIOS = (80, 20)
"""Of training and validation images, where a dataset has no splits of its own."""

ROBOFLOW = r"([^/]+)\.rf\.[0-9A-Za-z]+\.\w+$"
"""Names in exports of Roboflow, whose augmented copies of an image differ in what follows .rf. alone."""


@dataclass(frozen=True)
class DataOptions:
    """What `prepare` makes the data of. `path`, `format`, `images`, `classes`: as `convert_to_coco` takes them."""

    path: Path
    format: str | None = None
    images: Path | None = None
    classes: tuple[str, ...] | None = None
    clean: bool = False
    """Whether to leave out or repair what `check` finds wrong."""
    map: str | None = None
    """The map of classes, as `read_map` takes it; None for that of the format."""
    val_map: str | None = None
    """That of the validation, where its images are in another folder."""


class Dataset(NamedTuple):
    """What the data are made of."""

    recognised: Recognised
    semantic: bool
    """Whether the class of each pixel is learned, from maps."""


class DataFile(NamedTuple):
    """A JSON file, and the folder that its file names are relative to."""

    annotations: Path
    images: Path
    map: str | None = None
    """Of the classes of its pixels, as `read_map` takes it."""


class Prepared(NamedTuple):
    """The data of a run."""

    train: DataFile
    val: DataFile


Confirm = Callable[[DataFile], None]
"""Raises InputError for data that the model cannot learn from."""


def prepare(
    options: DataOptions,
    output: Path,
    steps: Steps,
    confirm: Confirm = lambda file: None,
    *,
    dataset: Dataset | None = None,
) -> Prepared:
    """Convert a dataset, check it and split it, unless it has splits of its own.

    Writes output/data/train.json, output/data/val.json and output/check.html, of two splits also check-val.html.
    `confirm` is called with the training data as converted, before any image is decoded. Raises InputError for errors
    that `check` finds, with the remedy. Folders that stay empty are removed after an error. `dataset`: what
    `find_dataset` returned; None: it is called.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with on_command_line(), made_run_folder(output), made_folder(output / "data"):
        return _prepare(options, dataset or find_dataset(options), output, steps, confirm)


def _prepare(options: DataOptions, dataset: Dataset, output: Path, steps: Steps, confirm: Confirm) -> Prepared:
    folder = output / "data"
    steps.say(str(dataset.recognised))
    splits = own_splits(dataset.recognised, steps.say)
    val = splits.get("val") or splits.get("test")
    if not val:
        file = _convert(OwnSplit(options.path), dataset, folder / "all.json", options, steps, options.map)
        _confirm(file, confirm, options)
        file = _check(file, None, output / "check.html", options, steps)
        return _split(file, folder, steps)
    if "val" not in splits:
        steps.say("  without a split val it is evaluated on the split test")
    elif "test" in splits:
        steps.say("  the split test is left alone: detaug convert and detaug evaluate --model score it")
    train = _convert(splits["train"], dataset, folder / "train.json", options, steps, options.map)
    _confirm(train, confirm, options)
    if val == splits["train"]:
        steps.say("  the dataset's own list says so: it is evaluated on the training images")
        train = _check(train, None, output / "check.html", options, steps)
        return Prepared(train, train)
    other = _convert(val, dataset, folder / "val.json", options, steps, options.val_map or options.map)
    if options.classes is None and not dataset.semantic:
        _share_classes((train, other), steps)
    train = _check(train, other, output / "check.html", options, steps)
    # Against train, since a class that is only there must stay in both. Images in both are errors of train, above.
    return Prepared(train, _check(other, train, output / "check-val.html", options, steps))


def find_dataset(options: DataOptions, semantic: bool | None = None) -> Dataset:
    """Return the format of a dataset, and whether the class of each pixel is learned.

    `semantic`: whether the model learns it, so that maps are looked for, also beside annotations; None: where maps are
    named, or the dataset has nothing else. Raises InputError where maps of classes are wanted, and there are none.
    """
    if semantic is None and options.map is not None:
        semantic = True
    maps = recognise_maps(options.path, options.images) if semantic and not (options.format or options.map) else None
    recognised = maps or recognise(options.path, options.format, options.images)
    if semantic is None:
        semantic = recognised.format.name == "semantic"
    if semantic and options.classes:
        raise InputError(
            "--classes chooses those of boxes; the classes of pixels are chosen by a table of their numbers: --map "
            "semantic=FOLDER,table=FILE.json,classes=background,car"
        )
    if semantic and not (options.map or recognised.format.folders):
        raise InputError(
            f"{options.path} has no folder that is known for maps of classes, such as SegmentationClass or masks; give "
            "it, and the names of the classes: --map semantic=FOLDER,classes=background,car"
        )
    return Dataset(recognised, semantic)


def _confirm(file: DataFile, confirm: Confirm, options: DataOptions) -> None:
    """Call `confirm`; after an error, which names the dataset, leave no file of it."""
    try:
        confirm(file)
    except InputError as error:
        file.annotations.unlink()
        name = str(file.annotations.absolute())
        message = str(error).replace(name, str(options.path)).replace(str(file.annotations), str(options.path))
        raise InputError(message) from None


def _convert(
    own: OwnSplit, dataset: Dataset, output: Path, options: DataOptions, steps: Steps, map: str | None
) -> DataFile:
    images, recognised = options.images or own.images, dataset.recognised
    if recognised.format.name == "coco":
        return _take_coco(own, output, options, steps)._replace(map=map)
    if own.path != recognised.path:
        recognised = recognise(own.path, recognised.format.name)
    more: tuple[object, ...] = ("--split", own.split) if own.split else ()
    more += ("--images", images) if images else ()
    more += ("--from", recognised.format.name) if options.format or dataset.semantic else ()
    more += ("--classes", ",".join(options.classes)) if options.classes else ()
    on_error: Any = "skip" if options.clean else "stop"
    more += ("--on-error", on_error) if options.clean else ()
    with steps.step("convert", own.path, "-o", output, *more):
        arguments: dict[str, Any] = {"images": images, "split": own.split, "classes": options.classes}
        try:
            summary = convert_to_coco(recognised, output, on_error=on_error, **arguments)
        except InputError as error:
            raise InputError(str(error).replace("--on-error skip", "--clean")) from None
        steps.report(summary)
    if dataset.semantic and map is None:
        assert summary.map is not None, "the format has maps"
        map = map_text("semantic", summary.map, output.parent)
    return DataFile(output, summary.image_folder, map)


def _take_coco(own: OwnSplit, output: Path, options: DataOptions, steps: Steps) -> DataFile:
    """Copy a COCO JSON file, or give it the wanted classes, and find the folder of its images."""
    dataset = recognise(own.path, "coco")
    if len(dataset.files) > 1:
        names = [str(dataset.folder / name) for name in dataset.files]
        raise InputError(
            f"{dataset.path} has {counted(len(names), 'COCO JSON file')}, {listed(names)}: give one of them, or join "
            "them: detaug merge FILE.json FILE.json -o all.json"
        )
    file = dataset.folder / dataset.files[0]
    refuse_part(file)
    images = _images_of_coco(file, own, options)
    output_files({"output": output}, file, images)
    if options.classes:
        with steps.step("merge", file, "-o", output, "--classes", ",".join(options.classes)):
            steps.report(merge_coco([file], output, classes=options.classes))
    else:
        steps.say(f"\n{file} is a COCO JSON file, with its images in {images}; copied to {output}")
        write_atomically(output, [file.read_bytes()])
    return DataFile(output, images)


def _images_of_coco(file: Path, own: OwnSplit, options: DataOptions) -> Path:
    """Return the folder that the file names of a COCO JSON file are relative to. Raises InputError if none has them."""
    if options.images:
        return options.images
    rows = load_coco(file).document["images"]
    names = [row["file_name"] for row in rows[:20] if isinstance(row, dict) and isinstance(row.get("file_name"), str)]
    roots = [file.parent, *filter(None, (own.images, options.path if options.path.is_dir() else None))]
    for root in dict.fromkeys(roots):
        if all((root / name).is_file() for name in names):
            return root
    folder = next(filter(None, (other_folder_with(names, root, file) for root in dict.fromkeys(roots))), None)
    if folder is None:
        first = f"images such as {shown(names[0])}" if names else "no images with a file_name"
        raise InputError(f"{file} has {first}, and no folder near it has them; give their folder: --images FOLDER")
    return folder


def _share_classes(files: Sequence[DataFile], steps: Steps) -> None:
    """Give all parts the same classes, if one has a class that another has not: those of the first, then others."""
    names = [[row["name"] for row in load_coco(file.annotations).document["categories"]] for file in files]
    union = [*dict.fromkeys(name for own in names for name in own)]
    for file, own in zip(files, names, strict=True):
        if own != union:
            merged = file.annotations.with_name(f"{file.annotations.stem}-merged.json")
            with steps.step("merge", file.annotations, "-o", merged, "--classes", ",".join(union)):
                merge_coco([file.annotations], merged, classes=union)
                os.replace(merged, file.annotations)


def _check(file: DataFile, other: DataFile | None, page: Path, options: DataOptions, steps: Steps) -> DataFile:
    """Check the data with its pixels. Returns the cleaned data, if there are errors to leave out and `clean`."""
    clean = file.annotations.with_name(f"{file.annotations.stem}-clean.json") if options.clean else None
    words: tuple[object, ...] = ("check", file.annotations, file.images, "--decode", "--html", page)
    words += ("--against", other.annotations) if other else ()
    words += ("--map", file.map) if file.map else ()
    with steps.step(*words, *(("--clean", clean) if clean else ())):
        against = [other.annotations] if other else []
        maps = {"semantic": read_class_map(file.map)} if file.map else None
        summary = check_to_html(
            file.annotations, file.images, page, decode=True, clean=clean, against=against, maps=maps
        )
        steps.report(summary)
    if not summary.errors:
        return file
    if clean is None or isinstance(summary.cleaned, NotCleaned):
        remedy = "" if clean else "; --clean leaves them out or repairs them"
        raise InputError(
            f"{file.annotations} has {counted(summary.errors, 'error')}, see {page}: training would stop, or learn "
            f"wrongly{remedy}, or correct {options.path}"
        )
    return file._replace(annotations=clean)


def _split(file: DataFile, folder: Path, steps: Steps) -> Prepared:
    outputs = folder / "train.json", folder / "val.json"
    rows = load_coco(file.annotations).document["images"]
    is_roboflow = bool(rows) and all(re.search(ROBOFLOW, str(row.get("file_name"))) for row in rows)
    group = ROBOFLOW if is_roboflow else None
    # Of a few images a fifth may be less than one.
    ratios = RATIOS if len(rows) >= 10 else (max(1, len(rows) - 1), 1)
    words = ["split", file.annotations, "-o", outputs[0], "-o", outputs[1], "--ratios", ",".join(map(str, ratios))]
    words += ["--images", file.images, *(["--group-name", group] if group else [])]
    with steps.step(*words):
        try:
            summary = split_coco(file.annotations, outputs, ratios, images=file.images, group_name=group)
        except InputError as error:
            raise InputError(f"{error}; or put the images into folders named train and val") from None
        steps.report(summary)
    train, val = (file._replace(annotations=output) for output in outputs)
    return Prepared(train, val)
