"""Plain-loop references of oLRP and FROC, on the matches of pycocotools."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_curve

FPS_PER_IMAGE = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)


def counted_detections(evaluation):
    """By class, the score and overlap of each TP and FP (None of an FP) by descending score, and the number of objects.

    The evaluation of pycocotools has one IoU threshold, and a limit of detections that drops none.
    """
    rows, num_gts = {}, {}
    for image in evaluation.evalImgs:
        if image is None or image["aRng"] != evaluation.params.areaRng[0]:
            continue
        key = image["image_id"], image["category_id"]
        columns = {gt["id"]: column for column, gt in enumerate(evaluation._gts[key])}
        overlaps = np.reshape(evaluation.ious[key], (len(image["dtIds"]), len(columns)))
        own = rows.setdefault(key[1], [])
        for row, score in enumerate(image["dtScores"]):
            if not image["dtIgnore"][0][row]:
                matched = int(image["dtMatches"][0][row])
                own.append((score, overlaps[row, columns[matched]] if matched else None))
        num_gts[key[1]] = num_gts.get(key[1], 0) + int((np.asarray(image["gtIgnore"]) == 0).sum())
    return {label: sorted(own, key=lambda row: -row[0]) for label, own in rows.items()}, num_gts


def olrp_of_class(rows, num_gts, iou_thr, *, every_prefix=False):
    """oLRP, its components and its threshold of one class, by the definition of the paper.

    ``every_prefix`` also ends between detections of equal score, as the code of the authors does.
    """
    if not num_gts:
        return [np.nan] * 5
    best = [1.0, np.nan, np.nan, 1.0, np.nan]
    for end in range(1, len(rows) + 1):
        if not every_prefix and end < len(rows) and rows[end][0] == rows[end - 1][0]:
            continue
        overlaps = [overlap for _, overlap in rows[:end] if overlap is not None]
        tp, fp, fn = len(overlaps), end - len(overlaps), num_gts - len(overlaps)
        error = sum((1 - overlap) / (1 - iou_thr) for overlap in overlaps) if iou_thr < 1 else 0.0
        lrp = (error + fp + fn) / (tp + fp + fn)
        if tp and (np.isnan(best[1]) or lrp < best[0] - 1e-7):
            mean_error = sum(1 - overlap for overlap in overlaps) / tp
            best = [lrp, mean_error, 1 - tp / (tp + fp), 1 - tp / num_gts, rows[end - 1][0]]
    return best


def froc_of(rows, num_gts, num_images):
    """The mean sensitivity and the sensitivities, as in LUNA16's script."""
    if not num_gts:
        return [np.nan] * 8
    scores, is_tp = [score for score, _ in rows], [overlap is not None for _, overlap in rows]
    if not any(is_tp):
        return [0.0] * 8
    if all(is_tp):
        fps, sensitivity = [0.0], [len(rows) / num_gts]
    else:
        fpr, tpr, _ = roc_curve(is_tp, scores)
        fps, sensitivity = fpr * (len(rows) - sum(is_tp)) / num_images, tpr * sum(is_tp) / num_gts
    values = [_interpolated(fps, sensitivity, at) for at in FPS_PER_IMAGE]
    return [sum(values) / len(values), *values]


def _interpolated(fps, sensitivity, at):
    """Between the last point that is not beyond ``at`` and the next one; at the end, the last point."""
    last = max(index for index, value in enumerate(fps) if value <= at)
    if last == len(fps) - 1:
        return sensitivity[last]
    share = (at - fps[last]) / (fps[last + 1] - fps[last])
    return sensitivity[last] + share * (sensitivity[last + 1] - sensitivity[last])
