"""Several COCO json files as one.

from detaug.converters import merge_coco
summary = merge_coco(["a.json", "b.json"], "both.json", images=["a/images", "b/images"])
"""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from detaug.converters.coco.rows import CocoRows, read_coco_rows
from detaug.converters.coco.writer import Row, write_coco
from detaug.converters.conversion.choices import OnError
from detaug.converters.conversion.outputs import output_files
from detaug.converters.conversion.summary import Summary, report_and_stop
from detaug.converters.files.paths import PathLike
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding


def merge_coco(
    annotations: Sequence[PathLike],
    output: PathLike,
    *,
    images: Sequence[PathLike] = (),
    join: bool = False,
    on_error: OnError = "stop",
    report: PathLike | None = None,
) -> Summary:
    """Merge several COCO json files into one.

    annotations: the json files. images: for each of them the folder that its file names are relative to; the
    merged file names are relative to the deepest folder that holds all of these, Summary.image_folder. Without
    it, all of them share one folder, and file names stay as they are.

    Images and annotations get the ids 1, 2, ... in the order of the files, the classes too, in the order of
    their ids in the first file that has them. Classes are joined by name, to the letter; names that differ
    only in case or Unicode form are reported. All other keys of a row stay, but licences are left out, since
    their ids would contradict each other.

    An image that is in two of the files is an error (a file name twice is one, for training); with join, its
    boxes are put together, all of them, if both files give it the same size. on_error: "stop" at entries that
    cannot be used, after looking at all of them, or "skip" these: then the first file that has an image keeps
    it. report: a json file for every finding (see findings.KINDS).

    Raises ConversionError, a ValueError, for input that cannot be merged, and ValueError for arguments.

    >>> from detaug.converters import merge_coco, voc_to_coco
    >>> for split in ("train", "val"):
    ...     _ = voc_to_coco("demo/VOC", f"{split}.json", split=split)
    >>> print(merge_coco(["train.json", "val.json"], "trainval.json"))
    60 images (4 without boxes), 217 boxes in 6 classes
      ball          52
      car           33
      fish          44
      house         24
      mug           32
      tree          32
    written: trainval.json
    load it: da.CocoReader(IMAGES, "trainval.json"), the images' folder first
    """
    sources = [Path(path) for path in annotations]
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error must be one of {', '.join(get_args(OnError))}, got {on_error!r}")
    paths = output_files({"output": output, "report": report}, *sources)
    folder, prefixes = _prefixes(sources, [Path(path) for path in images])
    merged = _Merged(join)
    for source, prefix in zip(sources, prefixes, strict=True):
        rows, findings = read_coco_rows(source)
        merged.findings += findings
        _refuse_other_folder(rows, folder / prefix if images else None)
        merged.add(rows, prefix)
    merged.findings += _alike(merged.categories)
    report_and_stop(merged.findings, on_error, paths.get("report"))
    if not merged.images:
        raise ConversionError("no image is left to write; nothing was written", merged.findings)
    return _write(merged, paths, folder, len(sources))


def _prefixes(sources: Sequence[Path], folders: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder of the merged file names, and what comes before the file names of each source."""
    if len(sources) < 2 or len({os.path.realpath(source) for source in sources}) < len(sources):
        raise ValueError(f"annotations must be two json files or more, all different, got {[*map(str, sources)]}")
    if not folders:
        return Path("."), [""] * len(sources)
    if len(folders) != len(sources):
        raise ValueError(f"images must be one folder for each of the {len(sources)} json files, got {len(folders)}")
    for folder in folders:
        if not folder.is_dir():
            raise ConversionError(f"images {folder} is not a folder; give the folder that file_name is relative to")
    top = os.path.commonpath([folder.absolute() for folder in folders])
    return Path(top), [Path(os.path.relpath(folder, top)).as_posix() for folder in folders]


def _refuse_other_folder(rows: CocoRows, folder: Path | None) -> None:
    names = map(rows.file_name, rows.images.tolist())
    if folder and len(rows.images) and not any((folder / name).is_file() for name in names):
        first = rows.file_name(int(rows.images[0]))
        raise ConversionError(f"{folder} has no image of {rows.table.path}, the first is {first}; give its folder")


@dataclass
class _Merged:
    """The rows of the files so far, with their new ids."""

    join: bool
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By file name."""
    annotations: list[dict[str, Any]] = field(default_factory=list)
    categories: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, rows: CocoRows, prefix: str) -> None:
        """Add one file's rows."""
        category_ids = {number: self._category_id(rows, number) for number in rows.table.categories}
        lost = licences = 0
        for at, boxes in rows:
            name = posixpath.normpath(posixpath.join(prefix, rows.file_name(at)))
            image_id = self._image_id(rows, at, name)
            licences += "license" in rows.table.row("images", at)
            if image_id is None:
                lost += len(boxes)
                continue
            for box_at in boxes:
                category_id = category_ids[int(rows.table.category_ids[box_at])]
                ids = {"id": len(self.annotations) + 1, "image_id": image_id, "category_id": category_id}
                self.annotations.append(rows.table.row("annotations", box_at) | ids)
        if lost:
            self.findings.append(Finding(str(rows.table.path), "boxes-without-image", before=lost))
        if licences:
            note = f"the licences of {licences:,} images were left out"
            self.findings.append(
                Finding(str(rows.table.path), "key-dropped", before=["images.license", licences], note=note)
            )

    def _category_id(self, rows: CocoRows, number: int) -> int:
        name = rows.table.categories[number]
        if name not in self.categories:
            row = next(row for row in rows.table.coco.document["categories"] if row["id"] == number)
            self.categories[name] = row | {"id": len(self.categories) + 1, "name": name}
        return int(self.categories[name]["id"])

    def _image_id(self, rows: CocoRows, at: int, name: str) -> int | None:
        """The image's new id; None, with a finding, where it stands in an earlier file and may not be joined."""
        height, width = rows.table.sizes[at].tolist()
        row = rows.table.row("images", at) | {"file_name": name, "width": width, "height": height}
        row.pop("license", None)
        earlier = self.images.setdefault(name, row)
        if earlier is row:
            row["id"] = len(self.images)
            return len(self.images)
        fault = self._why_not_joined(earlier, row)
        note = f"is in {rows.table.path} and in an earlier file{fault}"
        self.findings.append(Finding(name, "image-in-two-files" if fault else "image-joined", note=note))
        return None if fault else int(earlier["id"])

    def _why_not_joined(self, earlier: dict[str, Any], row: dict[str, Any]) -> str:
        sizes = [f"{each['width']} x {each['height']}" for each in (row, earlier)]
        if sizes[0] != sizes[1]:
            return f", with {sizes[0]} pixels here and {sizes[1]} there"
        if self.join:
            return ""
        said = any(finding.kind == "image-in-two-files" for finding in self.findings[-1:])
        remedy = "--join puts its boxes together; if these are different images, give --images for each file"
        return ", too" if said else f"; {remedy}"


def _alike(names: dict[str, Any]) -> Iterator[Finding]:
    alike: dict[str, str] = {}
    for name in names:
        other = alike.setdefault(" ".join(unicodedata.normalize("NFKC", name).casefold().split()), name)
        if other != name:
            yield Finding("", "class-alike", before=name, after=other)


def _write(merged: _Merged, paths: dict[str, Path], folder: Path, files: int) -> Summary:
    images = list[Row](merged.images.values())
    info = {"description": f"{files} COCO json files, merged by detaug"}
    write_coco(paths["output"], images, merged.annotations, merged.categories.values(), info)
    counts = Counter(row["category_id"] for row in merged.annotations)
    return Summary(
        paths["output"],
        folder,
        len(images),
        len(images) - len({row["image_id"] for row in merged.annotations}),
        {name: counts[row["id"]] for name, row in merged.categories.items()},
        tuple(merged.findings),
        paths.get("report"),
        ""
        if folder != Path(".")
        else f'load it: da.CocoReader(IMAGES, "{paths["output"]}"), the images\' folder first',
    )
