"""DOTA label files, to and from COCO json."""
