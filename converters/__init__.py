"""Annotation formats on disk, to and from COCO json. Needs neither torch nor DALI."""
