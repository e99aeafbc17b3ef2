"""`detaug bench` and `detaug tune`: measure the loader on this machine."""

from detaug.bench.compare import bench as bench
from detaug.bench.report import draw_chart as draw_chart
from detaug.bench.report import format_table as format_table
from detaug.bench.tuning import tune as tune

__all__ = ["bench", "draw_chart", "format_table", "tune"]
