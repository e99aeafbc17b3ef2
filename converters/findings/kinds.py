"""Every kind of finding: what it does to the result, and its meaning in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class CheckKind:
    """How bad a kind of finding is, and its meaning in one sentence."""

    severity: Severity
    meaning: str


# error: training stops there, or learns something else than the json says. `CocoReader` raises on those that
# can be seen without opening images, which are those up to "box-outside".
# warning: training runs; a person should look.
CHECK_KINDS: dict[str, CheckKind] = {
    "images-empty": CheckKind("error", "the json has no images"),
    "categories-empty": CheckKind("error", "the json has no categories, so every object would be background"),
    "row-not-object": CheckKind("error", "an entry is not a json object"),
    "image-id": CheckKind("error", "an image's id is not a whole number from 0 to 2^63 - 1"),
    "image-id-repeated": CheckKind("error", "several images have one id, so nobody knows whose its boxes are"),
    "file-name": CheckKind("error", "an image's file_name is not a name that a file can have"),
    "file-name-outside": CheckKind("error", "a file_name is absolute or leads up with '..'"),
    "file-name-repeated": CheckKind("error", "several images are one file, each with a part of its boxes"),
    "image-size": CheckKind("error", "an image's width or height is missing or not a whole number of at least 1"),
    "image-format": CheckKind("error", "an image is in a format that DALI does not decode, or crashes on"),
    "category-id": CheckKind("error", "a category's id is not a whole number from 0 to 2^63 - 1"),
    "category-id-repeated": CheckKind("error", "several categories have one id"),
    "annotation-id": CheckKind("error", "an annotation's id is not a whole number from 0 to 2^63 - 1"),
    "annotation-id-repeated": CheckKind("error", "several annotations have one id; pycocotools keeps the last of them"),
    "image-id-unknown": CheckKind("error", "an annotation's image_id is not the id of an image"),
    "category-unknown": CheckKind("error", "an annotation's category_id is not the id of a category"),
    "crowd-invalid": CheckKind("error", "an annotation's iscrowd is neither 0 nor 1"),
    "box-invalid": CheckKind("error", "a bbox is not four finite numbers [x, y, width, height]"),
    "box-empty": CheckKind("error", "a box has no area: a side is shorter than 0.01 pixel"),
    "box-outside": CheckKind("error", "a box reaches more than 1 pixel past its image"),
    "image-missing": CheckKind("error", "an image is not in the image folder"),
    "image-unreadable": CheckKind("error", "an image's header cannot be read"),
    "size-wrong": CheckKind("error", "an image's width and height are not the file's, so its boxes are misplaced"),
    "size-unrotated": CheckKind("error", "an image's width and height are the file's before its EXIF rotation"),
    "image-broken": CheckKind("error", "an image does not decode whole"),
    "image-leaked": CheckKind("error", "an image is in the other json too, so its scores would mean nothing"),
    "categories-differ": CheckKind("error", "the other json has other categories, so labels mean other classes there"),
    "size-not-integer": CheckKind("warning", "an image's width or height is written like 640.0"),
    "annotation-id-zero": CheckKind("warning", "an annotation has the id 0, which pycocotools takes for 'no match'"),
    "category-name": CheckKind("warning", "a category's name is missing, empty or not text"),
    "category-alike": CheckKind("warning", "two categories' names differ at most in case, spaces or Unicode form"),
    "not-json": CheckKind("warning", "the json says NaN or Infinity, which other readers refuse"),
    "box-clipped": CheckKind("warning", "a box reaches past its image by up to 1 pixel and is cut in training"),
    "box-tiny": CheckKind("warning", "a box has a side shorter than 1 pixel after resizing"),
    "box-repeated": CheckKind("warning", "a box has the place and class of an earlier one in its image"),
    "box-nearly-repeated": CheckKind("warning", "a box overlaps an earlier one of its class with IoU 0.9 or more"),
    "box-two-classes": CheckKind("warning", "a box overlaps one of another class with IoU 0.9 or more"),
    "box-unusual": CheckKind("warning", "a box's area or shape is far from what is usual in its class"),
    "objects-none": CheckKind("warning", "no image has an object"),
    "class-empty": CheckKind("warning", "a class has no object to train on"),
    "class-imbalance": CheckKind("warning", "the largest class has over 100 times the objects of the smallest"),
    "orientation-unclear": CheckKind(
        "warning", "an image has an EXIF rotation that its size does not show: look whether its boxes have it too"
    ),
    "palette-small": CheckKind(
        "warning", "a PNG has a palette of fewer than 8 bits per pixel, which DALI decodes to wrong pixels on a GPU"
    ),
    "image-unreferenced": CheckKind(
        "warning", "a file in the image folder is not in the json; it may be of another split"
    ),
    "image-identical": CheckKind("warning", "an image has the same bytes as an earlier one"),
}


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
