"""One rank of a training with mpicomp.torch; what it does is named by the first argument.

Prints a line of JSON on rank 0, where it comes to its end.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from hashlib import sha256

import torch
from mpi4py import MPI

from mpicomp import (
    DCGD,
    DIANA,
    EF21SGDM,
    MARINA,
    VRMARINA,
    DivergedError,
    DoubleSqueeze,
    Identity,
    Natural,
    PowerSGD,
    RandK,
    TopK,
)
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.torch import Compressed, Hook, hook, load, save
from tests.torch.kinds import Kinds, of_workers
from tests.torch.loops import step
from tests.torch.models import loss, network, values

torch.set_num_threads(1)
WORLD = MPI.COMM_WORLD
TOPK = EF21SGDM(TopK(k=0.2), eta=0.3)
STREAMED = TopK(k=0.3), TopK(k=0.3)


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


def ddp(model):
    """The model as torch's DDP has it, over gloo."""
    if not torch.distributed.is_initialized():
        rendezvous = f"file://{sys.argv[2]}"
        torch.distributed.init_process_group(
            "gloo", init_method=rendezvous, rank=WORLD.rank, world_size=WORLD.size
        )
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002)


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


def dedicated_server():
    model = network(normed=True)
    opt = compressed(model, server="dedicated")
    for k in range(4):
        if opt.hosted:
            opt.zero_grad()
            loss(model, opt.hosted.start, k).backward()
        opt.step()
    return digest(model)


def other_start():
    Compressed(torch.optim.SGD(network(seed=WORLD.rank).parameters(), lr=0.1), TOPK)


def other_rate():
    model = network()
    Compressed(torch.optim.SGD(model.parameters(), lr=0.1 + WORLD.rank), TOPK, module=model)


LATE = ({"start_after": 5, "sync_every": 2}, {"start_after": 5, "sync_every": 2, "fragments": 2})


def schedules_of_their_own():
    """Rank 1 halves the rate of the optimiser that steps with the mean; what is said.  Then they go on."""
    said = []
    for local in ({}, {"sync_every": 2}, {"sync_every": 4, "fragments": 2}, {"start_after": 2}, *LATE):
        model = network()
        inner = torch.optim.SGD(model.parameters(), lr=0.5)
        outer = torch.optim.SGD(model.parameters(), lr=0.5) if "sync_every" in local else None
        opt = Compressed(inner, TOPK, module=model, outer=outer, **local)
        first = local.get("start_after", 0) > 3  # the inner optimiser steps with the mean at first
        (group,) = (inner if first else outer or inner).param_groups
        train(opt, model, range(3))
        group["lr"] *= 1 - 0.5 * WORLD.rank
        try:
            train(opt, model, range(3, 4))
        except ConfigError as error:
            said.append(str(error))
        group["lr"] = 0.5
        train(opt, model, range(3, 8))
        opt.check()
    return WORLD.allgather(said)


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


def stepped_alone():
    """Rank 1 leaves a step out after ``aggregate``, or puts its own gradients there; what is said next.

    With the same on both ranks they go on.
    """
    said = []
    for where, alone in (("step", True), ("gradients", True), ("step", False), ("gradients", False)):
        model = network()
        opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
        for k in range(3):
            if k == 2 and alone:
                try:
                    train(opt, model, [k])
                except ConfigError as error:
                    said.append(str(error))
                break
            opt.zero_grad()
            loss(model, WORLD.rank, k).backward()
            opt.aggregate()
            here = k == 1 and (WORLD.rank == 1 or not alone)
            if here and where == "gradients":
                of = loss(model, WORLD.rank if alone else 7, k)
                own = torch.autograd.grad(of, [*model.parameters()])
                for p, g in zip(model.parameters(), own, strict=True):
                    p.grad = g
            if not (here and where == "step"):
                opt.step()
        else:
            opt.check()
    return WORLD.allgather(said)


def other_settings():
    """Of each setting by which ranks would make other calls: what both ranks are told."""
    here = WORLD.rank
    changed = {
        "sync_every": {"sync_every": 6 + here},
        "delay": {"delay": here},
        "keep": {"keep": here / 2},
        "fragments": {"fragments": 1 + here},
        "more fragments": {"fragments": 3 - here},
        "start_after": {"start_after": 3 * here},
        "module": {"module": network() if here else None},
    }
    told = {}
    for name, options in changed.items():
        model = network()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            Compressed(sgd, TOPK, **{"module": model, "sync_every": 6} | options)
        except ConfigError as error:
            told[name] = str(error)
    overlapping = {"server": "sharded", "blocks": 2, "overlap": bool(here)}
    try:
        compressed(network(), **overlapping)
    except ConfigError as error:
        told["overlap"] = str(error)
    first, second = WORLD.allgather(told)
    assert first == second
    return first


def other_model():
    """One layer of many is longer; the line names it, and does not list all of them."""
    layers = [torch.nn.Linear(4, 4) for _ in range(40)]
    layers.append(torch.nn.Linear(4, 4 + WORLD.rank))
    model = torch.nn.Sequential(*layers)
    try:
        Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK)
    except ConfigError as error:
        return str(error)


def alike():
    """A rate as a tensor, and a function in a group, of which each rank has its own."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    sgd.param_groups[0]["scale"] = lambda x: x
    opt = Compressed(sgd, TOPK, module=model)
    train(opt, model, range(2))
    opt.check()
    return True


def a_little_other_rate():
    model = network()
    lr = torch.tensor(1e-3) * (1 + 1e-6 * WORLD.rank)
    Compressed(torch.optim.SGD(model.parameters(), lr=lr), TOPK, module=model, sync_every=2)


def other_outer(kind):
    """Rank 1 has another rate of the outer steps, a class with the same settings, or momenta of its own."""
    model = network()
    outer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    if WORLD.rank:
        match kind:
            case "rate":
                outer.param_groups[0]["lr"] = 0.6
            case "class":
                outer.__class__ = type("Other", (torch.optim.SGD,), {})
            case "momenta":
                loss(model, 0, 0).backward()
                outer.step()
    compressed(model, sync_every=4, outer=outer)


def other_momenta():
    """Rank 0 alone goes on from a state with momenta."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if WORLD.rank == 0:
        loss(model, 0, 0).backward()
        sgd.step()
    Compressed(sgd, TOPK, module=model)


def changed_alone():
    model = network()
    opt = compressed(model)
    train(opt, model, range(2))
    opt.check()
    if WORLD.rank == 1:
        with torch.no_grad():
            next(model.parameters()).add_(1e-3)
    opt.check()


def changed_between_steps():
    """Rank 1 alone changes what all ranks have in common; what is said.  Changed on both they go on."""

    def load(model, opt):
        model.load_state_dict(network(seed=9).state_dict())

    def draw(model, opt):
        torch.nn.init.normal_(model[0].weight, generator=torch.Generator().manual_seed(3))

    def replace(model, opt):
        model[0].bias.data = torch.full((8,), 0.5)

    def remember(model, opt):
        sgd = torch.optim.SGD(network().parameters(), lr=0.1, momentum=0.9)
        opt.inner.load_state_dict(sgd.state_dict())

    def remember_outer(model, opt):
        other = network()
        sgd = torch.optim.SGD(other.parameters(), lr=1.0, momentum=0.5)
        loss(other, 0, 0).backward()
        sgd.step()
        opt.outer.load_state_dict(sgd.state_dict())

    def fail(model, opt):
        def out_of_memory(*_):
            raise MemoryError

        with suppress(MemoryError), opt.register_step_pre_hook(out_of_memory):
            step(opt, model, 9, WORLD.rank)

    early = {"server": "sharded", "blocks": 2, "overlap": True}
    cases = [(change, {}) for change in (load, draw, replace, remember, fail)]
    cases += [(load, early), (load, {"sync_every": 2}), (load, {"start_after": 9, "sync_every": 2})]
    cases += [(remember_outer, {"sync_every": 1 + k, "fragments": k}) for k in (1, 2)]
    said = []
    for change, options in cases:
        for alone in (False, True):
            model = network()
            sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            if change is remember_outer:
                options["outer"] = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
            opt = Compressed(sgd, TOPK, module=model, **options)
            for k in range(5):
                if k == (0 if options.get("sync_every") and change is load and len(options) == 1 else 2):
                    if WORLD.rank == 1 or not alone:
                        change(model, opt)
                    elif change is fail:
                        step(opt, model, 9, WORLD.rank)
                try:
                    step(opt, model, k, WORLD.rank)
                except ConfigError as error:
                    said.append((change.__name__, alone, str(error)))
                    break
            else:
                opt.check()
                said.append((change.__name__, alone, ""))
    return WORLD.allgather(said)


def outer_step_that_fails():
    """Rank 1 alone catches an error in the outer step, and takes it before its next step."""
    model = network(normed=True)
    inner, outer = (torch.optim.SGD(model.parameters(), lr=rate) for rate in (0.1, 1.0))
    opt = Compressed(inner, TOPK, module=model, sync_every=2, outer=outer)

    def fail(*_):
        if failing:
            raise MemoryError

    outer.register_step_pre_hook(fail)
    for k in range(6):
        failing = k == 3 and WORLD.rank == 1
        with suppress(MemoryError):
            step(opt, model, k, WORLD.rank)
        failing = False
    digest(model)
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


def another_ranks_state():
    """The habit of DDP: rank 0 saves, and all ranks load that."""
    model = network()
    opt = compressed(model)
    train(opt, model, range(2))
    opt.load_state_dict(WORLD.bcast(opt.state_dict()))


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


def other_shape():
    model = network()
    model.register_buffer("mask", torch.ones(2 + WORLD.rank, 2 + WORLD.rank))
    compressed(model)


def other_buffers():
    model = network()
    if WORLD.rank:
        model.register_buffer("more", torch.ones(2))
    compressed(model)


def not_finite():
    model = network()
    opt = compressed(model)
    (loss(model, WORLD.rank, 0) * (float("nan") if WORLD.rank == 1 else 1.0)).backward()
    try:
        opt.step()
    except DivergedError as error:
        return str(error)


if __name__ == "__main__":
    told = globals()[sys.argv[1]](
        *sys.argv[2:] if sys.argv[1] in ("saved", "streamed", "other_outer") else []
    )
    if WORLD.rank == 0:
        print(json.dumps(told))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
