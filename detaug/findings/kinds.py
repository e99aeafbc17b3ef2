"""The kinds of findings: what each does to the result, and its meaning in one sentence.

A new kind is one row in a table here; docs/findings.md is made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["error", "warning", "dropped", "repaired", "noted"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Kind:
    """What is known of a kind of finding. The fields from `remedy` on are of `detaug check`."""

    effect: Effect
    """What it does to the result."""
    meaning: str
    """One sentence."""
    loses_objects: bool = False
    """Whether objects that it is about are not in the result. Errors about an object need not say so: --on-error skip
    leaves out their image."""
    remedy: str = ""
    """What a person does about it; "" where that depends on the severity alone, and on `clean`."""
    repair: tuple[str, str, str] | None = None
    """--clean repairs the entry: how its summary counts these, with {} for the number and the noun, and the nouns."""
    removes: tuple[str, ...] = ()
    """Keys that --clean leaves out of the entry, since readers that are asked for them refuse them."""
    clean: Literal["drops", "keeps", "cannot"] = "drops"
    """What --clean does for an error without `repair`: it leaves the entry out; keeps it, with another id or joined
    with the earlier image of its file; or writes nothing, since leaving entries out does not correct the file."""

    @property
    def is_kept(self) -> bool:
        """Whether --clean keeps the entry."""
        return self.repair is not None or self.clean == "keeps"


_PIXELS = "write pixels: multiply x and widths by the image's width, y and heights by its height."
_FOLDER = "check that IMAGES is the right folder, or convert again; --clean FILE.json writes a JSON file without it."
_CONVERT = "convert the dataset again, with all its files and classes."
_DELETE = "delete one of the two boxes where they are one object."
_RENAME = "if they are one class, give its objects one label in the labeling tool, and convert again; else leave it."


# Findings of conversions and merges.
# error: the file cannot be used. dropped: something is left out of the result. repaired: a value was changed.
# noted: nothing was changed; a person may want to look.
KINDS: dict[str, Kind] = {
    "xml-unreadable": Kind("error", "the XML file cannot be opened or read"),
    "xml-broken": Kind("error", "the XML does not parse: broken, cut off, or not in the encoding it declares"),
    "xml-too-large": Kind("error", "the XML is larger than 8 MiB or nested deeper than 256 elements"),
    "xml-doctype": Kind("error", "the XML has a DOCTYPE, which can define entities, so none is accepted"),
    "xml-not-voc": Kind("error", "the XML does not have <annotation> as its root and each <object> in it"),
    "child-repeated": Kind("error", "an element that may occur once occurs twice, so its meaning is unclear"),
    "object-no-name": Kind("error", "an object has no name of a class, or an empty one"),
    "object-no-box": Kind("error", "an object has no <bndbox>, or one without all four corners"),
    "object-invalid": Kind("error", "an object does not have the values that its format has"),
    "coordinate-invalid": Kind("error", "a coordinate is not a finite number"),
    "image-missing": Kind("error", "no image has the name that the annotations give, such as the XML's stem"),
    "image-unclear": Kind("error", "several images in different folders have the name that the annotations give"),
    "image-shared": Kind("error", "the image found for an XML or label file already belongs to another one"),
    "label-shared": Kind("error", "a label file belongs to two images, which differ only in their extension or folder"),
    "label-similar": Kind("error", "a label file without image and an image without labels have nearly the same name"),
    "image-unreadable": Kind("error", "the image's header cannot be read"),
    "image-format": Kind("error", "the image is in a format that DALI does not decode, or crashes on"),
    "file-name-not-utf8": Kind("error", "the image's file name is not valid UTF-8; rename the file"),
    "split-entry-missing": Kind("error", "the split names something that has neither an XML nor an image"),
    "file-name-unusable": Kind("error", "a name has control characters, which the output cannot contain"),
    "stem-repeated": Kind(
        "error", "two images differ only in their extension, so they would share one annotation file"
    ),
    "entry-invalid": Kind(
        "error", "an entry of the JSON file cannot be used; detaug check explains it", loses_objects=True
    ),
    "label-unreadable": Kind("error", "the label file cannot be read, is larger than 8 MiB or is not UTF-8 text"),
    "row-invalid": Kind("error", "a row of labels does not have the numbers that its format has"),
    "row-not-relative": Kind("error", "a coordinate in a row of labels is not relative to the image, from 0 to 1"),
    "class-unknown": Kind("error", "a row's class is not the number of a class"),
    "sequence-info": Kind("error", "a sequence's seqinfo.ini cannot be read, or its imDir leads outside"),
    "frames-missing": Kind("error", "a sequence has neither images with numbers as names nor a video file"),
    "frame-missing": Kind("error", "boxes are of a frame that has no image"),
    "frame-size": Kind("error", "a frame has another size than the first one of its sequence"),
    "track-repeated": Kind("error", "an object has two boxes in one frame"),
    "shard-unreadable": Kind("error", "the shard cannot be read, is compressed, or is in another format"),
    "shard-broken": Kind("error", "the shard is cut off or damaged; from there on it is left out"),
    "record-broken": Kind("error", "a record's checksum is wrong, or it is not a tf.train.Example"),
    "sample-no-image": Kind("error", "a record or sample has no image, or several"),
    "sample-invalid": Kind("error", "the labels of a record or sample are incomplete, contradictory or not JSON"),
    "member-repeated": Kind("error", "a tar has two members of one name, or a sample's members are not in a row"),
    "member-name": Kind("error", "a tar's member has a name that is absolute, leads outside with '..' or is not text"),
    "member-no-file": Kind("error", "a tar's member is a link, a sparse file or a device, not plain content"),
    "member-dots": Kind(
        "error", "images of a tar are in no sample, since a key ends at the first dot of a name's last part"
    ),
    "member-unused": Kind(
        "dropped", "members of a tar that are not read; a key ends at the first dot of a name's last part"
    ),
    "frame-unnumbered": Kind("dropped", "images of a sequence whose name is not a number were left out"),
    "crowd-dropped": Kind(
        "dropped", "a crowd (iscrowd 1) is not a single object, and the format cannot mark it", loses_objects=True
    ),
    "mask-unusable": Kind(
        "dropped",
        "a mask has no pixel, or the masks of an image cannot be read or have another size",
        loses_objects=True,
    ),
    "mask-unmatched": Kind("dropped", "a number in the masks of an image is that of no object, by its position or box"),
    "label-unused": Kind("dropped", "a label file has no image", loses_objects=True),
    "file-unused": Kind("dropped", "a file has no annotations in a known format, and was left out"),
    "shape-unused": Kind(
        "dropped", "a shape, such as a line or a lone point, has no place in the JSON file", loses_objects=True
    ),
    "element-unused": Kind("dropped", "elements or keys of the annotation files have no place in the JSON file"),
    "image-unlisted": Kind("dropped", "images in the folder that no annotations are of were left out"),
    "annotation-unused": Kind("dropped", "an image has several complete annotations, of several people; one was used"),
    "task-unfinished": Kind("dropped", "a task has no annotation, or only cancelled ones, and was left out"),
    "image-in-two-files": Kind("error", "an image is in two of the files that are merged"),
    "boxes-without-image": Kind(
        "dropped", "boxes of an image that cannot be used were left out with it", loses_objects=True
    ),
    "key-dropped": Kind("dropped", "a key of the JSON file has no place in the other format"),
    "image-without-row": Kind(
        "dropped", "an image without objects has no row in a table of this style; --style retinanet has one"
    ),
    "split-entry-repeated": Kind("dropped", "the split names an image twice; the first entry counts"),
    "split-contradiction": Kind("noted", "the split of a class marks an image -1 and also 1 or 0, which counts"),
    "split-negative": Kind("dropped", "images that the split of a class marks -1, without that class, are left out"),
    "unlabeled-skipped": Kind("dropped", "an image has no XML and was left out (--unlabeled skip)"),
    "class-not-listed": Kind("dropped", "an object's class is not among --classes", loses_objects=True),
    "entry-ignored": Kind(
        "dropped", "entries that an evaluation ignores were left out (--ignored drop)", loses_objects=True
    ),
    "difficult-dropped": Kind(
        "dropped", "an object is marked difficult and was left out (--difficult drop)", loses_objects=True
    ),
    "box-outside": Kind("dropped", "a box lies outside its image", loses_objects=True),
    "box-empty": Kind("dropped", "a box has no area: a side is shorter than 0.01 pixel", loses_objects=True),
    "box-clipped": Kind("repaired", "a box reached past its image and was cut at the edge"),
    "box-reversed": Kind(
        "repaired", "a box's corners were swapped (xmin over xmax, ymin over ymax or a negative side)"
    ),
    "id-form": Kind("repaired", "ids of the JSON file are text or like 1.0 and were read as whole numbers"),
    "number-text": Kind("repaired", "numbers of the JSON file are text and were read as numbers"),
    "class-none": Kind(
        "repaired", "the objects of a file have no attribute that may be a class; they got the class object"
    ),
    "name-spaces": Kind("repaired", "a class name had spaces or line breaks around or inside it"),
    "flag-invalid": Kind("repaired", "difficult, truncated or occluded is neither 0 nor 1; 0 was used"),
    "difficult-crowd": Kind("repaired", "an object is marked difficult and became a crowd (--difficult crowd)"),
    "file-name-changed": Kind("repaired", "an image's name in a shard is missing, repeated or no safe path"),
    "outline-missing": Kind("repaired", "an object without a polygon got that of its box"),
    "outline-cut": Kind("repaired", "a polygon reached past its image and was cut at the edge"),
    "mask-traced": Kind("repaired", "a mask (RLE) became a polygon along the edges of its pixels"),
    "line-closed": Kind("repaired", "a line whose ends nearly meet became a polygon"),
    "shapes-joined": Kind("repaired", "shapes with the same class and the same group became one object"),
    "rings-traced": Kind(
        "repaired", "rings of a polygon that overlap became a polygon along the edges of their pixels"
    ),
    "rings-joined": Kind("repaired", "the rings of a polygon became one, joined by bridges of no width"),
    "box-outline": Kind("repaired", "a box that is not the one around its polygon or mask became that one"),
    "outline-rectangle": Kind(
        "repaired", "a polygon, or four corners that are not a rectangle, became the smallest rectangle around it"
    ),
    "corners-outline": Kind("repaired", "four corners that are not a rectangle became a polygon"),
    "value-text": Kind("repaired", "a value that is not text became text, since the format has nothing else"),
    "point-outside": Kind(
        "repaired", "a keypoint outside of its image became not labeled, since Ultralytics refuses such images"
    ),
    "crowd-difficult": Kind("repaired", "a crowd (iscrowd 1) was marked difficult, the nearest that VOC has"),
    "unlabeled-kept": Kind("noted", "an image has no XML and was kept as an image without boxes"),
    "image-joined": Kind("noted", "an image is in two of the files that are merged; its boxes were combined"),
    "splits-joined": Kind(
        "noted",
        "images of several splits are in one JSON file; convert each folder by itself, so that no model is trained on "
        "test images",
    ),
    "split-entry-moved": Kind(
        "noted", "the split has a path of another machine; the only image whose path ends like it was used"
    ),
    "order-changed": Kind(
        "noted",
        "YOLO does not keep the order of the images; converted back, they and their ids follow their names",
    ),
    "points-order": Kind(
        "noted", "the other format keeps the names of keypoints, but not their order or their skeleton"
    ),
    "region-ignored": Kind("noted", "a region in which nothing counts became a crowd (iscrowd 1) of each class"),
    "mask-missing": Kind("noted", "an image has no file in SegmentationObject, or an object no number in it (--masks)"),
    "flips-unknown": Kind(
        "noted", "which keypoints are swapped in a flipped image is not known, so data.yaml has no flip_idx"
    ),
    "labels-several": Kind("noted", "a region has several labels: the first is its class, and the key labels has all"),
    "label-missing": Kind("noted", "an image has no label file and was kept as an image without boxes"),
    "label-name": Kind(
        "noted", "a label file's name is its image's in another case or Unicode form, or with the image's extension"
    ),
    "label-elsewhere": Kind("noted", "the label file was found in another folder than expected"),
    "ground-truth-missing": Kind("noted", "a sequence has no gt/gt.txt, so its frames have no boxes"),
    "sequence-info-missing": Kind("noted", "a sequence has no seqinfo.ini, so its frames per second are not known"),
    "track-gap": Kind("noted", "a polygon, a mask or keypoints of a track are not known between two key frames"),
    "frame-gap": Kind("noted", "frames of a sequence have no image"),
    "frames-by-order": Kind(
        "noted", "names of frames are not numbers from 1, so frames were numbered in the order of their names"
    ),
    "track-none": Kind("noted", "boxes with the id -1 are of no track; each got one of its own if others have one"),
    "origin-unclear": Kind(
        "noted",
        "gt/labels.txt is CVAT's, which counts pixels from 0: if the boxes are too, give convert-mot --origin zero",
    ),
    "coordinate-zero": Kind("noted", "coordinates of 0 occur, though pixels count from 1"),
    "box-repeated": Kind("noted", "an object has the class and the box of an earlier one in its image"),
    "class-numbered": Kind("noted", "classes have numbers in the shards, and a label map beside these has names"),
    "shard-empty": Kind("noted", "a shard has no records"),
    "class-unused": Kind("noted", "a class that is listed has no object"),
    "class-alike": Kind("noted", "two class names differ only in case or Unicode form"),
    "size-missing": Kind("noted", "the XML has no usable <size>; the image file's size was used"),
    "size-conflict": Kind("noted", "the size in the annotations is not that of the image file, which was used"),
    "size-unrotated": Kind(
        "noted", "the size in the annotations is the image's before its EXIF rotation; check whether the boxes are too"
    ),
    "size-recorded": Kind("noted", "the size in a shard is not that of the image, which was used"),
    "ids-changed": Kind("noted", "ids in the shards are missing, repeated or no whole numbers, so all are new"),
    "ids-inside": Kind("noted", "a key of rows has the ids of other rows of its file, and has their new ids now"),
    "orientation-invalid": Kind("noted", "the image's EXIF orientation is not 1 to 8 and is ignored"),
    "filename-differs": Kind("noted", "a label file names another image than the one found by its stem"),
    "filename-used": Kind("noted", "the image was found by <filename>, not by the XML's stem"),
    "image-elsewhere": Kind("noted", "the image was found by its stem in another folder than expected"),
    "image-ambiguous": Kind(
        "noted", "several images have the label file's stem or a frame's number; one was used, the others were left out"
    ),
    "image-extension": Kind("noted", "the image's format is not that of its extension"),
    "image-several": Kind(
        "noted", "the file has several images, frames of an animation or pages of a TIFF, of which the first is used"
    ),
    "image-identical": Kind("noted", "the image has the same bytes as an earlier one"),
}

# Findings of `detaug check`. error: training would stop, or learn something else than what is in the JSON file.
# `CocoReader` raises on those that can be seen without opening images: the kinds up to "box-outside". warning: training
# runs; a person should look.
CHECK_KINDS: dict[str, Kind] = {
    "images-empty": Kind("error", "the JSON file has no images", remedy=_CONVERT),
    "categories-empty": Kind(
        "error", "the JSON file has no categories, so every object would be background", remedy=_CONVERT
    ),
    "row-not-object": Kind("error", "an entry is not a JSON object"),
    "id-form": Kind(
        "error",
        "an id or a reference to one is text or like 1.0; --clean writes whole numbers",
        repair=("{} got whole numbers as ids", "entry", "entries"),
    ),
    "number-text": Kind(
        "error",
        "a number is text, such as '640'; --clean writes the number",
        repair=("{} got numbers for text", "entry", "entries"),
    ),
    "image-id": Kind("error", "an image's id is not a whole number from 0 to 2^63 - 1"),
    "image-id-repeated": Kind("error", "several images have the same id, so their boxes cannot be told apart"),
    "file-name": Kind("error", "an image's file_name is not a valid file name"),
    "file-name-outside": Kind("error", "a file_name is absolute or leaves the image folder with '..'"),
    "file-name-repeated": Kind(
        "error", "several images have the same file, each with some of its boxes", clean="keeps"
    ),
    "image-size": Kind("error", "an image's width or height is missing or not a whole number of at least 1"),
    "image-shard": Kind("error", "an image's shard must be a path, its offset, length and crc32c whole numbers"),
    "image-format": Kind("error", "an image is in a format that DALI does not decode, or crashes on"),
    "category-id": Kind("error", "a category's id is not a whole number from 0 to 2^63 - 1"),
    "category-id-repeated": Kind("error", "several categories have the same id"),
    "annotation-id": Kind("error", "an annotation's id is not a whole number from 0 to 2^63 - 1", clean="keeps"),
    "annotation-id-repeated": Kind(
        "error", "several annotations have the same id; pycocotools keeps only the last", clean="keeps"
    ),
    "image-id-unknown": Kind("error", "an annotation's image_id is not the id of an image"),
    "image-class": Kind(
        "error",
        "some images of a dataset of objects have a category_id, others have none",
        repair=("{} lost the category_id", "image", "images"),
        removes=("category_id",),
    ),
    "category-unknown": Kind("error", "the category_id of an annotation or image is not the id of a category"),
    "crowd-invalid": Kind("error", "an annotation's iscrowd is neither 0 nor 1"),
    "box-invalid": Kind("error", "a bbox is not four finite numbers [x, y, width, height]"),
    "box-missing": Kind(
        "error",
        "an annotation has a shape and no bbox; --clean writes the box around it",
        repair=("{} got the box around the shape", "annotation", "annotations"),
    ),
    "box-reversed": Kind(
        "error",
        "a box's width or height is negative; --clean turns it round",
        repair=("{} got the box turned round", "annotation", "annotations"),
    ),
    "box-relative": Kind(
        "error", "all boxes are in 0..1, relative to their images, and not in pixels", clean="cannot", remedy=_PIXELS
    ),
    "segmentation-relative": Kind(
        "error", "all polygons are in 0..1, relative to their images, and not in pixels", clean="cannot", remedy=_PIXELS
    ),
    "corners-relative": Kind(
        "error", "all corners are in 0..1, relative to their images, and not in pixels", clean="cannot", remedy=_PIXELS
    ),
    "keypoints-relative": Kind(
        "error",
        "all labeled keypoints are in 0..1, relative to their images, not in pixels",
        clean="cannot",
        remedy=_PIXELS,
    ),
    "box-corners": Kind(
        "error",
        "boxes are corners, not sizes: of at least 4, 99 % fit their images as [x0, y0, x1, y1], and 20 % reach past "
        "them by over 5 % of a side as [x, y, width, height]",
        clean="cannot",
        remedy="write [x, y, width, height]: width is x1 - x0, height is y1 - y0.",
    ),
    "box-empty": Kind("error", "a box has no area: a side is shorter than 0.01 pixel"),
    "box-outside": Kind("error", "a box reaches more than 1 pixel past its image, or has no area inside it"),
    "video-id": Kind("error", "an image's video_id is not the id of a video, or two videos have the same id"),
    "frame-id": Kind("error", "a frame_id is not a whole number, or another image of the video has it too"),
    "video-sizes": Kind("error", "the frames of a video have different sizes"),
    "track-id": Kind("error", "a track_id or instance_id is not a whole number, or only some annotations have one"),
    "track-repeated": Kind("error", "two annotations of a frame have the same track_id or instance_id"),
    "video-missing": Kind("error", "a video's file is not in the image folder"),
    "video-unusable": Kind("error", "a video's file is cut off, or cannot be used"),
    "frame-missing": Kind("error", "a frame_id is beyond the last frame of the video's file"),
    "image-missing": Kind("error", "an image is not in the image folder", remedy=_FOLDER),
    "file-name-elsewhere": Kind(
        "error",
        "an image is in the image folder under another path, which --clean writes",
        repair=("{} got the path of the file", "image", "images"),
    ),
    "size-missing": Kind(
        "error",
        "an image's width or height cannot be used; --clean writes those of the file",
        repair=("{} got the size of the file", "image", "images"),
    ),
    "image-unreadable": Kind("error", "an image's header cannot be read"),
    "image-bands": Kind("error", "an image has values of more than 8 bits, or bands that 8-bit RGB would lose"),
    "size-wrong": Kind(
        "error", "an image's width and height are not the file's, so its boxes are misplaced", remedy=_FOLDER
    ),
    "size-unrotated": Kind(
        "error", "an image's width and height are the file's before its EXIF rotation", remedy=_FOLDER
    ),
    "image-changed": Kind("error", "an image's bytes in its shard are others than when the JSON file was written"),
    "image-broken": Kind("error", "an image is cut off, or does not decode whole"),
    "image-unsafe": Kind("error", "an image ends the process that decodes it, or takes too much time or memory"),
    "image-leaked": Kind(
        "error",
        "an image is in the other split too, so scores would mean nothing",
        remedy="take the image out of one of the two splits; --clean FILE.json takes it out of this one.",
    ),
    "group-leaked": Kind(
        "error",
        "tiles of one image, frames of one video, or a group of yours are in the other split too",
        remedy="put all images of the group into one split: detaug split does.",
    ),
    "categories-differ": Kind(
        "error",
        "the other JSON file has different categories, so its labels mean different classes",
        remedy="give both the same classes in the same order: detaug merge FILE.json -o OUT.json --classes a,b,c",
    ),
    "map-missing": Kind(
        "error",
        "for maps: an image has no map",
        remedy="add the file, give suffix= for other names, or missing=ignore, with which its pixels are ignored.",
    ),
    "map-lossy": Kind(
        "error",
        "for maps: a map is JPEG or WebP, or a TIFF compressed as JPEG, which changes numbers",
        remedy="write the map again as PNG, from the data that it was made of: the numbers of a JPEG are lost.",
    ),
    "map-broken": Kind(
        "error", "for maps: a map's file does not decode", remedy="get the file again, or leave out its image."
    ),
    "map-size": Kind(
        "error",
        "for maps: a map has another shape than its image, or that of the image before its EXIF rotation",
        remedy="write the map in the image's size; rotate it as the image is displayed.",
    ),
    "map-colors": Kind(
        "error",
        "for maps: a map has colors where numbers are expected, or the other way round",
        remedy="give table= the class of each color, {(128, 64, 128): 0, ...}; on the command line a JSON file, "
        'table=colors.json with {"128,64,128": 0, ...}.',
    ),
    "map-value": Kind(
        "error",
        "for maps: a value in a map is not in its table, or above the number of classes and not ignored",
        remedy="name all classes= of the map, give table= the class of each value, or ignore= the value.",
    ),
    "crowds-only": Kind(
        "error",
        "all boxes are crowds (iscrowd 1), which are not trained on, so no object is left",
        clean="cannot",
        remedy="write iscrowd 0 where an annotation is a single object.",
    ),
    "size-not-integer": Kind("warning", "an image's width or height is written like 640.0"),
    "annotation-id-zero": Kind("warning", "an annotation has the id 0, which pycocotools treats as 'no match'"),
    "category-name": Kind("warning", "a category's name is missing, empty or not text"),
    "category-alike": Kind(
        "warning", "two categories' names differ at most in case, spaces or Unicode form", remedy=_RENAME
    ),
    "category-similar": Kind(
        "warning",
        "two categories' names differ only by a hyphen or a plural, or a rare one looks like a typo in a common one",
        remedy=_RENAME,
    ),
    "not-json": Kind("warning", "the JSON file contains NaN or Infinity, which other readers refuse"),
    "box-clipped": Kind(
        "warning",
        "a box reaches past its image by up to 1 pixel and is cut in training",
        remedy="nothing, as a rule: training cuts the box at the edge.",
    ),
    "segmentation-box": Kind(
        "warning", "a side of a box is over 2 pixels from that of its polygon's box, or of its corners' box"
    ),
    "segmentation-invalid": Kind(
        "warning",
        "for polygons: a segmentation is neither rings nor the runs of its image; --clean leaves it out",
        repair=("{} lost the segmentation", "annotation", "annotations"),
        removes=("segmentation",),
    ),
    "segmentation-form": Kind(
        "warning",
        "for polygons: a segmentation is a flat list, or pairs [x, y], and is read as a ring; --clean writes "
        "[[x, y, ...]]",
        repair=("{} got the segmentation as rings", "annotation", "annotations"),
    ),
    "segmentation-short": Kind("warning", "for polygons: a ring has fewer than three points and is left out"),
    "segmentation-empty": Kind(
        "warning", "for polygons: a segmentation has no area in its image, so an object with masks is left out"
    ),
    "segmentation-between": Kind(
        "warning",
        "for polygons: a segmentation lies between the pixels' centers, so its mask has none of the image's pixels",
    ),
    "segmentation-crossed": Kind("warning", "for polygons: a ring crosses itself, so parts of it count as outside"),
    "segmentation-outside": Kind("warning", "for polygons: a ring reaches more than 1 pixel past its image"),
    "segmentation-area": Kind(
        "warning", "for polygons: area differs from the polygon's by over 1 % and half a pixel along its edges"
    ),
    "segmentation-missing": Kind(
        "warning",
        "for polygons: an annotation has no segmentation and others have one, so its mask would be its box",
        remedy="draw its polygon, or train without masks.",
    ),
    "segmentation-repeated": Kind(
        "warning",
        "for polygons: two annotations of a class have one mask (IoU 0.95 or more) and different boxes",
        remedy="delete one of the two where they are one object, or correct the segmentation.",
    ),
    "corners-invalid": Kind(
        "warning",
        "for rotated boxes: corners are not four pairs of finite numbers; --clean leaves them out",
        repair=("{} lost the corners", "annotation", "annotations"),
        removes=("corners",),
    ),
    "corners-empty": Kind(
        "warning", "for rotated boxes: corners have no area (a side below 0.01 pixel), so the object is left out"
    ),
    "corners-crossed": Kind("warning", "for rotated boxes: corners are in an order whose edges cross"),
    "corners-outside": Kind("warning", "for rotated boxes: the middle of the corners lies outside the image"),
    "keypoints-number": Kind(
        "warning",
        "for keypoints: not three finite numbers for each keypoint of the category; --clean leaves them out",
        repair=("{} lost the keypoints, in a wrong number", "annotation", "annotations"),
        removes=("keypoints", "num_keypoints"),
    ),
    "keypoints-visibility": Kind(
        "warning",
        "for keypoints: a visibility is not 0, 1 or 2; --clean leaves the annotation's keypoints out",
        repair=("{} lost the keypoints, with a wrong visibility", "annotation", "annotations"),
        removes=("keypoints", "num_keypoints"),
    ),
    "keypoints-outside": Kind("warning", "for keypoints: a labeled one lies more than 1 pixel outside its image"),
    "keypoints-count": Kind(
        "warning",
        "for keypoints: num_keypoints is not that of the labeled ones; --clean counts",
        repair=("{} got another num_keypoints", "annotation", "annotations"),
    ),
    "keypoints-names": Kind(
        "warning",
        "for keypoints: a category's keypoints are not a list of names; --clean leaves them out",
        repair=("{} lost the names of keypoints", "category", "categories"),
        removes=("keypoints",),
    ),
    "keypoints-skeleton": Kind(
        "warning",
        "for keypoints: a skeleton is not pairs of numbers from 1, and is not drawn; --clean leaves it out",
        repair=("{} lost the skeleton", "category", "categories"),
        removes=("skeleton",),
    ),
    "keypoints-flips": Kind(
        "warning",
        "for keypoints: flip_idx does not have each position from 0 once; --clean leaves it out",
        repair=("{} lost flip_idx", "category", "categories"),
        removes=("flip_idx",),
    ),
    "group-name-shared": Kind(
        "warning",
        "tiles of an image, or frames of a video, of the same name are in the other split's folder; look whether it is "
        "the same one",
    ),
    "keypoints-sides": Kind(
        "warning",
        "for keypoints: neither flip_idx nor the names say which ones swap when an image is flipped; give flip_pairs",
    ),
    "keypoints-swapped": Kind(
        "warning",
        "for keypoints: all points of the left lie where 95 % or more of the class have those of the right; look "
        "whether they are swapped",
    ),
    "box-tiny": Kind(
        "warning",
        "a box has a side shorter than 1 pixel after resizing",
        remedy="delete what is not an object, or train at a larger size; --size HxW checks one.",
    ),
    "box-repeated": Kind("warning", "a box has the position and class of an earlier one in its image", remedy=_DELETE),
    "box-nearly-repeated": Kind(
        "warning", "a box overlaps an earlier one of its class with IoU 0.9 or more", remedy=_DELETE
    ),
    "box-two-classes": Kind(
        "warning",
        "a box overlaps one of another class with IoU 0.9 or more",
        remedy="decide which class it is, and delete the other box.",
    ),
    "box-unusual": Kind(
        "warning",
        "a box's area or shape is far from what is usual in its class",
        remedy="look whether the box fits its object and has the right class.",
    ),
    "objects-none": Kind("warning", "no image has an object", remedy=_CONVERT),
    "class-empty": Kind(
        "warning",
        "a class has no object to train on",
        remedy="keep it if another split has objects of it, which --against OTHER.json tells. Otherwise annotate it, "
        "or take it out: --clean FILE.json --drop-class CLASS; a detector cannot learn it.",
    ),
    "class-elsewhere": Kind(
        "warning",
        "a class has objects in another split, and none here",
        remedy="keep the class, since all splits need the same ones, and move some of its images here: without any, "
        "training does not learn it, and an evaluation does not score it.",
    ),
    "class-imbalance": Kind(
        "warning",
        "the largest class has over 100 times the objects of the smallest",
        remedy="collect more of the rare class, or give the loader a sampler: da.ClassBalancedSampler.",
    ),
    "map-scaled": Kind(
        "warning",
        "for maps: a map of classes has another size than its image, with the same shape",
        remedy="nothing, as a rule: its nearest pixels are taken. A map in full size has finer borders.",
    ),
    "map-bits": Kind(
        "warning",
        "for maps: maps have one bit per pixel, or only 0 and 255, which is ignored",
        remedy="save the numbers of the classes with 8 bits, or give table=, {0: 0, 255: 1}; on the command line a "
        'JSON file with {"0": 0, "255": 1}.',
    ),
    "map-empty": Kind(
        "warning",
        "for maps: all pixels of a map are ignored",
        remedy="annotate the image, or leave it out: nothing is learned from it.",
    ),
    "depth-invalid": Kind(
        "warning",
        "for maps: a map of depths has none, negative or infinite ones, or none between 0.1 and 1,000 m in its middle",
        remedy="give scale=, the meters of a value of 1, and invalid=, the value of pixels without depth; values that "
        "are negative or not finite are not known in batches.",
    ),
    "orientation-unclear": Kind(
        "warning",
        "an image has an EXIF rotation that its size does not show; check whether its boxes are rotated too",
        remedy="look whether the boxes fit the image as it is displayed.",
    ),
    "palette-small": Kind(
        "warning",
        "a PNG has a palette of fewer than 8 bits per pixel, which DALI decodes to wrong pixels on a GPU",
        remedy="save the image as RGB.",
    ),
    "image-alpha": Kind(
        "warning",
        "an image has an alpha band, which is left out: the colors below it are used",
        remedy="nothing where the image is opaque; else look at the colors below the transparent parts.",
    ),
    "image-long": Kind(
        "warning", "an image is over 20 times as long as wide: resized by its shorter side alone it is enormous"
    ),
    "image-several": Kind(
        "warning",
        "a file has several images, frames of an animation or pages of a TIFF, of which the first is used",
        remedy="save each image that has objects as a file of its own.",
    ),
    "image-not-decoded": Kind(
        "warning",
        "an image has more pixels than --decode tries; training may decode it, if there is enough memory",
        remedy="make it smaller, or see in the loader whether it decodes in the memory that you have.",
    ),
    "image-unreferenced": Kind(
        "warning",
        "no split that is found names a file in the image folder; if another JSON file does, give --against OTHER.json",
        remedy="if it belongs to another split, give its JSON file with --against OTHER.json; otherwise "
        "annotate it, or leave it: training does not read it.",
    ),
    "image-identical": Kind(
        "warning",
        "an image has the same bytes as an earlier one",
        remedy="delete one of the two, or merge their boxes; else the image counts twice.",
    ),
    "image-near": Kind(
        "warning",
        "an image is the same as another one but for size, format, a small crop, a flip or brightness",
        remedy="delete one of the two; at least keep them in one split: detaug split --images IMAGES --near does.",
    ),
    "image-near-leaked": Kind(
        "warning",
        "an image of the other split is the same but for size, format, a small crop, a flip or brightness",
        remedy="take the image out of one of the two splits: scores would count what the model has seen.",
    ),
    "image-not-compared": Kind(
        "warning",
        "an image does not decode for the comparison with others",
        remedy="detaug check --decode says whether training can read it; save it as PNG or JPEG to compare it.",
    ),
}
