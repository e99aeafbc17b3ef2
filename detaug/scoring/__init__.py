"""`detaug evaluate` and `detaug predict`: what a model finds, its score, and what it does wrong; predicted maps."""

from detaug.scoring.evaluate import DRAWN as DRAWN
from detaug.scoring.evaluate import Evaluation as Evaluation
from detaug.scoring.evaluate import evaluate_model as evaluate_model
from detaug.scoring.evaluate import evaluate_results as evaluate_results
from detaug.scoring.maps import MapEvaluation as MapEvaluation
from detaug.scoring.maps import evaluate_maps as evaluate_maps
from detaug.scoring.page import write_page as write_page
from detaug.scoring.predict import Predicted as Predicted
from detaug.scoring.predict import PredictedMaps as PredictedMaps
from detaug.scoring.predict import predict_files as predict_files
from detaug.scoring.predict import predict_maps as predict_maps
from detaug.scoring.semantic import SemanticEvaluation as SemanticEvaluation
from detaug.scoring.semantic import evaluate_semantic as evaluate_semantic

__all__ = [
    "DRAWN", "Evaluation", "MapEvaluation", "Predicted", "PredictedMaps", "SemanticEvaluation", "evaluate_maps",
    "evaluate_model", "evaluate_results", "evaluate_semantic", "predict_files", "predict_maps", "write_page",
]  # fmt: skip
