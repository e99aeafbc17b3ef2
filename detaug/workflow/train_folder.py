"""From labeled images in any format to a trained, scored and drawn detector: the steps of `detaug train PATH`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from detaug import __version__
from detaug.coco.how_to_load import shapes_of
from detaug.coco.table import load_coco
from detaug.errors import InputError
from detaug.files.atomic import write_atomically, write_json
from detaug.files.text import read_text
from detaug.loading.devices import resolve_device
from detaug.maps.named import read_class_map
from detaug.named_options import on_command_line
from detaug.outputs.folder import refuse_training
from detaug.scoring import DRAWN, Evaluation, SemanticEvaluation, evaluate_model, evaluate_semantic, write_page
from detaug.training import TrainOptions, train
from detaug.training.loaders import read_of_data
from detaug.training.model_table import MODELS, READS
from detaug.training.predict import code_to_predict
from detaug.training.processes import is_first_rank, on_first_rank, process_group
from detaug.training.progress import Bar
from detaug.workflow.prepare import DataFile, DataOptions, Prepared, find_dataset, prepare
from detaug.workflow.steps import Steps, command_text

Say = Callable[[str], None]

DEFAULTS: dict[str, dict[str, Any]] = {
    "cpu": {"model": "ssdlite320_mobilenet_v3_large", "lr": 0.001},
    "cuda": {"model": "fcos_resnet50_fpn", "size": 640},
}
"""Arguments of `TrainOptions` by the device: on a CPU the fastest model. `lr` and `size` are of the model.

From random weights on the 48 images of `detaug demo`, AP on its 12 others: on two cores of a CPU 0.504 in 5 minutes; on
an H200 0.623 in 82 s, with ssd300_vgg16 and SGD, the defaults of FILE.json IMAGES, 0.012 (benchmarks/from_folder.sh).
"""

OF_MAPS: dict[str, dict[str, Any]] = {
    "cpu": {"model": "lraspp_mobilenet_v3_large", "lr": 0.001, "size": 320},
    "cuda": {"model": "lraspp_mobilenet_v3_large", "lr": 0.001},
}
"""Those where the class of each pixel is learned."""

SMALL_DATA: dict[str, Any] = {"optimizer": "adamw", "batch_size": 8, "epochs": 60}
"""Further defaults on any device: AdamW learns in fewer steps than SGD from random weights, and so do small batches."""

SHAPE_NAMES = {"masks": "masks", "keypoints": "keypoints", "rotated": "rotated boxes"}
"""The shapes of a JSON file in words, by the argument of `CocoReader` that reads them."""

FILES = {
    "train_batch.jpg": "the first batch as the model sees it, after all augmentation",
    "curves.html": "losses and scores by step; load it again while it trains",
    "model.pt": "the model after the last step",
    "best.pt": "the model of the best evaluation",
    "evaluation.html": "its scores, what it confuses and the images where it is wrong most",
    "predictions.jpg": "what it finds in validation images, beside the annotations",
    "check.html": "what detaug check found in the data",
    "check-val.html": "the same of the validation, where the dataset has splits",
    "data/train.json": "the training images and boxes, COCO JSON",
    "data/class_names.txt": "the names of the classes of the maps",
    "data/val.json": "those of the validation",
    "metrics.jsonl": "all losses and scores, a line for each step and evaluation",
    "checkpoint.pt": "the state from which --resume goes on",
}
"""What is in a run's folder, for its README."""


@dataclass(frozen=True)
class FolderOptions:
    """Options of `train_folder`. `data`: what to train on; `output`: the folder of the run.

    `training`: arguments of `TrainOptions` beside the data and the output; those that are not there have the defaults
    of `DEFAULTS` and `SMALL_DATA`.
    """

    data: DataOptions
    output: Path
    training: Mapping[str, Any]

    @property
    def learns_maps(self) -> bool | None:
        """Return whether the model that was chosen learns the class of each pixel; None where none was."""
        model = self.training.get("model")
        return MODELS[model].finds == "semantic" if model in MODELS else None

    def train_options(self, file: DataFile, val: DataFile | None = None) -> TrainOptions:
        own = (OF_MAPS if file.map else DEFAULTS)[resolve_device(self.training.get("device")).type]
        if self.training.get("model", own["model"]) != own["model"]:
            own = {}
        elif self.training.get("optimizer", "adamw") != "adamw":
            own = {name: value for name, value in own.items() if name != "lr"}
        maps = {"map": file.map, "val_map": val.map if val and val.map != file.map else None}
        more = {name: read_class_map(text) for name, text in maps.items() if text}
        return TrainOptions(
            file.annotations,
            file.images,
            self.output,
            val=val and val.annotations,
            val_images=val and val.images,
            **{**SMALL_DATA, **own, **self.training, **more},
        )


def train_folder(
    options: FolderOptions, *, say: Say = print, bar: Bar | None = None
) -> Evaluation | SemanticEvaluation | None:
    """Convert, check and split a dataset, train on it, evaluate and draw; return the evaluation, on rank 0.

    Each step is printed as the command that does it alone. `options.output` gets the files of `FILES` and a README.txt.
    With `resume` in `options.training` the steps that were done are not done again. Under torchrun rank 0 alone makes
    the data and the pages. Raises InputError for data with errors, with a remedy.

    >>> from detaug.workflow import FolderOptions, train_folder
    >>> from detaug.workflow.prepare import DataOptions
    >>> options = FolderOptions(DataOptions("VOC2012"), "run", {"model": "fcos_resnet50_fpn"})
    >>> evaluation = train_folder(options)
    """
    with on_command_line(), process_group(options.training.get("device")):
        steps = Steps(say if is_first_rank() else lambda line: None)
        with _says_how_to_go_on(steps, "stopped while preparing the data: the same command prepares them again"):
            prepared = _prepared(options, steps)
        chosen = options.train_options(*prepared)
        with steps.step(*_train_words(chosen, prepared)):
            train(chosen, say=steps.say, bar=bar)  # it says how to go on
        with _says_how_to_go_on(steps, "stopped after the training: the same command with --resume evaluates"):
            return _evaluate(chosen, prepared, steps) if is_first_rank() else None


@contextmanager
def _says_how_to_go_on(steps: Steps, line: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        steps.say(line)
        raise


def _prepared(options: FolderOptions, steps: Steps) -> Prepared:
    """Prepare the data on the first rank, or take what an earlier run has prepared."""
    record = options.output / "data" / "prepared.json"

    def work() -> None:
        resume = bool(options.training.get("resume"))
        refuse_training(options.output, resume=resume)
        wanted = json.loads(json.dumps(asdict(options.data), default=str))  # as the record has it
        done = json.loads(read_text(record)) if record.exists() else {}
        if done and resume:
            _refuse_other_data(done["options"], wanted, options.output)
            steps.commands += done["commands"]
            steps.say(f"{record}: the data are those prepared before")
        else:
            dataset = find_dataset(options.data, options.learns_maps)
            if options.data.map or not dataset.semantic:  # wrong options are said before all work
                options.train_options(DataFile(options.data.path, options.data.path, options.data.map))
            prepared = prepare(
                options.data, options.output, steps, lambda file: _confirm(options, file, steps), dataset=dataset
            )
            files = {name: [*map(str, filter(None, file))] for name, file in prepared._asdict().items()}
            content = {"version": __version__, "options": wanted, "files": files, "commands": steps.commands}
            write_json(record, content)

    on_first_rank(work)
    files = json.loads(read_text(record))["files"]
    return Prepared(*(DataFile(Path(own[0]), Path(own[1]), *own[2:]) for own in (files["train"], files["val"])))


def _refuse_other_data(then: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    for name, value in now.items():
        if then.get(name) != value:
            raise InputError(
                f"{output} was made with {name} {then.get(name)!r}, this command has {value!r}; make them equal, or "
                "choose another --output"
            )


def _confirm(options: FolderOptions, file: DataFile, steps: Steps) -> None:
    """Raise InputError for data that the model cannot learn from, such as boxes alone for a model of masks.

    Says which shapes of the data the model does not learn.
    """
    chosen = options.train_options(file)
    read_of_data(chosen)
    shapes = shapes_of(row for row in load_coco(file.annotations).document["annotations"] if isinstance(row, dict))
    for shape in sorted(shapes - {*READS[MODELS[chosen.model].finds]}):
        finders = [name for name, row in MODELS.items() if shape in READS[row.finds]]
        what = SHAPE_NAMES[shape]
        steps.say(f"  {chosen.model} does not learn the {what}: for {what} give --model {' or '.join(finders)}")


def _train_words(options: TrainOptions, prepared: Prepared) -> list[object]:
    """Return the command that trains alone: with all options that are not the command's defaults."""
    words: list[object] = ["train", options.annotations, options.images, "-o", options.output]
    words += ["--val", options.val, *(["--val-images", options.val_images] * (options.val_images != options.images))]
    defaults = {field.name: field.default for field in fields(TrainOptions)}
    words += ["--map", prepared.train.map] if options.map else []
    words += ["--val-map", prepared.val.map] if options.val_map else []
    skipped = {"annotations", "images", "output", "val", "val_images", "map", "val_map"}
    for name, value in asdict(options).items():
        if name in skipped or value == defaults.get(name):
            continue
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name}")
        elif name == "size" and isinstance(value, tuple):
            words += [option, "x".join(map(str, value))]
        elif name == "time":
            words += [option, f"{value / 60:g}m"]
        elif name == "flip_pairs":
            words += [option, ",".join(f"{a}:{b}" for a, b in value) or "none"]
        else:
            words += [option, value]
    return words


def _evaluate(options: TrainOptions, prepared: Prepared, steps: Steps) -> Evaluation | SemanticEvaluation:
    """Score the best model, write its page, draw its detections, and write the README of the run."""
    output, val = options.output, prepared.val
    model = next(path for name in ("best.pt", "model.pt") if (path := output / name).exists())
    page, sheet, readme = output / "evaluation.html", output / "predictions.jpg", output / "README.txt"
    words: list[object] = ["evaluate", val.annotations, val.images, "--model", model]
    words += ["--map", val.map] if val.map else []
    words += ["--html", page, "--sheet", sheet, *(["--device", options.device] if options.device else [])]
    evaluation: Evaluation | SemanticEvaluation
    with steps.step(*words):
        if options.map is not None:
            kind = options.val_map or options.map
            evaluation = evaluate_semantic(model, val.annotations, val.images, kind, device=options.device, draw=DRAWN)
        else:
            evaluation = evaluate_model(model, val.annotations, val.images, device=options.device, draw=DRAWN)
        steps.report(evaluation)
        write_page(evaluation, page)
        evaluation.draw_sheet(sheet)
    _write_readme(options, prepared, model, val.images / evaluation.reader.file_names[0], steps, readme)
    steps.say(f"\nwritten: {output}, see {readme}; look at {sheet} and {page}")
    return evaluation


def _write_readme(
    options: TrainOptions, prepared: Prepared, model: Path, image: Path, steps: Steps, path: Path
) -> None:
    output = options.output
    on = replace(options, output=Path(f"{output}-2"), weights=model, pretrained=None, resume=False)
    there = {name: what for name, what in FILES.items() if (output / name).exists()}
    width = max(map(len, there))
    lines = [
        f"A run of detaug {__version__}: {options.model}",
        "",
        *(f"{name:{width}}  {what}" for name, what in there.items()),
        "",
        f"What was done, in the folder {Path.cwd()}:",
        "",
        *steps.commands,
        "",
        "Find the classes of pixels of other images:" if options.map else "Detect objects in other images or videos:",
        "",
        command_text("predict", model, "PATHS"),
        "",
        "In Python:",
        "",
        code_to_predict(model, image, MODELS[options.model].finds),
        "",
        "Train on from this model, in a new folder:",
        "",
        command_text(*_train_words(on, prepared)),
    ]
    write_atomically(path, ["\n".join(lines) + "\n"])
