"""Pascal VOC, to and from COCO JSON."""
