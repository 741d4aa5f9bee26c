"""Coverage of 95 % confidence intervals, by simulation: the tables of docs/en/concepts/statistics.md."""

from __future__ import annotations

from benchmarks import coverage, equal_runs
from benchmarks.timing import heading


def _row(*cells: object) -> None:
    print(
        "| " + " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |", flush=True
    )


def _table(title: str, *header: str) -> None:
    heading(title)
    _row(*header)
    _row(*("---" for _ in header))


def main() -> None:
    _table("Recall of a class", "images, objects per image, recall, correlation", "percentile bootstrap", "interval")
    for one in coverage.PROPORTIONS:
        before = coverage.percentile_proportion_coverage(one, datasets=2000)
        after = coverage.proportion_coverage(one, datasets=10000)
        _row(", ".join(f"{part:g}" for part in one[:4]), before.share, after.share)

    names = dict(zip(coverage.UNEQUAL, ("1", "1.5", "5 % x 30", "5 % x 100")))
    _table("Recall of images of unequal size", "sizes, images, recall, correlation", "bootstrap", "interval", "too few")
    for one in coverage.UNEQUAL_PROPORTIONS:
        before = coverage.percentile_proportion_coverage(one, datasets=2000)
        after = coverage.proportion_coverage(one, datasets=5000)
        text = f"{names[one.sizes]}, {one.images}, {one.share:g}, {one.correlation:g}"
        _row(text, before.share, after.share, 1 - after.number / 5000)

    _table("F1 of images of unequal size", "sizes, images, recall, correlation", "bootstrap", "interval", "too few")
    for one in coverage.UNEQUAL_DETECTORS:
        before = coverage.percentile_f1_coverage(one, datasets=1000)
        after = coverage.f1_coverage(one, datasets=2000)
        text = f"{names[one.sizes]}, {one.images}, {one.recall:g}, {one.correlation:.2g}"
        _row(text, before.share, after.share, 1 - after.number / 2000)

    _table("Means of images of unequal size", "sizes", "classes", "images", "shape", *coverage.MEANS, "too few")
    for one in coverage.UNEQUAL_CLASSES:
        found = coverage.mean_coverage(one, datasets=500)
        least = 1 - min(each.number for each in found.values()) / 500
        shares = (each.share for each in found.values())
        _row(names[one.sizes], len(one.objects), one.images, f"{one.shape:g}", *shares, least)

    _table("F1 of a class, 2.5 objects per image", "F1", "images", "percentile bootstrap", "interval")
    for detector in coverage.DETECTORS:
        before = coverage.percentile_f1_coverage(detector, datasets=1000)
        after = coverage.f1_coverage(detector, datasets=10000)
        _row(f"{detector.f1:.3f}", detector.images, before.share, after.share)

    _table("Means over classes", "classes", "images", *coverage.MEANS)
    for kind, number in (("even", 10), ("zipf", 10), ("rare", 10), ("zipf", 40), ("rare", 40)):
        for images in (40, 200):
            found = coverage.mean_coverage(coverage.classes(kind, number, images), datasets=500)
            _row(f"{number}, {kind}", images, *(one.share for one in found.values()))

    _table("Average precision at IoU 0.5", "classes", "images", "basic bootstrap, mAP", "mAP", "AP per class")
    settings = [("even", 1), ("even", 3), ("zipf", 10), ("rare", 10)]
    for kind, number in settings:
        for images in (45, 100, 200):
            mean, each, basic = coverage.ap_coverage(coverage.classes(kind, number, images), datasets=1000)
            _row(f"{number}, {kind}", images, basic.share, mean.share, each.share if each.number >= 200 else "too few")

    _table("AUC", "AUC", "positives + negatives", "DeLong", "interval")
    for scores in coverage.SCORES:
        after, before = coverage.auc_coverage(scores, datasets=10000)
        _row(f"{scores.auc:g}", f"{scores.positives} + {scores.negatives}", before.share, after.share)

    _table("AUC of positives of which some look like negatives", "AUC, share", "positives", "DeLong", "interval")
    for scores in coverage.ALIKE:
        after, before = coverage.auc_coverage(scores, datasets=5000)
        _row(f"{scores.auc:g}, {scores.alike:g}", scores.positives, before.share, after.share)

    metrics = ("precision_micro", "recall_micro", "f1_micro", "any")
    _table("Two equal detectors at their best thresholds: share with p <= 0.05", "rule", "images", *metrics)
    for rule in ("f1", "precision=0.8"):
        for images in (40, 150):
            rates = equal_runs.rejection_rates(rule, images, comparisons=1000)
            _row(rule, images, *(rates[name] for name in metrics))
