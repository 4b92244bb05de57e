"""Runs whose vectors are on a device: a CPU that plays one, whose arrays are as strict as CuPy's, or a GPU.

On the former all arithmetic is numpy's, and the kernels' bytes are numpy's on both; so there a run on the
device is the run on the host, to the last bit.
"""

from __future__ import annotations

import sys
from itertools import product
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

import mpicomp
from mpicomp import DCGD, EF21, BlockSteps, Importance, RandK, TopK, VaryingSteps, kernels, problems
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.compressors.randk import _uniform
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.kernels.cuda.gpu import Gpu
from mpicomp.keys import Key, clear_cached_draws
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.suite_file import load_suite
from mpicomp.methods import ADIANAPlus, DCGDPlus, DIANAPlus
from mpicomp.problems import (
    MLP,
    Attacked,
    Autoencoder,
    LeastSquares,
    Logistic,
    Noisy,
    NonconvexGLM,
    NonconvexLogistic,
    Quadratics,
    Saddle,
    Softmax,
)
from mpicomp.runtime.placement import Placement
from tests.support import every_combination
from tests.support.conformance import CASES
from tests.support.cuda_host import Host, signatures
from tests.support.cuda_host.arrays import ATTRIBUTES, FUNCTIONS, DeviceArray, Library, Stream
from tests.support.cuda_host.arrays import METHODS as ARRAY_METHODS

RUN = mpicomp.run.__globals__  # of the module whose name is that of its function

PROBLEMS = [
    Quadratics(d=30),
    Noisy(Quadratics(d=30), sigma=0.1),
    Attacked(Logistic(data="breast_cancer", lam=1e-2), liars=1, attack="alie", scale=1.5),
    Logistic(data="breast_cancer", lam=1e-2),
    NonconvexLogistic(data="breast_cancer", lam=1e-2),
    NonconvexGLM(data="breast_cancer"),
    LeastSquares(data="breast_cancer", lam=1e-2),
    Softmax(data="digits", lam=1e-2),
    MLP(data="digits", hidden=4),
    MLP(data="digits", hidden=4, activation="relu"),
    Autoencoder(data="digits"),
    LocalImages(data="digits", hidden=4),
    FullImages(data="digits", horizon=2, hidden=4),
    Saddle(),
]


@pytest.fixture
def device(cuda, monkeypatch):
    """``cuda``, as what ``device="cuda"`` opens."""
    monkeypatch.setitem(RUN, "open_device", {"cpu": None, "cuda": cuda}.get)
    return cuda


def exact(device) -> bool:
    """Whether the device's arithmetic is numpy's, and not that of CuPy's own sums and products."""
    return isinstance(device.device, Host)


ON_HOST_ONLY = {case.c for case in CASES if not case.on_device}


def test_every_method_and_compressor_does_on_the_device_what_it_does_on_the_host(device):
    check_the_same(device, every_combination.methods())


def test_every_pair_of_them_does_on_the_device_what_it_does_on_the_host(device):
    check_the_same(device, every_combination.every_pair())


def check_the_same(device, methods):
    for method in methods:
        if not method.on_device or not ON_HOST_ONLY.isdisjoint(vars(method).values()):
            continue
        here, there = (
            mpicomp.run(method, every_combination.PROBLEM, workers=3, rounds=3, every=3, device=name)
            for name in ("cpu", "cuda")
        )
        assert isinstance(there.x, np.ndarray)
        if exact(device):
            assert there.iterates_sha256 == here.iterates_sha256, method
            assert (there.ledger.up == here.ledger.up).all(), method
            assert (there.ledger.down == here.ledger.down).all(), method
        else:  # sums are in another order there, and a draw may fall on the other side
            assert there.rows[-1].f == pytest.approx(here.rows[-1].f, rel=1e-2), method


@pytest.mark.parametrize("c", [VaryingSteps(6.0), BlockSteps(6.0, 3), Importance(4)], ids=repr)
def test_what_follows_from_weights_is_put_there_once(device, c, monkeypatch):
    """And kept while the device is in use, whatever draws are forgotten."""
    put, moved = device.put, []
    monkeypatch.setattr(device, "put", lambda a: moved.append(a.size) or put(a))
    for _ in range(2):
        moved.clear()
        with kernels.using(device):
            x = put(np.ones(1000))
            for t in range(3):
                c.decompress_add(c.compress(x, Key(0, t, 0, 1)), x, Key(0, t, 0, 1))
                clear_cached_draws()
        parts = 1 if isinstance(c, Importance) else 3  # odds; or resolutions, bounds and widths
        assert moved.count(1000) == parts


def tiny_vectors(d: int):
    """Subnormal numbers of single precision, which CuPy's own arithmetic makes 0; first among others."""
    for t in range(3):
        draw = np.random.default_rng(t)
        x = np.ldexp(draw.integers(-9, 10, d), -140)
        yield x if t else np.where(draw.random(d) < 0.5, x, draw.standard_normal(d))


def test_every_compressor_has_on_the_device_the_bytes_of_the_host(device, subtests):
    """The messages stay on the device; there they stand for the same vector, alone and added to another.

    The papers' count of bits is the same too.  A compressor without kernels for a GPU refuses the vector.
    """
    for case, dtype in product(CASES, (np.float32, np.float64)):
        with subtests.test(str(case), dtype=dtype.__name__):
            check_bytes(device, case, dtype)


def check_bytes(device, case, dtype):
    for t, x in enumerate([*case.vectors(), *tiny_vectors(case.d)]):
        x, key = x.astype(dtype), case.key(t, worker=t % case.n)
        if not case.on_device:
            with (
                kernels.using(device),
                pytest.raises(ConfigError, match=f"{type(case.c).__name__}.*CPU only"),
            ):
                case.c.compress(kernels.to_device(x), key)
            continue
        here = case.c.compress(x, key)
        expected = case.c.decompress(here, case.d, key)
        with kernels.using(device):
            there = case.c.compress(kernels.to_device(x), key)
            assert kernels.on_device(there)
            decoded, out = case.c.decompress(there, case.d, key), kernels.to_device(x)
            case.c.decompress_add(there, out, key, 0.25)
            bits = case.c.paper_bits(there, case.d, key)
            if hasattr(case.c, "learned"):
                assert case.c.learned(there, case.d) == case.c.learned(here, case.d)
            there, decoded, out = map(kernels.to_host, (there, decoded, out))
        if exact(device) or "RankR" not in str(case.c):  # whose sums are CuPy's there
            case.c.decompress_add(here, x, key, 0.25)
            assert np.array_equal(there, here)
            assert np.array_equal(decoded, expected)
            assert np.array_equal(out, x)
            assert bits == case.c.paper_bits(here, case.d, key)
        else:
            np.testing.assert_allclose(decoded, expected, rtol=1e-4, atol=1e-4)


def test_a_method_that_sends_matrices_is_refused_on_a_device(device):
    others = [m for m in every_combination.every_pair() if not m.on_device]
    assert {type(m) for m in others} == {DCGDPlus, DIANAPlus, ADIANAPlus}
    for method in others:
        with pytest.raises(ConfigError, match=f"{type(method).__name__} runs on the CPU only"):
            mpicomp.run(method, every_combination.PROBLEM, workers=8, rounds=1, device="cuda")


def test_every_problem_is_there():
    assert {type(p) for p in PROBLEMS} == set(problems.PROBLEMS.values())


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_values_and_gradients_of_every_problem_are_those_of_the_host(device, problem):
    f, x = problem.objective(1, 3), problem.x0() + np.float32(0.1)

    def seen(f, x):
        found = [np.array(f.value(x)), f.grad(x)]
        if f.samples or isinstance(problem, Noisy):
            found.append(f.batch_grad(x, 5, Key(0, 2, 1, 3).private("batch")))
        return [kernels.to_host(a) for a in found]

    here = seen(f, x)
    with kernels.using(device):
        there = seen(f.on_device(), kernels.to_device(x))
    for a, b in zip(here, there, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b) if exact(device) else np.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_run_is_resumed_on_the_device_and_nowhere_else(device, tmp_path):
    def run(rounds, folder, **options):
        method = EF21(TopK(5), gamma=0.05)
        return mpicomp.run(
            method, Quadratics(d=30), workers=4, rounds=rounds, every=5, out=tmp_path / folder, **options
        )

    whole = run(20, "whole", device="cuda")
    run(10, "parts", device="cuda")
    with pytest.raises(RecordError, match="device is cuda there and cpu here"):
        run(20, "parts", resume=True)
    assert run(20, "parts", resume=True, device="cuda").iterates_sha256 == whole.iterates_sha256


def test_a_comparison_runs_on_the_device_too(device, tmp_path):
    table = """
        problem = "quadratics(d=20)"
        workers = 2
        rounds = 10
        [[method]]
        label = "GD"
        method = "gd()"
        tune = [0, 1]
        [[method]]
        label = "EF21"
        method = "ef21(C=topk(k=3))"
    """
    (tmp_path / "suite.toml").write_text(table)
    suite = load_suite(tmp_path / "suite.toml")
    rows = [
        [o.rows for o in compare(suite, tmp_path / name, placement=Placement(device=name)).outcomes]
        for name in ("cpu", "cuda")
    ]
    for here, there in zip(*rows, strict=True):
        assert [row.up_bytes for row in here] == [row.up_bytes for row in there]
        assert not exact(device) or [row.f for row in here] == [row.f for row in there]


def test_an_objective_of_a_users_own_is_moved_with_the_arrays_it_holds(device):
    class Distance(mpicomp.Objective):
        def __init__(self, to):
            self.to = to

        def value(self, x):
            return float(np.sum((x - self.to) ** 2)) / 2

        def grad(self, x):
            return x - self.to

    f = Distance(np.arange(4.0))
    with kernels.using(device):
        x = kernels.to_device(np.ones(4))
        assert f.on_device().value(x) == f.value(np.ones(4)) == 3.0
        assert (kernels.to_host(f.on_device().grad(x)) == f.grad(np.ones(4))).all()
    assert f.on_device() is f and isinstance(f.to, np.ndarray)


def test_the_device_is_given_back_after_a_run(device):
    with pytest.raises(ConfigError):
        mpicomp.run(EF21(TopK(31), gamma=0.1), Quadratics(d=30), workers=2, rounds=1, device="cuda")
    assert kernels.device() is None


def test_a_run_leaves_no_draws_on_the_device(device):
    mpicomp.run(DCGD(RandK(5), gamma=0.1), Quadratics(d=30), workers=2, rounds=2, device="cuda")
    assert _uniform.cache_info().currsize == 0


def test_an_unknown_device_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"gpu.*cpu, cuda"):
        mpicomp.run(EF21(TopK(3), gamma=0.1), Quadratics(d=30), workers=2, rounds=1, device="gpu")


def test_without_cupy_the_error_names_the_argument_of_python_and_of_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ConfigError, match=r"no CuPy here .* run with device='cpu' \(--device cpu\)\."):
        mpicomp.run("gd(gamma=0.1)", "quadratics(d=5)", workers=2, rounds=2, device="cuda")


@pytest.mark.parametrize("error", [RuntimeError, type("CompileException", (Exception,), {})])
def test_a_gpu_without_a_compiler_is_refused_before_the_first_round(monkeypatch, error):
    def missing(**_):
        raise error('Failure finding "libnvrtc.so"')

    memory = type("Pinned", (bytearray,), {"ptr": 0})
    card = SimpleNamespace(use=lambda: None, attributes={"MultiProcessorCount": 1})
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
    compiler = SimpleNamespace(CompileException=error)
    cuda = SimpleNamespace(
        Device=lambda number: card, runtime=runtime, alloc_pinned_memory=memory, compiler=compiler
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, RawModule=missing))
    with pytest.raises(ConfigError, match=r"libnvrtc.*mpicomp\[cuda12\].*--device cpu"):
        Gpu()


# --- the stand-in ---


def test_arrays_of_the_device_do_not_mix_with_those_of_the_host():
    x = Library().asarray(np.ones(3))
    for mix in (
        lambda: x + np.ones(3),
        lambda: np.asarray(x),
        lambda: np.concatenate([x, np.ones(3)]),
        lambda: x[np.array([0])],
        lambda: np.linalg.norm(x),
        lambda: x.writeable,
    ):
        with pytest.raises((TypeError, AttributeError)):
            mix()
    assert float(np.sum(x * 2)) == 6.0


def test_a_kernel_gets_what_its_parameters_are():
    """CuPy hands over what it is given, whatever the kernel takes; here it is refused."""
    names = signatures('extern "C" void promote(const float* x, i64 d, double* out) {')
    assert names == {"promote": ["float*", "i64", "double*"]}
    launched = []
    library = MagicMock(emulate=lambda *args: launched.append(args))
    bare = SimpleNamespace(pointer=None, _signatures=names, _library=library)
    zeros = Library().zeros
    for wrong, match in (
        ((np.ones(3, "f4"), 3, zeros(3)), "array of the host"),
        ((zeros(3), 3, zeros(3)), r"where it takes float\*"),
        ((zeros(3, "f4"), 3.0, zeros(3)), "where it takes i64"),
        ((zeros(3, "f4"), np.int64(3), zeros(3)), "where it takes i64"),
        ((zeros(6, "f4")[::2], 3, zeros(3)), r"where it takes float\*"),
    ):
        with pytest.raises(TypeError, match=match):
            Host.launch(bare, "sparse", "promote", 1, 32, *wrong)
    assert not launched
    Host.launch(bare, "sparse", "promote", 1, 32, zeros(3, "f4"), 3, zeros(3))
    assert len(launched) == 1
    Stream.busy = False


def test_the_stand_in_has_nothing_that_cupy_lacks():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    assert all(hasattr(cupy, name) for name in FUNCTIONS)
    own = {name for name in vars(DeviceArray) if not name.startswith("_")} - {"memory"}
    assert all(hasattr(cupy.ndarray, name) for name in own | ATTRIBUTES | ARRAY_METHODS)
