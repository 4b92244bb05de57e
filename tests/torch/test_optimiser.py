"""An optimiser around an optimiser: in one process, beside torch's own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from copy import copy, deepcopy

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

import mpicomp
from mpicomp import (
    DCGD,
    EF21SGDM,
    MARINA,
    VRMARINA,
    ConfigError,
    Dion,
    DivergedError,
    Identity,
    Key,
    MpicompError,
    RandK,
    TopK,
)
from mpicomp.base.errors import RecordError
from mpicomp.torch import Compressed, Hook, hook
from tests.reference.dion import dion
from tests.torch.loops import TOPK, compressed, step
from tests.torch.models import batch, loss, network, values

PLAIN = DCGD(Identity())

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}


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


def test_dion_takes_the_step_of_its_paper():
    """Matrices: x = (1 - η λ) x - η √(rows/columns) P Q'; biases: SGD with a learning rate of their own."""
    model, seed = network().double(), 3
    parameters = list(model.parameters())
    matrices, biases = parameters[::2], parameters[1::2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": biases, "lr": 0.2}]
    opt = Compressed(torch.optim.SGD(groups, lr=0.05), Dion(2, values="f8"), module=model, seed=seed)
    iterates, gradients = [], []
    for k in range(10):
        opt.zero_grad()
        X, labels = batch(0, k)
        torch.nn.functional.cross_entropy(model(X.double()), labels).backward()
        gradients.append(np.concatenate([p.grad.numpy().ravel() for p in parameters]))
        iterates.append([p.detach().numpy().copy() for p in parameters])
        opt.step()
    shapes = [p.shape for p in parameters]
    drawn = Key(seed, 0, None, 1).shared("dion").normals(2 * (6 + 3)).reshape(-1, 2)
    along, _, _ = dion(
        [lambda t, x: gradients[t]],
        np.zeros(gradients[0].size),
        1.0,
        shapes,
        {0: drawn[:6], 2: drawn[6:]},
        10,
    )
    ends = np.cumsum([p.numel() for p in parameters])[:-1]
    for k in range(9):
        steps = np.split(along[k] - along[k + 1], ends)
        for i, (x, after, g) in enumerate(zip(iterates[k], iterates[k + 1], steps, strict=True)):
            wanted = x - 0.2 * g.reshape(x.shape) if i % 2 else 0.995 * x - 0.05 * g.reshape(x.shape)
            np.testing.assert_allclose(after, wanted, rtol=0, atol=1e-10)


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
    compared, compare = [], opt._compare_again
    opt._compare_again = lambda what: (compared.append(k), compare(what))
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
    assert compared == [0]  # that the method moves the parameters, and back, is no change by the program


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


def test_an_estimate_that_was_left_is_not_stepped_with():
    """After ``zero_grad`` the next step aggregates its own gradient."""
    model = network()
    opt = compressed(model)
    loss(model, 0, 0).backward()
    opt.aggregate()
    step(opt, model, 1)
    assert opt.aggregator.steps == 2


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
    for name in ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"):
        getattr(opt, f"register_{name}_hook")(lambda one, *_, name=name: calls.append((name, one)))
    calls.clear()
    state = opt.state_dict()
    assert calls == [("state_dict_pre", sgd), ("state_dict_post", sgd)]
    opt.load_state_dict(state)
    assert calls[-2:] == [("load_state_dict_pre", sgd), ("load_state_dict_post", sgd)]


def test_a_compressed_around_another_is_refused():
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), PLAIN, module=model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for around, options in ((opt, {}), (sgd, {"sync_every": 2, "outer": opt})):
        with pytest.raises(ConfigError, match="around a Compressed averages twice; allowed: an optimiser"):
            Compressed(around, PLAIN, module=model, **options)


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


@pytest.mark.parametrize(
    "option", [{"workers": 4}, {"on_nonfinite": "skip"}, {"server": "dedicated"}], ids=str
)
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
    assert Compressed(inner, PLAIN, module=ours, sync_every=4, outer=nesterov).outer is nesterov


def test_halves_are_aggregated_in_single_precision():
    model = torch.nn.Linear(4, 2).to(torch.bfloat16)
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), PLAIN, module=model)
    model(torch.ones(3, 4, dtype=torch.bfloat16)).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    assert opt.aggregate()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    assert opt.ledger.up_bytes == 4 * 10


def test_a_mean_beyond_the_parameters_type_is_refused():
    """RandK gives 64 times an entry, which float16 does not hold; the parameters stay."""
    model = torch.nn.Linear(64, 1, bias=False).half()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), DCGD(RandK(k=1)), module=model)
    before = values(model)
    model.weight.grad = torch.full_like(model.weight, 2048.0)
    for _ in range(2):
        with pytest.raises(DivergedError, match=r"in 'weight' a magnitude of 1.31e\+05, which torch.float16"):
            opt.step()
    assert values(model) == before
    model.weight.grad = torch.full_like(model.weight, 512.0)
    opt.step()  # 64 * 512 = 32768
    assert model.weight.grad.max() == 32768


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


@pytest.mark.parametrize("local", [{}, {"sync_every": 2}])
def test_a_model_that_becomes_float64_is_refused(local):
    """Its vector has stayed float32."""
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, **local)
    model.double()
    with pytest.raises(ConfigError, match="the model has become float64, and is aggregated in float32"):
        for k in range(2):
            opt.zero_grad()
            inputs, wanted = batch(0, k)
            torch.nn.functional.cross_entropy(model(inputs.double()), wanted).backward()
            opt.step()


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
    outer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(ConfigError, match="LBFGS calls a closure"):
        Compressed(sgd, TOPK, module=model, sync_every=3, outer=outer)
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


def test_copies_are_refused_and_break_nothing(tmp_path):
    """torch's way to make one would wrap ``Compressed.step``, for every Compressed of the process."""
    model, theirs = network(), network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), PLAIN, module=model)
    kept = Compressed.step
    for make in (copy, deepcopy, pickle.dumps, lambda one: torch.save({"opt": one}, tmp_path / "opt.pt")):
        with pytest.raises(ConfigError, match=r"a Compressed cannot be copied or pickled.*goes on in it"):
            make(opt)
    assert Compressed.step is kept and "step" not in vars(Compressed)
    step(opt, model, 0)
    step(torch.optim.SGD(theirs.parameters(), lr=0.1), theirs, 0)
    assert values(model) == values(theirs)


def test_a_state_that_is_none_of_its_own_is_refused():
    """Before anything is taken."""
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model)
    step(opt, model, 0)
    own, lacking = opt.state_dict(), opt.state_dict()
    del lacking["start"]
    for state in (opt.inner.state_dict(), model.state_dict(), lacking, {"opt": own}, {}, None, [own]):
        with pytest.raises(ConfigError, match=r"none of Compressed.*opt\.inner\.load_state_dict\(state\)"):
            opt.load_state_dict(state)
    groups = [{"params": [p]} for p in model.parameters()]
    other = Compressed(torch.optim.SGD(groups, lr=0.1), TOPK, module=model)
    with pytest.raises(ConfigError, match=r"groups of \[4\] parameters, and the optimiser of \[1, 1, 1, 1\]"):
        other.load_state_dict(own)
    assert (other.aggregator.steps, opt.aggregator.steps) == (0, 1)
    opt.load_state_dict(own)


@pytest.mark.parametrize("every", [1, 2])
def test_the_state_of_another_class_is_refused(every, tmp_path):
    """torch loads it, and the next step fails for lack of a setting."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    one, other = (Compressed(inner, TOPK, module=model, sync_every=every) for inner in (sgd, adam))
    step(other, model, 0)
    mpicomp.torch.save(tmp_path, other, model)
    with pytest.raises(ConfigError, match=r"inner of the state.*this SGD.*groups have no .*momentum"):
        one.load_state_dict(other.state_dict())
    assert sgd.param_groups[0]["lr"] == 0.1 and "betas" not in sgd.param_groups[0]
    step(one, model, 1)
    with pytest.raises(RecordError, match=r"this SGD.*groups have no .*momentum"):
        mpicomp.torch.load(tmp_path, one, model)


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


def test_a_damaged_state_is_refused_in_one_line_and_changes_nothing():
    model, failed = network(), []
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for every in (1, 4):
        opt = Compressed(sgd, TOPK, module=model, sync_every=every)
        step(opt, model, 0)
        own = deepcopy(opt.state_dict())
        size = sum(p.numel() for p in model.parameters())
        own["inner"]["param_groups"][0]["lr"] = 0.7  # is not to be taken
        wrong = [{"inner": {}}, {"inner": None}, {"inner": {"param_groups": [{"params": [0, 1, 2, 3]}]}}]
        wrong += [{"inner": np.zeros(3)}, {"inner": torch.zeros(3)}, {"inner": {"param_groups": np.zeros(3)}}]
        first = own["aggregators"][0]
        for name in ("config.sync_every", "config.workers", "replica.g"):
            wrong += [{"aggregators": [first | {name: torch.zeros(2, 2)}]}]
        wrong += [
            {"aggregators": None},
            {"aggregators": [{}]},
            {"aggregators": []},
            {"start": [1]},
            {"start": torch.zeros(size - 1)},
        ]
        wrong += [{"local_steps": steps} for steps in ("x", -1, 2.5, None, True)]
        wrong += [{"local_steps": 100}, {"start": torch.zeros(size)}] if every == 1 else []
        wrong += (
            [{"start": None}, {"start": torch.full((size,), torch.nan)}, {"outer": {}}] if every > 1 else []
        )
        for change in wrong:
            try:
                opt.load_state_dict(own | change)
                failed.append((every, change, "taken"))
            except MpicompError as error:
                if "\n" in str(error) or opt.inner.param_groups[0]["lr"] != 0.1:
                    failed.append((every, change, str(error)))
        opt.load_state_dict(own)
        assert opt.inner.param_groups[0]["lr"] == 0.7
        sgd.param_groups[0]["lr"] = 0.1
    assert not failed


@pytest.mark.parametrize("options", [{}, {"sync_every": 4}, {"start_after": 3}], ids=str)
def test_a_count_above_the_number_of_entries_is_refused_at_once(options):
    model = torch.nn.Linear(3, 2)
    with pytest.raises(ConfigError, match=r"^k=9 exceeds the dimension d=8; allowed: 1 to 8"):
        Compressed(torch.optim.SGD(model.parameters(), lr=0.1), EF21SGDM(TopK(9)), **options)


def test_processes_that_torch_has_not_joined_are_refused(monkeypatch):
    """As of a launcher other than torchrun: each would train alone."""
    rendezvous = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}
    for name, value in rendezvous.items():
        compressed(network())  # one variable alone may be another program's
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"say that 2 processes were started.*first call torch.distributed"):
        compressed(network())
    for value in ("1", "x", ""):
        monkeypatch.setenv("WORLD_SIZE", value)
        compressed(network())


def test_arguments_of_other_kinds_are_refused():
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="optimiser is 'sgd'; allowed: a torch Optimizer"):
        Compressed("sgd", TOPK)
    with pytest.raises(ConfigError, match="module is 'm'; allowed: a torch "):
        Compressed(sgd, TOPK, module="m")
    with pytest.raises(ConfigError, match="outer is 'o'; allowed: a torch "):
        Compressed(sgd, TOPK, module=model, sync_every=2, outer="o")
    for local in ({}, {"sync_every": 2}, {"start_after": 2}, {"sync_every": 2, "fragments": 2}):
        with pytest.raises(ConfigError, match=r"^TopK.* is no method; allowed: a method of the form x - γ g"):
            Compressed(sgd, TopK(k=1), module=model, **local)
    with pytest.raises(
        ConfigError, match=r"^unknown option 'model'. Did you mean 'module'\? Allowed: module, "
    ):
        Compressed(sgd, TOPK, model=model)
    with pytest.raises(ConfigError, match=r"^unknown device device\(type='cpu'\). Did you mean 'cpu'\?"):
        Compressed(sgd, TOPK, module=model, device=torch.device("cpu"))
    opt = Compressed(sgd, TOPK, module=model, workers=2)
    with pytest.raises(ConfigError, match=r"gradient of a worker is missing.*opt\.collect\(i\)"):
        opt.step()
    opt.collect(0)
    with pytest.raises(ConfigError, match=r"gradient of a worker is missing.*opt\.collect\(i\)"):
        opt.step()
    for use in (lambda: Hook(TOPK).save("unused"), lambda: Hook(TOPK).aggregator):
        with pytest.raises(ConfigError, match="from its first backward on: train a step first"):
            use()
    with pytest.raises(ConfigError, match=r"the state of the hook is None; allowed: a Hook"):
        hook(None, None)


@pytest.mark.parametrize(
    "options", [{}, {"sync_every": 2}, {"workers": 2}, {"overlap": True, "server": "sharded", "blocks": 2}]
)
def test_a_compiled_function_may_step(options):
    """What is compiled takes the same steps, bit for bit: compression and messages stay outside."""
    found = []
    for compile_ in (lambda f: f, lambda f: torch.compile(f, backend="eager")):
        model = network()
        opt = compressed(model, **options)

        def train(k, model=model, opt=opt):
            for i in opt.hosted if "workers" in options else [0]:
                opt.zero_grad()
                loss(model, i, k).backward()
                if "workers" in options:
                    opt.collect(i)
            if k == 3 and "sync_every" not in options:
                opt.aggregate()
            opt.step()

        stepped = compile_(train)
        for k in range(6):
            stepped(k)
        found.append((values(model), opt.ledger.up_bytes))
    assert found[0] == found[1]
