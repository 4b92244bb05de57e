"""The communication hook of DDP, in one process: its parameters, and what it remembers of them."""

from __future__ import annotations

import copy
import pickle

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

from mpicomp import DCGD, EFSGD, MARINA, ConfigError, DivergedError, DoubleSqueeze, Identity, RandK, TopK
from mpicomp.torch import Compressed, Hook, hook
from tests.torch.experts import EXPERTS, SIZE, Experts, factors
from tests.torch.loops import TOPK
from tests.torch.models import loss, network, values

FEEDBACK = EFSGD(TopK(k=0.05))
SMALL = {"bucket_cap_mb": 0.0002}  # several buckets


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    meet = f"file://{tmp_path_factory.mktemp('group')}/meet"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def hooked(model, state, **options):
    ddp = DistributedDataParallel(model, **options)
    ddp.register_comm_hook(state, hook)
    return ddp


def train(ddp, steps, **zero):
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for k in steps:
        sgd.zero_grad(**zero)
        loss(ddp, 0, k).backward()
        sgd.step()


def remembered(state):
    """The residuals of worker and server, summed, one row for each parameter of ``state``."""
    play = state.aggregator._play
    memories = [w.e for w in play.workers.values()]
    memories += [s.e for s in play.averaging.states().values() if hasattr(s, "e")]
    return torch.stack([torch.from_numpy(e.copy()) for e in memories]).sum(0).reshape(EXPERTS, SIZE)


@pytest.mark.parametrize(
    "method", [FEEDBACK, DoubleSqueeze(TopK(k=0.05), TopK(k=0.05))], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("to_none", [False, True])
def test_nothing_is_lost_of_experts_used_in_turn(method, view, to_none):
    """Applied gradients and memories sum up to the gradients of each expert, exactly, after every step."""
    model, state = Experts(), Hook(method)
    ddp = hooked(model, state, find_unused_parameters=True, gradient_as_bucket_view=view)
    given, applied = torch.zeros(EXPERTS, SIZE), torch.zeros(EXPERTS, SIZE)
    for k in range(25):
        used = [k % EXPERTS] if k < 20 else [0, 3]
        ddp.zero_grad(set_to_none=to_none)
        before = None if k == 0 else remembered(state)
        ddp(used, factors(0, k)).backward()
        given[used] += factors(0, k)
        for j, p in enumerate(model.weights):
            if p.grad is not None:
                applied[j] += p.grad
        order = [next(i for i, q in enumerate(state.parameters) if q is p) for p in model.weights]
        assert torch.equal(applied + remembered(state)[order], given), k
        idle = [j for j in range(EXPERTS) if j not in used]
        assert all(p.grad is None or not p.grad.any() for p in (model.weights[j] for j in idle))
        if before is not None:
            assert torch.equal(remembered(state)[order][idle], before[order][idle])
    assert applied[0].any() and remembered(state).any()


def test_a_gradient_left_from_an_earlier_backward_is_sent_and_replaced():
    """Without zero_grad, p.grad of an expert that this step does not use is what it applied before.

    It is given to the hook again, so what is applied in its place counts against it.
    """
    model, state = Experts(), Hook(FEEDBACK)
    ddp = hooked(model, state, find_unused_parameters=True)
    given, applied = torch.zeros(EXPERTS, SIZE), torch.zeros(EXPERTS, SIZE)
    for k in range(8):
        left = torch.stack([torch.zeros(SIZE) if p.grad is None else p.grad.clone() for p in model.weights])
        ddp([k % 2], factors(0, k)).backward()
        given += left
        given[k % 2] += factors(0, k)
        applied += torch.stack([torch.zeros(SIZE) if p.grad is None else p.grad for p in model.weights])
        order = [next(i for i, q in enumerate(state.parameters) if q is p) for p in model.weights]
        assert torch.equal(applied + remembered(state)[order], given), k
    assert applied[:2].any(dim=1).all()


def test_without_compression_it_is_ddp_with_experts_that_no_step_uses():
    """Adam with weight decay leaves alone what has no gradient."""
    found = []
    for state in (None, Hook(DCGD(Identity()))):
        model = Experts()
        ddp = DistributedDataParallel(model, find_unused_parameters=True)
        if state is not None:
            ddp.register_comm_hook(state, hook)
        adam = torch.optim.AdamW(ddp.parameters(), lr=0.1, weight_decay=0.5)
        for k in range(9):
            adam.zero_grad()
            ddp([k % 3], factors(0, k)).backward()
            adam.step()
        found.append(values(model))
    assert found[0] == found[1]


OPTIONS = [
    {},
    SMALL,
    SMALL | {"gradient_as_bucket_view": True},
    SMALL | {"static_graph": True},
    SMALL | {"find_unused_parameters": True},
    SMALL | {"static_graph": True, "gradient_as_bucket_view": True},
]


def test_the_options_of_ddp_change_nothing():
    """TopK has no draws, so the order of the parameters does not matter."""
    found = set()
    for options in OPTIONS:
        model = network()
        train(hooked(model, Hook(EFSGD(TopK(k=0.2))), **options), range(6))
        found.add(values(model))
    assert len(found) == 1


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_program_goes_on_after_a_gradient_that_is_not_finite(options):
    """It is the training without that step; the step itself leaves zeros."""
    plain, model = network(), network()
    state = Hook(EFSGD(TopK(k=0.2)))
    train(hooked(plain, Hook(EFSGD(TopK(k=0.2))), **options), [0, 1, 3])
    ddp = hooked(model, state, **options)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for k in range(4):
        sgd.zero_grad()
        if k == 2:
            with pytest.raises(DivergedError, match="worker 0: the gradient is not finite"):
                (loss(ddp, 0, k) * float("nan")).backward()
            assert not any(p.grad.any() for p in model.parameters())
            continue
        loss(ddp, 0, k).backward()
        sgd.step()
    assert values(model) == values(plain)
    assert state.aggregator.steps == 3


def unfrozen(model):
    model[0].requires_grad_(True)
    return model


def new_head(model):
    model[2] = torch.nn.Linear(8, 3)
    return model


OTHERS = {
    "unfrozen": unfrozen,
    "another model": lambda model: network(),
    "a copy": copy.deepcopy,
    "a new head": new_head,
    "frozen": lambda model: model[2].requires_grad_(False) and model[0].requires_grad_(True) and model,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_hook_refuses_other_parameters(name):
    """Of them it would have sent nothing; gradients are zeros, so a program that goes on learns nothing."""
    model, state = network(), Hook(TOPK)
    model[0].requires_grad_(False)
    train(hooked(model, state), range(2))
    other = hooked(OTHERS[name](model), state)
    for _ in range(2):
        other.zero_grad()
        with pytest.raises(
            ConfigError, match=r"the 2 parameters of its first backward.*take one Hook for each DDP"
        ):
            loss(other, 0, 2).backward()
        assert not any(p.grad.any() for p in other.parameters() if p.requires_grad)
    assert state.aggregator.steps == 2


def test_the_same_parameters_wrapped_anew_go_on():
    whole, model, state = network(), network(), Hook(EFSGD(TopK(k=0.1)))
    other = Hook(EFSGD(TopK(k=0.1)))
    one, two = hooked(whole, other, **SMALL), hooked(model, state, **SMALL)
    for k in range(6):
        two = hooked(model, state, **SMALL) if k == 3 else two
        for ddp in (one, two):
            ddp.zero_grad()
            loss(ddp, 0, k).backward()
            with torch.no_grad():
                for p in ddp.parameters():
                    p -= 0.1 * p.grad
    assert values(whole) == values(model)


def test_two_models_in_one_backward_need_two_hooks():
    """Their buckets come between each other's; a hook of one is not given those of the other."""
    told = []
    for states in ([Hook(FEEDBACK)] * 2, [Hook(FEEDBACK), Hook(FEEDBACK)]):
        first, second = (
            hooked(network(seed=s), state, **SMALL) for s, state in zip((1, 2), states, strict=True)
        )
        try:
            (loss(first, 0, 0) + loss(second, 0, 1)).backward()
        except ConfigError as error:
            told.append(str(error))
    assert len(told) == 1 and "Hook" in told[0]


def test_gradients_accumulate_as_with_the_optimiser():
    """With no_sync the sum of all is sent, once: ``Compressed`` over the same parameters does that."""
    theirs, ours, state = network(), network(), Hook(EFSGD(TopK(k=0.2)))
    ddp = hooked(theirs, state, find_unused_parameters=True)
    one = torch.optim.SGD(theirs.parameters(), lr=0.1)
    two = Compressed(torch.optim.SGD(ours.parameters(), lr=0.1), EFSGD(TopK(k=0.2)))
    for k in range(4):
        one.zero_grad(), two.zero_grad()
        with ddp.no_sync():
            loss(ddp, 0, 2 * k).backward()
        loss(ddp, 0, 2 * k + 1).backward()
        one.step()
        for j in (0, 1):
            loss(ours, 0, 2 * k + j).backward()
        two.step()
        assert values(theirs) == values(ours), k
    assert state.aggregator.steps == 4


def test_an_expert_that_only_a_backward_without_synchronisation_used_is_sent():
    model, state = Experts(), Hook(DCGD(Identity()))
    ddp = hooked(model, state, find_unused_parameters=True)
    ddp([4], factors(0, 0)).backward()
    for k in (1, 2):
        ddp.zero_grad()
        with ddp.no_sync():
            ddp([0], factors(0, k)).backward()
        ddp([1], factors(1, k)).backward()
        assert torch.equal(model.weights[0].grad, factors(0, k))
        assert torch.equal(model.weights[1].grad, factors(1, k))
        assert all(model.weights[j].grad is None for j in (2, 3)), k


def test_sparse_gradients_are_refused():
    ddp = hooked(torch.nn.Embedding(5, 3, sparse=True), Hook(TOPK))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"parameter of shape \(5, 3\) is sparse; allowed: dense"):
            ddp(torch.tensor([1, 2])).sum().backward()


@pytest.mark.parametrize("begun", [False, True])
def test_a_hook_is_not_copied(begun):
    """A copy of a DDP would go on without a hook."""
    state = Hook(TOPK)
    ddp = hooked(network(), state)
    train(ddp, range(int(begun)))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ConfigError, match=r"cannot be copied or pickled.*copy ddp.module"):
            copied(state)
    with pytest.raises(ConfigError, match="copied"):
        copy.deepcopy(ddp)
    train(ddp, range(2))
    assert state.aggregator.steps == 2 + begun


@pytest.mark.skipif(
    bool(torch.version.cuda) and not torch.cuda.is_available(),
    reason="a torch made for CUDA asks for its driver as soon as DDP is given mixed_precision",
)
def test_mixed_precision_of_ddp_which_is_a_hook_itself_is_refused():
    with pytest.raises(
        RuntimeError, match="register_comm_hook or register_builtin_comm_hook can only be called once"
    ):
        hooked(network(), Hook(TOPK), mixed_precision=_MixedPrecision(param_dtype=torch.bfloat16))


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_blocks_do_not_leave_early_where_parameters_may_be_left_out(option):
    ddp = hooked(network(), Hook(TOPK, server="sharded", overlap=True), **{option: True})
    with pytest.raises(ConfigError, match=f"{option}=True, by which parameters may be left out"):
        loss(ddp, 0, 0).backward()


def test_blocks_leave_early_only_where_every_rank_serves():
    ddp = hooked(network(), Hook(TOPK, overlap=True))
    with pytest.raises(ConfigError, match="server='sharded'"):
        loss(ddp, 0, 0).backward()


def test_what_ddp_cannot_do_with_a_hook_is_refused():
    ddp = hooked(network(), Hook(TOPK), find_unused_parameters=True, skip_all_reduce_unused_params=True)
    with pytest.raises(ConfigError, match="skip_all_reduce_unused_params=True leaves buckets out"):
        loss(ddp, 0, 0).backward()
    p = torch.ones(3, requires_grad=True)
    with pytest.raises(ConfigError, match="optimize_ddp='python_reducer' gives the hook single gradients"):
        hook(Hook(TOPK), (p.detach(), p))  # as torch does there
    for method in (MARINA(RandK(k=0.5), p=0.5, gamma=0.1), "marina(Q=randk(k=0.5), p=0.5)"):
        with pytest.raises(ConfigError, match=r"MARINA compares gradients at two points.*opt\.step\(closure"):
            Hook(method)
    with pytest.raises(ConfigError, match=r"TopK.* is no method; allowed: a method of the form x - γ g"):
        Hook(TopK(k=1))


def test_options_that_a_hook_does_not_have_are_refused():
    with pytest.raises(ConfigError, match=r"^sync_every in a hook of DDP.*take mpicomp\.torch\.Compressed"):
        Hook(TOPK, sync_every=8)
    with pytest.raises(
        ConfigError, match=r"^unknown option 'block'. Did you mean 'blocks'\? Allowed: overlap"
    ):
        Hook(TOPK, block=2)


def test_a_rank_whose_data_has_ended_joins_with_zeros():
    """DDP's ``join`` calls the hook outside of a backward."""
    state = Hook(DCGD(Identity()))
    ddp = hooked(network(), state, find_unused_parameters=True)
    with ddp.join():
        train(ddp, range(2))
    assert state.aggregator.steps == 2
    for bucket in ddp.reducer._get_zeros_like_grad_buckets():
        ddp.reducer._run_comm_hook(bucket)
    assert state.aggregator.steps == 3


def test_compressed_warns_of_a_ddp_which_sends_whole_gradients(recwarn):
    ddp = DistributedDataParallel(network())
    Compressed(torch.optim.SGD(ddp.parameters(), lr=0.1), TOPK, module=ddp.module)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="averages whole gradients in every step") as told:
        Compressed(torch.optim.SGD(ddp.parameters(), lr=0.1), TOPK, module=ddp)
    assert told[0].filename == __file__


@pytest.mark.parametrize("local", [{}, {"sync_every": 2}])
def test_torch_s_default_device_changes_nothing(local):
    """As where a program says torch.set_default_device("cuda") and its model is on the host."""
    found = []
    for device in ("cpu", "meta"):
        model = network(normed=True)
        model.register_buffer("sparse", torch.eye(3).to_sparse())
        model.register_buffer("empty", torch.empty(0))
        strided = torch.nn.Parameter(torch.zeros(4, 6)[:, ::2])
        sgd = torch.optim.SGD([*model.parameters(), strided], lr=0.1)
        group = torch.distributed.group.WORLD
        with torch.device(device):
            opt = Compressed(sgd, FEEDBACK, module=model, group=group, **local)
        for k in range(4):
            opt.zero_grad()
            loss(model, 0, k).backward()
            with torch.device(device):
                opt.step()
                opt.load_state_dict(opt.state_dict())
        opt.aggregator.close()
        found.append(values(torch.nn.ParameterList(model.parameters())))
    assert found[0] == found[1]
