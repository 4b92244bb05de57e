"""Parameters that are frozen, unfrozen or added after the optimiser was made."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import DCGD, EFSGD, ConfigError, DoubleSqueeze, Identity, TopK
from mpicomp.torch import Compressed
from tests.torch.loops import TOPK, step
from tests.torch.models import loss, network, values


def test_a_parameter_that_needs_a_gradient_later_is_refused():
    """Else it would step with each rank's own gradient."""
    for change in ("unfrozen", "added"):
        model, more = network(), torch.nn.Parameter(torch.zeros(3))
        model[0].bias.requires_grad_(False)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = Compressed(sgd, TOPK, module=model)
        step(opt, model, 0)
        before = values(model)
        if change == "unfrozen":
            model[0].bias.requires_grad_(True)
        else:
            sgd.add_param_group({"params": [more]})
        opt.zero_grad()
        (loss(model, 0, 1) + (more.sum() if change == "added" else 0.0)).backward()
        with pytest.raises(ConfigError, match="Make Compressed anew"):
            opt.step()
        assert values(model) == before and opt.aggregator.steps == 1


@pytest.mark.parametrize("with_closure", [False, True])
def test_local_steps_refuse_it_too(with_closure):
    model = network()
    model[0].bias.requires_grad_(False)
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, sync_every=4)
    model[0].bias.requires_grad_(True)
    before = values(model)

    def closure():
        loss(model, 0, 0).backward()

    if not with_closure:
        closure()
    with pytest.raises(ConfigError, match="Make Compressed anew"):
        opt.step(closure if with_closure else None)
    assert values(model) == before


def test_an_old_gradient_of_a_frozen_parameter_is_dropped():
    """Else torch would step along it for ever."""
    model = network()
    loss(model, 0, 0).backward()
    model[0].bias.requires_grad_(False)
    before = model[0].bias.clone()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    opt.zero_grad(set_to_none=False)
    loss(model, 0, 1).backward()
    opt.step()
    assert torch.equal(model[0].bias, before) and model[0].bias.grad is None


@pytest.mark.parametrize("frozen", ["before", "later"])
def test_a_gradient_that_is_set_for_a_frozen_parameter_is_left_out_with_a_warning(frozen):
    model = network()
    model[0].bias.requires_grad_(frozen == "later")
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    model[0].bias.requires_grad_(False)
    before = model[0].bias.clone()
    loss(model, 0, 0).backward()
    model[0].bias.grad = torch.ones_like(before)
    with pytest.warns(UserWarning, match="gradient of parameter 1 of group 0 is left out") as warned:
        opt.step()
    assert torch.equal(model[0].bias, before) and warned[0].filename == __file__


def test_local_steps_go_along_it():
    """As torch alone does, and the exchange averages the change."""
    model = network()
    opt = Compressed(
        torch.optim.SGD(model.parameters(), lr=0.5), DCGD(Identity()), module=model, sync_every=2
    )
    model[0].bias.requires_grad_(False)
    before = model[0].bias.clone()
    for _ in range(2):
        opt.zero_grad()
        loss(model, 0, 0).backward()
        model[0].bias.grad = torch.ones_like(before)
        opt.step()
    torch.testing.assert_close(model[0].bias, before - 1)


def test_a_parameter_that_is_frozen_later_stays():
    """As in torch alone, momentum and weight decay leave it."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    opt = Compressed(sgd, TOPK, module=model)
    step(opt, model, 0)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    step(opt, model, 1)
    assert torch.equal(model[0].weight, before)


@pytest.mark.filterwarnings("ignore:the gradient of parameter 0 of group 0 is left out")
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize(
    "method", [EFSGD(TopK(k=4)), DoubleSqueeze(TopK(k=4), TopK(k=4))], ids=["up", "both"]
)
def test_what_the_method_keeps_for_it_waits_until_it_is_unfrozen(method, to_none):
    """Also where its old gradient is cleared to zeros, or not at all.  SGD of rate 1 applies all at last."""
    torch.manual_seed(5)
    one, two = (torch.nn.Parameter(torch.zeros(8)) for _ in range(2))
    opt = Compressed(torch.optim.SGD([one, two], lr=1.0), method)
    total = torch.zeros(2, 8)
    for k in range(60):
        if k == 20:
            two.grad = None
        else:
            opt.zero_grad(set_to_none=to_none)
        one.requires_grad_(not 4 <= k < 18 and not 20 <= k < 30)
        given = torch.randn(2, 8) * (k < 40)
        given[0] *= one.requires_grad
        (given * torch.stack([one, two])).sum().backward()
        total += given
        opt.step()
    torch.testing.assert_close(torch.stack([one, two]).detach(), -total, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ahead", [0, 0.5])
@pytest.mark.parametrize("saved", [False, True])
def test_what_a_frozen_parameter_has_learnt_is_sent_in_the_exchanges_that_follow(ahead, saved):
    model = network()
    start, w = model[0].weight.detach().double(), model[0].weight

    def made():
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        return Compressed(sgd, EFSGD(TopK(k=0.5)), module=model, sync_every=2, ahead=ahead)

    opt = made()
    step(opt, model, 0)
    learnt = w.detach().double()
    w.requires_grad_(False)
    if saved:
        state, own = opt.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
        w.requires_grad_(True)
        opt = made()
        w.requires_grad_(False)
        model.load_state_dict(own)
        opt.load_state_dict(state)
    for k in range(1, 24):
        opt.zero_grad()
        if k < 4:
            loss(model, 0, k).backward()
        opt.step()
    assert (learnt - start).norm() > 1e-2
    with opt.common():
        torch.testing.assert_close(w.detach().double(), learnt, rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"delay": 1, "keep": "delay"}, {"fragments": 2}])
def test_local_steps_before_a_parameter_is_frozen_count(options):
    """Frozen between two exchanges it keeps what it has learnt, and stays from the next exchange on."""
    model, alone = network(), network()
    torch_alone = torch.optim.SGD(alone.parameters(), lr=0.1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = Compressed(sgd, DCGD(Identity()), module=model, sync_every=4, **options)
    for k in range(12):
        if k == 2:
            for one in (model, alone):
                one[0].weight.requires_grad_(False)
        if k == 8:
            frozen = model[0].weight.clone()
        step(opt, model, k)
        step(torch_alone, alone, k)
    torch.testing.assert_close(list(model.parameters()), list(alone.parameters()))
    assert torch.equal(model[0].weight, frozen) and opt.aggregator.steps == 3
