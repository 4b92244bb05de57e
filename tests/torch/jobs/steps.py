"""What the ranks of a training do: steps of every kind, saved, overlapped and scaled; buffers."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress

import torch

from mpicomp import DCGD, DIANA, MARINA, VRMARINA, DivergedError, Identity, Natural, PowerSGD, RandK
from mpicomp.torch import Compressed, load, save
from tests.torch.jobs.common import WORLD, digest
from tests.torch.kinds import Kinds, of_workers
from tests.torch.loops import TOPK, compressed, step, train
from tests.torch.models import loss, network


def fixed_workers():
    """Eight workers on any number of ranks; rank 0's start counts."""
    told = []
    for method in (TOPK, PowerSGD(2), DCGD(Identity())):
        model = network(normed=True, seed=1 + WORLD.rank)
        opt = compressed(model, method, workers=8)
        train(opt, model, range(6))
        told += [digest(model), WORLD.bcast(opt.ledger.up.tolist())]
        opt.aggregator.close()
    return told


def closures():
    """Four workers whose closures take their number, at two points a step or one."""
    told = []
    for method in (MARINA(RandK(k=0.3), p=0.3), VRMARINA(RandK(k=0.3), batch=None, p=0.3), TOPK):
        model = network(normed=True, seed=1 + WORLD.rank)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = Compressed(sgd, method, module=model, workers=4)
        losses = []
        for k in range(6):

            def closure(i, k=k, opt=opt, model=model):
                opt.zero_grad()
                found = loss(model, i, k)
                found.backward()
                return found.detach()

            own = WORLD.allgather([float(found) for found in opt.step(closure)])
            losses += [found for of_rank in own for found in of_rank]
        assert len(losses) == 24
        told += [digest(model), losses, WORLD.bcast(opt.ledger.up.tolist())]
        opt.aggregator.close()
    return told


def own_closure():
    """A worker a rank: the closure takes no number."""
    model = network(normed=True, seed=1 + WORLD.rank)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = Compressed(sgd, MARINA(RandK(k=0.3), p=0.3), module=model)
    for k in range(6):

        def closure(k=k):
            opt.zero_grad()
            found = loss(model, WORLD.rank, k)
            found.backward()
            return found.detach()

        opt.step(closure)
    return digest(model)


def saved(folder):
    """Five steps, which are saved; or four more from what is saved in ``folder``."""
    model = network(normed=True, seed=3 + WORLD.rank)
    opt = compressed(model, workers=8)
    if os.path.exists(folder):
        load(folder, opt, model)
        train(opt, model, range(5, 9))
        return digest(model)
    train(opt, model, range(5))
    save(folder, opt, model)
    return digest(model)


def uninterrupted():
    model = network(normed=True, seed=3)
    opt = compressed(model, workers=8)
    train(opt, model, range(9))
    return digest(model)


def overlapped():
    """Gradients that leave while backward goes on give the bits and the bytes of those that wait.

    One parameter has no gradient in some steps of a rank, and gradients are clipped after ``aggregate``.
    """
    told = []
    for blocks in (2, 3, 7):
        for method in (TOPK, DIANA(Natural(), gamma=1), DCGD(Identity())):
            pair = []
            for overlap in (False, True):
                model = network(normed=True, seed=1 + WORLD.rank)
                unused = torch.nn.Linear(4, 4)
                whole = torch.nn.ModuleList([model, unused])
                opt = compressed(whole, method, server="sharded", blocks=blocks, overlap=overlap)
                for k in range(6):
                    opt.zero_grad()
                    extra = unused(torch.ones(4)).sum() if k % 2 == WORLD.rank % 2 else 0.0
                    (loss(model, WORLD.rank, k) + extra).backward()
                    opt.aggregate()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                    opt.step()
                opt.aggregator.settle()
                ledger = opt.ledger
                pair.append([digest(whole), ledger.up.tolist(), ledger.down.tolist(), ledger.paper_bits_up])
                opt.aggregator.close()
            assert pair[0] == pair[1], (blocks, method)
            told.append(pair[0][0])
    return len(set(told))


def overlap_not_finite():
    """A bad gradient of one rank leaves the step out on all, and what had left is forgotten."""
    pair = []
    for overlap in (False, True):
        model = network(seed=1)
        opt = compressed(model, server="sharded", blocks=5, overlap=overlap, on_nonfinite="skip")
        for k in range(5):
            opt.zero_grad()
            bad = k in (1, 2) and WORLD.rank == k
            (loss(model, WORLD.rank, k) * (float("nan") if bad else 1.0)).backward()
            opt.step()
        pair.append([digest(model), opt.aggregator.skipped])
    assert pair[0] == pair[1]
    return pair[0][1]


def overflow_on_one_rank():
    """One decision: the step is left out on all ranks, and only the rank that overflowed halves its scale."""
    model, plain = network(), network()
    opt, without = (
        Compressed(torch.optim.SGD(m.parameters(), lr=0.1), TOPK, module=m) for m in (model, plain)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1000)
    for k in range(6):
        opt.zero_grad()
        bad = k == 2 and WORLD.rank == 1
        scaler.scale(loss(model, WORLD.rank, k) * (float("inf") if bad else 1.0)).backward()
        scaler.step(opt)
        scaler.update()
        if k != 2:
            without.zero_grad()
            loss(plain, WORLD.rank, k).backward()
            without.step()
    assert digest(model) == digest(plain)
    return WORLD.allgather(scaler.get_scale()), opt.aggregator.skipped


def dedicated_server():
    model = network(normed=True)
    opt = compressed(model, server="dedicated")
    for k in range(4):
        if opt.hosted:
            opt.zero_grad()
            loss(model, opt.hosted.start, k).backward()
        opt.step()
    return digest(model)


def left_out_on_the_server():
    """The warnings of training on every rank though rank 0 hosts no worker; without and with local steps."""
    told = []
    for options in ({}, {"start_after": 2}, {"sync_every": 2}):
        for alone in (False, True):
            model = network()
            opt = compressed(model, server="dedicated", **options)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                for k in range(4):
                    if opt.hosted or not alone:
                        opt.zero_grad()
                        loss(model, WORLD.rank, k).backward()
                    opt.step()
            assert {one.filename for one in seen if "left out of" in str(one.message)} <= {__file__}
            told.append(sum("gradient that it was given is left out" in str(one.message) for one in seen))
    return WORLD.allgather(told)


def aggregated_again():
    """A second time after a further backward on rank 1 alone, and a third time without any."""
    model = network()
    opt = compressed(model, DCGD(Identity()))
    for k in range(3):
        opt.zero_grad()
        loss(model, WORLD.rank, k).backward()
        opt.aggregate()
        if WORLD.rank == 1:
            loss(model, WORLD.rank, k).backward()
        opt.aggregate()
        opt.aggregate()
        opt.step()
    assert len({*WORLD.allgather(digest(model))}) == 1
    return opt.aggregator.steps


def looked_at_on_one_rank():
    """Rank 0 puts other values in for a while, as for an evaluation; the training is the same."""
    found = []
    for looks in (False, True):
        model = network()
        opt = compressed(model)
        for k in range(4):
            train(opt, model, [k])
            if looks and WORLD.rank == 0:
                kept = {name: value.clone() for name, value in model.state_dict().items()}
                model.load_state_dict(network(seed=9).state_dict())
                model.load_state_dict(kept)
        found.append(digest(model))
    return found[0] == found[1]


def outside_the_module():
    model, head = network(seed=WORLD.rank), torch.nn.Linear(3, 3)
    sgd = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    Compressed(sgd, TOPK, module=model).check()
    return bool(digest(head))


def a_mask():
    """Four steps of a model with BatchNorm and a buffer that stays as it is."""
    model = network(normed=True)
    model.register_buffer("mask", torch.ones(100))
    opt = compressed(model)
    train(opt, model, range(4))
    digest(model)
    return opt.buffers.nbytes


def every_kind_of_buffer():
    """The names of buffers that are not worker 0's, after each step of a worker a rank."""
    model = Kinds()
    off, opt = of_workers(model, None)
    opt.check()
    (running,) = set(WORLD.allgather(tuple(model.norm.running_var.tolist())))
    assert min(running) > 0
    return WORLD.allreduce(off)


def not_finite():
    model = network()
    opt = compressed(model)
    (loss(model, WORLD.rank, 0) * (float("nan") if WORLD.rank == 1 else 1.0)).backward()
    try:
        opt.step()
    except DivergedError as error:
        return str(error)


def interrupted(sync_every):
    """Rank 1 is interrupted where the other ranks wait for its buffers, and goes on."""
    model = network(normed=True)
    opt = compressed(model, sync_every=int(sync_every))

    def interrupt():
        raise KeyboardInterrupt

    for k in range(6):
        if WORLD.rank == 1 and k == 3:
            opt.buffers.step = interrupt
        with suppress(KeyboardInterrupt):
            step(opt, model, k, WORLD.rank)
