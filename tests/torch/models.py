"""Small models and batches for the tests of mpicomp.torch."""

from __future__ import annotations

import torch
from torch import nn

CLASSES, FEATURES, ROWS = 3, 6, 32


def network(normed=False, seed=1):
    """Two layers, with BatchNorm between them if ``normed``."""
    torch.manual_seed(seed)
    between = [nn.BatchNorm1d(8)] if normed else []
    return nn.Sequential(nn.Linear(FEATURES, 8), *between, nn.Tanh(), nn.Linear(8, CLASSES))


def batch(worker, step):
    """The batch of a worker in a step."""
    draw = torch.Generator().manual_seed(1000 * step + worker)
    X = torch.randn(ROWS, FEATURES, generator=draw) + worker
    return X, torch.randint(CLASSES, (ROWS,), generator=draw)


def loss(model, worker, step):
    X, labels = batch(worker, step)
    return nn.functional.cross_entropy(model(X), labels)


def values(model):
    """All parameters and buffers, as bytes."""
    tensors = [*model.parameters(), *model.buffers()]
    return b"".join(t.detach().numpy().tobytes() for t in tensors)
