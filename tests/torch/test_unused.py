"""Parameters that a backward does not use, and gradients that have a graph of their own."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import DCGD, EF21, Identity, TopK
from mpicomp.torch import Compressed
from tests.torch.models import batch, network, values

PLAIN = DCGD(Identity())


class Heads(torch.nn.Module):
    """Two heads on one body, of which a forward uses one."""

    def __init__(self):
        super().__init__()
        self.body = network()
        self.heads = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)])

    def forward(self, x, head):
        return self.heads[head](self.body(x))


def loss(model, worker, step, head):
    return model(batch(worker, step)[0], head).square().mean()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def train(opt, model, k, head, backward):
    for i in opt.hosted:
        model.zero_grad()
        backward(loss(model, i, k, head(i, k)))
        opt.collect(i)
    opt.step()


@pytest.mark.parametrize("start_after", [0, 3])
def test_what_no_worker_uses_in_a_step_is_left_alone_as_by_torch(start_after):
    """A gradient of 0 in its place had AdamW decay it, and move it by its momentum."""

    def head(i, k):
        return (k // 2) % 2 or i  # both heads in some steps, and the second alone in the others

    theirs, ours = Heads(), Heads()
    ours.load_state_dict(theirs.state_dict())
    one = adamw(theirs)
    two = Compressed(adamw(ours), PLAIN, module=ours, workers=2, start_after=start_after)
    for k in range(8):
        one.zero_grad()
        (sum(loss(theirs, i, k, head(i, k)) for i in range(2)) / 2).backward()
        one.step()
        train(two, ours, k, head, torch.Tensor.backward)
    for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)


def test_what_the_method_keeps_for_it_waits_for_its_next_gradient():
    """Steps without a head change nothing of it, and no later step of it."""
    found = []
    for between in (0, 4):
        torch.manual_seed(3)
        model = Heads()
        own = model.heads[0].weight
        sgd = torch.optim.SGD(model.heads.parameters(), lr=0.1, momentum=0.9)
        opt = Compressed(sgd, EF21(TopK(k=3)), module=model, workers=2)
        for k in range(2):
            train(opt, model, k, lambda i, k: 0, torch.Tensor.backward)
        before, residual = own.detach().clone(), opt.aggregator._play.replica.g[:6].copy()
        for k in range(between):
            train(opt, model, k, lambda i, k: 1, torch.Tensor.backward)
        assert torch.equal(own, before)
        assert (opt.aggregator._play.replica.g[:6] == residual).all() and residual.any()
        train(opt, model, 9, lambda i, k: 0, torch.Tensor.backward)
        found.append(own.detach().clone())
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore:Using backward")  # of the cycle that ``zero_grad`` breaks
@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_of_a_backward_that_creates_a_graph_are_averaged(overlap):
    """For penalties on gradients; torch's cat and numpy() refuse tensors that need gradients."""
    found = []
    for create in (False, True):
        model = network()
        server = {"server": "sharded", "blocks": 2, "overlap": True} if overlap else {}
        opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), PLAIN, module=model, **server)
        for k in range(2):
            model.zero_grad()
            model(batch(0, k)[0]).square().mean().backward(create_graph=create)
            opt.step()
            opt.zero_grad()
        found.append(values(model))
    assert found[0] == found[1]


def test_every_call_of_a_step_names_that_step():
    """An error while a rank waits in it, for one that has ended, named the step before."""
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), EF21(TopK(k=0.5), gamma=1.0))
    transport, named = opt.aggregator.transport, []
    tell_all = transport.tell_all
    transport.tell_all = lambda number: named.append(transport.activity) or tell_all(number)
    for k in range(3):
        opt.zero_grad()
        model(batch(0, k)[0]).square().mean().backward()
        opt.step()
        assert named and set(named) == {f"step {k}"}
        named.clear()
