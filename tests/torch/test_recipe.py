"""The recipe for a model and a link: which of six it is, what it says, and that it trains."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

import mpicomp
from mpicomp import DCGD, ConfigError, Identity
from mpicomp.torch import Compressed, recipe  # noqa: F401 (Compressed is in what is pasted)
from mpicomp.torch.recipe import EIGHT_BITS, FEWER_BYTES, FOUR_BITS, SPARSE_LOCO
from tests.torch.loops import step
from tests.torch.models import network, values

D = 1_000_000
WHOLE, LOCAL = DCGD(Identity()), {"sync_every": 8}
AHEAD = LOCAL | {"ahead": 0.5}


def linear():
    return torch.nn.Linear(D, 1, bias=False)


@pytest.mark.parametrize(
    ("link", "step_seconds", "method", "local"),
    [
        ("100gbit", 0.1, WHOLE, {}),  # 8 * 8e6 * 3/4 / 1e11 = 0.48 ms
        ("1gbit", 0.97, WHOLE, {}),  # 48 ms, and 5 % of a step is 48.5
        ("1gbit", 0.95, EIGHT_BITS, {}),
        ("1gbit", 0.248, EIGHT_BITS, {}),  # 1,031,250 bytes up and down: 12.375 ms
        ("1gbit", 0.247, WHOLE, LOCAL),
        ("1gbit", 0.121, WHOLE, LOCAL),  # 5 % of 8 steps is 48.4
        ("1gbit", 0.119, FOUR_BITS, LOCAL),
        ("1gbit", 0.016, FOUR_BITS, LOCAL),  # 531,250 bytes up and down: 6.375 ms
        ("1gbit", 0.0159, SPARSE_LOCO, AHEAD),
        # 46,950 bytes up and 133,772 down, 3/4 of them over a link: 10.84 ms at 100 Mbit/s.
        ("100mbit", 0.0272, SPARSE_LOCO, AHEAD),
        ("100mbit", 0.0271, SPARSE_LOCO, AHEAD | {"delay": 1, "keep": "delay"}),
        ("10mbit", 0.04, SPARSE_LOCO, AHEAD | {"delay": 3, "keep": "delay"}),
        ("10mbit", 0.0272, SPARSE_LOCO, AHEAD | {"delay": 4, "keep": "delay"}),
        ("10mbit", 0.0271, FEWER_BYTES, AHEAD | {"delay": 2, "keep": "delay"}),
        ("1mbit", 0.02, FEWER_BYTES, AHEAD | {"delay": 4, "keep": "delay"}),
    ],
)
def test_the_exchange_that_is_worth_it(link, step_seconds, method, local):
    found = recipe(linear(), link=link, step_seconds=step_seconds, ranks=4)
    assert found.method == method and found.options == local | {"server": "sharded"}
    nesterov = {"lr": 0.3, "momentum": 0.9, "nesterov": True}
    assert len(found.reasons) == 2 + ("delay" in local or found.outer == nesterov)
    assert found.outer == (
        {"lr": 0.7} if method in (SPARSE_LOCO, FEWER_BYTES) else nesterov if local else None
    )
    text = str(found)
    assert text.startswith(f"Compressed(optimiser, {found.method!r}, module=model")
    assert "1000000 parameters in float32" in text and all(reason in text for reason in found.reasons)


@pytest.mark.parametrize("link", ["100gbit", "30mbit", "10mbit", "100kbit"])
def test_it_trains(link):
    model = network(True)
    before = values(model)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = recipe(model, link=link, step_seconds=1e-4)
    assert (found.method == FOUR_BITS) == (link == "30mbit")
    opt = found.compressed(adam, model, seed=3)
    for k in range(16):
        step(opt, model, k)
    assert opt.aggregator.seed == 3 and opt.aggregator.steps and values(model) != before


def test_what_it_prints_is_what_it_makes():
    """The line, pasted into a program: outer has the rate and the momentum that ``compressed`` gives it."""
    names = {name: getattr(mpicomp, name) for name in mpicomp.__all__} | globals()
    for link in ("1gbit", "500mbit", "1mbit"):
        found, model = recipe(linear(), link=link, step_seconds=0.121), network()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
        opt = eval(str(found).splitlines()[0], names, {"optimiser": optimiser, "model": model})
        made = found.compressed(optimiser, model)
        groups = [{**group, "params": None} for one in (opt, made) for group in one.outer.param_groups]
        assert groups[0] == groups[1] and groups[0]["lr"] == found.outer["lr"]
        assert opt.aggregator.method == made.aggregator.method and opt.local.schedule == made.local.schedule


def test_what_it_prints_names_the_hosts():
    """8 (n - 1) / n · 8 d bits over 100 Mbit/s."""
    for ranks, time in ((4, "480 ms"), (16, "600 ms")):
        text = str(recipe(linear(), link="100mbit", step_seconds=0.1, ranks=ranks))
        assert f"take {time}, up and down, between {ranks} hosts with links of 100mbit" in text


def test_a_model_of_which_only_the_head_is_trained():
    model = network()
    *body, weight, bias = model.parameters()
    before = [p.detach().clone() for p in body]
    sgd = torch.optim.SGD([weight, bias], lr=0.1)
    opt = recipe(model, link="10mbit", step_seconds=1e-6).compressed(sgd, model)
    for k in range(16):
        step(opt, model, k)
    assert opt.aggregator.steps == 2
    assert all(torch.equal(p, q) for p, q in zip(body, before, strict=True))


def test_an_outer_optimiser_of_ones_own():
    model = network()
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = recipe(linear(), link="10mbit", step_seconds=0.02).compressed(sgd, model, outer=own)
    assert opt.outer is own


def test_a_step_of_no_time_is_delayed_by_half_a_period():
    assert recipe(linear(), link="10mbit", step_seconds=5e-324).options["delay"] == 4


@pytest.mark.parametrize("seconds", [np.float32(0.25), np.float64(0.25), Fraction(1, 4)])
def test_a_time_that_was_measured_in_another_type_is_a_number(seconds):
    assert str(recipe(linear(), link="10mbit", step_seconds=seconds)) == str(
        recipe(linear(), link="10mbit", step_seconds=0.25)
    )


def test_what_is_no_optimiser_is_refused():
    """The outer optimiser is made of the inner one's parameters."""
    local = recipe(linear(), link="10mbit", step_seconds=0.02)
    assert local.outer is not None
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"optimiser is Sequential.*; allowed: a torch Optimizer"):
        local.compressed(model, sgd)
    model.requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter of the optimiser needs a gradient"):
        local.compressed(sgd, model)


def test_what_is_wrong_is_said():
    for wrong in (None, [1], linear().parameters()):
        with pytest.raises(ConfigError, match=r"model is .*; allowed: a torch Module"):
            recipe(wrong, link="1gbit", step_seconds=1.0)
    with pytest.raises(ConfigError, match="parameter 'weight' has no shape yet: call the model once"):
        recipe(torch.nn.LazyLinear(3), link="1gbit", step_seconds=1.0)
    with pytest.raises(ConfigError, match=r"link is 100; allowed: a text such as"):
        recipe(linear(), link=100, step_seconds=1.0)
    with pytest.raises(ConfigError, match="step_seconds is 1000"):
        recipe(linear(), link="1gbit", step_seconds=10**400)
    for wrong in (0, -1.0, float("nan"), float("inf"), "1", True):
        with pytest.raises(ConfigError, match=r"step_seconds is .*; allowed: a positive number"):
            recipe(linear(), link="1gbit", step_seconds=wrong)
        with pytest.raises(ConfigError, match="ranks="):
            recipe(linear(), link="1gbit", step_seconds=1.0, ranks=wrong)
    with pytest.raises(ConfigError, match="rate"):
        recipe(linear(), link="fast", step_seconds=1.0)
    with pytest.raises(ConfigError, match="no parameter"):
        recipe(linear().requires_grad_(False), link="1gbit", step_seconds=1.0)
