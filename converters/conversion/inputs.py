"""Refuse a json and a folder in each other's place."""

from __future__ import annotations

import os
from pathlib import Path

from detaug.converters.files.known_files import what_folder_has
from detaug.converters.files.paths import PathLike
from detaug.errors import AnnotationError

IMAGES_ORDER = "a command takes FILE.json IMAGES, Python da.CocoReader(images=IMAGES, annotations=FILE)"
OUTPUT_ORDER = "a command takes FILE.json OUT_FOLDER, Python (annotations=FILE, output=OUT_FOLDER)"


def check_json_and_folder(annotations: PathLike, folder: PathLike, order: str) -> None:
    """Raise AnnotationError, with `order`, if the json is a folder or the folder is a file."""
    if os.path.isdir(annotations):
        what = what_folder_has(Path(annotations))
        raise AnnotationError(f"{os.fspath(annotations)} is a folder in the place of the json; {order}{what}")
    if os.path.isfile(folder):
        raise AnnotationError(f"{os.fspath(folder)} is a file in the place of the folder; {order}")
