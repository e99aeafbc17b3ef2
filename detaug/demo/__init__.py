"""A drawn data set, and the whole workflow on it: `detaug demo`."""

from detaug.demo.shapes import make_voc as make_voc

__all__ = ["make_voc"]
