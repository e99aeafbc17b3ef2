"""`detaug export`: a trained detector as a file or a folder for serving."""

from detaug.export.onnx_file import export_onnx as export_onnx
from detaug.export.triton_repository import write_triton as write_triton
from detaug.export.verify import Verified as Verified
from detaug.export.verify import verify_onnx as verify_onnx

__all__ = ["Verified", "export_onnx", "verify_onnx", "write_triton"]
