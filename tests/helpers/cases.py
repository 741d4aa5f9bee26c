"""Every metric of the package in one or more cases, with samples and an independent reference.

``tests/test_all_metrics.py`` runs all checks of ``mm_metrics_plugin.testing`` on them, and fails if a registered metric
has no case.
"""

from __future__ import annotations

from tests.helpers.cases_classification import CLASSIFICATION_CASES
from tests.helpers.cases_detection import DETECTION_CASES
from tests.helpers.cases_geometry import GEOMETRY_CASES
from tests.helpers.cases_keypoints import KEYPOINT_CASES
from tests.helpers.cases_regression import REGRESSION_CASES
from tests.helpers.cases_segmentation import SEGMENTATION_CASES
from tests.helpers.cases_single_label import AUC_CASES

CASES = [
    *(*CLASSIFICATION_CASES, *DETECTION_CASES, *GEOMETRY_CASES, *KEYPOINT_CASES, *SEGMENTATION_CASES),
    *(*REGRESSION_CASES, *AUC_CASES),
]
