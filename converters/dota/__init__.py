"""DOTA label files, to and from COCO JSON."""
