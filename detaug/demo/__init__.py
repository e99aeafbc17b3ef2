"""Drawn datasets, and the whole workflow on one of them: `detaug demo`."""

from detaug.demo.people import make_people as make_people
from detaug.demo.shapes import make_voc as make_voc
from detaug.demo.ships import make_ships as make_ships
from detaug.demo.videos import make_mot as make_mot

__all__ = ["make_mot", "make_people", "make_ships", "make_voc"]
