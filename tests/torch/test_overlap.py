"""Blocks of the gradient that leave while backward goes on: in one process."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import DCGD, EFSGD, MARINA, ConfigError, RandK, TopK
from mpicomp.torch import Compressed
from tests.torch.loops import TOPK, step
from tests.torch.models import loss, network, values

SERVED = {"server": "sharded", "blocks": 4}


def early(model, method=TOPK, **options):
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return Compressed(sgd, method, module=model, **SERVED | {"overlap": True} | options)


def test_overlap_is_training_without_it():
    """Also with a closure, with clipping, and where two backwards have an aggregation between them."""
    trained = []
    for overlap in (False, True):
        model = network(normed=True)
        opt = early(model, overlap=overlap)
        for k in range(6):
            step(opt, model, k)

        def closure(opt=opt, model=model):
            opt.zero_grad()
            loss(model, 0, 9).backward()
            return 1.0

        assert opt.step(closure) == 1.0
        trained.append(values(model))
    assert trained[0] == trained[1]


def test_gradients_that_are_cleared_to_zeros_are_not_changed_ones():
    """The next backward adds to them, one parameter after the other, in what was one vector."""
    trained = []
    for none in (True, False):
        model = network()
        opt = early(model)
        for k in range(3):
            opt.zero_grad(set_to_none=none)
            loss(model, 0, k).backward()
            opt.step()
        trained.append(values(model))
    assert trained[0] == trained[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"server": "shared", "blocks": None}, "where each rank serves blocks and has one worker"),
        ({"overlap": "no"}, "overlap='no'; allowed: True or False"),
        ({"workers": 2}, "where each rank serves blocks and has one worker"),
        ({"sync_every": 2}, "sync_every sends none"),
        ({"method": MARINA(RandK(k=2), p=0.3)}, "MARINA needs more than one block"),
    ],
)
def test_where_there_is_no_overlap(options, said):
    with pytest.raises(ConfigError, match=said):
        early(network(), **options)


def test_overlap_refuses_a_second_backward():
    model = network()
    early(model)
    loss(model, 0, 0).backward()
    with pytest.raises(ConfigError, match="has got a second gradient before opt"):
        loss(model, 0, 1).backward()


@pytest.mark.parametrize("part", [False, True])
def test_a_step_that_is_given_up_is_as_if_it_had_not_begun(part):
    """After ``drop`` the next backward was refused as a second one."""
    trained = []
    for given_up in (False, True):
        model = network()
        opt = early(model)
        step(opt, model, 0)
        if given_up:
            opt.zero_grad()
            (model[2](torch.ones(1, model[2].in_features)) if part else loss(model, 0, 9)).sum().backward()
            opt.aggregator.drop()
        step(opt, model, 1)
        step(opt, model, 2)
        trained.append(values(model))
    assert trained[0] == trained[1]


@pytest.mark.parametrize(("method", "warnings"), [(EFSGD(TopK(k=4)), 1), (DCGD(RandK(k=4)), 0)])
def test_overlap_warns_once_where_the_memory_of_a_frozen_parameter_is_lost(method, warnings, recwarn):
    model = network()
    opt = early(model, method)
    for k in range(4):
        model[0].weight.requires_grad_(k < 2)
        step(opt, model, k)
    assert ["'0.weight' was frozen" in str(one.message) for one in recwarn] == [True] * warnings


@pytest.mark.parametrize("replaced", [False, True])
def test_overlap_refuses_gradients_that_are_changed_after_they_left(replaced):
    """Another tensor may have the version of the one that left."""
    model = network()
    opt = early(model)
    loss(model, 0, 0).backward()
    if replaced:
        for p in model.parameters():
            p.grad = p.grad.clamp(-1e-3, 1e-3)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with pytest.raises(ConfigError, match="was changed after backward, when it had left already"):
        opt.step()


def test_overlap_takes_copies_of_the_gradients_that_left():
    trained = []
    for copied in (False, True):
        model = network()
        opt = early(model)
        for k in range(3):
            opt.zero_grad()
            loss(model, 0, k).backward()
            if copied:
                for p in model.parameters():
                    p.grad = p.grad.clone()
            opt.step()
        trained.append(values(model))
    assert trained[0] == trained[1]


def test_overlap_refuses_scaled_gradients():
    model = network()
    opt = early(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale(loss(model, 0, 0)).backward()
    with pytest.raises(ConfigError, match="GradScaler scales gradients that have left already"):
        scaler.step(opt)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_new_optimiser_takes_the_gradients_from_the_one_before(ended, overlap):
    """As after a parameter was frozen.  Closed, the one before takes none either."""
    trained = []
    for anew in (False, True):
        model = network()
        opt = early(model)
        step(opt, model, 0)
        state = opt.state_dict()
        if anew:
            if ended:
                opt.aggregator.close()
            opt = early(model, overlap=overlap)
            opt.load_state_dict(state)
        for k in range(1, 4):
            step(opt, model, k)
        trained.append(values(model))
    assert trained[0] == trained[1]
    opt.aggregator.close()
    loss(model, 0, 0).backward()
