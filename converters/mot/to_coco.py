"""Convert MOTChallenge's ground truth to COCO JSON with videos and tracks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from detaug.coco.writer import whole, whole_numbers
from detaug.converters.mot.ground_truth import NO_FRAME, TruthLine, read_labels, read_truth
from detaug.converters.mot.sequences import (
    INFO,
    LABELS,
    SequenceInfo,
    file_of,
    find_frames,
    find_sequences,
    find_video,
    missing_numbers,
    read_info,
    truth_of,
)
from detaug.converters.records.images import Images
from detaug.converters.records.record import AnnotationFiles, Contents, Object, Record
from detaug.converters.records.to_coco import Options, records_to_coco
from detaug.errors import ConversionError
from detaug.files.paths import PathLike
from detaug.files.video_file import index_or_reason
from detaug.findings.finding import Finding, counted, has_error
from detaug.machine.parallel import Progress
from detaug.named_options import option
from detaug.outputs.guards import OnError, check_choice
from detaug.outputs.part import check_part
from detaug.outputs.summary import Summary

Ignored = Literal["drop", "keep", "crowd"]
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
    images: PathLike | None = None,
    jobs: int = 1,
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert sequences in MOTChallenge's layout to one COCO JSON file with videos and tracks, for `da.ClipReader`.

    Frame numbers become frame_id from 0, ids track_id; visibility stays. Where names of frames are not numbers from 1,
    as CVAT's frame_000000.PNG, frames are numbered in the order of their names. A box with the id -1 is of no track: it
    gets a track_id of its own, or none if no box has a track. Boxes are cut at the frame's edges, and a cut is
    reported.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Sources: https://motchallenge.net/instructions/ and arXiv:1603.00831.

    Args:
        root: A folder of sequences, such as MOT17/train, or one sequence. A sequence has the frames img1/000001.jpg and
            so on, or in the folder that imDir of its seqinfo.ini names, and gt/gt.txt; without that, its frames have no
            boxes. Without images it has a video file, in its folder, beside its gt.txt, or ROOT/SEQUENCE.mp4: the JSON
            file is for `da.VideoReader` then, and PyAV is needed, `pip install 'detaug[video]'`.
        output: The COCO JSON file to write.
        sequences: Names, with wildcards, such as "*-FRCNN", since MOT17 has each one three times; all by default.
        classes: The names of the classes to keep, in the order of their ids; objects of others are dropped. By default
            all that occur. Names are those of gt/labels.txt, one a line, or else the 13 of MOT16.
        ignored: What becomes of entries whose seventh number is 0, which an evaluation ignores: "drop", "keep", or
            "crowd", iscrowd 1. In MOT16 and later these are all but moving pedestrians.
        origin: Whether left and top count from "one", as MOTChallenge's, or "zero".
        on_error: "stop" at lines and frames that cannot be used, after reading all, or "skip" these frames, with all of
            their boxes.
        images: The folder that has the sequences' frames, if it is not the root: IMAGES/SEQUENCE/img1.
        jobs: Processes to read with.
        part: (number, of), such as (1, 3), for only the first third of the sequences; merge_coco joins the JSON files
            of all parts to the same bytes as one run writes.
        report: A JSON file for every finding.
        progress: Called with (frames done, in all).

    >>> from detaug.converters import mot_to_coco
    >>> print(mot_to_coco("demo/MOT", "clips.json"))
    60 images (0 without boxes), 228 boxes in 1 class
      car        228
    written: clips.json
    load it: da.ClipReader("demo/MOT", "clips.json")
    """
    check_choice("ignored", ignored, Ignored)
    check_choice("origin", origin, Origin)
    options = Options(classes, on_error, report, progress, check_part(part), jobs)
    root = Path(root)
    folder = root if images is None else Path(images)
    contents = _contents(root, folder, sequences, ignored, origin)
    return records_to_coco(contents, folder, output, [root], options, contents.title)


def read_mot(source: AnnotationFiles) -> Contents:
    """Read all sequences below a folder, or the one of a gt.txt, with the options of `mot_to_coco` as they are."""
    is_sequence = source.path != source.folder and source.folder.name == "gt"  # SEQUENCE/gt/gt.txt
    root = source.folder.parent if is_sequence else source.folder
    return _contents(root, source.other_images or root, (), "drop", "one")


def _contents(root: Path, folder: Path, sequences: Sequence[str], ignored: Ignored, origin: Origin) -> Contents:
    """Return the sequences. folder: of their images."""
    if not folder.is_dir():
        raise ConversionError(f"images {folder} is not a folder; give the one that holds the frames of the sequences")
    chosen = [_Sequence.find(root, folder, name) for name in find_sequences(root, sequences)]
    _refuse_mixed(chosen)
    names = sorted(name for sequence in chosen for name in sequence.frames.values())
    return Contents(
        chain.from_iterable(sequence.records(ignored, FIRST_PIXEL[origin]) for sequence in chosen),
        total=sum(len(sequence.frames) for sequence in chosen),
        class_names=dict.fromkeys(chain.from_iterable(sequence.class_names for sequence in chosen)),
        findings=(finding for sequence in chosen for finding in sequence.findings),
        files=1,  # the name of a frame tells its sequence
        finder=Images(folder, names),
        images=names,
        keeps_folder=True,
        keeps_unused=False,
        title="MOTChallenge's ground truth",
        video_names=lambda: sorted(sequence.video for sequence in chosen),
        videos={sequence.video: sequence.row for sequence in chosen},
    )


def _refuse_mixed(sequences: Sequence[_Sequence]) -> None:
    """Raise ConversionError for video files beside folders of frames: no reader takes both from one JSON file."""
    videos = [sequence.video for sequence in sequences if sequence.video_size]
    folders = [sequence.video for sequence in sequences if sequence.frames and not sequence.video_size]
    if videos and folders:
        raise ConversionError(
            f"{videos[0]} is a video file and {folders[0]} has images; convert them one by one with "
            f"{option('sequences')}"
        )


@dataclass
class _Sequence:
    """A sequence: its frames, and the content of the files beside them."""

    root: Path
    folder: Path
    """Of the images."""
    name: str
    """"." for the root itself."""
    info: SequenceInfo
    frames: dict[int, str]
    """The images by the number of their frame, from 1; none if the sequence cannot be used."""
    class_names: tuple[str, ...]
    """Of all its numbers of classes, whether they occur or not."""
    findings: list[Finding] = field(default_factory=list)
    file: str = ""
    """The video file below the folder of the images; "" where the frames are images."""
    video_size: tuple[int, int] | None = None
    """(width, height) of its frames."""

    @classmethod
    def find(cls, root: Path, folder: Path, name: str) -> _Sequence:
        """Find the frames of a sequence. Raises ConversionError for a labels.txt that cannot be used."""
        findings = list[Finding]()
        info = read_info(root, name, findings)
        place = file_of(folder, name, info.image_folder)
        frames = find_frames(folder, place, findings)
        class_names = read_labels(root / _labels_of(root, name))
        sequence = cls(root, folder, name, info, frames, class_names, findings)
        if not frames and not has_error(findings):
            sequence.file = find_video(folder, name, sequence.video, place, findings) or ""
            sequence._open_video() if sequence.file else findings.append(Finding(place, "frames-missing"))
        if has_error(findings):
            sequence.frames = {}
        return sequence

    def _open_video(self) -> None:
        """Find the frames of the video file; one that cannot be used is a finding. Raises InputError without PyAV."""
        index = index_or_reason(str(self.folder / self.file))
        if isinstance(index, str):
            self.findings.append(Finding(self.file, "frames-missing", note=index))
            return
        self.video_size = index.size[1], index.size[0]
        self.frames = {number + 1: f"{self.file}/{number:06}.jpg" for number in range(len(index.stamps))}

    @property
    def place(self) -> str:
        """Return where the frames are, below the folder of the images."""
        return self.file or file_of(self.folder, self.name, self.info.image_folder)

    @property
    def video(self) -> str:
        """Return the name of its video."""
        return self.root.resolve().name if self.name == "." else self.name

    @property
    def row(self) -> dict[str, Any]:
        """Return the further keys of its video's row."""
        file = {"file_name": self.file} if self.file else {}
        return file | ({"fps": whole(self.info.frame_rate)} if self.info.frame_rate else {})

    def records(self, ignored: Ignored, first_pixel: int) -> Iterator[Record]:
        """Yield the frames with their boxes. What may be most of the lines is counted, not listed."""
        file, labels = truth_of(self.root, self.name), self.root / _labels_of(self.root, self.name)
        lines = defaultdict[int, list[TruthLine]](list)
        faults = defaultdict[int, list[Finding]](list)
        try:
            for entry in read_truth(self.root / file, self.class_names, has_labels=labels.is_file()):
                if isinstance(entry, TruthLine):
                    lines[entry.frame].append(entry)
                else:
                    faults[entry.frame].append(Finding(file, entry.kind, None, entry.line, entry.text, note=entry.note))
        except FileNotFoundError:
            self.findings.append(Finding(file, "ground-truth-missing"))
        except (OSError, UnicodeDecodeError) as error:
            faults[NO_FRAME].append(Finding(file, "label-unreadable", note=f"cannot be read: {error}"))
        self.findings += [fault for frame in faults if frame not in self.frames for fault in faults[frame]]
        if NO_FRAME in faults or not self.frames:  # whose boxes are missing is not known, or all are
            return
        if missing := [*missing_numbers(self.frames, self.info.frames)]:
            note = f"{counted(len(missing), 'frame')} have no image, the first is frame {missing[0]}"
            info = file_of(self.root, self.name, INFO)
            self.findings.append(Finding(info, "frame-gap", before=len(missing), note=note, count=len(missing)))
        for number in sorted(lines.keys() - self.frames.keys()):
            note = f"frame {number} has boxes, and no image in {self.place}"
            line = lines[number][0].line
            self.findings.append(Finding(file, "frame-missing", None, line, len(lines[number]), note=note))
        counts, first_edge, below_one = {"entry-ignored": 0, "track-none": 0}, math.inf, list[TruthLine]()
        size = self.info.size
        for number, image in self.frames.items():
            record = Record(file, image=image, video=self.video, frame=number - 1, findings=faults[number], size=size)
            record.video_size = self.video_size
            size = None  # compared once: all frames of a sequence have one size
            seen = set[int | None]()
            for entry in lines.pop(number, ()):
                if entry.has_world:
                    record.unread["world coordinates"] += 1
                if entry.is_ignored and ignored == "drop":
                    counts["entry-ignored"] += 1
                elif entry.track in seen and entry.track is not None:
                    record.findings.append(Finding(file, "track-repeated", None, entry.line, entry.track))
                else:
                    seen.add(entry.track)
                    counts["track-none"] += entry.track is None
                    first_edge = min(first_edge, *entry.edges[:2])
                    below_one += [entry] if min(entry.edges[:2]) < 1 else []
                    left, top, right, bottom = (edge - first_pixel for edge in entry.edges)
                    item = Object(entry.class_name, (left, top, right, bottom), track=entry.track, line=entry.line)
                    item.is_crowd = entry.is_ignored and ignored == "crowd"
                    item.columns = {} if entry.visibility is None else {"visibility": whole(entry.visibility)}
                    record.objects.append(item)
            yield record
        if count := counts["entry-ignored"]:
            note = f"{counted(count, 'entry', 'entries')} with the flag 0 left out"
            self.findings.append(Finding(file, "entry-ignored", before=count, note=note, count=count))
        if count := counts["track-none"]:
            self.findings.append(Finding(file, "track-none", before=-1, count=count))
        if first_pixel == 1 and below_one and first_edge >= 0:  # a box that reaches past its image tells nothing
            first, count = below_one[0], len(below_one)
            note = f"{counted(count, 'box', 'boxes')} with a left or top under 1, though pixels count from 1"
            edges = whole_numbers(first.edges)
            self.findings.append(Finding(file, "coordinate-zero", None, first.line, edges, None, note, count))
        elif first_pixel == 1 and labels.is_file() and first_edge < math.inf:
            self.findings.append(Finding(file, "origin-unclear"))


def _labels_of(root: Path, name: str) -> str:
    """Return the labels.txt beside a sequence's gt.txt, relative to the root."""
    return file_of(root, Path(truth_of(root, name)).parent.as_posix(), LABELS)
