"""Draw boxes on images, and contact sheets. Needs neither torch nor DALI."""

from detaug.drawing.boxes import draw_boxes as draw_boxes
from detaug.drawing.boxes import hatch as hatch
from detaug.drawing.colors import class_color as class_color
from detaug.drawing.colors import class_colors as class_colors
from detaug.drawing.images import save_picture as save_picture
from detaug.drawing.images import to_image as to_image
from detaug.drawing.sheet import Tile as Tile
from detaug.drawing.sheet import make_sheet as make_sheet

__all__ = [
    "Tile",
    "class_color",
    "class_colors",
    "draw_boxes",
    "hatch",
    "make_sheet",
    "save_picture",
    "to_image",
]
