"""A drawn data set, and the whole workflow on it: `detaug demo`."""

from detaug.demo.shapes import make_voc as make_voc
from detaug.demo.videos import make_mot as make_mot

__all__ = ["make_mot", "make_voc"]
