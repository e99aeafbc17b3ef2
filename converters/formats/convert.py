"""Convert annotations in any known format to COCO JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from detaug.converters.formats.recognise import Recognised, check_images, recognise
from detaug.converters.records.record import AnnotationFiles, Contents
from detaug.converters.records.to_coco import Options, records_to_coco
from detaug.errors import ConversionError, InputError
from detaug.files.formats import COCO_PANOPTIC, FORMS, names_segments
from detaug.files.paths import PathLike
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, output_files
from detaug.outputs.part import check_part
from detaug.outputs.summary import Summary


def convert_to_coco(
    path: PathLike | Recognised,
    output: PathLike,
    *,
    format: str | None = None,
    images: PathLike | None = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    on_error: OnError = "stop",
    jobs: int | None = None,
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert annotations in any known format into one COCO JSON file.

    Boxes are pixels, COCO's [x, y, width, height], of the image as displayed, EXIF orientation applied, rounded to 3
    decimals (not those of VOC) and cut at the image's edges; the image file decides the size. The same input gives the
    same bytes.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Args:
        path: A file or a folder; what it is, is detected.
        output: The COCO JSON file to write.
        format: The name of its format, as `detaug formats` lists them, where several are possible.
        images: The folder that has the images, at any depth; by default the path, or the folder of the file. Images are
            found by the paths and names that the annotations give, and by the names of label files; nothing outside the
            folder is opened.
        split: Of formats that have some.
        classes: The class names in the order of their category ids; objects of other classes are dropped and reported.
            Without it those that the format lists, then all others, sorted.
        on_error: "stop" at files, images and objects that cannot be used, after reading all of them, or "skip" these
            images.
        jobs: Processes to read with; by default 1, of large shards one for each core.
        part: (number, of), such as (1, 3), for only the first third of the folder's images, in the order of their
            names, or of its videos; merge_coco joins the JSON files of all parts to the same bytes as one run writes.
            Shards have no parts.
        report: A JSON file for every finding.
        progress: Called with (images done, images in all).

    >>> from detaug.converters import convert_to_coco
    >>> print(convert_to_coco("demo/VOC", "any.json").boxes)
    203
    """
    recognized = path if isinstance(path, Recognised) else recognise(path, format, images)
    arguments = {"split": split, "classes": classes, "images": images, "part": part, "jobs": jobs}
    more = {"on_error": on_error, "report": report, "progress": progress}
    if not recognized.format.reader:
        return _convert_with_own(recognized, output, arguments, more)
    if not recognized.format.has_splits:
        _refuse(recognized, arguments, ("split",))
    options = Options(classes, on_error, report, progress, check_part(part), 1 if jobs is None else jobs)
    folder = recognized.folder if images is None else Path(images)
    check_images(folder)
    output_files({"output": output, "report": report}, recognized.path, folder)  # before all is read
    module, _, function = recognized.format.reader.rpartition(".")
    read = getattr(import_module(f"detaug.converters.{module}"), function)
    source = AnnotationFiles(recognized.folder, recognized.files, folder, Path(output).parent, recognized.path)
    contents: Contents = read(source, **({"split": split} if recognized.format.has_splits else {}))
    if recognized.format.name == "semantic" and classes is not None:
        names = [*contents.class_names]
        if more_names := names[len(classes) :]:
            raise ConversionError(
                f"classes must name the {len(names)} classes of the maps, from 0 on, got {len(classes)}; add "
                f"{', '.join(more_names[:5])}{' ...' * (len(more_names) > 5)}"
            )
    unused = [Finding(file, "file-unused") for file in recognized.unused] if contents.files is None else []
    files = len(recognized.files) if contents.files is None else contents.files
    contents = contents._replace(findings=chain(unused, contents.findings), files=files)
    return records_to_coco(
        contents, folder, output, [recognized.path], options, recognized.format.title, is_whole=recognized.path.is_dir()
    )


def _convert_with_own(
    recognized: Recognised, output: PathLike, arguments: dict[str, Any], more: dict[str, Any]
) -> Summary:
    """Convert a format that has a converter of its own."""
    from detaug import converters

    if recognized.format.name == "coco":
        file = recognized.folder / recognized.files[0]
        if names_segments(file):  # too large to be parsed when it was recognized
            form = next(form for form in FORMS if form.name == COCO_PANOPTIC)
            raise ConversionError(f"{file} is {form.name}; {form.remedy} --from {form.format}")
        raise ConversionError(f"{file} is a COCO JSON file; it needs no conversion: detaug check {file} IMAGES")
    convert: Callable[..., Summary] = getattr(converters, f"{recognized.format.name}_to_coco")
    _refuse(recognized, arguments, ("split", "images"))
    if arguments["part"]:
        raise InputError(
            f"{recognized.format.title} is converted without part; give some of the shards, and join the JSON files"
        )
    shards = [recognized.folder / file for file in recognized.files]
    return convert(shards, output, classes=arguments["classes"], jobs=arguments["jobs"], **more)


def _refuse(recognized: Recognised, arguments: dict[str, Any], names: Sequence[str]) -> None:
    """Raise InputError for an option that the format does not have."""
    for name in names:
        if arguments[name] is not None:
            command = (
                recognized.format.command and f"; detaug {recognized.format.command} has the options of this format"
            )
            raise InputError(f"{recognized.format.title} is converted without {name}; leave it out{command}")
