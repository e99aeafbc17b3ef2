"""Draw boxes on images, contact sheets, and the html report of `detaug check`. Needs neither torch nor DALI."""

from detaug.drawing.boxes import draw_boxes as draw_boxes
from detaug.drawing.boxes import hatch as hatch
from detaug.drawing.colors import class_color as class_color
from detaug.drawing.colors import class_colors as class_colors
from detaug.drawing.finding_picture import finding_picture as finding_picture
from detaug.drawing.html_report import check_to_html as check_to_html
from detaug.drawing.images import to_image as to_image
from detaug.drawing.save import save_picture as save_picture
from detaug.drawing.sheet import Tile as Tile
from detaug.drawing.sheet import make_sheet as make_sheet

__all__ = [
    "Tile",
    "check_to_html",
    "class_color",
    "class_colors",
    "draw_boxes",
    "finding_picture",
    "hatch",
    "make_sheet",
    "save_picture",
    "to_image",
]
