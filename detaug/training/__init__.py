"""`detaug train`: train detectors on `Loader`."""

from detaug.training.loop import train as train
from detaug.training.model_table import Detector as Detector
from detaug.training.options import TrainOptions as TrainOptions
from detaug.training.predict import TrainedModel as TrainedModel
from detaug.training.predict import load_model as load_model

__all__ = ["Detector", "TrainOptions", "TrainedModel", "load_model", "train"]
