"""Whole gradients at first: the first steps are the plain optimiser's, and then the method begins."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import EFSGD, MARINA, ConfigError, RandK, TopK
from mpicomp.torch import Compressed, load, save
from tests.torch.loops import step
from tests.torch.models import network, values

TOPK = EFSGD(TopK(k=0.2))
SETTINGS = [{}, {"sync_every": 4}, {"sync_every": 4, "delay": 1, "keep": 0.5, "fragments": 2}]


def made(seed=1, **options):
    model = network(True, seed)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, adam, Compressed(adam, TOPK, module=model, **options)


@pytest.mark.parametrize("settings", SETTINGS, ids=["every step", "local steps", "fragments"])
def test_the_method_begins_after_the_first_steps(settings):
    """As if the model had been trained by torch alone first, and given to ``Compressed`` then."""
    model, _, opt = made(start_after=3, **settings)
    plain = network(True)
    adam = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    for k in range(3):
        step(adam, plain, k)
        step(opt, model, k)
        assert values(model) == values(plain)
    assert opt.ledger.up_bytes == 3 * 4 * sum(p.numel() for p in model.parameters())
    assert opt.aggregator.steps == 0
    then = Compressed(adam, TOPK, module=plain, **settings)
    for k in range(3, 14):
        step(then, plain, k)
        step(opt, model, k)
    assert values(model) == values(plain)


@pytest.mark.parametrize("at", [2, 3, 6])
@pytest.mark.parametrize("settings", SETTINGS, ids=["every step", "local steps", "fragments"])
def test_saved_on_either_side_it_goes_on(settings, at, tmp_path):
    (whole, _, one), (part, _, two) = made(start_after=3, **settings), made(start_after=3, **settings)
    rest, _, three = made(9, start_after=3, **settings)
    for k in range(12):
        step(one, whole, k)
        if k < at:
            step(two, part, k)
    save(tmp_path / "saved", two, part)
    load(tmp_path / "saved", three, rest)
    for k in range(at, 12):
        step(three, rest, k)
    assert values(rest) == values(whole)
    with pytest.raises(ConfigError, match="start_after is 3 there and 2 here"):
        made(start_after=2, **settings)[2].load_state_dict(two.state_dict())


@pytest.mark.parametrize("settings", [*SETTINGS, {"start_after": 3}], ids=str)
def test_the_steps_are_counted_and_saved(settings, tmp_path):
    """Each call of ``step`` is one, whether or not it exchanges anything; so is one that was left out."""
    first = settings.get("start_after", 0)
    if "sync_every" not in settings:
        settings = {"on_nonfinite": "skip", **settings}
    model, _, opt = made(**settings)
    for k in range(7):
        assert opt.steps == k
        step(opt, model, k)
    if opt.local is None:
        opt.zero_grad()
        for p in model.parameters():
            p.grad = torch.full_like(p, torch.nan)
        opt.step()
        assert opt.aggregator.steps == 7 - first
    save(tmp_path, opt, model)
    again, _, loaded = made(**settings)
    load(tmp_path, loaded, again)
    assert loaded.steps == opt.steps == 7 + (opt.local is None)


def test_a_mean_that_is_clipped_in_the_last_whole_step_is_stepped_with():
    model, _, opt = made(start_after=1, sync_every=2)
    before = values(model)
    opt.zero_grad()
    model(torch.ones(4, 6)).sum().backward()
    assert opt.aggregate()
    opt.step()
    assert values(model) != before and opt.local.steps == 0
    with pytest.raises(ConfigError, match="no aggregate"):
        opt.aggregate()


def test_grad_scaler_with_local_steps_is_refused_in_the_first_step():
    """And not when the local steps begin, a thousand steps later."""
    model, _, opt = made(start_after=3, sync_every=2)
    scaler = torch.amp.GradScaler("cpu")
    opt.zero_grad()
    scaler.scale(model(torch.ones(4, 6)).sum()).backward()
    with pytest.raises(ConfigError, match="GradScaler and sync_every do not go together"):
        scaler.step(opt)


def test_what_is_wrong_is_said():
    for wrong in (-1, 1.5, True, "x"):
        with pytest.raises(ConfigError, match="start_after="):
            made(start_after=wrong)
    with pytest.raises(ConfigError, match="start_after does not go with overlap"):
        made(start_after=2, overlap=True, server="sharded", blocks=2)
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="LBFGS calls a closure"):
        lbfgs = torch.optim.LBFGS(model.parameters())
        Compressed(lbfgs, EFSGD(TopK(k=0.1)), module=model, start_after=2, sync_every=2)
    with pytest.raises(ConfigError, match="start_after does not go with MARINA"):
        Compressed(sgd, MARINA(RandK(k=2), p=0.1), module=model, start_after=2)
