"""The mean is written into the tensors that p.grad has, so that a program may keep them, as with DDP."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
from torch import nn

from mpicomp import DCGD, ConfigError, Identity
from mpicomp.torch import Compressed
from tests.torch.loops import compressed
from tests.torch.models import loss, network, values

EXACT = DCGD(Identity())


def in_one_buffer(parameters):
    """The gradients as views of one buffer, which is returned."""
    buffer, start = torch.zeros(sum(p.numel() for p in parameters)), 0
    for p in parameters:
        p.grad = buffer[start : start + p.numel()].view_as(p)
        start += p.numel()
    return [buffer]


def as_they_are(parameters):
    for p in parameters:
        p.grad = torch.zeros_like(p)
    return [p.grad for p in parameters]


@pytest.mark.parametrize("kept", [in_one_buffer, as_they_are])
def test_gradients_that_the_program_keeps_and_clears_are_those_of_the_next_step(kept):
    def trained(wrap):
        model = network()
        opt = wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
        tensors = kept([*model.parameters()])
        for k in range(4):
            for one in tensors:
                one.zero_()
            loss(model, 0, k).backward()
            opt.step()
        return values(model)

    theirs = trained(lambda sgd, model: sgd)
    assert trained(lambda sgd, model: Compressed(sgd, EXACT, module=model)) == theirs


def test_gradients_in_one_buffer_leave_early_too():
    """Views of one buffer share their version; what is changed after backward is still refused."""
    models = network(), network()
    for model, early in zip(models, ({}, {"overlap": True}), strict=True):
        opt = compressed(model, server="sharded", blocks=2, **early)
        (buffer,) = in_one_buffer([*model.parameters()])
        for k in range(3):
            buffer.zero_()
            loss(model, 0, k).backward()
            opt.step()
    assert values(models[0]) == values(models[1])
    buffer.zero_()
    loss(models[1], 0, 3).backward()
    buffer.mul_(0.5)
    with pytest.raises(ConfigError, match="was changed after backward"):
        opt.step()


def test_a_step_that_is_not_finite_is_left_out_of_one_buffer_too():
    """NaN is not equal to itself, and yet nothing was changed after backward."""
    model = network()
    opt = compressed(model, server="sharded", blocks=2, overlap=True, on_nonfinite="skip")
    in_one_buffer([*model.parameters()])
    before = values(model)
    (loss(model, 0, 0) * torch.nan).backward()
    opt.step()
    assert values(model) == before


def test_gradients_in_one_buffer_are_no_clipped_ones():
    """Views of one buffer share their version, which backward raises with each of them."""
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), EXACT, module=model, workers=2)
    (buffer,) = in_one_buffer([*model.parameters()])

    def bring(clip):
        for i in opt.hosted:
            buffer.zero_()
            loss(model, i, 0).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            opt.collect(i)
        opt.step()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bring(clip=False)
    with pytest.warns(UserWarning, match="changed between backward"):
        bring(clip=True)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.ones(3))


def one_for_both(model):
    """The gradient of (a + b)², one tensor for a and b."""
    own = [model.a, model.b]
    model.a.grad, model.b.grad = torch.autograd.grad((model.a + model.b).square().sum(), own)
    assert model.a.grad.data_ptr() == model.b.grad.data_ptr()


def the_parameter_itself(model):
    model.a.grad, model.b.grad = model.a.detach(), model.b.detach()


def expanded_and_strided(model):
    model.a.grad, model.b.grad = torch.tensor(2.0).expand(3), torch.arange(6.0)[::2]


def with_a_graph(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cycle between a parameter and its gradient
        (model.a * model.b).square().sum().backward(create_graph=True)
    assert model.a.grad.requires_grad


@pytest.mark.parametrize("give", [one_for_both, the_parameter_itself, expanded_and_strided, with_a_graph])
def test_a_gradient_whose_memory_is_not_its_own_is_not_written_to(give):
    models = Two(), Two()
    theirs, ours = (torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.3) for m in models)
    for model, opt in zip(models, (theirs, Compressed(ours, EXACT, module=models[1])), strict=True):
        for _ in range(3):
            opt.zero_grad()
            give(model)
            opt.step()
    assert values(models[0]) == values(models[1])


def test_two_gradients_in_the_memory_of_one_parameter_are_not_written_to():
    """The second is no neighbour of that parameter in memory, but of the first."""
    whole, *parts = (nn.Parameter(torch.arange(n) + 1.0) for n in (4, 2, 2))
    opt = Compressed(torch.optim.SGD([whole, *parts], lr=0.0), EXACT, workers=2)
    for i in opt.hosted:
        for p, part in zip(parts, (whole[:2], whole[2:]), strict=True):
            p.grad = part.detach() if i == 1 else torch.zeros(2)
        opt.collect(i)
    opt.step()
    assert whole.tolist() == [1, 2, 3, 4]
    assert [p.grad.tolist() for p in parts] == [[0.5, 1], [1.5, 2]]


def test_the_mean_is_in_the_tensor_that_was_there():
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), EXACT, module=model, workers=2)
    for i in opt.hosted:
        model.zero_grad()
        loss(model, i, 0).backward()
        opt.collect(i)
    there = [p.grad for p in model.parameters()]
    opt.step()
    assert all(p.grad is g for p, g in zip(model.parameters(), there, strict=True))
    alone = network()
    (sum(loss(alone, i, 0) for i in range(2)) / 2).backward()
    for p, g in zip(alone.parameters(), there, strict=True):
        torch.testing.assert_close(p.grad, g)
