"""`detaug evaluate` and `detaug predict`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FILE, FOLDER, PATH, PATH_OR_ADDRESS, Command, print_unless
from detaug.cli.progress_bar import progress_bar
from detaug.packages import LEFT_OUT, require

PREDICTIONS = Path("predictions")
"""The folder of `detaug predict` without -o."""

DRAWN = 8
"""Images of `detaug evaluate --sheet`: detaug.scoring.DRAWN, which is not imported, for a quick --help."""

_batch_size = click.option("--batch-size", type=AT_LEAST_1, default=8, show_default=True, help="Images in a batch.")


def _min_score(help: str) -> Callable[[Command], Command]:
    default = 0.4  # detaug.arguments.SCORE
    return click.option("--min-score", type=click.FloatRange(0, 1), default=default, show_default=True, help=help)


_tta = click.option(
    "--tta",
    is_flag=True,
    help="Test-time augmentation: detect at 0.8, 1 and 1.2 times the size, also flipped, and merge the detections.",
)

OF_MAPS = {"annotations", "images", "kind", "maps", "predictions", "max_depth", "report", "quiet"}
"""Parameters of `detaug evaluate` that have a meaning with --map."""
OF_SEMANTIC_MODELS = OF_MAPS | {"model", "html", "sheet", "batch_size", "device"}
"""Those with --map and --model."""

_NO_IMAGES = "Missing argument 'IMAGES': give FILE.json IMAGES; with --map, IMAGES alone will do"


@click.command()
@click.argument("annotations", metavar="[FILE.json]", required=False, type=PATH_OR_ADDRESS)
@click.argument("images", metavar="IMAGES", required=False, type=PATH_OR_ADDRESS, callback=options.after_its_json)
@click.option("--model", type=FILE, help="The model.pt of detaug train.")
@click.option("--detections", type=FILE, help="Boxes of any detector instead: a COCO results JSON file.")
@_min_score("The confidence threshold of the counts of right detections and errors.")
@click.option(
    "--tile", type=AT_LEAST_1, help="With --model: detect in tiles of this side in pixels, and merge the detections."
)
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1, max_open=True),
    help="With --tile: the fraction of a side that neighboring tiles have in common.  [default: 0.2]",
)
@_tta
@click.option(
    "--max-detections",
    type=click.IntRange(100, 1_000_000),  # detaug.evaluation.coco.MOST_DETECTIONS
    help="Detections that count per image and class.  [default: COCO's 100, of keypoints 20]",
)
@click.option(
    "--kind",
    type=click.Choice(["boxes", "semantic", "panoptic", "depth"]),
    help="What is scored.  [default: that of --map, without it boxes]",
)
@options.true_maps
@click.option(
    "--predictions",
    metavar="FOLDER|FILE.json",
    type=PATH,
    help="With --map: a folder of predicted maps with the images' names; of panoptic ones their JSON file.",
)
@click.option(
    "--max-depth",
    type=click.FloatRange(min=0.001, min_open=True),
    help="With --map depth=FOLDER: the largest depth that counts, meters.",
)
@click.option(
    "--label-errors",
    type=FILE,
    help="A COCO JSON file for a labeling tool: annotations that are likely wrong or missing, the worst first.",
)
@click.option("--html", type=FILE, help="A page for a browser: curves, kinds of errors, confusion, the worst images.")
@click.option("--sheet", type=FILE, help=f"An image: the detections in {DRAWN} images beside the annotations.")
@click.option("--report", type=FILE, help="A JSON file for all numbers.")
@click.option("-o", "--output", type=FILE, help="A COCO results JSON file for the detections.")
@_batch_size
@options.device
@options.quiet
@options.needs("torch", "nvidia.dali")
def evaluate(
    annotations: Path | None,
    images: Path | None,
    kind: str | None,
    maps: dict[str, Any] | None,
    predictions: Path | None,
    max_depth: float | None,
    report: Path | None,
    quiet: bool,
    **of_boxes: Any,
) -> None:
    """Score a detector, or predicted maps.

    FILE.json is a COCO JSON file, IMAGES the folder that its file names are relative to. Prints COCO's numbers, those
    of each class, the kinds of errors and the pairs of classes that are confused most.

    With --map and --predictions, it scores maps of classes (mIoU), panoptic maps (PQ) or depths instead. FILE.json may
    be a panoptic one, too; without it, all images of the folder IMAGES are scored. With --map and --model it scores a
    model of semantic segmentation.

    \b
    detaug evaluate val.json VOC2012/JPEGImages --model run/model.pt
    detaug evaluate images --map semantic=masks --predictions predicted
    """
    if annotations is None:
        raise click.UsageError(_NO_IMAGES)
    if maps is None:
        if kind not in (None, "boxes"):
            raise click.UsageError(f"--kind {kind} needs the maps of the dataset: give --map {kind}=FOLDER")
        if predictions is not None:
            options.refuse("predictions", "maps: give --map NAME=FOLDER, too; boxes are --detections")
        if max_depth is not None:
            options.refuse("max_depth", "maps of depths: give --map depth=FOLDER and --predictions, too")
        if images is None:
            raise click.UsageError(_NO_IMAGES)
        _evaluate_boxes(annotations, images, report=report, quiet=quiet, **of_boxes)
        return
    model = of_boxes["model"]
    for name in sorted(options.given_options() - (OF_SEMANTIC_MODELS if model else OF_MAPS)):
        options.refuse(name, "boxes: leave it out, or --map")
    if len(maps) > 1:
        raise click.UsageError("--map must be given once, as --predictions are of one map; score others on their own")
    if (predictions is None) == (model is None):
        raise click.UsageError(
            "--map needs --predictions FOLDER, of panoptic maps --predictions FILE.json; or --model MODEL.pt of detaug "
            "train, which finds the class of each pixel"
        )
    from detaug.maps.kinds import ClassMap, DepthMap
    from detaug.outputs.guards import output_files

    (truth,) = maps.values()
    of_map = "semantic" if isinstance(truth, ClassMap) else "depth" if isinstance(truth, DepthMap) else "panoptic"
    if kind not in (None, of_map):
        raise click.UsageError(f"--kind is {kind}, and --map has a map of the kind {of_map}; leave --kind out")
    if max_depth is not None and not isinstance(truth, DepthMap):
        options.refuse("max_depth", "maps of depths: leave it out, or give --map depth=FOLDER")
    if model is not None:
        _evaluate_semantic(annotations, images, truth, report=report, quiet=quiet, **of_boxes)
        return
    assert predictions is not None, "either is given"
    listed, folder = (None, annotations) if images is None else (annotations, images)
    output_files({"report": report}, predictions, folder, listed, truth.folder)
    from detaug.scoring import evaluate_maps

    with progress_bar("evaluating", quiet) as progress:
        scored = evaluate_maps(truth, predictions, folder, listed, max_depth=max_depth, progress=progress)
    print_unless(quiet, scored)
    if report is not None:
        scored.write_report(report)
        print_unless(quiet, f"written: {report}")


def _evaluate_semantic(
    annotations: Path,
    images: Path | None,
    truth: Any,
    *,
    model: Path,
    html: Path | None,
    sheet: Path | None,
    report: Path | None,
    batch_size: int,
    device: str | None,
    quiet: bool,
    **_: Any,
) -> None:
    from detaug.maps.kinds import ClassMap

    if not isinstance(truth, ClassMap):
        raise click.UsageError("--model finds the class of each pixel: give --map semantic=FOLDER, or --predictions")
    if images is None:
        raise click.UsageError("--model needs FILE.json IMAGES; detaug convert makes FILE.json of a folder of maps")
    require("--model", *LEFT_OUT, "torchvision")
    _check_outputs({"report": report}, html, sheet, annotations, images, model, truth.folder)
    from detaug.scoring import evaluate_semantic, write_page

    options.keep_freed_memory_on_cpu(device)
    with progress_bar("evaluating", quiet) as progress:
        scored = evaluate_semantic(
            model,
            annotations,
            images,
            truth,
            batch_size=batch_size,
            device=device,
            progress=progress,
            draw=0 if sheet is None else DRAWN,
        )
    print_unless(quiet, scored)
    _write(
        (html, lambda path: write_page(scored, path)),
        (sheet, scored.draw_sheet),
        (report, scored.write_report),
        quiet=quiet,
    )


def _check_outputs(files: dict[str, Path | None], html: Path | None, sheet: Path | None, *read: Any) -> None:
    """Raise ConversionError, before all work, for an output that would replace what is read or has another kind."""
    from detaug.drawing.images import PICTURES
    from detaug.outputs.guards import PAGE, output_files

    output_files(files, *read)
    output_files({"html": html}, *read, extensions=PAGE)
    output_files({"sheet": sheet}, *read, extensions=PICTURES)


def _write(*writers: tuple[Path | None, Callable[[Path], object]], quiet: bool) -> None:
    """Write each file that is wanted, and say so."""
    for path, write in writers:
        if path is not None:
            write(path)
            print_unless(quiet, f"written: {path}")


def _evaluate_boxes(
    annotations: Path,
    images: Path,
    *,
    model: Path | None,
    detections: Path | None,
    min_score: float,
    tile: int | None,
    overlap: float | None,
    tta: bool,
    max_detections: int | None,
    label_errors: Path | None,
    html: Path | None,
    sheet: Path | None,
    report: Path | None,
    output: Path | None,
    batch_size: int,
    device: str | None,
    quiet: bool,
) -> None:
    if (model is None) == (detections is None):
        raise click.UsageError("give --model MODEL.pt or --detections FILE.json; for maps --map and --predictions")
    if tile is not None and model is None:
        options.refuse("tile", "--model: merge other detections with da.merge_tiles")
    if model is None:
        for name in sorted({"batch_size", "device", "tta"} & options.given_options()):
            options.refuse(name, "--model: --detections are there already; leave it out")
    if overlap is not None and tile is None:
        options.refuse("overlap", "tiles: give --tile, too")
    if model is not None:
        require("--model", *LEFT_OUT, "torchvision")
    outputs = {"report": report, "output": output, "label_errors": label_errors}
    _check_outputs(outputs, html, sheet, annotations, images, model, detections)
    from detaug.scoring import evaluate_model, evaluate_results, write_page

    draw = 0 if sheet is None else DRAWN
    if model is not None:
        options.keep_freed_memory_on_cpu(device)
        with progress_bar("evaluating", quiet) as progress:
            scored = evaluate_model(
                model,
                annotations,
                images,
                min_score=min_score,
                batch_size=batch_size,
                device=device,
                progress=progress,
                tile=tile,
                overlap=0.2 if overlap is None else overlap,
                tta=_views(tta),
                max_detections=max_detections,
                draw=draw,
            )
    else:
        assert detections is not None
        scored = evaluate_results(
            detections,
            annotations,
            images,
            min_score=min_score,
            max_detections=max_detections,
            draw=draw,
            label_errors=label_errors is not None,
        )
    print_unless(quiet, scored)
    _write(
        (html, lambda path: write_page(scored, path)),
        (sheet, scored.draw_sheet),
        (report, scored.write_report),
        (output, scored.save),
        (label_errors, scored.write_label_errors),
        quiet=quiet,
    )


def _views(tta: bool) -> Any:
    """Return the default `TTA`, or None."""
    from detaug.training.tta import TTA

    return TTA() if tta else None


@click.command()
@click.argument("model", metavar="MODEL.pt", type=FILE)
@click.argument("paths", metavar="PATHS...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The COCO JSON file, or the folder of maps.  [default: predictions/predictions.json, predictions/maps]",
)
@click.option(
    "--drawings", type=FOLDER, help="A folder for images with detections.  [default: predictions, without -o]"
)
@click.option(
    "--pre-labels",
    type=(click.Choice(["labelme", "cvat", "label-studio"]), FOLDER),
    metavar="TOOL FOLDER",
    multiple=True,
    help="Also write files of labelme, cvat or label-studio, to correct the objects there.",
)
@click.option("--stride", type=AT_LEAST_1, default=1, show_default=True, help="Frames from one to the next, of videos.")
@_min_score("The lowest score that counts.")
@_tta
@_batch_size
@options.device
@options.quiet
@options.needs(*LEFT_OUT, "torchvision")
def predict(
    model: Path,
    paths: tuple[str, ...],
    output: Path | None,
    drawings: Path | None,
    pre_labels: tuple[tuple[Any, Path], ...],
    device: str | None,
    tta: bool,
    quiet: bool,
    **more: Any,
) -> None:
    """Detect objects, or the classes of pixels.

    PATHS are files, folders, or patterns of names in quotes. The folder predictions gets images with the detections and
    predictions.json, or -o and --drawings name others. The JSON file has a score for each object. It is a dataset like
    any other: detaug preview draws it, for videos with --frames, and detaug convert-coco-to-yolo and other converters
    write it in other forms. A model of semantic segmentation writes a map for each image instead: a PNG file whose
    numbers are the classes, which ClassMap reads.

    \b
    detaug predict run/best.pt photos
    """
    tools = [tool for tool, _ in pre_labels]
    if len({*tools}) < len(tools):
        raise click.UsageError("--pre-labels takes each tool once")
    from detaug.outputs.folder import made_run_folder
    from detaug.outputs.guards import output_files
    from detaug.scoring import predict_files, predict_maps
    from detaug.training import load_model

    options.keep_freed_memory_on_cpu(device)
    if output is not None and output.is_file():  # before the model is loaded
        output_files({"output": output}, model, *paths)
    trained = load_model(model, device)
    is_semantic = trained.finds == "semantic"
    for name in sorted({"pre_labels", "stride", "min_score", "tta"} & options.given_options() if is_semantic else ()):
        options.refuse(name, "objects, and this model finds the class of each pixel: leave it out")
    folder = PREDICTIONS if output is None else None
    drawings = drawings or folder
    with made_run_folder(folder) if folder else nullcontext(), progress_bar("predicting", quiet) as progress:
        more |= {"drawings": drawings, "progress": progress}
        predicted: object
        if is_semantic:
            predicted = predict_maps(
                trained,
                paths,
                output or PREDICTIONS / "maps",
                **{name: more[name] for name in ("drawings", "progress", "batch_size")},
            )
        else:
            more |= {"pre_labels": dict(pre_labels), "device": device, "tta": _views(tta)}
            predicted = predict_files(trained, paths, output or PREDICTIONS / "predictions.json", **more)
    print_unless(quiet, predicted)
