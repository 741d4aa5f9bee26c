"""Runners on samples in memory, with a model that returns the predictions of the samples."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner


class Model(BaseModel):
    """Learns nothing, and returns the data samples of the batch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, inputs, data_samples, mode="tensor"):
        return {"loss": self.weight * len(inputs)} if mode == "loss" else data_samples


class Dataset(torch.utils.data.Dataset):
    """Data samples in memory; reading one draws random numbers, as random transforms do."""

    def __init__(self, samples, **metainfo):
        self.samples, self.metainfo = samples, metainfo

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
        return dict(inputs=torch.zeros(1), data_samples=self.samples[index])


def collate(items):
    return {key: [item[key] for item in items] for key in ("inputs", "data_samples")}


def runner_for(folder, samples, metrics, hooks=(), epochs=0, **metainfo):
    """A Runner that validates with the metrics, after each epoch of training if there are epochs."""
    loader = dict(
        batch_size=8,
        num_workers=0,
        dataset=Dataset(samples, **metainfo),
        sampler=dict(type="DefaultSampler", shuffle=False),
        collate_fn=collate,
    )
    training = dict(
        train_dataloader=loader,
        train_cfg=dict(by_epoch=True, max_epochs=epochs),
        optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)),
    )
    backends = [dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")]
    return Runner(
        model=Model(),
        work_dir=str(folder),
        **(training if epochs else {}),
        val_dataloader=loader,
        val_cfg=dict(),
        val_evaluator=list(metrics),
        custom_hooks=list(hooks),
        randomness=dict(seed=0),
        default_hooks=dict(checkpoint=None),
        visualizer=dict(type="Visualizer", vis_backends=backends),
        experiment_name=f"{folder}".replace("/", "_"),
    )


def log_text(folder):
    """The text of the log files of a run."""
    return "\n".join(path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.log"))
