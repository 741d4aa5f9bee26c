"""Detection by plain loops over pairs: the rules of COCO and TIDE as their authors state them, one step at a time."""

from __future__ import annotations


def overlap(box, gt, crowd=False):
    """IoU in float64 on left, top, width and height; of a crowd, the share of the detection that it covers."""
    (x, y, w, h), (a, b, c, d) = (
        (p[0], p[1], p[2] - p[0], p[3] - p[1]) for p in (tuple(map(float, box)), tuple(map(float, gt)))
    )
    width, height = min(x + w, a + c) - max(x, a), min(y + h, b + d) - max(y, b)
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / (w * h if crowd else w * h + c * d - width * height)


def match_coco_setting(dets, gts, iou_thr, low, high):
    """Pycocotools' ``evaluateImg`` for one IoU threshold and area range: (matched gt or None, ignored) of each det.

    ``dets`` are dicts of one image with box, score, label; ``gts`` have box, label, crowd, area.
    """
    ignored_gt = [gt["crowd"] or not low <= gt["area"] <= high for gt in gts]
    order = sorted(range(len(gts)), key=lambda index: ignored_gt[index])
    free, result = set(range(len(gts))), [None] * len(dets)
    for index in sorted(range(len(dets)), key=lambda index: -dets[index]["score"]):
        det, best, best_gt = dets[index], min(iou_thr, 1 - 1e-10), None
        for at in order:
            gt = gts[at]
            if gt["label"] != det["label"] or (at not in free and not gt["crowd"]):
                continue
            if best_gt is not None and not ignored_gt[best_gt] and ignored_gt[at]:
                break
            value = overlap(det["box"], gt["box"], gt["crowd"])
            if value >= best:
                best, best_gt = value, at
        width, height = det["box"][2] - det["box"][0], det["box"][3] - det["box"][1]
        if best_gt is None:
            result[index] = (None, not low <= width * height <= high)
        else:
            free.discard(best_gt)
            result[index] = (best_gt, ignored_gt[best_gt])
    return result


def match_across_classes(dets, gts, own_class, iou_thr, score_thr):
    """The ``coco`` confusions: unmatched instances at the score threshold are matched across classes."""
    used = [det["score"] >= score_thr for det in dets]
    matched = [own if use else None for own, use in zip(own_class, used)]
    free = {at for at, gt in enumerate(gts) if not gt["crowd"]} - {at for at in matched if at is not None}
    for index in sorted(range(len(dets)), key=lambda index: -dets[index]["score"]):
        if not used[index] or matched[index] is not None:
            continue
        best, best_gt = min(iou_thr, 1 - 1e-10), None
        for at in sorted(free):
            value = overlap(dets[index]["box"], gts[at]["box"])
            if value >= best:
                best, best_gt = value, at
        if best_gt is not None:
            matched[index] = best_gt
            free.discard(best_gt)
    return matched
