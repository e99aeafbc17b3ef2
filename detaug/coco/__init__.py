"""Read, examine, write and merge COCO json."""
