"""Contact sheets: images of a dataset, of samples and of batches, with their boxes."""

from detaug.sheets.batch_sheets import batch_sheet as batch_sheet
from detaug.sheets.batch_sheets import clip_sheet as clip_sheet
from detaug.sheets.batch_sheets import ops_sheet as ops_sheet
from detaug.sheets.batch_sheets import samples_sheet as samples_sheet
from detaug.sheets.batch_sheets import save_animation as save_animation
from detaug.sheets.detections import Detections as Detections
from detaug.sheets.detections import detections_sheet as detections_sheet
from detaug.sheets.maps import maps_sheet as maps_sheet
from detaug.sheets.photos import objects_of as objects_of
from detaug.sheets.photos import select_images as select_images
from detaug.sheets.preview import preview_bands as preview_bands
from detaug.sheets.preview import preview_clips as preview_clips
from detaug.sheets.preview import preview_file as preview_file
from detaug.sheets.recipe_sheets import draws_sheet as draws_sheet
from detaug.sheets.recipe_sheets import steps_sheet as steps_sheet

__all__ = [
    "Detections",
    "batch_sheet",
    "clip_sheet",
    "detections_sheet",
    "draws_sheet",
    "maps_sheet",
    "objects_of",
    "ops_sheet",
    "preview_bands",
    "preview_clips",
    "preview_file",
    "samples_sheet",
    "save_animation",
    "select_images",
    "steps_sheet",
]
