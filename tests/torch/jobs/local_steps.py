"""What the ranks of a training do that exchange every few steps."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import torch

from mpicomp import DoubleSqueeze, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.torch import Compressed, load, save
from tests.torch.jobs.common import WORLD, digest
from tests.torch.loops import TOPK, compressed, step, train
from tests.torch.models import loss, network, values

STREAMED = TopK(k=0.3), TopK(k=0.3)


def local_steps():
    model = network(normed=True, seed=1 + WORLD.rank)
    opt = compressed(model, sync_every=3)
    for k in range(9):
        opt.zero_grad()
        loss(model, WORLD.rank, k).backward()
        opt.step()
    digest(model)
    return opt.aggregator.steps


def streamed(server, folder, keep, ahead):
    """Delayed exchanges of two fragments; saved after step 11, when one is under way, and loaded."""
    kept = {"keep": keep if keep == "delay" else float(keep), "ahead": float(ahead)}

    def made(seed):
        model = network(seed=seed)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        settings = {"sync_every": 6, "delay": 2, "fragments": 2} | kept
        return model, Compressed(sgd, DoubleSqueeze(*STREAMED), module=model, server=server, **settings)

    def go_on(model, opt, steps):
        for k in steps:
            opt.zero_grad()
            loss(model, WORLD.rank, k).backward()
            opt.step()

    whole, part, rest = (made(seed) for seed in (1 + WORLD.rank, 1 + WORLD.rank, 7))
    go_on(*whole, range(20))
    go_on(*part, range(11))
    assert part[1].aggregators[0].pending
    save(folder, part[1], part[0])
    load(folder, rest[1], rest[0])
    go_on(*rest, range(11, 20))
    assert values(rest[0]) == values(whole[0])
    whole[1].check()
    for one in whole[1].aggregators:
        one.settle()
    ledger = WORLD.bcast((whole[1].ledger.up.tolist(), whole[1].ledger.down.tolist()))
    ends = WORLD.allgather(sha256(values(whole[0])).hexdigest())
    return ends, sha256(whole[1].local.start.numpy().tobytes()).hexdigest(), ledger


def frozen_alone():
    """Rank 1 freezes a parameter; what is said.  Then rank 0 does too, and they go on."""
    said = []
    for local in ({}, {"sync_every": 2}, {"start_after": 2}):
        model = network()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        opt = Compressed(sgd, TOPK, module=model, **local)
        train(opt, model, range(4))
        if WORLD.rank == 1:
            model[0].bias.requires_grad_(False)
        try:
            train(opt, model, range(4, 6))
        except ConfigError as error:
            said.append(str(error))
        model[0].bias.requires_grad_(False)
        train(opt, model, range(6, 10))
        opt.check()
    return WORLD.allgather(said)


def outer_step_that_fails(every=2, delay=0):
    """Rank 1 alone catches an error in the outer step, and takes it before its next step."""
    model = network(normed=True)
    inner, outer = (torch.optim.SGD(model.parameters(), lr=rate) for rate in (0.1, 1.0))
    opt = Compressed(inner, TOPK, module=model, sync_every=every, delay=delay, outer=outer)

    def fail(*_):
        if failing:
            raise MemoryError

    outer.register_step_pre_hook(fail)
    for k in range(3 * every):
        failing = k == 2 * every - 1 and WORLD.rank == 1
        with suppress(MemoryError):
            step(opt, model, k, WORLD.rank)
        failing = False
    digest(model)
    return opt.aggregator.steps


def ends_in_an_exchange():
    """Rank 0 ends while an exchange is under way, which the other ranks end two steps later."""
    model = network(normed=True)
    opt = compressed(model, sync_every=4, delay=2)
    for k in range(6 + 2 * (WORLD.rank > 0)):
        step(opt, model, k, WORLD.rank)


def late_outer_step_that_fails():
    """As ``outer_step_that_fails``, at the end of a delayed exchange."""
    return outer_step_that_fails(every=4, delay=1)
