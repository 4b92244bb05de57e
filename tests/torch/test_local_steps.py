"""Local steps whose exchanges are delayed and in fragments: Streaming DiLoCo, transcribed; saved half-way."""

from __future__ import annotations

import warnings
from itertools import pairwise
from threading import Event

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import (
    DCGD,
    EDEN,
    EF21LMO,
    EFSGD,
    BlockFloat,
    ConfigError,
    DoubleSqueeze,
    EF21Muon,
    HardThreshold,
    Identity,
    Layered,
    OneBitAdam,
    PowerSGD,
    TopK,
)
from mpicomp.base.errors import RecordError
from mpicomp.torch import Compressed, load, save
from mpicomp.torch.fragments import Schedule, cut
from mpicomp.torch.timing import Timing
from tests.torch.loops import TOPK, step
from tests.torch.models import loss, network, values

EXACT = DCGD(Identity("f8"))
SETTINGS = [(4, 0, 0.0, 1), (4, 2, 0.5, 1), (4, 3, 1.0, 1), (6, 0, 0.0, 3), (7, 1, 0.25, 3), (8, 1, 0.5, 4)]
SETTINGS += [(4, 2, "delay", 1), (6, 1, "delay", 2)]


@pytest.mark.parametrize(("every", "delay", "keep", "fragments"), SETTINGS)
def test_an_exchange_begins_before_it_ends_and_no_two_are_under_way(every, delay, keep, fragments):
    schedule = Schedule(every, delay, fragments)
    begun, ends = {}, {p: [] for p in range(fragments)}
    for t in range(10 * every):
        for p in schedule.begin(t):
            assert not begun
            begun[p] = t
        for p in schedule.end(t):
            assert t - begun.pop(p) == delay
            ends[p].append(t)
    for p, at in ends.items():
        assert at[0] == (p * every // fragments or every)
        assert {b - a for a, b in pairwise(at)} == {every}


def streaming(model, every, delay, keep, fragments, steps, method_steps):
    """Algorithm 2 of the paper for one worker, without compression, on lists of tensors."""
    parameters = list(model.parameters())
    named = {str(j): p for j, p in enumerate(parameters)}
    groups = [[int(name) for name in one] for one in cut(named, fragments)]
    inner = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    theta = [p.detach().clone() for p in parameters]
    velocity = [torch.zeros_like(p) for p in parameters]
    first = [True] * fragments
    sent, before = {}, {}
    for t in range(1, steps + 1):
        inner.zero_grad()
        loss64(model, t - 1).backward()
        inner.step()
        with torch.no_grad():
            for p, members in enumerate(groups):
                if (t + delay - p * every // fragments) % every == 0:
                    sent[p] = [theta[j] - parameters[j] for j in members]
                    before[p] = [parameters[j].clone() for j in members]
            for p, members in enumerate(groups):
                if (t - p * every // fragments) % every == 0:
                    for j, change, then in zip(members, sent.pop(p), before.pop(p), strict=True):
                        # torch's SGD with Nesterov momentum: its first velocity is the gradient.
                        velocity[j] = change.clone() if first[p] else 0.9 * velocity[j] + change
                        theta[j] = theta[j] - 0.7 * (change + 0.9 * velocity[j])
                        own = parameters[j] - (then if keep == "delay" else theta[j])
                        parameters[j].copy_(theta[j] + (1 if keep == "delay" else keep) * own)
                    first[p] = False
        method_steps[:] = [list(theta)]
    return model


def loss64(model, k):
    from tests.torch.models import batch

    X, labels = batch(0, k)
    return torch.nn.functional.cross_entropy(model(X.double()), labels)


@pytest.mark.parametrize(("every", "delay", "keep", "fragments"), SETTINGS)
def test_it_is_the_papers_algorithm(every, delay, keep, fragments):
    theirs, ours = network().double(), network().double()
    told = []
    streaming(theirs, every, delay, keep, fragments, 3 * every + 1, told)
    outer = torch.optim.SGD(ours.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    opt = Compressed(
        torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9),
        EXACT,
        module=ours,
        sync_every=every,
        outer=outer,
        delay=delay,
        keep=keep,
        fragments=fragments,
    )
    for k in range(3 * every + 1):
        opt.zero_grad()
        loss64(ours, k).backward()
        opt.step()
    for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=1e-12, atol=1e-14)
    common = torch.cat([p.reshape(-1) for p in told[0]])
    assert torch.allclose(opt.local.start, common, rtol=1e-12, atol=1e-14)


def test_keeping_all_changes_nothing_but_by_the_outer_step():
    """Lossless, one worker, an outer rate of 0: an exchange leaves each value where it was."""
    plain, ours = network(), network()
    one = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    inner = torch.optim.AdamW(ours.parameters(), lr=1e-2)
    still = torch.optim.SGD(ours.parameters(), lr=0.0)
    two = Compressed(inner, EXACT, module=ours, sync_every=4, outer=still, delay=1, keep=1.0, fragments=2)
    start = two.local.start
    for k in range(8):
        step(one, plain, k)
        step(two, ours, k)
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            assert torch.allclose(p, q, atol=1e-6)
    assert torch.equal(two.local.start, start)


@pytest.mark.parametrize(
    "method",
    [EFSGD(TopK(k=0.1)), EFSGD(HardThreshold(0.01)), DoubleSqueeze(TopK(k=0.1), Identity())],
    ids=repr,
)
@pytest.mark.parametrize("local", [{}, {"fragments": 2}, {"delay": 2, "keep": "delay"}], ids=repr)
def test_one_worker_that_is_all_its_memory_ahead_goes_its_own_way(method, local):
    """θ - e is where it is already, whatever was sent: θ^+ - e^+ = (θ - m) - (e + Δ - m) = θ_i, if β = 1."""
    plain, ours = network(), network()
    one = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    inner = torch.optim.AdamW(ours.parameters(), lr=1e-2)
    two = Compressed(inner, method, module=ours, sync_every=6, ahead=1, **local)
    for k in range(20):
        step(one, plain, k)
        step(two, ours, k)
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            assert torch.allclose(p, q, atol=1e-6)
    memory = torch.cat([torch.from_numpy(agg.residual(0)) for agg in two.aggregators])
    assert two.aggregator.steps == 3 and memory.norm() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ahead", [0, 0.25, 0.5, 1])
def test_what_was_not_sent_arrives_whole(ahead, dtype):
    """One local change, then none.  What bfloat16 cannot hold of a e_i is no change of it."""
    model = torch.nn.Linear(64, 1, bias=False).to(dtype)
    with torch.no_grad():
        model.weight.copy_(1 + torch.arange(64) / 64)
    before = model.weight.detach().double()
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    opt = Compressed(sgd, EFSGD(TopK(k=8)), module=model, sync_every=2, ahead=ahead)
    for k in range(40):
        model.weight.grad = torch.full_like(model.weight, 0.04 if k == 0 else 0)
        opt.step()
        if k == 0:
            changed = model.weight.detach().double()
    assert not opt.aggregator.residual(0).any() and changed.ne(before).all()
    with opt.common():
        torch.testing.assert_close(model.weight.detach().double(), changed, rtol=0, atol=1e-6)


def streamed(model, method=EFSGD(TopK(k=0.1)), **changed):  # noqa: B008 (frozen)
    settings = {"sync_every": 6, "delay": 2, "keep": 0.5, "fragments": 2} | changed
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return Compressed(adam, method, module=model, **settings)


@pytest.mark.parametrize("kept", [{"keep": 0.5}, {"keep": "delay", "ahead": 0.5}], ids=["share", "ahead"])
@pytest.mark.parametrize("how", ["together", "rank by rank"])
@pytest.mark.parametrize("at", range(7, 13))
def test_saved_at_any_step_it_goes_on(how, kept, at, tmp_path):
    """In a period each of the six steps is tried: both exchanges under way, none, and at their ends."""
    models = [network(True, seed=s) for s in (1, 1, 9)]
    opts = [streamed(m, **kept) for m in models]
    for k in range(20):
        step(opts[0], models[0], k)
        if k < at:
            step(opts[1], models[1], k)
    if how == "together":
        save(tmp_path / "saved", opts[1], models[1])
        load(tmp_path / "saved", opts[2], models[2])
    else:
        content = {"opt": opts[1].state_dict(), "model": models[1].state_dict()}
        torch.save(content, tmp_path / "saved.pt")
        content = torch.load(tmp_path / "saved.pt")
        models[2].load_state_dict(content["model"])
        opts[2].load_state_dict(content["opt"])
    for k in range(at, 20):
        step(opts[2], models[2], k)
    assert values(models[2]) == values(models[0])
    assert opts[2].ledger.up_bytes == opts[0].ledger.up_bytes > 0
    assert opts[2].ledger.down_bytes == opts[0].ledger.down_bytes > 0


@pytest.mark.parametrize("what", ["begin", "finish", "call"])
def test_after_an_interrupt_the_exchange_is_done_once(what, tmp_path):
    """Ctrl-C reaches all ranks as they begin an exchange, after the local step: the handler saves."""
    settings = {"delay": 0, "keep": 0.0} if what == "call" else {}
    models = [network(True, seed=s) for s in (1, 1, 9)]
    opts = [streamed(m, **settings) for m in models]
    for k in range(20):
        step(opts[0], models[0], k)
    own = opts[1].aggregators[0]
    name = {"call": "_take", "begin": "_take", "finish": "finish"}[what]
    for k in range(20):
        if own.steps == 1 and not hasattr(own, "broken"):
            own.broken, kept = True, getattr(own, name)

            def interrupted(*args, kept=kept):
                setattr(own, name, kept)
                raise KeyboardInterrupt

            setattr(own, name, interrupted)
        try:
            step(opts[1], models[1], k)
        except KeyboardInterrupt:
            break
    save(tmp_path, opts[1], models[1])
    load(tmp_path, opts[2], models[2])
    for later in range(k + 1, 20):
        step(opts[2], models[2], later)
    assert 0 < k < 19 and values(models[2]) == values(models[0])
    assert opts[2].aggregators[0].steps == opts[0].aggregators[0].steps


def test_other_settings_are_refused_by_a_saved_state(tmp_path):
    model = network()
    opt = streamed(model, keep="delay")
    step(opt, model, 0)
    save(tmp_path / "saved", opt, model)
    for change in ({"delay": 1}, {"keep": 0.0}, {"fragments": 1}, {"ahead": 0.5}):
        other = streamed(model := network(), **{"keep": "delay"} | change)
        with pytest.raises(RecordError, match=f"{next(iter(change))} is "):
            load(tmp_path / "saved", other, model)
        with pytest.raises(ConfigError, match=f"{next(iter(change))} is "):
            other.load_state_dict(opt.state_dict())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delay": 3}, r"delay is 3; allowed: below sync_every // fragments = 3"),
        ({"delay": 6, "fragments": 1}, r"delay is 6; allowed: below .* = 6"),
        ({"delay": -1}, "delay=-1"),
        ({"delay": 1.5}, "delay=1.5"),
        ({"fragments": 0}, "fragments=0"),
        ({"fragments": 5, "delay": 0}, "at most the number of parameters that are trained, 4"),
        ({"fragments": 7, "delay": 0}, "at most sync_every = 6"),
        ({"keep": 1.5}, 'keep is 1.5; allowed: a number from 0 to 1, or "delay"'),
        ({"keep": float("nan")}, "keep is nan"),
        ({"keep": "half"}, "keep is 'half'"),
        ({"sync_every": 1, "delay": 0, "fragments": 1}, "outer, keep and ahead are for local steps"),
        ({"ahead": 1.5, "keep": 0}, r"ahead is 1.5; allowed: a number from 0 to 1\."),
        ({"ahead": True, "keep": 0}, "ahead is True"),
        ({"ahead": 0.5}, r'ahead does not go with keep=0.5, .* allowed: 0 or "delay"'),
        ({"ahead": 0.5, "keep": 0, "method": EXACT}, "DCGD keeps none; allowed with EFSGD and DoubleSqueeze"),
        ({"sync_every": 1, "keep": 0.0, "fragments": 1}, "delay is 2; allowed"),
    ],
)
def test_what_is_wrong_is_said(change, said):
    with pytest.raises(ConfigError, match=said):
        streamed(network(), **change)


@pytest.mark.parametrize("options", [{}, {"server": "sharded", "blocks": 2}], ids=["root", "sharded"])
def test_a_rule_for_some_fragments_is_no_mistake(options):
    """The weights are in one fragment and a bias in the other; a rule that matches nowhere is refused."""
    model = network()
    rules = Layered({"0.weight": TopK(k=0.1), "size<4": Identity()}, default=TopK(k=0.5))
    opt = Compressed(
        torch.optim.SGD(model.parameters(), lr=0.1),
        EFSGD(rules),
        module=model,
        sync_every=4,
        fragments=2,
        **options,
    )
    for k in range(4):
        step(opt, model, k)
    assert [one.steps for one in opt.aggregators] == [1, 1]
    with pytest.raises(ConfigError, match=r"'2\.wait' matches no part"):
        streamed(network(), method=EFSGD(Layered({"2.wait": Identity()}, default=TopK(k=0.5))))


def test_an_error_says_which_fragment_it_is_about():
    """PowerSGD needs a matrix, and the second fragment is a bias."""
    with pytest.raises(ConfigError, match=r"fragment 1 of 4: .* Fewer fragments have more parameters each\."):
        streamed(network(), method=PowerSGD(1), fragments=4, delay=0)
    with pytest.raises(ConfigError, match=r"^PowerSGD") as error:
        streamed(torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False)), method=PowerSGD(3), fragments=1)
    assert "fragment" not in str(error.value)


def test_fragments_are_cut_where_they_are_about_equal():
    sizes = [5, 1, 1, 1, 8, 2, 6]
    named = {f"p{j}": torch.nn.Parameter(torch.zeros(size)) for j, size in enumerate(sizes)}
    assert [[*one] for one in cut(named, 3)] == [["p0", "p1", "p2", "p3"], ["p4"], ["p5", "p6"]]
    assert [[*one] for one in cut(named, 7)] == [[name] for name in named]
    assert [*cut(named, 1)[0]] == [*named]


def test_a_model_that_is_not_in_one_fragment_is_compared_whole():
    """``check`` reads the values after the last exchanges, and the ranks' own values may differ meanwhile."""
    model = network()
    opt = streamed(model)
    for k in range(5):
        step(opt, model, k)
    opt.check()
    assert opt.local.start.shape == (sum(p.numel() for p in model.parameters()),)
    assert loss(model, 0, 0).isfinite()


def test_a_check_waits_for_the_exchange_under_way():
    """Both use one transport: the check of one rank would meet the messages of another's exchange."""
    model = network()
    opt = streamed(model, fragments=1)
    go, play, background = Event(), opt.aggregator._play_step, opt.aggregator._background
    opt.aggregator._play_step = lambda: (go.wait(), play())
    for k in range(4):
        step(opt, model, k)
    wait = background.wait
    background.wait = lambda: (go.set(), wait())
    assert background._thread is not None
    opt.check()
    assert background._thread is None


@pytest.mark.parametrize("fragments", [1, 2])
def test_outer_leaves_alone_what_the_optimiser_does_not_have(fragments):
    """A head is trained; backward gives the body gradients too, and outer has both."""
    model = network()
    *body, weight, bias = model.parameters()
    before = [p.detach().clone() for p in body]
    sgd = torch.optim.SGD([weight, bias], lr=0.1)
    outer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.1)
    opt = Compressed(sgd, EXACT, module=model, sync_every=4, fragments=fragments, outer=outer)
    for k in range(8):
        step(opt, model, k)
    assert all(torch.equal(p, q) for p, q in zip(body, before, strict=True))
    assert opt.aggregator.steps


def test_a_share_of_numpy_is_a_number():
    for own in (np.float32(0.5), np.int64(1)):
        made = Timing(2, 0, own, own, 1, 0, False)
        assert made.keep == made.ahead == own and type(made.keep) is type(made.ahead) is float


def test_a_share_is_the_same_as_an_integer_and_as_a_float():
    one, two = streamed(network(), keep=1), streamed(network(), keep=1.0)
    two.load_state_dict(one.state_dict())


@pytest.mark.parametrize("every", [1, 6])
def test_the_common_model_is_there_for_a_while(every):
    model = network(True)
    settings = {"delay": 0, "fragments": 1, "keep": 0.0} if every == 1 else {}
    opt = streamed(model, sync_every=every, **settings)
    for k in range(10):
        step(opt, model, k)
    own = values(model)
    with opt.common():
        inside = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert values(model) == own
    if every == 1:
        assert torch.equal(inside, torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    else:
        assert torch.equal(inside, opt.local.start)
        with pytest.raises(ZeroDivisionError), opt.common():
            raise ZeroDivisionError
        assert values(model) == own


def test_in_the_common_model_no_training_is_saved(tmp_path):
    """It would go on from the common parameters, and not from each rank's own."""
    model = network()
    opt = streamed(model, sync_every=8)
    for k in range(3):
        step(opt, model, k)
    state, own = opt.state_dict(), values(model)
    save(tmp_path, opt, model)
    calls = (
        opt.step,
        opt.state_dict,
        lambda: opt.load_state_dict(state),
        lambda: save(tmp_path, opt, model),
        lambda: load(tmp_path, opt, model),
    )
    for call in calls:
        with opt.common(), pytest.raises(ConfigError, match=r"inside opt\.common"), opt.common():
            call()
    assert values(model) == own and opt.local.steps == 3
    step(opt, model, 3)


def test_momentum_after_error_feedback_is_warned_of():
    model = network()
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    with pytest.warns(UserWarning, match="outer has momentum, and EFSGD sends later") as warned:
        streamed(model, outer=outer)
    lines = {line for _, _, line in streamed.__code__.co_lines()}  # it makes the Compressed
    assert warned[0].filename == streamed.__code__.co_filename and warned[0].lineno in lines
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        streamed(model, method=EXACT, outer=outer)
        streamed(model, method=DoubleSqueeze(BlockFloat(bits=4), BlockFloat(bits=8)), outer=outer)
        streamed(model, outer=torch.optim.SGD(model.parameters(), lr=1.0))
    for C, down in ((EDEN(bits=1), BlockFloat(bits=8)), (BlockFloat(bits=8), HardThreshold(0.1))):
        with pytest.warns(UserWarning, match="outer has momentum, and DoubleSqueeze sends later"):
            streamed(model, method=DoubleSqueeze(C, down), outer=outer)
    layered = Layered({"0.*": Identity()}, default=TopK(k=0.1))
    with pytest.warns(UserWarning, match="outer has momentum, and EFSGD sends later"):
        streamed(model, method=EFSGD(layered), outer=outer)


@pytest.mark.parametrize(
    "method",
    [EF21LMO(TopK(k=0.1)), EF21Muon(TopK(k=0.1), TopK(k=0.1)), OneBitAdam(warmup=2, gamma=1.0)],
    ids=repr,
)
def test_a_step_of_a_given_length_by_the_default_rate_is_warned_of(method):
    model = network()
    with pytest.warns(UserWarning, match=r"as long for a small change as for a large one, .* Give outer,"):
        streamed(model, method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        streamed(model)
        streamed(model, method=method, outer=torch.optim.SGD(model.parameters(), lr=0.02))


@pytest.mark.parametrize("options", [{}, {"fragments": 2}, {"delay": 1, "keep": "delay"}])
def test_a_model_that_is_loaded_before_the_first_step_is_not_sent_as_a_change(options):
    """Else the first exchange would compress what lies between it and the model of before."""
    model, loaded = network(), network(seed=9)
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    opt = Compressed(sgd, TOPK, module=model, sync_every=2, **options)
    model.load_state_dict(loaded.state_dict())
    for k in range(4):
        step(opt, model, k)
    assert values(model) == values(loaded)


def test_after_an_exchange_the_gradients_are_those_of_the_local_step():
    """A sparse one stays sparse: SparseAdam asks for it, and clearing it to zeros keeps its layout."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(9, 4, sparse=True)
    opt = Compressed(torch.optim.SparseAdam(table.parameters()), TOPK, module=table, sync_every=2)
    for k in range(4):
        opt.zero_grad(set_to_none=False)
        table(torch.tensor([k, 2 * k])).square().sum().backward()
        own = table.weight.grad
        opt.step()
        assert table.weight.grad is own and own.is_sparse


@pytest.mark.parametrize("every", [1, 4])
def test_the_number_of_local_steps_is_not_changed_by_hand(every):
    model = network()
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, sync_every=every)
    with pytest.raises(ConfigError, match=f"sync_every was {every} when Compressed was made"):
        opt.sync_every = 2
    assert opt.sync_every == every


class Wide(torch.optim.SGD):
    """SGD that steps along copies of more bits, as for bfloat16."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                wide = self.state[p].setdefault("wide", p.double())
                p.copy_(wide.sub_(group["lr"] * p.grad))


@pytest.mark.parametrize(("kind", "said"), [(Wide, 1), (torch.optim.AdamW, 0), (torch.optim.SGD, 0)])
def test_copies_of_the_parameters_that_no_exchange_changes_are_warned_of(kind, said):
    model = network()
    opt = Compressed(kind(model.parameters(), lr=0.1), TOPK, module=model, sync_every=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(4):
            step(opt, model, k)
    assert len(told) == said
    assert all("Wide keeps a copy of the parameters in its state, 'wide'" in str(one.message) for one in told)


@pytest.mark.parametrize("options", [{}, {"delay": 2}, {"delay": 1, "keep": "delay", "fragments": 2}])
def test_after_an_error_in_the_outer_step_it_is_taken_later(options):
    """What the ranks have sent is not sent again, nor lost."""
    trained, sent = [], []
    for fails in (False, True):
        model = network()
        inner, outer = (torch.optim.SGD(model.parameters(), lr=rate) for rate in (0.1, 1.0))
        opt = Compressed(inner, TOPK, module=model, sync_every=4, outer=outer, **options)

        def fail(*_):
            raise MemoryError

        for k in range(12):
            opt.zero_grad()
            loss(model, 0, k).backward()
            if fails and k == 7:
                with outer.register_step_pre_hook(fail), pytest.raises(MemoryError):
                    opt.step()
                opt.exchange()
            else:
                opt.step()
        trained.append(values(model))
        sent.append(opt.ledger.up.tolist())
    assert trained[0] == trained[1] and sent[0] == sent[1]
