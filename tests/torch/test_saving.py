"""A training that is saved goes on as if it had not been interrupted: in one process."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import ConfigError
from mpicomp.base.errors import RecordError
from mpicomp.torch import Compressed, load, save
from tests.torch.loops import TOPK, compressed, step
from tests.torch.models import loss, network, values


def train(opt, model, steps):
    for k in steps:
        for i in opt.hosted:
            opt.zero_grad()
            loss(model, i, k).backward()
            opt.collect(i)
        opt.step()


@pytest.mark.parametrize("how", ["together", "rank by rank"])
def test_saved_and_loaded_is_uninterrupted(how, tmp_path):
    whole, part, rest = network(True), network(True), network(True, seed=9)
    train(one := compressed(whole, workers=3), whole, range(9))
    train(two := compressed(part, workers=3), part, range(5))
    three = compressed(rest, workers=3)
    if how == "together":
        save(tmp_path / "saved", two, part)
        load(tmp_path / "saved", three, rest)
    else:
        torch.save({"opt": two.state_dict(), "model": part.state_dict()}, tmp_path / "saved.pt")
        state = torch.load(tmp_path / "saved.pt")
        rest.load_state_dict(state["model"])
        three.load_state_dict(state["opt"])
    train(three, rest, range(5, 9))
    assert values(rest) == values(whole)
    assert three.ledger.up.tolist() == one.ledger.up.tolist()


def test_local_steps_saved_between_two_exchanges_go_on(tmp_path):
    models = [network(seed=s) for s in (1, 1, 9)]
    opts = [
        Compressed(torch.optim.AdamW(m.parameters(), lr=1e-2), TOPK, module=m, sync_every=4) for m in models
    ]
    for k in range(10):
        step(opts[0], models[0], k)
        if k < 6:
            step(opts[1], models[1], k)
    save(tmp_path / "saved", opts[1], models[1])
    load(tmp_path / "saved", opts[2], models[2])
    for k in range(6, 10):
        step(opts[2], models[2], k)
    assert values(models[2]) == values(models[0])


def test_saved_with_other_local_steps_is_refused(tmp_path):
    """Before anything is taken."""

    def made(sync_every):
        model = network()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = Compressed(sgd, TOPK, module=model, sync_every=sync_every)
        for k in range(4):
            step(opt, model, k)
        return opt, model

    for saved, loaded in ((1, 4), (4, 1)):
        opt, model = made(saved)
        save(tmp_path / str(saved), opt, model)
        other, its_model = made(loaded)
        before = values(its_model), other.aggregator.steps
        said = f"sync_every is {saved} there and {loaded} here"
        with pytest.raises(RecordError, match=said):
            load(tmp_path / str(saved), other, its_model)
        with pytest.raises(ConfigError, match=said):
            other.load_state_dict(opt.state_dict())
        assert (values(its_model), other.aggregator.steps) == before
