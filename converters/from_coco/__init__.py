"""The way back: a COCO JSON file as files of labeling tools, which keep more than boxes."""
