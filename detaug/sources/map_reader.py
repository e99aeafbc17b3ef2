"""`MapReader`: images with maps beside them, without a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from detaug.arguments import checks_names
from detaug.files.addresses import check_on_disk
from detaug.files.paths import PathLike
from detaug.maps.find import find_maps
from detaug.maps.kinds import ClassMap, Missing, Table
from detaug.sources.scanned_folder import ScannedFolder, scan_images


class MapReader(ScannedFolder):
    """Images of a folder with the class of each pixel, and without boxes: `Batch.maps["semantic"]`.

    Images whose header is broken, and those without a map, are `missing`: `Loader` refuses or skips them. Raises
    InputError for folders that are not as above.

    Args:
        images: A folder; its images may be in sub-folders, and are sorted by path. Names that begin with a dot are
            ignored.
        masks: The folder of the maps, with the same sub-folders.
        classes: Their names, of the numbers 0, 1, ..., or None.
        ignore, table, suffix, missing: As of `ClassMap`. So ADE20K is read with table="ade20k"; Cityscapes with
            suffix="_gtFine_labelTrainIds", or with suffix="_gtFine_labelIds" and table="cityscapes"; the folders of
            Ultralytics' and LightlyTrain's semantic segmentation as they are.
        cache: Store the sizes of the images, and decoded maps, in ~/.cache/detaug, which makes the next start faster.

    >>> reader = da.MapReader("demo/VOC/JPEGImages", "demo/VOC/SegmentationClass")
    >>> batch = next(iter(da.Loader(reader, [da.Resize((240, 320))], batch_size=4, train=False)))
    >>> print(batch.maps["semantic"].shape, batch.maps["semantic"][0].unique())
    torch.Size([4, 240, 320]) tensor([0, 1, 4, 6], dtype=torch.uint8)
    """

    @checks_names
    def __init__(
        self,
        images: PathLike,
        masks: PathLike,
        *,
        classes: Sequence[str] | None = None,
        ignore: int = 255,
        table: Table | None = None,
        suffix: str = "",
        missing: Missing = "error",
        cache: bool = True,
    ) -> None:
        check_on_disk(images)
        self.images, self.folder = Path(images), Path(images).absolute()
        files, sizes, faults = scan_images(self.images, cache=cache)
        super().__init__(sizes, list(classes or ()), origin=str(self.images))
        kind = ClassMap(masks, ignore, table, None if classes is None else tuple(classes), suffix, missing)
        self.maps = by_name = find_maps({"semantic": kind}, self.folder, files.names, self.sizes, cache=cache)
        for maps in by_name.values():
            faults = {index: maps.why_absent(index) for index in maps.refused} | faults
        self._take(files, faults, "replace the file, or remove it with its image or map")

    def __repr__(self) -> str:
        return f"MapReader({str(self.images)!r}, {str(self.maps['semantic'].kind.folder)!r})  # {len(self)} images"
