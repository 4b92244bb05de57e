"""Mixed precision: GradScaler's scaled gradients give the steps of unscaled ones; autocast sees each step."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import DCGD, EF21SGDM, VRMARINA, ConfigError, DivergedError, Identity, TopK
from mpicomp.torch import Compressed
from tests.torch.loops import TOPK, compressed, step
from tests.torch.models import loss, network, values


def test_a_scaler_s_overflow_is_left_out():
    """Scaled gradients give the steps of unscaled ones; an overflow skips the step and halves the scale."""
    plain, scaled = network(), network()
    one = Compressed(torch.optim.SGD(plain.parameters(), lr=0.1), TOPK, module=plain)
    two = Compressed(torch.optim.SGD(scaled.parameters(), lr=0.1), TOPK, module=scaled)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    for k in range(8):
        overflow = k == 3
        if not overflow:
            step(one, plain, k)
        two.zero_grad()
        found = loss(scaled, 0, k) * (float("inf") if overflow else 1.0)
        scaler.scale(found).backward()
        if k == 5:
            scaler.unscale_(two)
        scaler.step(two)
        scaler.update()
        assert values(plain) == values(scaled)
    assert scaler.get_scale() == 512.0
    assert (two.aggregator.steps, two.aggregator.skipped) == (7, 1)


def test_a_scaler_with_clipping():
    """unscale_, aggregate, clip, step: the steps of unscaled gradients that are clipped, and no others."""
    plain, scaled = network(), network()
    one, two = (
        Compressed(torch.optim.SGD(m.parameters(), lr=0.1), TOPK, module=m, on_nonfinite="skip")
        for m in (plain, scaled)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    for k in range(6):
        overflow = k == 3
        if not overflow:
            one.zero_grad()
            loss(plain, 0, k).backward()
            one.aggregate()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
            one.step()
        two.zero_grad()
        scaler.scale(loss(scaled, 0, k) * (float("inf") if overflow else 1.0)).backward()
        scaler.unscale_(two)
        two.aggregate()
        torch.nn.utils.clip_grad_norm_(scaled.parameters(), 0.01)
        scaler.step(two)
        scaler.update()
        assert values(plain) == values(scaled)
    assert (scaler.get_scale(), two.aggregator.skipped) == (512.0, 1)


def test_scaled_gradients_are_not_aggregated():
    model = network()
    opt = compressed(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss(model, 0, 0)).backward()
    opt.aggregate()
    with pytest.raises(ConfigError, match=r"scaled: scaler\.unscale_\(opt\) first"):
        scaler.step(opt)
    scaler.unscale_(opt)
    scaler.step(opt)
    assert opt.aggregator.steps == 1


def test_after_an_error_gradients_are_unscaled_once():
    """A program that catches an error, loads a saved state and goes on has the steps of one without it."""
    trained = []
    for fails in (False, True):
        model = network()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = Compressed(sgd, EF21SGDM(TopK(k=0.2, values="f2"), eta=0.3), module=model)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1000)

        def go(k, model=model, opt=opt, scaler=scaler, factor=1.0):
            opt.zero_grad()
            scaler.scale(factor * loss(model, 0, k)).backward()
            scaler.step(opt)
            scaler.update()

        go(0)
        saved = copy.deepcopy(opt.state_dict())
        if fails:
            with pytest.raises(DivergedError, match="does not fit the wire format 'f2'"):
                go(0, factor=1e9)
            opt.load_state_dict(saved)
        go(1)
        step(opt, model, 2)  # without the scaler
        trained.append(values(model))
    assert trained[0] == trained[1]


def test_a_scaler_does_not_hide_a_step_that_ended_half_way():
    """A value that f2 cannot hold is met after the worker's memory has moved: no step is left out there."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = Compressed(sgd, EF21SGDM(TopK(k=0.2, values="f2"), eta=0.3), module=model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1000)
    for factor in (1.0, 1e9):
        opt.zero_grad()
        scaler.scale(factor * loss(model, 0, 0)).backward()
        if factor == 1.0:
            scaler.step(opt)
            scaler.update()
    with pytest.raises(DivergedError, match="does not fit the wire format 'f2'"):
        scaler.step(opt)
    assert not opt.aggregator.sound


@pytest.mark.parametrize("what", ["two points", "common"])
def test_inside_of_autocast_a_forward_takes_the_present_values(what):
    """Autocast keeps the halves of a parameter until its block ends: the same block in each step or none."""
    trained = []
    for around in (False, True):
        model = network()
        method = VRMARINA(Identity(), batch=None, p=0.1) if what == "two points" else DCGD(Identity())
        every = 1 if what == "two points" else 8
        sgd = torch.optim.SGD(model.parameters(), lr=0.5)
        opt, losses = Compressed(sgd, method, module=model, sync_every=every), []

        def closure(opt=opt, model=model, losses=losses):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = loss(model, 0, 0)
            losses.append(found.item())
            found.backward()
            return found

        for _ in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16) if around else nullcontext():
                opt.step(closure)
                if what == "common":
                    closure()
                    with opt.common():
                        closure()
        trained.append((losses, values(model)))
    assert trained[0] == trained[1]
