"""Convert MOTChallenge's ground truth to COCO json with videos and tracks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Literal

from detaug.coco.boxes import joined_numbers
from detaug.coco.classes_and_images import joined_splits, unused_classes
from detaug.coco.how_to_load import how_to_load
from detaug.coco.writer import Row, annotation_row, category_rows, whole, write_coco
from detaug.converters.mot.frames import Ignored, Rules, TrackedSequence, read_sequence
from detaug.converters.mot.sequences import find_sequences
from detaug.files.paths import PathLike
from detaug.machine.parallel import Progress, with_progress
from detaug.outputs.guards import OnError, check_choice, check_classes, output_files
from detaug.outputs.summary import (
    Summary,
    left_out_classes,
    refuse_no_object_left,
    refuse_nothing_left,
    refuse_other_classes,
    refuse_other_numbers,
    reported,
    stop_on_errors,
)

Origin = Literal["one", "zero"]

FIRST_PIXEL = {"one": 1, "zero": 0}


def mot_to_coco(
    root: PathLike,
    output: PathLike,
    sequences: Sequence[str] = (),
    *,
    classes: Sequence[str] | None = None,
    ignored: Ignored = "drop",
    origin: Origin = "one",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert sequences in MOTChallenge's layout to one COCO json file with videos and tracks, for `da.ClipReader`.

    root: a folder of sequences, such as MOT17/train, or one sequence. A sequence has the frames img1/000001.jpg and so
    on, or in the folder that imDir of its seqinfo.ini names, and gt/gt.txt; without that, its frames have no boxes.
    sequences: names, with wildcards, such as "*-FRCNN", since MOT17 has each one three times; all by default.
    classes: the names of the classes to keep, in the order of their ids; objects of others are dropped. By default all
    that occur. Names are those of gt/labels.txt, one a line, or else the 13 of MOT16.
    ignored: what becomes of entries whose seventh number is 0, which an evaluation ignores: "drop", "keep", or "crowd",
    iscrowd 1. In MOT16 and later these are all but moving pedestrians. origin: whether left and top count from "one",
    as MOTChallenge's, or "zero".

    Frame numbers become frame_id from 0, ids track_id; visibility stays. Where names of frames are no numbers from 1,
    as CVAT's frame_000000.PNG, frames are numbered in the order of their names. A box with the id -1 is of no track: it
    gets a track_id of its own, or none if no box has a track. Boxes are cut at the frame's edges, and a cut is
    reported. on_error: "stop" at lines and frames that cannot be used, after reading all, or "skip" these frames, with
    all of their boxes. report: a json file for every finding. progress: called with (sequences done, in all).
    Sources: https://motchallenge.net/instructions/ and arXiv:1603.00831.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    >>> from detaug.converters import mot_to_coco
    >>> print(mot_to_coco("demo/MOT", "clips.json"))
    60 images (0 without boxes), 228 boxes in 1 class
      car        228
    written: clips.json
    load it: da.ClipReader("demo/MOT", "clips.json")
    """
    check_choice("ignored", ignored, Ignored)
    check_choice("origin", origin, Origin)
    check_choice("on_error", on_error, OnError)
    root = Path(root)
    names = find_sequences(root, sequences)
    paths = output_files({"output": output, "report": report}, root)
    check_classes(classes)
    rules = Rules(classes, ignored, FIRST_PIXEL[origin])
    results = [read_sequence(root, name, rules) for name in with_progress(names, progress)]
    counts = Counter(box.class_name for result in results for frame in result.frames for box in frame.boxes)
    class_names = [*classes] if classes is not None else _class_names(results, counts)
    findings = [finding for result in results for finding in result.findings]
    findings += unused_classes((name for name in class_names if not counts[name]), left_out_classes(findings))
    findings += joined_splits((f"{name}/" for name in names), root)
    images = sum(len(result.frames) for result in results)
    stop_on_errors(findings, on_error, paths.get("report"))
    class_counts = {name: counts[name] for name in class_names}
    refuse_nothing_left(images, root, findings, paths.get("report"))
    refuse_other_classes(class_counts, root, findings, paths.get("report"))
    refuse_no_object_left(counts.total(), root, findings, paths.get("report"))
    refuse_other_numbers(
        joined_numbers(result.numbers for result in results).fault(), root, findings, paths.get("report")
    )
    info = {"description": "MOTChallenge's ground truth, converted by detaug"}
    lists = _image_rows(results), _annotation_rows(results, class_names), category_rows(class_names)
    with reported(findings, paths.get("report")):
        write_coco(paths["output"], *lists, info, _video_rows(results, root))
    return Summary(
        output=paths["output"],
        image_folder=root,
        images=images,
        images_without_boxes=sum(not frame.boxes for result in results for frame in result.frames),
        class_counts=class_counts,
        crowds=sum(box.is_crowd for result in results for frame in result.frames for box in frame.boxes),
        findings=tuple(findings),
        report=paths.get("report"),
        next_step=how_to_load(paths["output"], root, [{}]),  # frames of videos
    )


def _class_names(results: Sequence[TrackedSequence], counts: Counter[str]) -> list[str]:
    """Return the classes that occur, in the order of their numbers; the first one if none does."""
    names = list(dict.fromkeys(name for result in results for name in result.class_names))
    return [name for name in names if counts[name]] or names[:1]


def _video_rows(results: Sequence[TrackedSequence], root: Path) -> Iterator[Row]:
    for video_id, result in enumerate(_with_frames(results), 1):
        header, rate = result.frames[0].header, result.info.frame_rate
        name = root.resolve().name if result.name == "." else result.name
        row = {"id": video_id, "name": name, "width": header.width, "height": header.height}
        yield row | ({"fps": whole(rate)} if rate else {})


def _image_rows(results: Sequence[TrackedSequence]) -> Iterator[Row]:
    frames = ((video_id, frame) for video_id, result in enumerate(_with_frames(results), 1) for frame in result.frames)
    for image_id, (video_id, frame) in enumerate(frames, 1):
        row = {"id": image_id, "file_name": frame.name, "width": frame.header.width, "height": frame.header.height}
        yield row | {"video_id": video_id, "frame_id": frame.number - 1}


def _annotation_rows(results: Sequence[TrackedSequence], class_names: Sequence[str]) -> Iterator[Row]:
    ids = {name: number for number, name in enumerate(class_names, 1)}
    frames = [frame for result in results for frame in result.frames]
    tracks = [box.track for frame in frames for box in frame.boxes if box.track is not None]
    free = count(max(tracks, default=0) + 1)  # either all annotations of a json have a track_id, or none has
    boxes = ((image_id, box) for image_id, frame in enumerate(frames, 1) for box in frame.boxes)
    for annotation_id, (image_id, each) in enumerate(boxes, 1):
        row = annotation_row(annotation_id, image_id, ids[each.class_name], each.box, iscrowd=each.is_crowd)
        visibility = {} if each.visibility is None else {"visibility": whole(each.visibility)}
        track = {"track_id": next(free) if each.track is None else each.track} if tracks else {}
        yield row | track | visibility


def _with_frames(results: Sequence[TrackedSequence]) -> list[TrackedSequence]:
    return [result for result in results if result.frames]
