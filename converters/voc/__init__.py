"""Pascal VOC, to and from COCO json."""
