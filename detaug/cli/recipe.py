"""The command that translates pipelines of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli import options


def _read_settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    pairs = [each.partition("=") for each in given]
    wrong = [name + sign + text for name, sign, text in pairs if not (name and sign)]
    if wrong:
        raise click.BadParameter(f"must be NAME=VALUE, such as train=True, got {wrong[0]!r}")
    return {name: yaml.safe_load(text) for name, _, text in pairs}


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=options.FILE, required=True, help="The recipe to write: .yaml or .json.")
@click.option("--name", help="Which pipeline, if FILE has several: its variable, function or key.")
@options.size_option("The size of images, if the pipeline sets none: 640x640 or 800.", shorter_side=True)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_read_settings,
    help="A value that FILE alone does not give, such as train=True or cfg.size=640.",
)
@options.quiet
def import_recipe(file: Path, output: Path, quiet: bool, **more: Any) -> int:
    """Translate pipelines of other libraries.

    FILE has a pipeline of Albumentations or torchvision v2: what A.save wrote, .json or .yaml, or a Python file, which
    is read and never executed. Each op is listed: it
    means the same, differs, or is left out, with the reason and the nearest op. The recipe begins with the same lines.
    The exit code is 0 if all ops mean the same, 3 if some differ, 1 if some are left out, 2 if FILE cannot be used.

    \b
    detaug import-recipe augment.py -o recipe.yaml
    """
    from detaug.converters.conversion.arguments import output_files
    from detaug.importing.import_recipe import import_recipe

    output_files({"output": output}, file, extensions=(".yaml", ".yml", ".json"))
    imported = import_recipe(file, **more)
    imported.save(output)
    options.print_unless(quiet, f'{imported}\nwritten: {output}\nload it: da.load_recipe("{output}")')
    return 1 if imported.left_out else 3 if imported.differing else 0
