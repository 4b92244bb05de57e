"""Ranks that were given other models, settings or states: each returns what was refused."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch

from mpicomp.base.errors import ConfigError
from mpicomp.torch import Compressed
from tests.torch.jobs.common import WORLD, digest
from tests.torch.loops import TOPK, compressed, step, train
from tests.torch.models import loss, network

LATE = ({"start_after": 5, "sync_every": 2}, {"start_after": 5, "sync_every": 2, "fragments": 2})


def other_start():
    Compressed(torch.optim.SGD(network(seed=WORLD.rank).parameters(), lr=0.1), TOPK)


def other_frozen():
    """Each rank would train the same head on a backbone of its own."""
    model = network()
    model[0].requires_grad_(False).weight.add_(WORLD.rank)
    Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK)


def other_rate():
    model = network()
    Compressed(torch.optim.SGD(model.parameters(), lr=0.1 + WORLD.rank), TOPK, module=model)


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


def stepped_alone():
    """Rank 1 leaves a step out after ``aggregate``, puts its own gradients there, or clips; what is said.

    With the same on both ranks they go on, and also where rank 1 clips by what is no bound.
    """
    said = []
    cases = [(where, alone) for alone in (True, False) for where in ("step", "gradients", "clipped")]
    for where, alone in [*cases, ("measured", True)]:
        model = network()
        opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
        for k in range(3):
            if k == 2 and alone and where != "measured":
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
            if here and where in ("clipped", "measured"):
                bound = 1e-3 if where == "clipped" else float("inf")
                torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
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
    """A rate as a tensor, a function in a group and objects as names, of which each rank has its own."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    sgd.param_groups[0]["scale"] = lambda x: x
    sgd.state[model[0].weight] = {"own": {object(): 1.0, object(): 2.0}}
    if WORLD.rank:
        _ = sgd.state[model[0].bias]  # which makes an empty one
    opt = Compressed(sgd, TOPK, module=model)
    train(opt, model, range(2))
    opt.check()
    return True


def other_rate_of_numpy():
    model = network()
    lr = np.float32(0.1) if WORLD.rank else np.float32(0.2)
    Compressed(torch.optim.SGD(model.parameters(), lr=lr), TOPK, module=model)


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


def other_memory(kind):
    """An optimiser of one's own keeps a tensor, or a dict in a dict; rank 1's has other values."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = torch.full((2,), 1.0 + WORLD.rank)
    sgd.state[model[0].weight] = kept if kind == "tensor" else {"block": {"shampoo": kept}}
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

    def forget(model, opt):
        opt.state.clear()

    def reset(model, opt):
        for own in opt.state.values():
            own["momentum_buffer"].zero_()

    def fail(model, opt):
        def out_of_memory(*_):
            raise MemoryError

        with suppress(MemoryError), opt.register_step_pre_hook(out_of_memory):
            step(opt, model, 9, WORLD.rank)

    early = {"server": "sharded", "blocks": 2, "overlap": True}
    cases = [(change, {}) for change in (load, draw, replace, remember, forget, reset, fail)]
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


def stepped_by_the_inner_optimiser():
    """What is said of its own step in two Compressed, and in one; nothing once both are closed."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    both = [Compressed(sgd, TOPK, module=model, **options) for options in ({}, {"sync_every": 2})]
    torch.optim.lr_scheduler.ExponentialLR(sgd, 0.9)  # which replaces sgd.step
    train(both[1], model, range(4))
    said = []
    for close in (True, True, False):
        try:
            sgd.step()
        except ConfigError as error:
            said.append(str(error))
        if close:
            both.pop().aggregator.close()
    return WORLD.allgather(said)


class Around(torch.optim.Optimizer):
    """An optimiser around another one, as accelerate's: it has none of torch's hooks."""

    def __init__(self, base):
        self.base, self.defaults, self.state = base, base.defaults, base.state
        self.param_groups, self.zero_grad, self.step = base.param_groups, base.zero_grad, base.step


def own_steps_that_are_allowed():
    """Around an optimiser without hooks, and after ``Compressed`` was refused."""
    model = network(seed=WORLD.rank)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with suppress(ConfigError):
        Compressed(sgd, TOPK)
    sgd.step()
    train(Compressed(Around(sgd), TOPK, module=model), model, range(2))
    return digest(model)


def another_ranks_state():
    """The habit of DDP: rank 0 saves, and all ranks load that."""
    model = network()
    opt = compressed(model)
    train(opt, model, range(2))
    opt.load_state_dict(WORLD.bcast(opt.state_dict()))


def other_shape():
    model = network()
    model.register_buffer("mask", torch.ones(2 + WORLD.rank, 2 + WORLD.rank))
    compressed(model)


def other_buffers():
    model = network()
    if WORLD.rank:
        model.register_buffer("more", torch.ones(2))
    compressed(model)
