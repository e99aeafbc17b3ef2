"""Shards of images: TFRecord and WebDataset."""
