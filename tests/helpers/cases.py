"""Every metric of the package, once or more, with samples and a reference that we did not write.

``tests/test_all_metrics.py`` runs every check of ``mm_metrics_plugin.testing`` over all of them, and fails when a
registered metric is missing here.
"""

from __future__ import annotations

from tests.helpers.cases_classification import CLASSIFICATION_CASES
from tests.helpers.cases_detection import DETECTION_CASES
from tests.helpers.cases_regression import REGRESSION_CASES
from tests.helpers.cases_segmentation import OVERLAP_CASES
from tests.helpers.cases_single_label import AUC_CASES

CASES = [*CLASSIFICATION_CASES, *DETECTION_CASES, *OVERLAP_CASES, *REGRESSION_CASES, *AUC_CASES]
