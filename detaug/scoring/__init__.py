"""`detaug evaluate`: score a model, or the detections of any detector, and show what it does wrong."""

from detaug.scoring.evaluate import Evaluation as Evaluation
from detaug.scoring.evaluate import evaluate_model as evaluate_model
from detaug.scoring.evaluate import evaluate_results as evaluate_results
from detaug.scoring.page import write_page as write_page

__all__ = ["Evaluation", "evaluate_model", "evaluate_results", "write_page"]
