"""Large pictures as tiles: windows and what they cut, a source of tiles, and `detaug tile`, which writes them."""

from detaug.tiles.write import TileSummary, tile_coco

__all__ = ["TileSummary", "tile_coco"]
