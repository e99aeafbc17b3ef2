"""`detaug train`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_0, AT_LEAST_1, FILE, FOLDER, PATH_OR_ADDRESS
from detaug.cli.progress_bar import ProgressBar
from detaug.packages import LEFT_OUT

MODELS = (
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
    "retinanet_resnet50_fpn_v2",
    "fcos_resnet50_fpn",
    "maskrcnn_resnet50_fpn_v2",
    "keypointrcnn_resnet50_fpn",
    "fcos_rotated_resnet50_fpn",
    "rt-detr-v2-r18",
    "d-fine-nano",
    "d-fine-small",
    "rf-detr-nano",
    "rf-detr-small",
    "rf-detr-medium",
    "rf-detr-seg-nano",
    "lraspp_mobilenet_v3_large",
)
"""The keys of detaug.training.model_table.MODELS. That module is not imported, for a quick --help."""


_OF_PATH = "of PATH "


class _Output(NamedTuple):
    say: Callable[[str], None]
    """Prints a line."""
    draw: Callable[[int, int, str], None] | None
    """Draws the bar for (done, total, text); None unless stdout and stderr both are terminals."""


@contextmanager
def _terminal() -> Iterator[_Output]:
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield _Output(options.echo, None)
        return
    bar = ProgressBar()

    def say(line: str) -> None:
        bar.end()
        options.echo(line)

    try:
        yield _Output(say, bar.draw)
    finally:
        bar.end()


def _read_time(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Return the seconds of a time such as 90s, 30m, 2h or 1.5h."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smh])", text)
    if not match:
        raise click.BadParameter(f"must be a number and a unit, such as 90s, 30m or 2h, got {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _check_map(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Return the text of a map, once it has been read."""
    if text is None:
        return None
    from detaug.maps.named import read_class_map

    read_class_map(text)
    return text


ONLY_PATH = ("format", "image_folder", "classes", "clean")
"""Options that are about how PATH becomes a COCO JSON file."""


@click.command()
@click.argument("annotations", metavar="PATH|FILE.json", type=PATH_OR_ADDRESS)
@click.argument("images", metavar="[IMAGES]", required=False, type=PATH_OR_ADDRESS, callback=options.after_its_json)
@click.option("-o", "--output", type=FOLDER, required=True, help="The folder for metrics, checkpoint and model.")
@click.option("--from", "format", metavar="NAME", help="PATH's format; detaug formats lists them.  [default: detected]")
@click.option("--images", "image_folder", type=FOLDER, help="The folder of PATH's images.  [default: PATH]")
@options.classes("; of PATH; others are dropped.  [default: all]")
@click.option("--clean", is_flag=True, help="Leave out or repair what check finds wrong in PATH.")
@click.option("--val", metavar="VAL.json", type=PATH_OR_ADDRESS, help="With FILE.json, the JSON file to evaluate on.")
@click.option("--val-images", type=PATH_OR_ADDRESS, help="The image folder of VAL.json.  [default: IMAGES]")
@click.option(
    "--map",
    metavar="semantic=FOLDER",
    callback=_check_map,
    help="Learn the class of each pixel from maps: semantic=masks,classes=names.txt; more after commas, as for check.  "
    f"[{_OF_PATH}default: those of its format]",
)
@click.option(
    "--val-map", metavar="semantic=FOLDER", callback=_check_map, help="The maps of VAL.json.  [default: those of --map]"
)
@click.option(
    "--model",
    metavar="NAME",
    type=click.Choice(MODELS),
    default=MODELS[0],
    help=f"The model: {', '.join(MODELS)}.  [default: {MODELS[0]}; {_OF_PATH}{MODELS[3]}, on a CPU {MODELS[1]}]",
)
@click.option(
    "--epochs",
    type=AT_LEAST_1,
    default=100,
    help=f"Passes over all images.  [default: 100; {_OF_PATH}60]",
)
@click.option("--time", metavar="TIME", callback=_read_time, help="As many epochs as fit into 90s, 30m, 2h instead.")
@click.option(
    "--batch-size", type=AT_LEAST_1, default=32, help=f"Images per step on each GPU.  [default: 32; {_OF_PATH}8]"
)
@click.option(
    "--lr",
    type=float,
    help=f"The highest learning rate.  [default: the model's, by images per step; {_OF_PATH}on a CPU 0.001]",
)
@click.option(
    "--optimizer",
    type=click.Choice(["sgd", "adamw"]),
    help="The optimizer.  [default: the model's; of PATH adamw]",
)
@click.option("--momentum", type=float, default=0.9, show_default=True, help="Momentum of SGD.")
@click.option("--weight-decay", type=float, help="Weight decay.  [default: the model's]")
@click.option("--warmup-steps", type=AT_LEAST_0, help="Warm-up steps.  [default: a tenth of all, at most 500]")
@click.option("--clip-norm", type=float, help="Clip longer gradients; 0: never.  [default: the model's, 10 or 0.1]")
@options.size_option(
    f"The input size, or its shorter side.  [default: the recipe's or the model's; {_OF_PATH}on a GPU 640]",
    shorter_side=True,
)
@options.flip_pairs
@click.option(
    "--unused-parents",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    show_default=True,
    help="Drop categories that only group others and have no annotation; exports of Roboflow begin with one.",
)
@click.option("--recipe", type=FILE, help="A file written by save_recipe.  [default: the model's]")
@options.own_ops
@click.option(
    "--weights", type=FILE, help="A state dict to start from; a head with another number of classes is reinitialized."
)
@click.option(
    "--pretrained",
    type=click.Choice(["coco", "backbone"]),
    help="Start from the package's weights of COCO, or torchvision's of the backbone, fetched unless they are there.",
)
@click.option("--resume", is_flag=True, help="Resume from the checkpoint in the output folder, if there is one.")
@click.option("--amp/--no-amp", default=True, show_default=True, help="Compute in 16 bits on a GPU.")
@click.option("--seed", type=AT_LEAST_0, default=0, show_default=True, help="Random seed of weights and batches.")
@options.device
@click.option(
    "--eval-every",
    type=AT_LEAST_1,
    default=10,
    show_default=True,
    help="Epochs between evaluations, each with a checkpoint.",
)
@click.option(
    "--patience",
    type=AT_LEAST_0,
    default=0,
    show_default=True,
    help="Stop after this number of evaluations without a better AP; 0: never.",
)
@click.option(
    "--ema",
    type=float,
    metavar="DECAY",
    help="Evaluate and save an exponential moving average of the weights, with such a decay; 0: never.  [default: the "
    "model's, none of torchvision's]",
)
@click.option("--tensorboard", is_flag=True, help="Also write the metrics for TensorBoard, if it is installed.")
@click.option(
    "--checkpoint-every",
    type=AT_LEAST_0,
    default=1000,
    show_default=True,
    help="Steps between further checkpoints; 0: none.",
)
@click.option(
    "--log-every",
    type=AT_LEAST_1,
    default=20,
    show_default=True,
    help="Steps between lines of progress; a terminal has a bar.",
)
@options.needs(*LEFT_OUT, "torchvision")
def train(annotations: Path, images: Path | None, device: str | None, **more: Any) -> None:
    """Train a detector, or a segmentation model.

    PATH is a file or a folder in any format that convert reads: it is converted, checked, split unless it has splits of
    its own, trained on, evaluated and drawn, and each step is printed as the command that does it alone. README.txt in
    the output folder says what is there. Or give a COCO JSON file and the folder that its file names are relative to.

    The models are torchvision's SSD300, SSDlite, RetinaNet and FCOS, Mask R-CNN for masks, Keypoint R-CNN for keypoints
    and an FCOS for rotated boxes; RT-DETRv2 and D-FINE of transformers; RF-DETR of rfdetr, also for masks; and LR-ASPP
    of torchvision for the class of each pixel, which learns maps, those of --map or of PATH. A model starts from random
    weights, from --weights, or from the package's with --pretrained; nothing else is downloaded.
    Ctrl-C stops after the step and saves a checkpoint; the same command with --resume continues. On several GPUs:

    \b
    torchrun --nproc-per-node 4 -m detaug train VOC2012 -o run

    \b
    detaug train VOC2012 -o run
    detaug train train.json VOC2012/JPEGImages --val val.json -o run
    """
    named = options.given_options() & {*more}
    of_path = {name: more.pop(name) for name in ONLY_PATH}
    if images is None:
        _refuse(named & {"val", "val_images"}, "FILE.json IMAGES; the splits of PATH are found, or made")
    else:
        _refuse(named & {*ONLY_PATH}, "PATH alone; detaug convert and detaug check prepare FILE.json")
    if "epochs" in named and "time" in named:
        raise click.UsageError("--time decides how many epochs there are; leave out --epochs")
    from detaug.converters.formats.recognise import check_exists
    from detaug.outputs.folder import refuse_training

    refuse_training(more["output"], resume=more["resume"])  # before torch is imported, which takes seconds
    if images is None:
        check_exists(annotations)
    with _terminal() as output:
        if os.environ.get("RANK", "0") == "0":
            output.say("loading torch, torchvision and DALI")
        from detaug.maps.named import read_class_map
        from detaug.training import TrainOptions
        from detaug.training import train as run_train

        options.keep_freed_memory_on_cpu(device)
        if images is not None:
            more |= {name: read_class_map(more[name]) for name in ("map", "val_map") if more[name]}
            run_train(TrainOptions(annotations, images, device=device, **more), say=output.say, bar=output.draw)
            return
        from detaug.workflow import FolderOptions, train_folder
        from detaug.workflow.prepare import DataOptions

        of_path["images"] = of_path.pop("image_folder")
        chosen = {name: value for name, value in more.items() if name in named - {"output", "map", "val_map"}}
        data = DataOptions(annotations, **of_path, map=more["map"], val_map=more["val_map"])
        folder = FolderOptions(data, more["output"], {**chosen, "device": device})
        train_folder(folder, say=output.say, bar=output.draw)


def _refuse(names: Collection[str], what: str) -> None:
    for name in sorted(names):
        options.refuse({"format": "from", "image_folder": "images"}.get(name, name), what)
