"""Experts of which a step uses some, with integers for gradients: every sum of theirs is exact in float32."""

from __future__ import annotations

import torch
from torch import nn

EXPERTS, SIZE = 5, 40


class Experts(nn.Module):
    """One weight for each expert; the output is linear in the weights of those that are used."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(SIZE)) for _ in range(EXPERTS)])

    def forward(self, used, factors):
        return sum((self.weights[j] * factors).sum() for j in used)


def factors(worker, step):
    """The gradient of every expert that ``worker`` uses in ``step``."""
    draw = torch.Generator().manual_seed(1000 * step + worker)
    return torch.randint(-50, 51, (SIZE,), generator=draw).float()
