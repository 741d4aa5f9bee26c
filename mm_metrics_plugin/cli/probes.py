"""What the environment check tries out, in a process of its own: a library that dies takes nothing with it.

    python -m mm_metrics_plugin.cli.probes mmengine mmdet

prints one marked line of JSON a probe: what was found to work, or the error. The check runs it through the launcher of
the command, so that probes which need no torch are tried out where torch cannot be imported.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

# Options of the metrics that cannot be built without any.
NEEDED = {"FieldMean": {"field": "value"}, "FieldSum": {"field": "value"}}


class ProbeError(Exception):
    """Something imports but does not do what it should."""


def reports() -> str:
    """A report on one detection, read from files, drawn and written."""
    _write_report()
    return "reads results, counts, draws and writes"


def page() -> str:
    """The page of such a report."""
    _write_report("--html")
    return "report.html is written"


def _write_report(*options: str) -> None:
    from mm_metrics_plugin.cli import main

    truth = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 10, "height": 10}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "area": 25, "iscrowd": 0}],
    }
    found = [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "score": 0.9}]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "truth.json").write_text(json.dumps(truth))
        (folder / "found.json").write_text(json.dumps(found))
        names = [str(folder / part) for part in ("truth.json", "found.json", "report")]
        # --debug: an error comes here as it is, not as a line on stderr.
        main(["detection", *names, "--quiet", "--debug", *options])
        f1 = json.loads((folder / "report" / "report.json").read_text())["protocols"]["coco"]["macro_f1"]
        expect(f1 == 1.0, f"a perfect detection has F1 {f1}, expected 1.0")
        expect(not options or (folder / "report" / "report.html").exists(), "there is no report.html")


def mmengine() -> str:
    """Every metric, built from its name."""
    from mmengine.registry import METRICS

    return f"{len(build_all(METRICS))} metrics registered and built by name"


def checkpoints() -> str:
    """A checkpoint as mmengine's runner saves it, loaded again."""
    import torch
    from mmengine.logging import HistoryBuffer
    from mmengine.runner import CheckpointLoader

    with tempfile.TemporaryDirectory() as name:
        path = str(Path(name) / "epoch_1.pth")
        torch.save({"message_hub": {"log_scalars": {"auc": HistoryBuffer([0.5], [1])}}}, path)
        CheckpointLoader.load_checkpoint(path, map_location="cpu")
    return "mmengine loads the checkpoints it saves"


def mmdet() -> str:
    """DetectionPRF in mmdet's scope, on mmdet's own samples."""
    import torch
    from mmdet.registry import METRICS
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData

    _import_everything("mmdet")
    boxes, labels = torch.tensor([[1.0, 1.0, 6.0, 6.0]]), torch.tensor([0])
    sample = DetDataSample(metainfo={"img_id": 1})
    sample.gt_instances = InstanceData(bboxes=boxes, labels=labels)
    sample.pred_instances = InstanceData(bboxes=boxes, labels=labels, scores=torch.tensor([0.9]))
    return _run(METRICS, {"type": "DetectionPRF", "num_classes": 1}, [sample], {"det/f1": 1.0})


def mmpretrain() -> str:
    """SingleLabelAUC in mmpretrain's scope, on mmpretrain's own samples."""
    import torch
    from mmpretrain.registry import METRICS
    from mmpretrain.structures import DataSample

    _import_everything("mmpretrain")
    pairs = zip([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    samples = [DataSample().set_pred_score(torch.tensor([1 - s, s])).set_gt_label(y) for s, y in pairs]
    return _run(METRICS, {"type": "SingleLabelAUC"}, samples, {"single-label/auc": 0.75})


def mmseg() -> str:
    """MeanIoU in mmseg's scope, on mmseg's own samples."""
    import torch
    from mmengine.structures import PixelData
    from mmseg.registry import METRICS
    from mmseg.structures import SegDataSample

    _import_everything("mmseg")
    sample = SegDataSample()
    sample.gt_sem_seg = PixelData(data=torch.tensor([[[0, 0, 1, 1]]]))
    sample.pred_sem_seg = PixelData(data=torch.tensor([[[0, 1, 0, 1]]]))
    return _run(METRICS, {"type": "MeanIoU", "num_classes": 2}, [sample], {"sem-seg/mIoU": 1 / 3})


def _import_everything(library: str) -> None:
    """What a training run of the library imports: models, data sets and transforms, with all that these import."""
    import_module(f"{library}.utils").register_all_modules(init_default_scope=False)


def _run(registry: Any, config: Dict[str, Any], samples: List[Any], expected: Dict[str, float]) -> str:
    """All metrics built through a library's registry, and one of them evaluated as its test loop does."""
    from mmengine.evaluator import Evaluator

    built = build_all(registry)
    evaluator = Evaluator([registry.build(config)])
    evaluator.process(data_samples=samples, data_batch=None)
    found = evaluator.evaluate(len(samples))
    for key, value in expected.items():
        expect(found.get(key) == value, f"{config['type']} gives {key} = {found.get(key)}, expected {value}")
    return f"{len(built)} metrics built in its scope, {config['type']} right on its samples"


def build_all(registry: Any) -> List[str]:
    """Builds every metric of this package by its name; the names."""
    from mmengine.evaluator import BaseMetric

    from mm_metrics_plugin import metrics

    classes = {name: getattr(metrics, name) for name in metrics.__all__}
    names = [name for name, found in classes.items() if issubclass(found, BaseMetric) and not isabstract(found)]
    for name in names:
        metric = registry.build({"type": name, **NEEDED.get(name, {})})
        expect(type(metric) is classes[name], f"{name} is taken by {type(metric).__module__}")
    return names


def expect(condition: bool, message: str) -> None:
    """Raises ProbeError with the message unless the condition holds.

    Example:
        >>> expect(1 + 1 == 2, "arithmetic has changed")
    """
    if not condition:
        raise ProbeError(message)


PROBES: Dict[str, Callable[[], str]] = {
    probe.__name__: probe for probe in (reports, page, mmengine, checkpoints, mmdet, mmpretrain, mmseg)
}


MARK = "probe: "


def main(names: Sequence[str]) -> None:
    """Runs the probes and prints what came of each, at once, so that it is known which one a process died of."""
    warnings.simplefilter("ignore")  # libraries announce what they will change one day
    for name in names:
        try:
            found = {"works": PROBES[name]()}
        except Exception as error:  # whatever a broken installation raises is what is asked for
            found = {"error": f"{type(error).__name__}: {error}"}
        print(f"\n{MARK}{json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
