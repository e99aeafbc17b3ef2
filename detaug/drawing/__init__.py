"""Draw boxes, masks and keypoints on images, and contact sheets. Needs neither torch nor DALI."""

from detaug.drawing.boxes import draw_boxes as draw_boxes
from detaug.drawing.boxes import hatch as hatch
from detaug.drawing.colors import class_color as class_color
from detaug.drawing.colors import class_colors as class_colors
from detaug.drawing.images import save_picture as save_picture
from detaug.drawing.images import to_image as to_image
from detaug.drawing.maps import MapMarks as MapMarks
from detaug.drawing.maps import draw_map as draw_map
from detaug.drawing.masks import draw_masks as draw_masks
from detaug.drawing.points import Marks as Marks
from detaug.drawing.points import draw_key_points as draw_key_points
from detaug.drawing.sheet import Tile as Tile
from detaug.drawing.sheet import make_sheet as make_sheet

__all__ = [
    "MapMarks",
    "Marks",
    "Tile",
    "class_color",
    "class_colors",
    "draw_boxes",
    "draw_key_points",
    "draw_map",
    "draw_masks",
    "hatch",
    "make_sheet",
    "save_picture",
    "to_image",
]
