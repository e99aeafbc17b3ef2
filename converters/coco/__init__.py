"""COCO json: read and examined, written, merged."""
