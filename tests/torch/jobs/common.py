"""What the jobs share: a model in ``Compressed``, its steps, and the hash that all ranks have."""

from __future__ import annotations

import sys
from hashlib import sha256

import torch
from mpi4py import MPI

from mpicomp import EF21SGDM, TopK
from mpicomp.torch import Compressed
from tests.torch.models import loss, values

torch.set_num_threads(1)
WORLD = MPI.COMM_WORLD
TOPK = EF21SGDM(TopK(k=0.2), eta=0.3)


def digest(model):
    """The hash of parameters and buffers, which is the same on all ranks."""
    (one,) = set(WORLD.allgather(sha256(values(model)).hexdigest()))
    return one


def compressed(model, method=TOPK, **options):
    return Compressed(torch.optim.AdamW(model.parameters(), lr=1e-2), method, module=model, **options)


def train(opt, model, steps):
    for k in steps:
        for i in opt.hosted:
            opt.zero_grad()
            loss(model, i, k).backward()
            opt.collect(i)
        opt.step()


def ddp(model):
    """The model as torch's DDP has it, over gloo."""
    if not torch.distributed.is_initialized():
        rendezvous = f"file://{sys.argv[2]}"
        torch.distributed.init_process_group(
            "gloo", init_method=rendezvous, rank=WORLD.rank, world_size=WORLD.size
        )
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002)
