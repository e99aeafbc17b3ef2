"""YOLO labels, to and from COCO json."""
