"""YOLO labels, to and from COCO JSON."""
