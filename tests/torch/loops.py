"""What training loops of the tests share."""

from __future__ import annotations

import torch

from mpicomp import EF21SGDM, TopK
from mpicomp.torch import Compressed
from tests.torch.models import loss

TOPK = EF21SGDM(TopK(k=0.2), eta=0.3)


def step(opt, model, k, worker=0):
    opt.zero_grad()
    loss(model, worker, k).backward()
    opt.step()


def compressed(model, method=TOPK, **options):
    return Compressed(torch.optim.AdamW(model.parameters(), lr=1e-2), method, module=model, **options)


def train(opt, model, steps):
    for k in steps:
        for i in opt.hosted:
            opt.zero_grad()
            loss(model, i, k).backward()
            opt.collect(i)
        opt.step()
