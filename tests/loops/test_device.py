"""Aggregators and descents whose vectors are on a device: a CPU that plays one, or a GPU.

On the former all arithmetic is numpy's, so what they return is what they return on the host, bit for bit.
"""

from __future__ import annotations

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21SGDM, MARINA, Aggregator, ConfigError, Descent, RandK, Sign, TopK, kernels
from mpicomp.loops import stepping
from mpicomp.methods.support.estimating import EstimatingMethod
from tests.support import every_combination
from tests.support.conformance import CASES
from tests.support.cuda_host import Host

PROBLEM, WORKERS = every_combination.PROBLEM, 3
ON_HOST_ONLY = {case.c for case in CASES if not case.on_device}
METHODS = {  # one of each; tests/runtime/test_device.py has all compressors
    type(m): m
    for m in every_combination.methods()
    if m.on_device and ON_HOST_ONLY.isdisjoint(vars(m).values())
}
IN_BLOCKS = {
    type(m): m
    for m in every_combination.methods_in_blocks()
    if isinstance(m, EstimatingMethod) and m.worker_separable and not m.needs_function and m.on_device
    if not getattr(m, "batch", None) and ON_HOST_ONLY.isdisjoint(vars(m).values())
}
TO_CUT = every_combination.TO_CUT
SGDM = EF21SGDM(TopK(k=5), eta=0.3)


@pytest.fixture
def device(cuda, monkeypatch):
    """``cuda``, as what ``device="cuda"`` opens."""
    monkeypatch.setattr(stepping, "open_device", {"cpu": None, "cuda": cuda}.get)
    return cuda


def assert_same(device, there, here):
    """The same bits; on a GPU, whose sums are in another order, nearly the same numbers."""
    if isinstance(device.device, Host):
        assert there.tobytes() == here.tobytes()
    else:
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-9)


def tree(x, device=None, problem=PROBLEM):
    """x as arrays by the names of the problem's parts, on ``device`` if there is one."""
    put = (lambda a: a) if device is None else device.put
    return {part.name: put(x[where].reshape(part.shape).copy()) for part, where in problem.parts()}


def flat(arrays, device=None):
    """The entries of the arrays, all of which are on ``device`` if there is one."""
    if device is not None:
        assert all(isinstance(a, device.xp.ndarray) for a in arrays.values())
        arrays = {name: device.host(a) for name, a in arrays.items()}
    return np.concatenate([np.ravel(a) for a in arrays.values()])


def fs():
    return {i: PROBLEM.objective(i, WORKERS) for i in range(WORKERS)}


def test_estimates_are_those_of_the_host(device):
    for method in METHODS.values():
        if isinstance(method, EstimatingMethod):
            check_estimates(device, method)


def check_estimates(device, method):
    method = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=1).method  # step sizes are numbers
    x = PROBLEM.x0()
    here = Aggregator(method, like=tree(x), workers=WORKERS)
    there = Aggregator(method, like=tree(x, device), workers=WORKERS, device="cuda")
    for _ in range(6):
        g = flat(here(fs(), at=tree(x)))
        assert_same(device, flat(there(fs(), at=tree(x, device)), device), g)
        x = x - method.step * g
    if isinstance(device.device, Host):
        assert there.ledger.up.tolist() == here.ledger.up.tolist()
        assert there.ledger.down.tolist() == here.ledger.down.tolist()


def test_descents_are_those_of_the_host(device):
    for method in METHODS.values():
        check_descent(device, method)


def check_descent(device, method):
    method = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=1).method
    x = PROBLEM.x0()
    here = Descent(method, tree(x), workers=WORKERS)
    there = Descent(method, tree(x, device), workers=WORKERS, device="cuda")
    for _ in range(4):
        assert here.step(fs())
        assert there.step(fs())
    if not isinstance(device.device, Host):  # a draw may fall on the other side there
        return
    for mine, theirs in ((there.point, here.point), (there.x, here.x), (there.model(), here.model())):
        assert_same(device, flat(mine, device), flat(theirs))


def test_blocks_that_leave_early_are_the_same(device):
    for method in IN_BLOCKS.values():
        check_blocks(device, method)


def check_blocks(device, method):
    rng, d = np.random.default_rng(5), TO_CUT.dimension()
    options = {"server": "sharded", "blocks": 7, "device": "cuda"}
    whole, early = (
        Aggregator(method.with_step(0.01), tree(np.zeros(d), device, TO_CUT), **options) for _ in range(2)
    )
    blocks = early.overlap()
    for _ in range(4):
        g = rng.normal(size=d)
        for b in reversed(range(len(blocks))):
            early.bring(b, device.put(g[blocks[b]]))
        found, expected = (flat(agg(tree(g, device, TO_CUT)), device) for agg in (early, whole))
        assert found.tobytes() == expected.tobytes()


def test_arrays_stay_where_they_are(device):
    """Those on the device are neither read nor made on the host; numpy's come back as numpy's."""
    rng = np.random.default_rng(0)
    like = {"a": device.put(np.zeros((3, 4))), "b": np.zeros(5, np.float32)}
    agg = Aggregator(SGDM, like, device="cuda")
    reference = Aggregator(SGDM, {"a": np.zeros((3, 4)), "b": np.zeros(5, np.float32)})
    for _ in range(3):
        a, b = rng.normal(size=(3, 4)), rng.normal(size=5).astype(np.float32)
        found, expected = agg({"a": device.put(a), "b": b}), reference({"a": a, "b": b})
        assert isinstance(found["a"], device.xp.ndarray)
        assert isinstance(found["b"], np.ndarray)
        assert found["b"].dtype == np.float32
        assert_same(device, device.host(found["a"]), expected["a"])
        assert_same(device, found["b"], expected["b"])


def test_vectors_are_not_copied_to_the_host(device, monkeypatch):
    """Of d = 1000 coordinates TopK sends 5: nothing longer than its message comes to the host."""
    agg = Aggregator(SGDM, device.put(np.zeros(1000)), device="cuda")
    copied, host = [], device.host
    monkeypatch.setattr(device, "host", lambda a: copied.append(a.nbytes) or host(a))
    for i in range(3):
        agg(device.put(np.random.default_rng(i).normal(size=1000)))
    assert max(copied, default=0) < 100


def test_a_function_gets_and_gives_arrays_of_the_device(device):
    """At two points of its choice, as MARINA asks."""
    method, x = MARINA(RandK(k=5), gamma=0.1, p=0.3), PROBLEM.x0()
    f = PROBLEM.objective(0, 1)
    with kernels.using(device):
        moved = f.on_device()
    here = Aggregator(method, x)
    there = Aggregator(method, device.put(x), device="cuda")
    for _ in range(5):
        g = here(f.grad, at=x)
        assert_same(device, device.host(there(moved.grad, at=device.put(x))), g)
        x = x - 0.1 * g


def test_saved_and_restored_is_uninterrupted(device, tmp_path):
    """By all ranks in a folder, and rank by rank in numpy's arrays."""
    rng = np.random.default_rng(3)
    gradients = [rng.normal(size=40) for _ in range(6)]
    one, two, three = (Aggregator(SGDM, device.put(np.zeros(40)), device="cuda") for _ in range(3))
    for g in gradients[:3]:
        one(device.put(g))
    one.save(tmp_path / "agg")
    two.load(tmp_path / "agg")
    state = one.state()
    assert not any(isinstance(value, device.xp.ndarray) for value in state.values())
    three.restore(state)
    for g in gradients[3:]:
        expected = device.host(one(device.put(g))).tobytes()
        assert device.host(two(device.put(g))).tobytes() == expected
        assert device.host(three(device.put(g))).tobytes() == expected


def test_a_gradient_that_is_not_finite_is_seen_there(device):
    agg = Aggregator(SGDM, device.put(np.zeros(40)), device="cuda", on_nonfinite="skip")
    bad = np.ones(40)
    bad[7] = np.nan
    assert agg(device.put(bad)) is None
    assert agg(device.put(np.ones(40))) is not None
    assert (agg.steps, agg.skipped) == (1, 1)


def test_the_device_is_in_use_during_a_call_only(device):
    agg = Aggregator(SGDM, device.put(np.zeros(40)), device="cuda")
    assert kernels.device() is None
    other = Aggregator(EF21SGDM(Sign(), eta=0.3), np.zeros(40))
    agg(device.put(np.ones(40)))
    assert isinstance(other(np.ones(40)), np.ndarray)
    assert kernels.device() is None


def test_a_method_that_sends_matrices_is_refused_there(device):
    with pytest.raises(ConfigError, match="runs on the CPU only"):
        Aggregator(mpicomp.DCGDPlus(RandK(k=5), gamma=0.1), device.put(np.zeros(40)), device="cuda")


def test_an_unknown_device_is_refused():
    with pytest.raises(ConfigError, match="unknown device 'tpu'"):
        Aggregator(SGDM, np.zeros(40), device="tpu")
