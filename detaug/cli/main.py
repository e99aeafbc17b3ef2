"""The detaug command: the group of all commands, and their exit codes.

Each command parses, calls one function of the library and prints. It imports what it needs inside its function, so
that `detaug --help` stays quick and loads neither torch nor DALI. InputError and OSError mean wrong input: they become
one line on stderr and exit code 2. Any other error is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import click

from detaug.cli.bench import bench, tune
from detaug.cli.convert import (
    convert_coco_to_csv,
    convert_coco_to_cvat,
    convert_coco_to_dota,
    convert_coco_to_label_studio,
    convert_coco_to_labelme,
    convert_coco_to_voc,
    convert_coco_to_yolo,
    convert_dota,
    convert_mot,
    convert_voc,
    convert_yolo,
    merge,
    split,
)
from detaug.cli.dataset import check, demo, preview
from detaug.cli.evaluate import evaluate, predict
from detaug.cli.export import export
from detaug.cli.formats import convert, formats
from detaug.cli.meant_commands import likely_commands
from detaug.cli.options import echo
from detaug.cli.recipe import import_recipe
from detaug.cli.shards import convert_tfrecord, convert_webdataset, pack
from detaug.cli.tiles import tile
from detaug.cli.train import train
from detaug.errors import InputError, printable
from detaug.named_options import on_command_line
from detaug.packages import missing_module, needs


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib import metadata

    try:
        click.echo(f"detaug {metadata.version('detaug')}")
    except metadata.PackageNotFoundError:
        click.echo("detaug, not installed: running from its source")
    context.exit()


RENAMED = {
    "--every": "--stride",
    "--shares": "--ratios",
    "--unlabelled": "--unlabeled",
    "--warm-up": "--warmup-steps",
}
"""By the name that an option had before detaug 0.3, which is accepted with a warning, its name now."""


class _Sections(click.Group):
    """Lists its commands in sections, each in the order of use, and accepts old names of options."""

    sections: Mapping[str, Sequence[click.Command]] = {}

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        self.sections = sections
        for command in chain.from_iterable(sections.values()):
            self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(str(command.name).ljust(width), command.get_short_help_str(100)) for command in commands]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (word := args[0]) not in self.commands and not word.startswith("-"):
            meant = likely_commands(word, [*self.commands])
            hint = f"did you mean {' or '.join(f'detaug {name}' for name in meant)}?" if meant else ""
            ctx.fail(f"No such command {word!r}; {hint or 'detaug --help lists the commands'}")
        name, command, words = super().resolve_command(ctx, args)
        own = {text for option in command.params for text in option.opts} if command else set()
        for index, word in enumerate(words):
            old, equals, value = word.partition("=")
            if word == "--":
                break
            if RENAMED.get(old) in own:
                echo(f"warning: {old} is called {RENAMED[old]} now", err=True)
                words[index] = RENAMED[old] + equals + value
        return name, command, words

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with on_command_line():
                return super().invoke(ctx)
        except InputError as error:
            command = self.commands[ctx.invoked_subcommand or ""]
            error.args = (_with_options(str(error), command), *error.args[1:])
            raise


def _with_options(message: str, command: click.Command) -> str:
    """Return a message "NAME must be RULE", or "NAME FILE must end in", with the option that gives the argument."""
    options = {str(param.name): param.opts[-1] for param in command.params if isinstance(param, click.Option)}
    about = re.match(r"(\w+) (must be|.+ must end in) ", message)
    return options[about[1]] + message[about.end(1) :] if about and about[1] in options else message


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """Data augmentation for object detection on NVIDIA DALI, from annotations of any format to a trained detector."""


# A new command is a function in a module of this folder, with a docstring (its help) that ends in an example.
# This is the order of use, and that of the help.
cli.add_sections(
    {
        "Data": (
            *(convert, formats, convert_voc, convert_yolo, convert_dota, convert_mot),
            *(convert_tfrecord, convert_webdataset, merge, split, tile, check),
        ),
        "Train": (preview, import_recipe, train, evaluate, predict),
        "Export": (
            *(export, convert_coco_to_voc, convert_coco_to_yolo, convert_coco_to_dota, convert_coco_to_labelme),
            *(convert_coco_to_cvat, convert_coco_to_label_studio, convert_coco_to_csv, pack),
        ),
        "Tools": (demo, bench, tune),
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0, 2 for an error in the input, 130 if interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _interrupted_by_signals():
            result = cli.main(args=words or ["--help"], prog_name="detaug", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:  # detaug ... | head
        return 1
    except InputError as error:
        return _fail(_on_one_line(str(error), words))
    except click.ClickException as error:
        return _fail(_on_one_line(error.format_message(), words))
    except ModuleNotFoundError as error:
        module = missing_module(error)
        if module is None:
            raise
        return _fail(f"detaug {words[0]} {needs(module)}")
    except OSError as error:
        name = printable(str(error.filename), "") if error.filename else ""
        return _fail(f"{name}: {error.strerror}" if name else _on_one_line(str(error), words))


def _on_one_line(message: str, words: Sequence[str]) -> str:
    """Return a message with the line breaks escaped that names in the arguments brought into it.

    Other line breaks stay: an error may list one problem a line. A message may have a part of a path only.
    """
    names = {name for word in words for name in re.split("[/=]", word) if "\n" in name}
    for name in sorted(names, key=len, reverse=True):
        message = message.replace(name, printable(name, ""))
    return message


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM, which schedulers send, and SIGHUP, of a closed terminal, stop the command as Ctrl-C does.

    Where the program handles or ignores a signal already it stays so, and under torchrun, which ends its processes
    itself: they may wait for each other in native code, where Python sees no signal.
    """
    is_alone = int(os.environ.get("WORLD_SIZE") or 1) == 1
    in_main_thread = threading.current_thread() is threading.main_thread()
    free = [
        signal_number
        for signal_number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(signal_number) is signal.SIG_DFL
    ]
    changed = free if is_alone and in_main_thread else []
    for signal_number in changed:
        signal.signal(signal_number, signal.default_int_handler)
    try:
        yield
    finally:
        for signal_number in changed:
            signal.signal(signal_number, signal.SIG_DFL)


def _fail(message: str, code: int = 2) -> int:
    echo(f"detaug: {message}", err=True)
    return code
