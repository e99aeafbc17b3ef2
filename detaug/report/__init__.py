"""The html report of `detaug check`, and the images of its findings. Needs neither torch nor DALI."""

from detaug.report.finding_picture import finding_picture as finding_picture
from detaug.report.html import check_to_html as check_to_html

__all__ = ["check_to_html", "finding_picture"]
