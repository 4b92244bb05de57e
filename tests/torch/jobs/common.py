"""The communicator of the jobs, the hash that all ranks have of a model, and the model in DDP."""

from __future__ import annotations

import sys
from hashlib import sha256

import torch
from mpi4py import MPI

from tests.torch.models import values

torch.set_num_threads(1)
WORLD = MPI.COMM_WORLD


def digest(model):
    """The hash of parameters and buffers, which is the same on all ranks."""
    (one,) = set(WORLD.allgather(sha256(values(model)).hexdigest()))
    return one


def ddp(model):
    """The model as torch's DDP has it, over gloo."""
    if not torch.distributed.is_initialized():
        rendezvous = f"file://{sys.argv[2]}"
        torch.distributed.init_process_group(
            "gloo", init_method=rendezvous, rank=WORLD.rank, world_size=WORLD.size
        )
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002)
