"""An optimiser around an optimiser: in one process, beside torch's own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import mpicomp  # noqa: E402
from mpicomp import (  # noqa: E402
    DCGD,
    EF21SGDM,
    MARINA,
    VRMARINA,
    ConfigError,
    DivergedError,
    Identity,
    RandK,
    TopK,
)
from mpicomp.base.errors import RecordError  # noqa: E402
from mpicomp.torch import Compressed, Hook, load, save  # noqa: E402
from tests.torch.models import batch, loss, network, values  # noqa: E402

PLAIN = DCGD(Identity())
TOPK = EF21SGDM(TopK(k=0.2), eta=0.3)

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}


def step(opt, model, k, worker=0):
    opt.zero_grad()
    loss(model, worker, k).backward()
    opt.step()


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("normed", [False, True])
def test_one_worker_without_compression_is_torch(name, normed):
    """Bit for bit, with schedules, weight decay and BatchNorm."""
    theirs, ours = network(normed), network(normed)
    one = OPTIMISERS[name](theirs.parameters())
    two = Compressed(OPTIMISERS[name](ours.parameters()), PLAIN, module=ours)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(opt, 15) for opt in (one, two)]
    for k in range(15):
        step(one, theirs, k)
        step(two, ours, k)
        for schedule in schedules:
            schedule.step()
    assert values(theirs) == values(ours)
    assert two.param_groups[0]["lr"] == one.param_groups[0]["lr"] < 1e-9
    assert two.ledger.up_bytes == 15 * 4 * sum(p.numel() for p in ours.parameters())


def test_parameter_groups_and_what_needs_no_gradient():
    theirs, ours = network(), network()
    made = []
    for model in (theirs, ours):
        model[0].bias.requires_grad_(False)
        groups = [{"params": model[0].parameters(), "lr": 0.3}, {"params": model[2].parameters()}]
        made.append(torch.optim.SGD(groups, lr=0.1))
    opt = Compressed(made[1], PLAIN, module=ours)
    for k in range(5):
        step(made[0], theirs, k)
        step(opt, ours, k)
    assert values(theirs) == values(ours)
    with pytest.raises(ConfigError, match="before Compressed is made"):
        opt.add_param_group({"params": []})


def test_clipping_is_of_the_aggregated_gradient():
    """Between ``aggregate`` and ``step`` the gradients are the estimate."""
    ours = network()
    opt = Compressed(torch.optim.SGD(ours.parameters(), lr=0.1), TOPK, module=ours)
    agg = mpicomp.Aggregator(TOPK, like=[p.detach() for p in ours.parameters()])
    for k in range(5):
        opt.zero_grad()
        loss(ours, 0, k).backward()
        expected = agg([p.grad for p in ours.parameters()])
        assert opt.aggregate()
        assert all(torch.equal(p.grad, g) for p, g in zip(ours.parameters(), expected, strict=True))
        total = torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.01)
        before = [p.detach().clone() for p in ours.parameters()]
        opt.step()
        assert total > 0.01
        pairs = zip(ours.parameters(), before, strict=True)
        moved = sum(float(((p - q).detach() ** 2).sum()) for p, q in pairs) ** 0.5
        assert moved == pytest.approx(0.1 * 0.01, rel=1e-3)
    assert opt.aggregator.steps == 5  # step did not aggregate again


TWO_POINTS = [MARINA(RandK(k=5), p=0.3), VRMARINA(RandK(k=5), batch=None, p=0.3)]


@pytest.mark.parametrize("method", TWO_POINTS, ids=str)
def test_a_closure_serves_methods_that_compare_two_points(method):
    """The same parameters as an Aggregator with a function, and the loss at the current point comes back."""
    ours, reference = network(), network()
    opt = Compressed(torch.optim.SGD(ours.parameters(), lr=0.1), method, module=ours)
    parameters = list(reference.parameters())
    agg = mpicomp.Aggregator(method, like=[p.detach() for p in parameters])

    def gradient(point):
        with torch.no_grad():
            for p, value in zip(parameters, point, strict=True):
                p.copy_(value)
        return torch.autograd.grad(loss(reference, 0, k), parameters)

    def closure():
        opt.zero_grad()
        found = loss(ours, 0, k)
        found.backward()
        return found

    for k in range(8):
        here = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            expected = loss(ours, 0, k)
        assert torch.equal(opt.step(closure), expected)
        estimate = agg(gradient, at=here)
        with torch.no_grad():
            for p, x, g in zip(parameters, here, estimate, strict=True):
                p.copy_(x).sub_(g, alpha=0.1)
        assert values(ours) == values(reference)
    with pytest.raises(ConfigError, match=r"two points: opt.step\(closure\)"):
        opt.step()


def test_a_closure_of_a_method_with_one_gradient_is_called_once():
    ours = network()
    opt = Compressed(torch.optim.SGD(ours.parameters(), lr=0.1), TOPK, module=ours)
    calls = []

    def closure():
        opt.zero_grad()
        calls.append(loss(ours, 0, 0))
        calls[-1].backward()
        return calls[-1]

    assert opt.step(closure) is calls[0] and len(calls) == 1


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


def test_an_estimate_that_was_left_is_not_stepped_with():
    """After ``zero_grad`` the next step aggregates its own gradient."""
    model = network()
    opt = compressed(model)
    loss(model, 0, 0).backward()
    opt.aggregate()
    step(opt, model, 1)
    assert opt.aggregator.steps == 2


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


def test_the_inner_optimisers_groups_and_hooks_are_ones_own():
    """Also after the inner one has loaded a state, which makes its groups anew."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    opt = Compressed(sgd, PLAIN, module=model)
    sgd.load_state_dict(sgd.state_dict())
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
    calls = []
    opt.register_step_post_hook(lambda *_: calls.append("after"))
    opt.register_step_pre_hook(lambda *_: calls.append("before"))
    step(opt, model, 0)
    schedule.step()
    assert sgd.param_groups[0]["lr"] == 0.05 and calls == ["before", "after"]
    assert opt.state is sgd.state and opt.defaults is sgd.defaults


def test_a_gradient_that_is_not_finite_is_refused_or_skipped():
    ours = network()
    before = values(ours)
    for wanted in ("raise", "skip"):
        opt = Compressed(torch.optim.SGD(ours.parameters(), lr=0.1), TOPK, module=ours, on_nonfinite=wanted)
        opt.zero_grad()
        (loss(ours, 0, 0) * float("nan")).backward()
        if wanted == "raise":
            with pytest.raises(DivergedError, match="not finite"):
                opt.step()
        else:
            opt.step()
            assert opt.aggregator.skipped == 1
        assert values(ours) == before


@pytest.mark.parametrize("option", [{"workers": 4}, {"on_nonfinite": "skip"}], ids=str)
def test_a_hook_refuses_what_only_an_optimiser_can_do(option):
    """When it is made, and not in the first step; what stands for the default is allowed."""
    with pytest.raises(ConfigError, match=r"in a hook of DDP.*mpicomp\.torch\.Compressed"):
        Hook(TOPK, **option)
    Hook(TOPK, workers=None, on_nonfinite="raise")


def test_local_steps_with_an_outer_optimiser():
    """H steps of one's own, then the outer step along the aggregated change: without compression, the sum."""
    theirs, ours = network(), network()
    one = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    inner = torch.optim.AdamW(ours.parameters(), lr=1e-2)
    two = Compressed(inner, DCGD(Identity("f8")), module=ours, sync_every=4)
    for k in range(8):
        step(one, theirs, k)
        step(two, ours, k)
        if k % 4 == 3:  # x - 1.0 * (x - y), which is y up to rounding
            for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
                assert torch.allclose(p, q, atol=1e-6)
                with torch.no_grad():
                    p.copy_(q)
    assert two.aggregator.steps == 2
    nesterov = torch.optim.SGD(ours.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    assert Compressed(inner, TOPK, module=ours, sync_every=4, outer=nesterov).outer is nesterov


def test_halves_are_aggregated_in_single_precision():
    model = torch.nn.Linear(4, 2).to(torch.bfloat16)
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), PLAIN, module=model)
    model(torch.ones(3, 4, dtype=torch.bfloat16)).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    assert opt.aggregate()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    assert opt.ledger.up_bytes == 4 * 10


def train(opt, model, steps):
    for k in steps:
        for i in opt.hosted:
            opt.zero_grad()
            loss(model, i, k).backward()
            opt.collect(i)
        opt.step()


def compressed(model, **options):
    return Compressed(torch.optim.AdamW(model.parameters(), lr=1e-2), TOPK, module=model, **options)


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


def test_a_shard_of_a_parameter_is_refused(tmp_path):
    """A DTensor, as FSDP and tensor parallelism have them."""
    from torch.distributed.tensor import distribute_module, init_device_mesh

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        model = distribute_module(network(), init_device_mesh("cpu", (1,)))
        with pytest.raises(ConfigError, match=r"is sharded.*without FSDP"):
            Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    finally:
        torch.distributed.destroy_process_group()


def test_what_is_wrong_is_said():
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="leave workers out"):
        Compressed(sgd, TOPK, module=model, workers=2, sync_every=3)
    with pytest.raises(ConfigError, match="give sync_every too"):
        Compressed(sgd, TOPK, module=model, outer=sgd)
    with pytest.raises(ConfigError, match="MARINA compares gradients"):
        Compressed(sgd, MARINA(RandK(k=2), p=0.1), module=model, sync_every=3)
    with pytest.raises(ConfigError, match="worker 5 is not hosted here"):
        Compressed(sgd, TOPK, module=model, workers=2).collect(5)
    with pytest.raises(ConfigError, match=r"opt.collect\(i\)|a dict of the gradients"):
        Compressed(sgd, TOPK, module=model, workers=2).step()
    with pytest.raises(ConfigError, match=r"zero_grad\(\) before opt\.step\(\) leaves a bad local step out"):
        Compressed(sgd, TOPK, module=model, sync_every=3, on_nonfinite="skip")
    some = torch.optim.SGD([model[0].weight], lr=0.1)
    with pytest.raises(ConfigError, match="outer lacks some"):
        Compressed(sgd, TOPK, module=model, sync_every=3, outer=some)
    with pytest.raises(ConfigError, match="LBFGS calls a closure"):
        Compressed(torch.optim.LBFGS(model.parameters()), TOPK, module=model)
    with pytest.raises(ConfigError, match="no aggregate"):
        Compressed(sgd, TOPK, module=model, sync_every=3).aggregate()
    frozen = torch.optim.SGD([p.requires_grad_(False) for p in network().parameters()], lr=0.1)
    with pytest.raises(ConfigError, match="no parameter of the optimiser"):
        Compressed(frozen, TOPK)
    normed = network(True)
    with pytest.warns(UserWarning, match="the model has buffers.*give module=model"):
        Compressed(torch.optim.SGD(normed.parameters(), lr=0.1), TOPK)


def test_without_torch_the_import_says_how_to_get_it():
    script = "import sys; sys.modules['torch'] = None; import mpicomp.torch"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install 'mpicomp[torch]'" in done.stderr


def test_the_batches_of_workers_differ():
    assert not np.allclose(batch(0, 0)[0], batch(1, 0)[0])


def test_a_buffer_without_entries_does_no_harm():
    model = network()
    model.register_buffer("nothing", torch.empty(0))
    step(Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model), model, 0)


SERVED = {"server": "sharded", "shards": 4}


def early(model, method=TOPK, **options):
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return Compressed(sgd, method, module=model, **SERVED | {"overlap": True} | options)


def test_overlap_is_training_without_it():
    """Also with a closure, with clipping, and where two backwards have an aggregation between them."""
    trained = []
    for overlap in (False, True):
        model = network(normed=True)
        opt = early(model, overlap=overlap)
        for k in range(6):
            step(opt, model, k)

        def closure(opt=opt, model=model):
            opt.zero_grad()
            loss(model, 0, 9).backward()
            return 1.0

        assert opt.step(closure) == 1.0
        trained.append(values(model))
    assert trained[0] == trained[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"server": "shared", "shards": None}, "where each rank serves blocks and has one worker"),
        ({"workers": 2}, "where each rank serves blocks and has one worker"),
        ({"sync_every": 2}, "sync_every sends none"),
        ({"method": MARINA(RandK(k=2), p=0.3)}, "MARINA needs more than one block"),
    ],
)
def test_where_there_is_no_overlap(options, said):
    with pytest.raises(ConfigError, match=said):
        early(network(), **options)


def test_overlap_refuses_a_second_backward():
    model = network()
    early(model)
    loss(model, 0, 0).backward()
    with pytest.raises(ConfigError, match="has got a second gradient before opt"):
        loss(model, 0, 1).backward()


def test_overlap_refuses_gradients_that_are_changed_after_they_left():
    model = network()
    opt = early(model)
    loss(model, 0, 0).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with pytest.raises(ConfigError, match="was changed after backward, when it had left already"):
        opt.step()


def test_overlap_refuses_scaled_gradients():
    model = network()
    opt = early(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale(loss(model, 0, 0)).backward()
    with pytest.raises(ConfigError, match="GradScaler scales gradients that have left already"):
        scaler.step(opt)
