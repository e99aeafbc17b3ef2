"""Arguments, options and output that several commands share."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from detaug.cli.progress_bar import progress_bar
from detaug.errors import printable
from detaug.files.addresses import check_on_disk
from detaug.packages import LEFT_OUT, require


class PathOnDisk(click.Path):
    """A path on this machine: click would take the address of a bucket for one, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the Path. Raises InputError for an address."""
        check_on_disk(value)
        return super().convert(value, param, ctx)


FILE = PathOnDisk(dir_okay=False, path_type=Path)
FOLDER = PathOnDisk(file_okay=False, path_type=Path)
PATH = PathOnDisk(path_type=Path)
PATH_OR_ADDRESS = click.Path(path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

AT_LEAST_0, AT_LEAST_1 = click.IntRange(min=0), click.IntRange(min=1)


_SIZE_RULES = {
    False: "HxW pixels, such as 300x300",
    True: "HxW pixels or the shorter side, such as 300x300 or 800",
}


def size_option(help: str, *, shorter_side: bool = False) -> Callable[[Command], Command]:
    """Return the option --size: HxW pixels; with shorter_side one number too, the length of the shorter side."""

    def parse(_: click.Context, __: click.Parameter, text: str | None) -> int | tuple[int, int] | None:
        if text is None:
            return None
        match = re.fullmatch(r"(\d{1,9})(?:[xX](\d{1,9}))?", text)
        sides = [int(side) for side in match.groups() if side] if match else []
        if not all(sides) or len(sides) < (1 if shorter_side else 2):
            raise click.BadParameter(f"must be {_SIZE_RULES[shorter_side]}, got {text!r}")
        return (sides[0], sides[1]) if len(sides) == 2 else sides[0]

    return click.option("--size", metavar="HxW|N" if shorter_side else "HxW", callback=parse, help=help)


PRESETS = ("ssd300", "retinanet", "yolo640")
"""The functions of detaug.presets that need no arguments. That module is not imported, for a quick --help."""


YOLO_TASKS = ("detect", "segment", "pose", "obb")


def _check_device(_: click.Context, __: click.Parameter, device: str | None) -> str | None:
    if device is not None and not re.fullmatch(r"cpu|cuda(:\d{1,9})?", device):
        raise click.BadParameter(f"must be cpu, cuda or cuda:N, got {device!r}")
    return device


def after_its_json(context: click.Context, _: click.Parameter, images: Path | None) -> Path | None:
    """Refuse swapped arguments before torch is imported, which takes seconds."""
    from detaug.outputs.guards import IMAGES_ORDER, check_json_and_folder

    if images is not None:
        check_json_and_folder(context.params["annotations"], images, IMAGES_ORDER)
    return images


json_argument = click.argument("annotations", metavar="FILE.json", type=PATH)
images_argument = click.argument("images", type=PATH, callback=after_its_json)
json_or_address = click.argument("annotations", metavar="FILE.json", type=PATH_OR_ADDRESS)
images_or_address = click.argument("images", type=PATH_OR_ADDRESS, callback=after_its_json)
output_json = click.option("-o", "--output", type=FILE, required=True, help="The COCO JSON file to write.")
folder_argument = click.argument("output", metavar="OUT_FOLDER", type=PATH)
images = click.option("--images", type=FOLDER, help="The folder that the JSON file's file names are relative to.")
with_images = click.option(
    "--with-images",
    type=click.Choice(["none", "copy", "link"]),
    default="none",
    show_default=True,
    help="Leave the images where they are, copy them into OUT_FOLDER, or make symbolic links there.",
)
origin = click.option(
    "--origin",
    type=click.Choice(["one", "zero"]),
    default="one",
    show_default=True,
    help="Pixels count from 1 and boxes include the last (VOC), or from 0 and they exclude it.",
)
on_error = click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="Unusable files or entries: list all and stop, or leave them out.",
)


def _read_part(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not match:
        raise click.BadParameter(f"must be I/N, such as 1/4, got {text!r}")
    return int(match[1]), int(match[2])


def part(what: str) -> Callable[[Command], Command]:
    """Return the option --part. what: the beginning of its help."""
    return click.option("--part", metavar="I/N", callback=_read_part, help=f"{what}; I from 1 to N.")


jobs = click.option("--jobs", type=AT_LEAST_1, default=1, show_default=True, help="Processes to read with.")
report = click.option("--report", type=FILE, help="A JSON file for everything repaired, dropped or refused.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
device = click.option(
    "--device", callback=_check_device, help="cpu, cuda or cuda:N.  [default: CUDA if there is a GPU, else cpu]"
)


def writes_format(*own: Decorator) -> Decorator:
    """Return the parameters of a command that converts a COCO JSON file to another format; `own`: its own options."""

    parameters: list[Decorator] = [json_argument, folder_argument, *own, images, with_images, on_error, report, quiet]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return decorate


batch_size = click.option("--batch-size", type=AT_LEAST_1, default=32, show_default=True, help="Images in a batch.")


channels = click.option(
    "--channels", metavar="N", type=AT_LEAST_1, default=3, help="Bands that all files have.  [default: 8-bit RGB]"
)
dtype = click.option(
    "--dtype",
    metavar="TYPE",
    type=click.Choice(["uint8", "uint16", "float32"]),
    default="uint8",
    help="Type of their values: uint8, uint16 or float32.  [default: uint8]",
)


def read_positions(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Return positions such as 3,2,1; () for None."""
    if text is not None and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise click.BadParameter(f"must be positions from 0, such as 3,2,1, got {text!r}")
    return () if text is None else tuple(map(int, text.split(",")))


def _read_pairs(_: click.Context, __: click.Parameter, text: str | None) -> list[tuple[int | str, ...]] | None:
    """Return pairs such as 1:2,left_eye:right_eye; [] for none."""
    if text is None or text == "none":
        return None if text is None else []
    pairs = [pair.split(":") for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise click.BadParameter(f"must be pairs of positions from 0 or names, such as 1:2,3:4, or none, got {text!r}")
    return [tuple(int(end) if re.fullmatch(r"\d{1,9}", end) else end for end in pair) for pair in pairs]


flip_pairs = click.option(
    "--flip-pairs",
    metavar="A:B,C:D|none",
    callback=_read_pairs,
    help="Keypoints that swap when an image is flipped: names, or positions from 0.  [default: flip_idx, or the names]",
)


def classes(rest: str) -> Callable[[Command], Command]:
    """Return the option --classes. rest: the end of its help."""
    help = f"Class names in the order of their ids, or a file, one a line{rest}"
    return click.option("--classes", metavar="a,b,c|FILE", callback=_read_class_names, help=help)


def _read_class_names(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    from detaug.converters import read_class_names

    return None if text is None else read_class_names(text)


def needs(*modules: str) -> Callable[[Command], Command]:
    """Return what makes a command refuse to run without the packages of modules; `LEFT_OUT` with none given."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def checked(*args: Any, **arguments: Any) -> Any:
            require(f"detaug {click.get_current_context().info_name}", *(modules or LEFT_OUT))
            return command(*args, **arguments)

        return cast(Command, checked)

    return decorate


def keep_freed_memory_on_cpu(device: str | None) -> None:
    """Let this process keep freed memory for the next batch, if the loader runs on the CPU."""
    from detaug.loading.devices import keep_freed_memory, resolve_device

    if resolve_device(device).type == "cpu":
        keep_freed_memory()


def _map_option(help: str, *, plain: bool) -> Callable[[Command], Command]:
    """Return the option --map. plain: without panoptic maps."""

    def read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any] | None:
        from detaug.maps.named import read_map

        maps = [read_map(text, plain=plain) for text in texts]
        check_once([name for name, _ in maps], "map")
        return dict(maps) or None

    return click.option("--map", "maps", metavar="NAME=FOLDER", multiple=True, callback=read, help=help)


_MORE_OF_MAPS = "semantic=masks,suffix=_mask,ignore=0,classes=names.txt,table=ade20k"
maps = _map_option(
    "Maps beside the images: semantic=SegmentationClass, depth=depth; more after commas, as in "
    f"{_MORE_OF_MAPS}; may be given several times.",
    plain=True,
)
true_maps = _map_option(
    "Score predicted maps; the ground truth: semantic=SegmentationClass, panoptic=panoptic_val2017, depth=depth; more "
    f"after commas, as in {_MORE_OF_MAPS}.",
    plain=False,
)


own_ops = click.option(
    "--ops",
    metavar="MODULE",
    help="Import MODULE, a name or FILE.py, which runs it: it has ops of your own that the recipe names.",
)


group_key = click.option(
    "--group-key", metavar="KEY", help="A key of the JSON file's images: those with the same value belong together."
)
group_name = click.option(
    "--group-name",
    metavar="REGEX",
    help="A part of the file names: images where it is the same belong together; '^[^_]+' is all before the first _.",
)


def given_options() -> set[str]:
    """Return the names of the parameters of this command that the user gave, also if they equal the default."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}


def refuse(name: str, rule: str) -> NoReturn:
    """Raise an error for an option that would have no effect. rule: what it is for, and what to do."""
    raise click.UsageError(f"--{name.replace('_', '-')} is for {rule}")


def check_once(names: Sequence[str], what: str) -> None:
    """Raise BadParameter for a name that an option with NAME=VALUE has twice: only the last value would count."""
    for name, number in Counter(names).items():
        if number > 1:
            raise click.BadParameter(f"must have each {what} once, got {name} {number} times")


def echo(text: object, *, err: bool = False) -> None:
    """Print a text; control characters of the names in it are escaped, which a terminal would obey."""
    click.echo(printable(str(text)), err=err)


def print_unless(quiet: bool, result: object) -> None:
    """Print a result, unless the command is to be quiet."""
    if not quiet:
        echo(result)


def say_working(what: str) -> None:
    """Say on a terminal what takes seconds, before it does."""
    if sys.stderr.isatty():
        echo(what, err=True)


def print_converted(convert: Callable[..., object], label: str, *, quiet: bool, **arguments: Any) -> None:
    """Call a converter with the arguments of its command, show a progress bar, and print the summary."""
    with progress_bar(label, quiet) as progress:
        summary = convert(progress=progress, **arguments)
    print_unless(quiet, summary)
