"""The way back: a COCO json as files of labelling tools, which keep more than boxes."""
