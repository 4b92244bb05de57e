"""Buffers of every kind: by name, type and shape, and those of worker 0 on all ranks."""

from __future__ import annotations

import copy
import warnings

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
from torch import nn
from torch.ao.quantization import PerChannelMinMaxObserver

from mpicomp import DCGD, VRMARINA, ConfigError, Identity
from mpicomp.torch import Compressed
from tests.support.launching import mpirun
from tests.torch.kinds import Kinds, of_workers
from tests.torch.loops import TOPK, step
from tests.torch.models import loss, network
from tests.torch.test_ranks import told


@pytest.mark.filterwarnings("ignore:.*(beta state|deprecated|prototype stage)")  # torch's, of its kinds
@pytest.mark.parametrize("workers", [1, 3])
def test_buffers_of_every_kind_are_worker_0s(workers):
    """Exact.  Worker 1 makes a larger mask than worker 0, and worker 2 none."""
    model = Kinds()
    off, _ = of_workers(model, workers)
    assert off == []
    assert model.norm.num_batches_tracked == 3 and (model.norm.running_var > 0).all()
    assert "registered_later" not in model.state_dict()  # it was registered so
    model.whole += 1
    assert torch.equal(model.view, model.whole[1])
    assert model.b.common is model.a.common


def test_buffers_of_every_kind_are_rank_0s():
    assert told(3, "every_kind_of_buffer") == []


class Tempered(nn.Module):
    """The derivative in w is the buffer ``slope``, plus 100 for each forward that a gradient has seen."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.register_buffer("slope", torch.ones(1))
        self.register_buffer("forwards", torch.zeros(1))

    def forward(self):
        slope = self.slope + 100 * self.forwards
        self.forwards += 1
        return (self.w * slope).sum()


@pytest.mark.parametrize("how", ["collect", "closure", "two points"])
def test_what_the_program_sets_between_two_steps_is_where_each_worker_begins(how):
    """Exact: gradient k is 10^k + 100 k, of both workers here, as of two ranks with a worker each."""
    model, seen = Tempered(), []
    method = VRMARINA(Identity(), batch=None, p=0.2) if how == "two points" else DCGD(Identity())
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), method, module=model, workers=2)

    def gradient(_):
        opt.zero_grad()
        (f := model()).backward()
        seen.append(model.w.grad.item())
        return f

    for k in range(4):
        before = len(seen)
        model.slope.fill_(10.0**k)
        if how == "collect":
            for i in opt.hosted:
                gradient(i)
                opt.collect(i)
            opt.step()
        else:
            opt.step(gradient)
        assert {*seen[before:]} == {10.0**k + 100 * k}
        assert model.forwards == k + 1 and model.slope == 10.0**k
    assert len(seen) > 8 if how == "two points" else len(seen) == 8


def two_of_one_model(*modules, mode=True):
    """A model, and a ``Compressed`` for each of its layers, with two workers; after a backward."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).train(mode)
    opts = [
        Compressed(torch.optim.SGD(part.parameters(), lr=0.1), TOPK, module=given and model, workers=2)
        for part, given in zip(model, modules, strict=True)
    ]
    model(torch.randn(4, 3)).sum().backward()
    return model, opts


def step_together(opts):
    for i in range(2):
        for opt in opts:
            opt.collect(i)
    for opt in opts:
        opt.step()


def test_of_two_optimisers_of_one_model_one_shares_the_buffers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, opts = two_of_one_model(True, None)
    step_together(opts)
    assert model[1].num_batches_tracked == 1


def test_two_that_share_the_buffers_of_fixed_workers_are_refused():
    """Else the second one would put back the buffers of before the step."""
    _, (first, second) = two_of_one_model(True, True)
    first.collect(0)
    with pytest.raises(ConfigError, match=r"has reset its buffers.*give module=model to the first of"):
        second.collect(0)


def test_two_may_share_buffers_that_no_step_changes():
    """As of a model in eval(), or masks."""
    model, opts = two_of_one_model(True, True, mode=False)
    step_together(opts)
    assert model[1].num_batches_tracked == 0


def test_a_buffer_that_two_modules_share_is_sent_once():
    """And after the first step a buffer without entries is not sent at all."""
    model = network()
    model.add_module("more", torch.nn.Module())
    model.register_buffer("common", torch.zeros(5))
    model.more.register_buffer("common", model.common)
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    opt.buffers._transport.ranks = 2  # count as if another rank got them
    model.common += 1
    opt.buffers.collect(0)
    opt.buffers.step()
    assert opt.buffers.nbytes == 5 * 4


def test_a_shared_buffer_of_another_shape_stays_shared():
    """Also where the number of entries is the same."""
    model = network()
    model.add_module("more", torch.nn.Module())
    model.register_buffer("common", torch.arange(6.0))
    model.more.register_buffer("common", model.common)
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, workers=2)
    model.common = model.more.common = torch.ones(2, 3)
    opt.buffers.collect(0)
    assert model.common.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert model.more.common is model.common
    opt.buffers.step()
    assert model.common.tolist() == [[1.0] * 3] * 2
    assert model.more.common is model.common


def test_a_buffer_without_values_is_refused():
    cases = {
        "has no shape yet: call the model once": torch.nn.parameter.UninitializedBuffer(),
        "is on the meta device": torch.empty(3, device="meta"),
    }
    for said, buffer in cases.items():
        model = network()
        model.register_buffer("b", buffer)
        with pytest.raises(ConfigError, match=f"^buffer 'b' {said}"):
            Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "other_shape",
            "buffer 'mask' is torch.float32 of shape (2, 2) on rank 0 and torch.float32 of shape (3, 3) on "
            "rank 1",
        ),
        ("other_buffers", "buffer 'more' is missing on rank 0 and torch.float32 of shape (2,) on rank 1"),
    ],
)
def test_models_with_other_buffers_on_another_rank_are_refused(what, said):
    done = mpirun(2, "-m", "tests.torch.job", what)
    assert done.returncode != 0
    assert done.stderr.count(said) == 1, done.stderr


def test_a_new_buffer_in_a_module_that_is_not_everywhere_is_refused():
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    model.add_module("more", torch.nn.Module())
    model.more.register_buffer("b", torch.ones(2))
    opt.buffers.collect(0)
    del model.more  # as on a rank that has not added it
    opt.buffers._transport.hosted = range(0)
    with pytest.raises(ConfigError, match=r"a new buffer 'more\.b', which rank 0 cannot register"):
        opt.buffers.step()


def test_a_mask_that_grows_in_a_training_stays_exact():
    """The steps are those of torch alone, and the mask is the last one."""
    trained = []
    for alone in (True, False):
        model = network(normed=True)
        model.register_buffer("mask", torch.ones(1, 1))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        if not alone:
            from mpicomp import DCGD, Identity

            opt = Compressed(opt, DCGD(Identity()), module=model)
        for k in range(4):
            model.mask = torch.ones(k + 2, k + 2).tril()
            step(opt, model, k)
        trained.append([t.tolist() for t in (*model.parameters(), *model.buffers())])
        assert loss(model, 0, 0).isfinite()
    assert trained[0] == trained[1]


def test_buffers_that_are_resized_in_place_are_worker_0s():
    """An observer of torch's does it too: its minima are of worker 0's batches."""
    model, alone = network(), PerChannelMinMaxObserver()
    model.register_buffer("seen", torch.zeros(3))
    model.observer = PerChannelMinMaxObserver()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, workers=2)
    for k in range(3):
        for i in opt.hosted:
            opt.zero_grad()
            loss(model[:3], i, k).backward()
            model.seen.resize_(5 + k + i).fill_(10 * k + i)
            model.observer(torch.full((4, 2), float(i - k)))
            opt.collect(i)
        opt.step()
        alone(torch.full((4, 2), float(-k)))
        assert model.seen.tolist() == [10 * k] * (5 + k)
        assert torch.equal(model.observer.min_val, alone.min_val)
        assert torch.equal(model.observer.max_val, alone.max_val)


def test_a_module_that_is_not_the_model_is_warned_of():
    """Its buffers would be shared, and not the model's."""
    model = network(normed=True)

    def made(module):
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Compressed(sgd, DCGD(Identity()), module=module)
        return [str(one.message) for one in said]

    (said,) = made(copy.deepcopy(model))
    assert "the optimiser has none of the parameters of module" in said
    whole = nn.ModuleList([model, nn.Linear(2, 2)])
    frozen = copy.deepcopy(model).requires_grad_(False)
    assert made(model) + made(whole) + made(frozen) == []
