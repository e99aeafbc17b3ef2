"""The commands that convert, merge and split annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_0, FOLDER, PATH, print_converted, print_unless


def _read_ratios(_: click.Context, __: click.Parameter, text: str) -> list[float]:
    try:
        return [float(ratio) for ratio in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"must be numbers, such as 80,20, got {text!r}") from None


@click.command()
@click.argument("root", type=FOLDER)
@options.output_json
@click.option("--split", metavar="NAME", help="Only the images of ROOT/ImageSets/Main/NAME.txt, in its order.")
@options.classes("; others are dropped.  [default: all]")
@options.origin
@click.option(
    "--difficult",
    type=click.Choice(["keep", "crowd", "drop"]),
    default="keep",
    show_default=True,
    help="Objects marked difficult: keep the mark, write iscrowd 1 as well, or leave them out.",
)
@click.option(
    "--unlabeled",
    type=click.Choice(["keep", "skip"]),
    default="keep",
    show_default=True,
    help="Images without XML: keep them as images without boxes, or leave them out.",
)
@options.on_error
@click.option("--images", type=FOLDER, help="The folder of the images.  [default: ROOT/JPEGImages, else ROOT]")
@click.option("--annotations", type=FOLDER, help="The folder of the XML.  [default: ROOT/Annotations, else ROOT]")
@click.option("--masks", is_flag=True, help="Read ROOT/SegmentationObject/NAME.png, the masks of objects.")
@options.jobs
@options.part("Only the I-th of N parts of the images; detaug merge joins the JSON files")
@options.report
@options.quiet
def convert_voc(**arguments: Any) -> None:
    """Convert Pascal VOC to COCO JSON.

    ROOT holds Annotations, JPEGImages and ImageSets, or images beside their XML, subfolders included. A <robndbox> of
    roLabelImg or DIOR-R becomes a rotated box.

    \b
    detaug convert-voc VOC2012 -o train.json --split train
    """
    from detaug.converters import voc_to_coco

    print_converted(voc_to_coco, "reading", **arguments)


@click.command()
@options.writes_format(
    click.option("--split", metavar="NAME", help="The split to write: ImageSets/Main/NAME.txt.  [default: FILE]"),
    options.origin,
    click.option("--rotated", is_flag=True, help="Write rotated boxes as roLabelImg's <robndbox>."),
)
def convert_coco_to_voc(**arguments: Any) -> None:
    """Convert COCO JSON to Pascal VOC.

    Writes Annotations, ImageSets/Main/NAME.txt and classes.txt into OUT_FOLDER. It may hold other splits already, but
    no file is replaced by other content. convert-voc with that split and those classes gives the same boxes and names
    again.

    \b
    detaug convert-coco-to-voc train.json VOC --images photos --with-images link
    """
    from detaug.converters import coco_to_voc

    print_converted(coco_to_voc, "writing", **arguments)


@click.command()
@click.argument("data", metavar="ROOT|data.yaml", type=PATH)
@options.output_json
@click.option("--split", metavar="NAME", default="train", show_default=True, help="train, val or test of data.yaml.")
@click.option(
    "--task",
    type=click.Choice(options.YOLO_TASKS),
    help="What rows are; obb: four corners.  [default: task of data.yaml, else what the rows show]",
)
@options.classes("; others are dropped.  [default: those of data.yaml]")
@options.on_error
@click.option(
    "--images", type=FOLDER, help="The folder that the folders of the splits' images are in.  [default: ROOT]"
)
@options.jobs
@options.part("Only the I-th of N parts of the images; detaug merge joins the JSON files")
@options.report
@options.quiet
def convert_yolo(**arguments: Any) -> None:
    """Convert YOLO labels to COCO JSON.

    ROOT holds a data.yaml in Ultralytics' layout: path, train, val, test and names; or obj.data, obj.names or
    classes.txt. Rows of labels are "class cx cy w h", with keypoints if data.yaml has kpt_shape, or a class and the
    points of a polygon, or with --task obb the four corners of a rotated box.

    \b
    detaug convert-yolo coco8/data.yaml -o val.json --split val
    """
    from detaug.converters import yolo_to_coco

    print_converted(yolo_to_coco, "reading", **arguments)


@click.command()
@click.argument("root", type=FOLDER)
@options.output_json
@click.option(
    "--sequences",
    metavar="NAME",
    multiple=True,
    help="Only these, with wildcards, such as '*-FRCNN'; again for more.  [default: all]",
)
@options.classes("; others are dropped.  [default: all that occur]")
@click.option(
    "--ignored",
    type=click.Choice(["drop", "keep", "crowd"]),
    default="drop",
    show_default=True,
    help="Entries that an evaluation ignores: leave them out, keep them, or write iscrowd 1.",
)
@click.option(
    "--origin",
    type=click.Choice(["one", "zero"]),
    default="one",
    show_default=True,
    help="Left and top count from 1 (MOTChallenge), or from 0.",
)
@options.on_error
@click.option("--images", type=FOLDER, help="The folder of the frames: FOLDER/SEQUENCE/img1.  [default: ROOT]")
@options.jobs
@options.part("Only the I-th of N parts of the sequences; detaug merge joins the JSON files")
@options.report
@options.quiet
def convert_mot(**arguments: Any) -> None:
    """Convert MOTChallenge videos to COCO JSON.

    ROOT is a folder of sequences, or one: img1 with the frames, or a video file such as NAME.mp4, gt/gt.txt with the
    boxes, and seqinfo.ini.

    \b
    detaug convert-mot MOT17/train -o train.json --sequences '*-FRCNN'
    """
    from detaug.converters import mot_to_coco

    print_converted(mot_to_coco, "reading", **arguments)


@click.command()
@click.argument("labels", type=FOLDER)
@click.argument("images", type=FOLDER)
@options.output_json
@options.classes("; others are dropped.  [default: all]")
@options.on_error
@options.jobs
@options.part("Only the I-th of N parts of the images; detaug merge joins the JSON files")
@options.report
@options.quiet
def convert_dota(**arguments: Any) -> None:
    """Convert DOTA (rotated boxes) to COCO JSON.

    LABELS is the folder of the label files, labelTxt, IMAGES that of the images. The four corners of each object stay
    as they are.

    \b
    detaug convert-dota DOTA/train/labelTxt DOTA/train/images -o train.json
    """
    from detaug.converters import dota_to_coco

    print_converted(dota_to_coco, "reading", **arguments)


@click.command()
@options.writes_format()
def convert_coco_to_dota(**arguments: Any) -> None:
    """Convert COCO JSON to DOTA.

    Writes labelTxt into OUT_FOLDER: the four corners of each object, its class, and whether it is difficult. No file is
    replaced by other content.

    \b
    detaug convert-coco-to-dota train.json DOTA --images photos --with-images link
    """
    from detaug.converters import coco_to_dota

    print_converted(coco_to_dota, "writing", **arguments)


@click.command()
@options.writes_format(
    click.option(
        "--task",
        type=click.Choice(options.YOLO_TASKS),
        default="detect",
        show_default=True,
        help="What to write: boxes, polygons, boxes with keypoints, rotated boxes.",
    ),
    options.flip_pairs,
    click.option(
        "--split",
        type=click.Choice(["train", "val", "test"]),
        default="train",
        show_default=True,
        help="The split of data.yaml to write.",
    ),
)
def convert_coco_to_yolo(**arguments: Any) -> None:
    """Convert COCO JSON to YOLO labels.

    Writes labels/SPLIT and data.yaml into OUT_FOLDER, in Ultralytics' layout. The split is added to a data.yaml that
    this command wrote before; no other file is replaced by other content.

    \b
    detaug convert-coco-to-yolo train.json yolo --images photos --with-images link
    """
    from detaug.converters import coco_to_yolo

    print_converted(coco_to_yolo, "writing", **arguments)


@click.command()
@options.writes_format()
def convert_coco_to_labelme(**arguments: Any) -> None:
    """Convert COCO JSON to LabelMe, to correct it.

    Writes NAME.json for each image and labels.txt into OUT_FOLDER: boxes, polygons, masks, rotated boxes, keypoints as
    points of a group, and further keys. No file is replaced by other content.

    \b
    detaug convert-coco-to-labelme train.json labelme --images photos \\
        --with-images link
    """
    from detaug.converters import coco_to_labelme

    print_converted(coco_to_labelme, "writing", **arguments)


@click.command()
@options.writes_format()
def convert_coco_to_cvat(**arguments: Any) -> None:
    """Convert COCO JSON to CVAT, to correct it.

    Writes annotations.xml into OUT_FOLDER: boxes, polygons, masks, rotated boxes, skeletons, attributes. Upload it to a
    task of the same images. No file is replaced by other content.

    \b
    detaug convert-coco-to-cvat train.json cvat
    """
    from detaug.converters import coco_to_cvat

    print_converted(coco_to_cvat, "writing", **arguments)


@click.command()
@options.writes_format(
    click.option(
        "--kind",
        type=click.Choice(["annotations", "predictions"]),
        default="annotations",
        show_default=True,
        help="Complete annotations, or predictions to begin with.",
    ),
    click.option(
        "--image-root",
        metavar="ADDRESS",
        default="/data/local-files/?d=",
        show_default=True,
        help="What is put in front of each file name, such as s3://bucket/photos/.",
    ),
)
def convert_coco_to_label_studio(**arguments: Any) -> None:
    """Convert COCO JSON to Label Studio's tasks.

    Writes tasks.json, label_config.xml and classes.txt into OUT_FOLDER: boxes, polygons, masks, rotated boxes,
    keypoints, further keys. Import tasks.json into a project whose labeling interface is label_config.xml. No file is
    replaced by other content.

    \b
    detaug convert-coco-to-label-studio train.json studio --kind predictions
    """
    from detaug.converters import coco_to_label_studio

    print_converted(coco_to_label_studio, "writing", **arguments)


@click.command()
@options.writes_format(
    click.option(
        "--style",
        type=click.Choice(["tensorflow", "retinanet"]),
        default="tensorflow",
        show_default=True,
        help="Columns with a head, as TensorFlow and Roboflow have them, or keras-retinanet's.",
    )
)
def convert_coco_to_csv(**arguments: Any) -> None:
    """Convert COCO JSON to a table of boxes (CSV).

    Writes annotations.csv and classes.csv into OUT_FOLDER. Images without objects have rows only in keras-retinanet's
    table, crowds and further keys only in the other. No file is replaced by other content.

    \b
    detaug convert-coco-to-csv train.json table --style retinanet
    """
    from detaug.converters import coco_to_csv

    print_converted(coco_to_csv, "writing", **arguments)


@click.command()
@click.argument("annotations", metavar="A.json B.json ...", type=options.FILE, nargs=-1, required=True)
@options.output_json
@click.option(
    "--images",
    type=FOLDER,
    multiple=True,
    help="The folder of a file's images, once for each file in their order.  [default: one folder for all]",
)
@click.option("--join", is_flag=True, help="Combine the boxes of an image that is in several files.")
@options.classes("; others are dropped. One JSON file is enough then.  [default: all]")
@options.on_error
@options.report
@options.quiet
def merge(annotations: tuple[Path, ...], output: Path, quiet: bool, **more: Any) -> None:
    """Merge COCO JSON files, or map classes.

    Ids are new, and classes are joined by name. With --images for each file, the merged file names are relative to the
    deepest folder that holds all of them; without, they stay as they are.

    \b
    detaug merge 2007.json 2012.json -o both.json \\
        --images VOC2007/JPEGImages --images VOC2012/JPEGImages
    """
    from detaug.converters import merge_coco

    print_unless(quiet, merge_coco(annotations, output, **more))


@click.command()
@options.json_argument
@click.option("-o", "--output", "outputs", type=options.FILE, multiple=True, help="A JSON file to write; give several.")
@click.option(
    "--ratios",
    metavar="A,B,...",
    callback=_read_ratios,
    required=True,
    help="The images for each, such as 80,20.",
)
@click.option("--seed", type=AT_LEAST_0, default=0, show_default=True, help="Another seed gives another split.")
@options.group_key
@options.group_name
@click.option("--images", type=FOLDER, help="The folder of the images: files with the same bytes stay together.")
@click.option(
    "--near",
    is_flag=True,
    help="With --images, files that are the same but for size, format, a small crop, a flip or brightness, too.",
)
@options.quiet
def split(annotations: Path, outputs: tuple[Path, ...], ratios: list[float], quiet: bool, **more: Any) -> None:
    """Split a dataset, such as into train and val.

    Each image goes to one of them, with its boxes and ids; all frames of a video go together, and so do the tiles of an
    image and the groups that you name. The split is stratified: every class is in all parts alike, as far as possible.

    \b
    detaug split all.json -o train.json -o val.json --ratios 80,20
    """
    from detaug.converters import split_coco

    print_unless(quiet, split_coco(annotations, outputs, ratios, **more))
