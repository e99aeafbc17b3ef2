"""Large source images as tiles: windows, what they cut, a source of tiles, and `detaug tile`, which writes them."""
