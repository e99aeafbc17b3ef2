"""Read, examine, write and merge COCO JSON file."""
