"""Gradients that backward computes between ``aggregate`` and ``step``."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import DCGD, EFSGD, ConfigError, Identity, TopK
from mpicomp.torch import Compressed
from tests.torch.models import loss, network, values


def made(**options):
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, Compressed(sgd, DCGD(Identity()), module=model, workers=2, **options)


def bring(model, opt, k):
    """The gradients of step k, cleared by the model's ``zero_grad`` and not the optimiser's."""
    for i in opt.hosted:
        model.zero_grad()
        loss(model, i, k).backward()
        opt.collect(i)


def test_after_a_further_backward_the_step_averages_anew():
    """A program averages, leaves the step out, and clears the model's gradients: the estimate is stale."""
    model, opt = made()
    theirs, plain = made()
    for k in range(4):
        bring(model, opt, k)
        if k == 1 and opt.aggregate():
            continue
        opt.step()
    for k in (0, 2, 3):
        bring(theirs, plain, k)
        plain.step()
    assert values(model) == values(theirs)


def test_a_second_aggregate_sends_nothing_unless_the_gradients_were_changed():
    """Else what the first had sent would be lost: the memory of error feedback takes it for applied."""
    trained = []
    for calls in (1, 2):
        model = network()
        opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), EFSGD(TopK(k=0.1)), module=model)
        for k in range(4):
            opt.zero_grad()
            loss(model, 0, k).backward()
            assert all(opt.aggregate() for _ in range(calls))
            opt.step()
        assert opt.aggregator.steps == 4
        trained.append(values(model))
    assert trained[0] == trained[1]
    for change in (lambda p: p.grad.mul_(0.5), lambda p: setattr(p, "grad", p.grad * 0.5)):
        steps = opt.aggregator.steps
        opt.aggregate()
        change(model[0].bias)
        opt.aggregate()
        assert opt.aggregator.steps == steps + 2
        opt.step()


def test_after_a_step_that_was_left_out_the_next_one_is_taken():
    model, opt = made(on_nonfinite="skip")
    bring(model, opt, 0)
    model.zero_grad()
    (loss(model, 1, 0) * torch.nan).backward()
    opt.collect(1)
    assert not opt.aggregate()
    bring(model, opt, 1)
    opt.step()
    assert (opt.aggregator.steps, opt.aggregator.skipped) == (1, 1)


def test_after_an_error_in_the_inner_step_the_next_one_averages_anew():
    model, opt = made()

    def fail(*_):
        raise KeyError("of the program")

    bring(model, opt, 0)
    with opt.register_step_pre_hook(fail), pytest.raises(KeyError):
        opt.step()
    bring(model, opt, 1)
    opt.step()
    assert opt.aggregator.steps == 2


def test_no_hook_stays_behind():
    """Between step and ``aggregate`` a backward costs nothing."""
    model, opt = made()
    for k in range(2):
        bring(model, opt, k)
        opt.aggregate()
        opt.step()
    bring(model, opt, 2)
    opt.aggregate()
    opt.zero_grad()
    own = opt._clipping._watched
    assert [p is own for p in model.parameters() if p._post_accumulate_grad_hooks] in ([True], [])


def test_after_aggregate_a_closure_is_refused():
    """It would not be called."""
    model, opt = made()
    bring(model, opt, 0)
    opt.aggregate()
    with pytest.raises(ConfigError, match="has averaged gradients already"):
        opt.step(lambda _: None)
    opt.step()
    assert opt.aggregator.steps == 1
