"""A list for MMDetection's Albu without the step that runs it."""

albu_transforms = [
    dict(type="HorizontalFlip", p=0.5),
    dict(type="RandomRotate90", p=0.5),
    dict(type="RandomBrightnessContrast", brightness_limit=0.0, contrast_limit=0.2, p=0.5),
    dict(type="GaussNoise", var_limit=(20.0, 20.0), p=0.3),
]
