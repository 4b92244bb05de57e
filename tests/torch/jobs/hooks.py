"""What the ranks of a training in DDP do, with the communication hook."""

from __future__ import annotations

import sys

import torch

from mpicomp import DCGD, EF21SGDM, Identity, TopK
from mpicomp.base.errors import RecordError
from mpicomp.torch import Compressed, Hook, hook
from tests.torch.jobs.common import WORLD, ddp, digest
from tests.torch.loops import TOPK
from tests.torch.models import loss, network


def beside_ddp():
    """Without compression: DDP's parameters up to rounding, BatchNorm's buffers included."""
    theirs, ours = network(True), network(True)
    parallel = ddp(theirs)
    one = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    two = Compressed(torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9), DCGD(Identity()), module=ours)
    for k in range(10):
        one.zero_grad()
        loss(parallel, WORLD.rank, k).backward()
        one.step()
        two.zero_grad()
        loss(ours, WORLD.rank, k).backward()
        two.step()
    pairs = list(zip(theirs.parameters(), ours.parameters(), strict=True))
    return max(float((p - q).abs().max().detach()) for p, q in pairs)


def beside_the_hook():
    """The hook's parameters are Compressed's, bit for bit, though DDP makes its buckets anew."""
    theirs, ours = network(), network()
    parallel = ddp(theirs)
    state = Hook(DCGD(Identity("f8")))
    parallel.register_comm_hook(state, hook)
    one, two = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (theirs, ours))
    two = Compressed(two, DCGD(Identity("f8")), module=ours)
    for k in range(6):
        one.zero_grad()
        loss(parallel, WORLD.rank, k).backward()
        one.step()
        two.zero_grad()
        loss(ours, WORLD.rank, k).backward()
        two.step()
    assert digest(theirs) == digest(ours)
    return state.aggregator.ledger.up_bytes == two.ledger.up_bytes


def the_hook_remembers():
    """With error feedback: the hook is an optimiser over the same parameters in DDP's order."""
    theirs, ours = network(), network()
    parallel = ddp(theirs)
    state = Hook(TOPK)
    parallel.register_comm_hook(state, hook)
    one = torch.optim.SGD(theirs.parameters(), lr=0.1)
    two = None
    for k in range(8):
        one.zero_grad()
        loss(parallel, WORLD.rank, k).backward()
        one.step()
        if two is None:  # DDP's order of the parameters is known now
            names = {p: i for i, p in enumerate(theirs.parameters())}
            order = [names[p] for p in state.parameters]
            in_order = [list(ours.parameters())[i] for i in order]
            two = Compressed(torch.optim.SGD(in_order, lr=0.1), TOPK)
        two.zero_grad()
        loss(ours, WORLD.rank, k).backward()
        two.step()
        assert digest(theirs) == digest(ours), k
    return True


def hooked(model, method=TOPK):
    """The model in DDP with a hook, and the hook."""
    parallel, state = ddp(model), Hook(method)
    parallel.register_comm_hook(state, hook)
    return parallel, state


def train_hooked(parallel, steps):
    sgd = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for k in steps:
        sgd.zero_grad()
        loss(parallel, WORLD.rank, k).backward()
        sgd.step()


def the_hook_goes_on():
    """Seven steps; and three, with a new model, DDP and hook for the other four."""
    whole, first, rest = network(), network(), network()
    parallel, _ = hooked(whole)
    train_hooked(parallel, range(7))
    parallel, state = hooked(first)
    train_hooked(parallel, range(3))
    state.save(sys.argv[3])
    rest.load_state_dict(first.state_dict())
    parallel, state = hooked(rest)
    state.load(sys.argv[3])
    train_hooked(parallel, range(3, 7))
    return digest(whole), digest(rest)


def the_hook_of_another_method():
    parallel, state = hooked(network())
    train_hooked(parallel, range(1))
    state.save(sys.argv[3])
    parallel, state = hooked(network(), EF21SGDM(TopK(k=0.5), eta=0.3))
    state.load(sys.argv[3])
    try:
        train_hooked(parallel, range(1))
    except RecordError as error:
        return str(error)
