"""Gradients that are clipped before they are averaged are seen, and nothing else is."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import DCGD, MARINA, Identity, RandK
from mpicomp.torch import Compressed

SAID = r"clip_grad_norm_ there clips the gradient of each worker.*opt\.aggregate\(\)"


class One(torch.nn.Module):
    """A number x and, larger, a vector that is left alone; f_i(x) = slope_i x."""

    def __init__(self):
        super().__init__()
        self.x, self.other = torch.nn.Parameter(torch.zeros(())), torch.nn.Parameter(torch.zeros(5))


def made(method=None, **options):
    model = One()
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    return model, Compressed(sgd, method or DCGD(Identity()), module=model, **{"workers": 2} | options)


def bring(opt, model, slopes, between=lambda model: None):
    for i in opt.hosted:
        opt.zero_grad()
        (slopes[i] * model.x + model.other.sum()).backward()
        between(model)
        opt.collect(i)


def clip(model):
    torch.nn.utils.clip_grad_norm_([model.x], 1.0)


def test_the_wrong_order_is_another_step_and_is_said():
    """Of slopes 3 and -0.5 the mean, 1.25, is clipped to 1; those that are clipped have the mean 0.25."""
    model, opt = made()
    bring(opt, model, (3.0, -0.5))
    opt.aggregate()
    clip(model)
    opt.step()
    assert model.x.item() == pytest.approx(-1.0, abs=1e-5)
    model, opt = made()
    with pytest.warns(UserWarning, match=SAID) as said:
        for _ in range(2):
            bring(opt, model, (3.0, -0.5), clip)
            opt.step()
    assert model.x.item() == pytest.approx(-0.5, abs=1e-5)
    assert len(said) == 1  # once, and not in each step
    assert said[0].filename == __file__


CHANGES = {
    "clip_grad_value_": lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 1.0),
    "another tensor": lambda model: setattr(model.x, "grad", model.x.grad.clamp(-1.0, 1.0)),
    "to zero": lambda model: model.x.grad.zero_(),
    "to what is not finite": lambda model: model.x.grad.mul_(float("nan")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_are_said_too(change):
    model, opt = made()
    with pytest.warns(UserWarning, match=SAID):
        bring(opt, model, (3.0, -0.5), CHANGES[change])


def test_in_a_closure_too():
    """With one gradient a step, and with those at two points."""
    for method in (DCGD(Identity()), MARINA(RandK(k=2), p=0.5)):
        model, opt = made(method)

        def closure(i, model=model, opt=opt):
            opt.zero_grad()
            (3.0 * model.x + model.other.sum()).backward()
            clip(model)

        with pytest.warns(UserWarning, match=SAID):
            opt.step(closure)


def accumulate(model):
    """Two more batches, and their mean."""
    for _ in range(2):
        (3.0 * model.x).backward()
    for p in model.parameters():
        p.grad /= 3


def test_what_is_right_is_not_warned_of():
    """Accumulation, its division, GradScaler's, one worker, and a step of one's own with ``sync_every``."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, opt = made()
        bring(opt, model, (3.0, -0.5), accumulate)
        opt.step()
        model, opt = made()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(torch.ones(()))
        for i in opt.hosted:
            opt.zero_grad()
            scaler.scale(3.0 * model.x + model.other.sum()).backward()
            scaler.unscale_(opt)
            opt.collect(i)
            scaler.update()
        model, opt = made(workers=1)
        bring(opt, model, (3.0,), clip)
        model, opt = made(workers=None, sync_every=2)
        (3.0 * model.x + model.other.sum()).backward()
        clip(model)
        opt.step()
        model, opt = made()  # zeros in the place of None, in what was one vector
        for _ in range(2):
            for i in opt.hosted:
                opt.zero_grad(set_to_none=False)
                (model.other.sum() + 3.0 * model.x).backward()
                opt.collect(i)
            opt.step()
        model, opt = made()  # a gradient that was left, and one that backward does not reach
        (3.0 * model.x).backward()
        opt.zero_grad(set_to_none=False)
        model.other.sum().backward()
        opt.collect(0)


def test_a_clipped_gradient_that_a_scaler_has_unscaled_is_seen():
    """The usual recipe of torch for one process."""
    model, opt = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    scaler.scale(3.7 * model.x + model.other.sum()).backward()
    scaler.unscale_(opt)
    clip(model)
    with pytest.warns(UserWarning, match=SAID):
        opt.collect(0)
