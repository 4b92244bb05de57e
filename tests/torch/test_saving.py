"""A training that is saved goes on as if it had not been interrupted: in one process."""

from __future__ import annotations

from shutil import rmtree

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import ConfigError, MpicompError
from mpicomp.base.errors import RecordError
from mpicomp.torch import Compressed, load, save
from tests.torch.loops import TOPK, compressed, step, train
from tests.torch.models import loss, network, values


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


class Elsewhere(torch.Tensor):
    """A tensor on another device than the host, which numpy does not read."""

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def moved(state, move):
    """The aggregators' states in ``state`` with each tensor moved."""
    tensors = [{n: move(v) if torch.is_tensor(v) else v for n, v in s.items()} for s in state["aggregators"]]
    return state | {"aggregators": tensors}


@pytest.mark.parametrize("every", [1, 2])
def test_a_state_that_is_loaded_to_a_device_goes_on(every):
    """As by torch.load(file, map_location="cuda")."""
    whole, part = network(), network()
    opts = [
        Compressed(torch.optim.SGD(m.parameters(), lr=0.1), TOPK, module=m, sync_every=every)
        for m in (whole, part)
    ]
    train(opts[0], whole, range(3))
    part.load_state_dict(whole.state_dict())
    opts[1].load_state_dict(moved(opts[0].state_dict(), lambda t: t.as_subclass(Elsewhere)))
    train(opts[0], whole, range(3, 5))
    train(opts[1], part, range(3, 5))
    assert values(part) == values(whole)


def test_a_state_without_values_is_refused():
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, sync_every=2)
    train(opt, model, range(2))
    state = opt.state_dict()
    for move in (lambda t: t.to("meta"), lambda t: t.bfloat16() if t.is_floating_point() else t):
        with pytest.raises(RecordError, match=r"the state is invalid: [a-z0-9.-]+ is tensor\("):
            opt.load_state_dict(moved(state, move))
    with pytest.raises(ConfigError, match=r"the state has start = tensor\(.*allowed: float32 of shape"):
        opt.load_state_dict(state | {"start": state["start"].to("meta")})
    opt.load_state_dict(state)


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
    loaded = []
    opts[2].inner.register_load_state_dict_pre_hook(lambda *_: loaded.append(True))
    load(tmp_path / "saved", opts[2], models[2])
    assert loaded == [True]  # each hook of the program's sees one load
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


def test_the_state_of_another_large_model_is_refused_by_its_first_difference(tmp_path):
    """Without a list of all layers of both."""

    def made(last):
        model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(60)), torch.nn.Linear(2, last))
        return Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model), model

    opt, model = made(2)
    save(tmp_path / "s", opt, model)
    other, its_model = made(3)
    said = (
        r"another run: parts is \.\. .*60\.weight: torch torch\.float32 \(2, 2\).* there and \.\. .*\(3, 2\)"
    )
    for refused, load_it in (
        (RecordError, lambda: load(tmp_path / "s", other, its_model)),
        (ConfigError, lambda: other.load_state_dict(opt.state_dict())),
    ):
        with pytest.raises(refused, match=said) as told:
            load_it()
        assert len(str(told.value)) < 700


@pytest.mark.parametrize("sync_every", [1, 2])
def test_after_a_load_that_failed_half_way_nothing_is_averaged_until_one_succeeds(sync_every, tmp_path):
    """The memories were the saved ones, and the parameters were not: the training went on with both."""

    def made(optimiser):
        model = network()
        opt = Compressed(optimiser(model.parameters(), lr=0.01), TOPK, module=model, sync_every=sync_every)
        return opt, model

    kept = {}
    for kind in (torch.optim.SGD, torch.optim.Adam):
        opt, model = kept[kind] = made(kind)
        train(opt, model, range(4))
        save(tmp_path / kind.__name__, opt, model)
    other, its_model = made(torch.optim.Adam)
    with pytest.raises(RecordError, match="does not hold the state of this model and these optimisers"):
        load(tmp_path / "SGD", other, its_model)
    for call in (lambda: other.aggregator(None), lambda: save(tmp_path / "new", other, its_model)):
        with pytest.raises(MpicompError, match="Till a state is loaded, nothing is averaged"):
            call()
    load(tmp_path / "Adam", other, its_model)
    opt, model = kept[torch.optim.Adam]
    for one, its in ((opt, model), (other, its_model)):
        train(one, its, range(4, 8))
    assert values(its_model) == values(model)


def test_other_arguments_in_another_order_are_refused(tmp_path):
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    for use in (save, load):
        for given in ((model, opt), (opt.inner, model)):
            with pytest.raises(
                ConfigError, match=r"^opt is S.*; allowed: a Compressed: \(folder, opt, model\)"
            ):
                use(tmp_path / "s", *given)
        with pytest.raises(ConfigError, match=r"^model is None; allowed: a Module: \(folder, opt, model\)"):
            use(tmp_path / "s", opt, None)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("options", [{}, {"sync_every": 2, "outer": True}])
def test_a_rate_that_numpy_has_computed_is_loaded_again(options, tmp_path):
    """torch reads no number of numpy's without running pickled code."""
    trained = []
    for interrupted in (False, True):
        model = network()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        outer = torch.optim.SGD(model.parameters(), lr=np.float64(1.0)) if options else None
        opt = Compressed(sgd, TOPK, module=model, **options | ({"outer": outer} if outer else {}))
        torch.optim.lr_scheduler.LambdaLR(opt, lambda _: np.cos(0.5))
        for k in range(6):
            if k == 3 and interrupted:
                save(tmp_path / "s", opt, model)
                load(tmp_path / "s", opt, model)
                assert type(opt.param_groups[0]["lr"]) is float
            step(opt, model, k)
        trained.append(values(model))
    assert trained[0] == trained[1]


def test_what_could_not_be_loaded_again_is_not_saved(tmp_path):
    for own in (object(), lambda: 0, np.ones(2), tmp_path):
        model = network()
        opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
        opt.param_groups[0]["own"] = own
        with pytest.raises(ConfigError, match=f"^inner.param_groups.0.own of .* type {type(own).__name__}"):
            save(tmp_path / "s", opt, model)
        assert not (tmp_path / "s").exists()
        opt.param_groups[0]["own"] = {"texts", 1}
        save(tmp_path / "s", opt, model)
        load(tmp_path / "s", opt, model)
        rmtree(tmp_path / "s")


@pytest.mark.parametrize("which", ["a copy", "a part"])
def test_a_model_that_is_not_the_trained_one_is_refused(which, tmp_path):
    """The state would lack what was trained, and loading it into a copy would leave the model as it is."""
    model = network()
    opt = compressed(model)
    other, lacking = (model[0], "2.weight") if which == "a part" else (network(), "0.weight")
    for call in (save, load):
        with pytest.raises(ConfigError, match=f"^model lacks '{lacking}'.* which opt trains"):
            call(tmp_path / "s", opt, other)
    save(tmp_path / "s", opt, torch.nn.ModuleList([model, other]))


def test_a_state_between_aggregate_and_step_is_not_saved(tmp_path):
    """The method has sent the step's message already, and the parameters have not moved."""
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    step(opt, model, 0)
    loss(model, 0, 1).backward()
    opt.aggregate()
    for saved in (lambda: save(tmp_path / "s", opt, model), opt.state_dict):
        with pytest.raises(ConfigError, match="no step has used yet"):
            saved()
    opt.step()
    save(tmp_path / "s", opt, model)
    # Back to the saved state: what was averaged before is no part of it.
    opt.zero_grad()
    loss(model, 0, 2).backward()
    opt.aggregate()
    load(tmp_path / "s", opt, model)
    opt.state_dict()
    before = opt.aggregator.steps
    opt.step()
    assert opt.aggregator.steps == before + 1
