"""Convert a COCO JSON file into a folder of annotation files and images: the steps that all such formats share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from detaug.coco.classes_and_images import missing_images
from detaug.coco.rows import CocoRows, check_class_names, leave_out, read_coco_rows, stem_findings
from detaug.files.paths import PathLike
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.outputs.folder import (
    bring_images,
    check_folder,
    check_with_images,
    locked_folder,
    made_folder,
    refuse_left_labels,
    refuse_other_content,
    removed_after_error,
    write_texts,
)
from detaug.outputs.guards import (
    OUTPUT_ORDER,
    OnError,
    WithImages,
    check_choice,
    check_json_and_folder,
    output_files,
)
from detaug.outputs.summary import (
    Summary,
    refuse_no_object_left,
    refuse_nothing_left,
    reported,
    stop_on_errors,
)


@dataclass(frozen=True)
class FolderExport:
    """The checked arguments of one conversion, and its steps in their order: read, stop_on_errors, write, summary."""

    source: Path
    folder: Path
    images: Path | None
    with_images: WithImages
    on_error: OnError
    report: Path | None

    @property
    def brings_images(self) -> bool:
        """Return whether images are copied or linked."""
        return self.images is not None and self.with_images != "none"

    @property
    def left_images(self) -> Path | None:
        """Return the folder that the images are left in; None where they are brought, or it is not known."""
        return None if self.brings_images else self.images

    @property
    def images_again(self) -> str:
        """Return the folder to name in the command that reads the files again: IMAGES, to be replaced, if not known.

        "" where the images are brought.
        """
        return "" if self.brings_images else str(self.images or "IMAGES")

    def read(self, *, one_file: bool = False) -> tuple[CocoRows, list[Finding]]:
        """Read the JSON file. Returns the images and boxes that annotation files can be written for, and findings.

        one_file: the format has one file for all images, so two of them may differ only in their extension.
        """
        rows, findings = read_coco_rows(self.source)
        check_class_names(rows)
        names = {image: rows.file_name(image) for image in rows.images.tolist()}
        named = stem_findings(rows)
        if one_file:
            named = (
                (image, finding)
                for image, finding in named
                if finding.kind != "stem-repeated" or finding.before == finding.after
            )
        rows, faults = leave_out(rows, [*named, *missing_images(names, self.images)])
        return rows, [*findings, *faults]

    def stop_on_errors(self, rows: CocoRows, findings: Sequence[Finding]) -> None:
        """Raise ConversionError for errors that are not to be skipped, or if no image or no object is left."""
        stop_on_errors(findings, self.on_error, self.report)
        refuse_nothing_left(len(rows.images), self.source, findings, self.report)
        refuse_no_object_left(len(rows.boxes), self.source, findings, self.report)

    @contextmanager
    def writing(self, findings: Sequence[Finding]) -> Iterator[None]:
        """Make the folder and hold its lock during the block; write the report with it, both or none."""
        with reported(findings, self.report), made_folder(self.folder), locked_folder(self.folder):
            yield

    def write(
        self,
        rows: CocoRows,
        texts: Mapping[Path, str],
        image_folder: Path,
        progress: Progress | None = None,
        *,
        labels: Iterable[Path] = (),
    ) -> None:
        """Write the annotation files, and the images into `image_folder`. Raises ConversionError for existing files.

        labels: the label files of the folder, which may have no others than those to write.
        """
        refuse_left_labels(labels, texts)
        copies = {}
        if self.images is not None and self.brings_images:
            names = map(rows.file_name, rows.images.tolist())
            copies = {image_folder / name: self.images / name for name in names}
        refuse_other_content(texts, copies)
        with removed_after_error([*copies, *texts]):
            bring_images(copies, self.with_images)
            write_texts(texts, progress)

    def summary(self, rows: CocoRows, findings: Sequence[Finding], image_folder: Path, next_step: str) -> Summary:
        """Return the summary of what was written."""
        return Summary(
            output=self.folder,
            image_folder=image_folder,
            images=len(rows.images),
            images_without_boxes=rows.images_without_boxes(),
            class_counts=rows.class_counts(),
            crowds=rows.crowds(),
            findings=tuple(findings),
            report=self.report,
            next_step=next_step,
        )


def folder_export(
    annotations: PathLike,
    output: PathLike,
    images: PathLike | None,
    with_images: WithImages,
    on_error: OnError,
    report: PathLike | None,
) -> FolderExport:
    """Check the arguments of a conversion into a folder. Raises ConversionError and InputError."""
    check_json_and_folder(annotations, output, OUTPUT_ORDER)
    source, folder, image_folder = Path(annotations), Path(output), None if images is None else Path(images)
    check_choice("on_error", on_error, OnError)
    check_with_images(with_images, image_folder)
    paths = output_files({"report": report}, source, images)
    check_folder(folder)
    return FolderExport(source, folder, image_folder, with_images, on_error, paths.get("report"))
