"""Translate pipelines of Albumentations and torchvision v2 to recipes: what `detaug import-recipe` does."""
