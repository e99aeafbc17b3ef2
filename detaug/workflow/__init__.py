"""`detaug train PATH`: from labeled images in any format to a trained, scored and drawn detector."""

from detaug.workflow.train_folder import FolderOptions as FolderOptions
from detaug.workflow.train_folder import train_folder as train_folder

__all__ = ["FolderOptions", "train_folder"]
