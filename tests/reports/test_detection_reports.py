"""Reports say what they evaluate and by which overlap; reports on several types contain those of each."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mm_metrics_plugin import DetectionEvaluator
from mm_metrics_plugin.conventions import IOU_TYPES
from mm_metrics_plugin.evaluation import DetectionReports

pytestmark = pytest.mark.filterwarnings("ignore::mm_metrics_plugin.MetricWarning")
OVERLAPS = {"bbox": "IoU", "segm": "IoU", "boundary": "boundary IoU", "rbox": "IoU", "keypoints": "OKS"}


def report_on(iou_type):
    """One object that is found, one that is not, and a duplicate."""
    boxes = np.array([[1, 1, 9, 9], [1, 1, 9, 8], [10, 10, 19, 19]])
    x, y = np.mgrid[:20, :20]
    masks = np.stack([(x >= x1) & (x < x2) & (y >= y1) & (y < y2) for y1, x1, y2, x2 in boxes.tolist()])
    shapes = {"boxes": boxes, "masks": masks, "keypoints": np.repeat(boxes[:, None, :2], 17, axis=1) + 1.5}
    if iou_type == "rbox":
        shapes = {"boxes": np.concatenate([boxes, np.zeros((3, 1))], axis=1)}
    found = {name: shape[:2] for name, shape in shapes.items()}
    truth = {name: shape[::2] for name, shape in shapes.items()}
    evaluator = DetectionEvaluator(["cat"], iou_type=iou_type, matching=IOU_TYPES[iou_type].matching, ci=0.9)
    evaluator.update([dict(found, scores=[0.9, 0.8], labels=[0, 0])], [dict(truth, labels=[0, 0], area=[64, 81])])
    return evaluator.compute()


@pytest.mark.parametrize("iou_type", IOU_TYPES)
def test_a_report_names_the_overlap(iou_type):
    report, overlap = report_on(iou_type), OVERLAPS[iou_type]
    expected = f"{IOU_TYPES[iou_type].description}: score threshold 0.3, {overlap} threshold 0.5"
    markdown = report.to_markdown()
    assert expected in str(report).splitlines()[:4] and f"- {expected}" in markdown.splitlines()[:8]
    for text in (
        f"AP at {overlap} 0.5",
        f"the ten {overlap} thresholds",
        f"reaches {overlap} 0.5",
        f"mean of 1 - {overlap} over TP",
    ):
        assert text in markdown
    titles = " ".join(text.get_text() for figure in report.figures().values() for text in figure.texts)
    assert titles.count(f"{overlap} >= 0.5") == 4
    if overlap == "OKS":
        assert "IoU" not in markdown + titles and "mmdet" not in markdown
    assert report.to_dict()["settings"]["iou_type"] == iou_type
    assert report.counts["detections"]["read"] == report.counts["ground_truths"]["used"] == 2
    assert repr(report).startswith(f"<DetectionReport: {iou_type}, 1 image, ")


def test_reports_on_several_types(tmp_path):
    reports = DetectionReports({name: report_on(name) for name in ("bbox", "segm")})
    names = reports.save(tmp_path)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert sorted(names) == written
    for name, each in reports.reports.items():
        own = each.save(tmp_path / f"only_{name}")
        assert {f"{name}/{file}" for file in own} <= set(names)
        for file in own:
            assert (tmp_path / name / file).read_bytes() == (tmp_path / f"only_{name}" / file).read_bytes()
        assert json.loads((tmp_path / "report.json").read_text())["iou_types"][name] == each.to_dict()
        assert (
            str(each) in str(reports)
            and summary_of(each) in repr(reports)
            and each._repr_html_() in reports._repr_html_()
        )
    text, markdown = str(reports), (tmp_path / "report.md").read_text()
    assert text.index("== Boxes (bbox) ==") < text.index("== Masks (segm) ==")
    assert markdown.startswith("# Detection report\n\n## Boxes (bbox)\n") and "\n## Masks (segm)\n" in markdown
    assert markdown.count("\n### Average precision (COCO)\n") == 2 and markdown.count("\n# ") == 0
    values = reports.log_values(classwise=True)
    assert values["det/AP/cat"] == reports["bbox"].log_values()["mAP"]
    assert values["det-segm/f1/cat"] == reports["segm"].log_values()["f1"] and len(values) == len(set(values))
    table = reports.to_dataframe()
    assert table["iou_type"].tolist() == ["bbox", "bbox", "segm", "segm"]
    assert reports.to_dataframe("segm/per_class").equals(reports["segm"].to_dataframe())


def summary_of(report):
    return repr(report)[len("<DetectionReport: ") : -1]
