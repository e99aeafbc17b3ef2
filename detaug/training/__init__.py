"""`detaug train`: train torchvision's detectors on `Loader`."""

from detaug.training.detectors import Detector as Detector
from detaug.training.loop import train as train
from detaug.training.options import TrainOptions as TrainOptions

__all__ = ["Detector", "TrainOptions", "train"]
