"""`detaug export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FILE, FOLDER, PATH, print_unless
from detaug.cli.progress_bar import progress_bar
from detaug.packages import LEFT_OUT, require


def _read_batch(_: click.Context, __: click.Parameter, text: str | None) -> int | str | None:
    if text is None:
        return None
    if not re.fullmatch(r"dynamic|[1-9]\d{0,5}", text):
        raise click.BadParameter(f"must be a number of images, or dynamic, got {text!r}")
    return text if text == "dynamic" else int(text)


@click.command()
@click.argument("model", metavar="MODEL.pt", type=FILE)
@click.option("-o", "--output", type=FILE, help="The ONNX file to write.")
@click.option("--triton", type=FOLDER, help="The folder to make instead: a model repository for Triton.")
@options.size_option("The input size.  [default: that of the evaluation]")
@click.option(
    "--batch",
    metavar="N|dynamic",
    callback=_read_batch,
    help="Images at once; with --triton the most.  [default: dynamic; with --triton 8]",
)
@click.option(
    "--max-det", "max_detections", type=AT_LEAST_1, default=300, show_default=True, help="Detections per image at most."
)
@click.option(
    "--verify",
    metavar="FILE.json IMAGES",
    nargs=2,
    type=PATH,
    help="Score the file by onnxruntime, and the model, on these images.",
)
@options.quiet
@options.needs(*LEFT_OUT, "torchvision", "onnx")
def export(
    model: Path,
    output: Path | None,
    triton: Path | None,
    batch: int | str | None,
    verify: tuple[Path, Path] | None,
    quiet: bool,
    **more: Any,
) -> int:
    """Export a detector as ONNX.

    The file takes images of 0..1 and the sizes that they had before they were resized; normalization and non-maximum
    suppression are inside, and boxes, masks and keypoints are in pixels of the images before. Its metadata have the
    class names and how to resize. The exit code is 1 if --verify finds another AP. Needs pip install 'detaug[export]'.

    A model repository for Triton Inference Server has this file, DALI's pipeline in front of it, and the ensemble
    image_detector of both, which takes the bytes of image files.

    \b
    detaug export run/best.pt -o model.onnx --verify val.json VOC2012/JPEGImages
    detaug export run/best.pt --triton repository
    """
    if (output is None) == (triton is None):
        raise click.UsageError("give -o MODEL.onnx, or --triton FOLDER")
    if triton and batch == "dynamic":
        raise click.UsageError("--batch must be a number with --triton: the most images at once")
    if verify:
        require("--verify", "onnxruntime")
    from detaug.export import export_onnx, verify_onnx, write_triton
    from detaug.export.onnx_file import size_text

    if triton:
        batch = batch or 8
        trained = write_triton(model, triton, batch=int(batch), **more)
        file = triton / "detector" / "1" / "model.onnx"
    else:
        batch, file = batch or "dynamic", cast(Path, output)
        trained = export_onnx(model, file, batch=cast(Any, batch), **more)
    resize: Any = trained.ops[0]
    height, width = resize.size
    print_unless(quiet, f"written: {triton or file}, {size_text(file)}, input {height} x {width}, batch {batch}")
    if verify is None:
        return 0
    with progress_bar("verifying", quiet) as progress:
        verified = verify_onnx(trained, file, *verify, progress=progress)
    print_unless(quiet, verified)
    return int(not verified.agrees)
