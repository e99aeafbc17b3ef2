"""The command that translates pipelines of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli import options


def _read_settings(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    from detaug.files.text import parse_yaml

    pairs = [text.partition("=") for text in texts]
    wrong = [name + sign + value for name, sign, value in pairs if not (name and sign)]
    if wrong:
        raise click.BadParameter(f"must be NAME=VALUE, such as train=True, got {wrong[0]!r}")
    options.check_once([name for name, *_ in pairs], "NAME")
    try:
        return {name: parse_yaml(value) for name, _, value in pairs}
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: 2024-13-13 is not a date
        rule = "with VALUE in YAML; put it in quotes if it is a text, such as 'name=\"a: b\"'"
        raise click.BadParameter(f"must be NAME=VALUE {rule}, got {', '.join(texts)!r}") from None


@click.command()
@click.argument("file", metavar="FILE[:NAME]")
@click.option("-o", "--output", type=options.FILE, required=True, help="The recipe to write: .yaml or .json.")
@options.size_option("The size of images, if the pipeline sets none: 640x640 or 800.", shorter_side=True)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_read_settings,
    help="An argument of the function that NAME is, such as train=True.",
)
@options.quiet
@options.needs("torch", "nvidia.dali")
def import_recipe(file: str, output: Path, size: Any, settings: dict[str, Any], quiet: bool) -> int:
    """Run FILE.py and translate its pipeline.

    FILE.py:NAME is a Python file with a pipeline of Albumentations or torchvision. The file is run, as Python's import
    does. NAME is a variable in it, also config.TRANSFORMS.train, or a function that returns the pipeline; the only
    Compose in the file needs no name. FILE.json and
    FILE.yaml are what A.save wrote; they are read, and nothing is run. Each op is listed: it means the same, differs,
    or is left out, with the reason and the nearest op. The recipe begins with the same lines.
    The exit code is 0 if all ops mean the same, 3 if some differ, 1 if some are left out, 2 if FILE cannot be used.

    \b
    detaug import-recipe train.py:transform -o recipe.yaml
    """
    from detaug.errors import InputError
    from detaug.importing.import_recipe import import_recipe
    from detaug.importing.python_file import pipeline_name, run_file, split_name
    from detaug.outputs.guards import output_files

    extensions = (".yaml", ".yml", ".json")
    if parts := split_name(file):
        path, name = parts[0], pipeline_name(*parts)
        output_files({"output": output}, path, extensions=extensions)
        if not quiet:
            options.echo(f"running {path}", err=True)
        imported = import_recipe(run_file(path, name, settings), name=f"{path}:{name}", size=size)
    else:
        if settings:
            raise InputError(f"{file}: --set is for the arguments of a function in a Python file: leave it out")
        output_files({"output": output}, file, extensions=extensions)
        imported = import_recipe(file, size=size)
    imported.save(output)
    options.print_unless(quiet, f'{imported}\nwritten: {output}\nload it: da.load_recipe("{output}")')
    return 1 if imported.left_out else 3 if imported.differing else 0
