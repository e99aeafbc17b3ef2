"""What a conversion repaired, dropped or could not use: one record, and every kind of it in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Effect = Literal["error", "dropped", "repaired", "noted"]


@dataclass(frozen=True)
class Kind:
    """What a kind of finding does to the result, and its meaning in one sentence."""

    effect: Effect
    meaning: str


# error: the file cannot be used.  dropped: something is not in the result.  repaired: a value was changed.
# noted: nothing was changed; a person may want to look.
KINDS: dict[str, Kind] = {
    "xml-unreadable": Kind("error", "the XML file cannot be opened or read"),
    "xml-broken": Kind("error", "the XML does not parse: broken, cut off, or not in the encoding it declares"),
    "xml-too-large": Kind("error", "the XML is larger than 8 MiB or nested deeper than 256 elements"),
    "xml-doctype": Kind("error", "the XML holds a DOCTYPE; these can define entities, so none is accepted"),
    "xml-not-voc": Kind("error", "the XML's root element is not <annotation>"),
    "child-repeated": Kind("error", "an element that may stand once stands twice, so its meaning is unknown"),
    "object-no-name": Kind("error", "an object has no <name>, or an empty one"),
    "object-no-box": Kind("error", "an object has no <bndbox>, or one without all four corners"),
    "coordinate-invalid": Kind("error", "a coordinate is not a finite number"),
    "image-missing": Kind("error", "no image has the XML's stem or its <filename>"),
    "image-shared": Kind("error", "the image found for an XML already belongs to another XML"),
    "image-unreadable": Kind("error", "the image's header cannot be read"),
    "image-format": Kind("error", "the image is in a format that DALI does not decode, or crashes on"),
    "file-name-not-utf8": Kind("error", "the image's file name is not valid UTF-8, which json cannot hold"),
    "split-entry-missing": Kind("error", "the split names something that has neither an XML nor an image"),
    "file-name-unusable": Kind("error", "a name holds control characters, which the output cannot hold"),
    "stem-repeated": Kind("error", "two images differ in their extension only, so one annotation file would be both's"),
    "entry-invalid": Kind("error", "an entry of the json cannot be used; detaug check tells more"),
    "label-unreadable": Kind("error", "the label file cannot be read, is larger than 8 MiB or is not UTF-8 text"),
    "row-invalid": Kind("error", "a row of labels is not: class, centre x, centre y, width, height; nor a polygon"),
    "row-not-relative": Kind("error", "a coordinate in a row of labels is not relative to the image, from 0 to 1"),
    "class-unknown": Kind("error", "a row's class is not a number of data.yaml's names"),
    "crowd-dropped": Kind("dropped", "a crowd (iscrowd 1) is no single object, and YOLO has no mark for it"),
    "label-unused": Kind("dropped", "a label file has no image"),
    "image-in-two-files": Kind("error", "an image is in two of the files that are merged"),
    "boxes-without-image": Kind("dropped", "boxes of an image that cannot be used were left out with it"),
    "key-dropped": Kind("dropped", "a key of the json has no place in the other format"),
    "split-entry-repeated": Kind("dropped", "the split names an image twice; the first entry counts"),
    "split-negative": Kind("dropped", "images that a class's split marks -1, not holding it, are left out"),
    "unlabelled-skipped": Kind("dropped", "an image has no XML and was left out (--unlabelled skip)"),
    "class-not-listed": Kind("dropped", "an object's class is not among --classes"),
    "difficult-dropped": Kind("dropped", "an object is marked difficult and was left out (--difficult drop)"),
    "box-outside": Kind("dropped", "a box lies outside its image"),
    "box-empty": Kind("dropped", "a box has no area: a side is shorter than 0.01 pixel"),
    "box-clipped": Kind("repaired", "a box reached past its image and was cut at the edge"),
    "box-reversed": Kind("repaired", "a box's corners were swapped (xmin over xmax or ymin over ymax)"),
    "name-spaces": Kind("repaired", "a class name had spaces or line breaks around or inside it"),
    "flag-invalid": Kind("repaired", "difficult, truncated or occluded is neither 0 nor 1; 0 was taken"),
    "difficult-crowd": Kind("repaired", "an object is marked difficult and became a crowd (--difficult crowd)"),
    "polygon-boxed": Kind("repaired", "a polygon became the smallest box that holds its corners"),
    "crowd-difficult": Kind("repaired", "a crowd (iscrowd 1) was marked difficult, VOC's nearest to it"),
    "unlabelled-kept": Kind("noted", "an image has no XML and was kept as an image without boxes"),
    "image-joined": Kind("noted", "an image is in two of the files that are merged; its boxes were put together"),
    "label-missing": Kind("noted", "an image has no label file and was kept as an image without boxes"),
    "coordinate-zero": Kind("noted", "coordinates of 0 occur, though pixels count from 1 (--origin one)"),
    "box-repeated": Kind("noted", "an object has the class and the box of an earlier one in its image"),
    "class-unused": Kind("noted", "a class that is listed has no object"),
    "class-alike": Kind("noted", "two class names differ only in case or Unicode form"),
    "size-missing": Kind("noted", "the XML gives no usable <size>; the image's own was taken"),
    "size-conflict": Kind("noted", "the XML's <size> is not the image's; the image's own was taken"),
    "size-unrotated": Kind(
        "noted", "the XML's <size> is the image's before its EXIF rotation: look whether the boxes are, too"
    ),
    "orientation-invalid": Kind("noted", "the image's EXIF orientation is not 1 to 8 and is ignored"),
    "filename-differs": Kind("noted", "<filename> names something else than the image found by the stem"),
    "filename-used": Kind("noted", "the image was found by <filename>, not by the XML's stem"),
    "image-elsewhere": Kind("noted", "the image was found by its stem in another folder than expected"),
    "image-ambiguous": Kind("noted", "several images have the XML's stem; one was taken, the others left out"),
    "image-extension": Kind("noted", "the image's content is not what its extension says"),
    "image-identical": Kind("noted", "the image has the same bytes as an earlier one"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found in one file.

    file: path relative to the data set's root.  kind: a key of KINDS.  object_index: position of the object
    among the XML's <object> elements, from 0.  line: in the file, from 1.  before: as found; for boxes
    [xmin, ymin, xmax, ymax] as in the XML.  after: as written; for boxes COCO's [x, y, width, height].

    >>> from detaug.converters import Finding
    >>> finding = Finding("Annotations/7.xml", "box-empty", object_index=2, line=31, before=[5, 5, 5, 9])
    >>> print(finding.effect, finding)
    dropped Annotations/7.xml:31: object 2: a box has no area: a side is shorter than 0.01 pixel [box-empty]
    """

    file: str
    kind: str
    object_index: int | None = None
    line: int | None = None
    before: object = None
    after: object = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be a key of KINDS, got {self.kind!r}")

    @property
    def effect(self) -> Effect:
        return KINDS[self.kind].effect

    def as_dict(self) -> dict[str, object]:
        """The fields as json holds them."""
        return asdict(self)

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        which = "" if self.object_index is None else f"object {self.object_index}: "
        start = f"{place}: " if place else ""  # some are about the data set as a whole
        return f"{start}{which}{self.note or KINDS[self.kind].meaning} [{self.kind}]"


class ConversionError(ValueError):
    """Input that cannot be converted. str() has one line per problem and the remedy; nothing was written.

    >>> from detaug.converters import ConversionError, voc_to_coco
    >>> try:
    ...     voc_to_coco("demo/VOC", "test.json", split="test")
    ... except ConversionError as error:
    ...     print(error)
    split 'test' is not in demo/VOC/ImageSets/Main; there are train, trainval, val
    """

    def __init__(self, message: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


def count_kinds(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings of each kind, in the order of KINDS."""
    counts = Counter(finding.kind for finding in findings)
    return {kind: counts[kind] for kind in KINDS if kind in counts}


def report_document(findings: Iterable[Finding]) -> dict[str, object]:
    """What --report writes: counts, the meaning of each kind that occurs, and every finding."""
    findings = list(findings)
    counts = count_kinds(findings)
    return {
        "counts": counts,
        "kinds": {kind: asdict(KINDS[kind]) for kind in counts},
        "findings": [finding.as_dict() for finding in findings],
    }


def counted(number: int, one: str, many: str = "") -> str:
    """1 box, 2,000 boxes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
