"""`detaug export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FILE, PATH, print_unless
from detaug.cli.progress_bar import progress_bar
from detaug.packages import LEFT_OUT, require


def _read_batch(_: click.Context, __: click.Parameter, text: str) -> int | str:
    if not re.fullmatch(r"dynamic|[1-9]\d{0,5}", text):
        raise click.BadParameter(f"must be a number of images, or dynamic, got {text!r}")
    return text if text == "dynamic" else int(text)


@click.command()
@click.argument("model", metavar="MODEL.pt", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="The ONNX file to write.")
@options.size_option("The input size.  [default: that of the evaluation]")
@click.option(
    "--batch", metavar="N|dynamic", default="dynamic", show_default=True, callback=_read_batch, help="Images at once."
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
def export(model: Path, output: Path, verify: tuple[Path, Path] | None, quiet: bool, **more: Any) -> int:
    """Export a detector as ONNX.

    The file takes images of 0..1 and the sizes that they had before they were resized; normalization and non-maximum
    suppression are inside, and boxes are in pixels of the images before. Its metadata have the class names and how to
    resize. The exit code is 1 if --verify finds another AP. Needs pip install 'detaug[export]'.

    \b
    detaug export run/best.pt -o model.onnx --verify val.json VOC2012/JPEGImages
    """
    if verify:
        require("--verify", "onnxruntime")
    from detaug.export import export_onnx, verify_onnx
    from detaug.export.onnx_file import size_text

    trained = export_onnx(model, output, **more)
    resize: Any = trained.ops[0]
    height, width = resize.size
    print_unless(quiet, f"written: {output}, {size_text(output)}, input {height} x {width}, batch {more['batch']}")
    if verify is None:
        return 0
    with progress_bar("verifying", quiet) as progress:
        verified = verify_onnx(trained, output, *verify, progress=progress)
    print_unless(quiet, verified)
    return int(not verified.agrees)
