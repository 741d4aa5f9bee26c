"""scikit-learn's handwritten digits and a small classifier as mmengine data set and model.

``configs/digits.py`` imports this module by ``custom_imports``. Samples have the fields of mmpretrain.
"""

from __future__ import annotations

import torch
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.structures import BaseDataElement
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import Dataset


@DATASETS.register_module()
class Digits(Dataset):
    """1,797 images of 8x8 pixels, a third of them for validation.

    Args:
        train: Whether to use the training set.
    """

    def __init__(self, train: bool) -> None:
        data = load_digits()
        parts = train_test_split(data.data / 16, data.target, test_size=1 / 3, random_state=0, stratify=data.target)
        inputs, labels = (parts[0], parts[2]) if train else (parts[1], parts[3])
        self.inputs = torch.tensor(inputs, dtype=torch.float32)
        self.labels = torch.tensor(labels)
        self.metainfo = dict(classes=[str(name) for name in data.target_names])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        sample = BaseDataElement(metainfo=dict(sample_idx=index), gt_label=self.labels[index : index + 1])
        return dict(inputs=self.inputs[index], data_samples=sample)


@MODELS.register_module()
class DigitsClassifier(BaseModel):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(
        self, inputs: list[Tensor], data_samples: list[BaseDataElement] | None = None, mode: str = "tensor"
    ) -> Tensor | dict | list[BaseDataElement]:
        """Logits, losses or data samples with ``pred_score`` and ``pred_label``, by mode."""
        logits = self.layers(torch.stack(inputs))
        if mode == "loss":
            return dict(loss=nn.functional.cross_entropy(logits, torch.cat([s.gt_label for s in data_samples])))
        if mode == "tensor":
            return logits
        for sample, score in zip(data_samples, logits.softmax(dim=1)):
            sample.pred_score = score
            sample.pred_label = score.argmax(dim=0, keepdim=True)
        return data_samples
