"""Files on disk: writing, listing, comparing, reading text and image headers."""
