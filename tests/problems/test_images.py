"""Problems on images: softmax regression, the network, the autoencoder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mpicomp
from mpicomp import GD, MARINA, Key, RandK
from mpicomp.base.errors import ConfigError
from mpicomp.data import Dataset, load_images, rows_of
from mpicomp.keys import Stream
from mpicomp.problems import MLP, PROBLEMS, Autoencoder, Noisy, Quadratics, Softmax
from mpicomp.problems.dense import cross_entropy
from mpicomp.problems.mlp import layers
from mpicomp.problems.smoothness import dense_spectrum, spectrum
from tests.problems.test_problems import assert_gradient, assert_together, rng
from tests.reference.networks import autoencoder_loss, mlp_loss, softmax_loss

N = 20  # workers: shards of 89 or 90 of the 1797 digits

ALL = [
    Softmax("digits", lam=0.1),
    Softmax("digits", lam=0.1, penalty="bounded", split="sorted"),
    MLP("digits", hidden=5),
    MLP("digits", hidden=7, activation="relu", split="contiguous"),
    Autoencoder("digits", r=3, lam=0.2),
    Autoencoder("digits", r=3, p_hat=0.5),
]


def stream(k: int) -> Stream:
    return Key(seed=5, round=k, worker=0, n=N).private("test/batch")


def a_point(problem, seed: int = 0) -> np.ndarray:
    """Near the start, in double precision."""
    return problem.x0() + 0.3 * rng(seed).normal(size=problem.dimension())


def images_of(problem, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels of worker i, by hand."""
    images = load_images("digits")
    if isinstance(problem, Autoencoder):
        rows = rows_of(problem.part_of(i, N), N + 1, images.labels, "shuffled")
    else:
        rows = rows_of(i, N, images.labels, problem.split)
    return images.pixels[rows] / 16.0, images.labels[rows]


def transcribed(problem, x: np.ndarray, pixels: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient by ``tests.reference``, sample by sample, penalty added."""
    if isinstance(problem, Softmax):
        W = x.reshape(10, 65)
        found = [softmax_loss(W, a, c) for a, c in zip(pixels, labels, strict=True)]
        value, grad = np.mean([f for f, _ in found]), np.mean([g for _, g in found], axis=0).ravel()
        if problem.penalty == "ridge":
            return value + problem.lam / 2 * x @ x, grad + problem.lam * x
        s = 1 + x**2
        return value + problem.lam * np.sum(x**2 / s), grad + problem.lam * 2 * x / s**2
    if isinstance(problem, MLP):
        h = problem.hidden
        W1, b1 = x[: 64 * h].reshape(h, 64), x[64 * h : 65 * h]
        W2, b2 = x[65 * h : 75 * h].reshape(10, h), x[75 * h :]
        found = [
            mlp_loss(W1, b1, W2, b2, a, c, problem.activation) for a, c in zip(pixels, labels, strict=True)
        ]
    else:
        D, E = x[: 64 * problem.r].reshape(64, -1), x[64 * problem.r :].reshape(-1, 64)
        found = [autoencoder_loss(D, E, a) for a in pixels]
    value = np.mean([f for f, _ in found])
    grad = np.mean([np.concatenate([part.ravel() for part in g]) for _, g in found], axis=0)
    lam = getattr(problem, "lam", 0.0)
    return value + lam / 2 * x @ x, grad + lam * x


# Values and gradients


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_value_and_gradient_equal_the_transcription(problem):
    x = a_point(problem)
    for i in (0, N - 1):
        f = problem.objective(i, N)
        value, grad = transcribed(problem, x, *images_of(problem, i))
        assert_together(f, x)
        assert f.value(x) == pytest.approx(value, rel=1e-12)
        assert f.grad(x) == pytest.approx(grad, rel=1e-10, abs=1e-13 * np.abs(grad).max())
        assert f.samples == len(images_of(problem, i)[0])


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_gradients_are_slopes(problem):
    """At this point no unit of the rectified network changes sides within a step of the differences."""
    assert_gradient(problem.objective(3, N), a_point(problem, seed=1))


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_a_gradient_is_fresh_and_leaves_x_alone(problem):
    f, x = problem.objective(2, N), a_point(problem)
    x.flags.writeable = False
    first = f.grad(x)
    bits = first.tobytes()
    first[:] = np.nan
    assert f.grad(x).tobytes() == bits


def test_large_logits_neither_overflow_nor_cancel():
    Z = np.array([[1e4, 0, -1e4], [0, 800, 0], [700, 700, 0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, R = cross_entropy(Z, np.array([1, 1, 0], dtype=np.uint8))
    assert loss == pytest.approx((1e4 + 0 + np.log(2)) / 3, rel=1e-15)
    assert np.array_equal(3 * R, [[1, -1, 0], [0, 0, 0], [-0.5, 0.5, np.exp(-700) / 2]])


# Minibatches


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_a_batch_is_the_mean_over_the_rows_that_the_stream_names(problem):
    f, x = problem.objective(1, N), a_point(problem)
    pixels, labels = images_of(problem, 1)
    for b in (1, 10):
        rows = np.sort(stream(b).permutation(f.samples, 0, b))
        _, grad = transcribed(problem, x, pixels[rows], labels[rows])
        assert f.batch_grad(x, b, stream(b)) == pytest.approx(grad, rel=1e-10, abs=1e-13 * np.abs(grad).max())


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_the_whole_batch_is_the_gradient_bit_for_bit_and_singles_have_its_mean(problem):
    f, x = problem.objective(1, N), a_point(problem)
    g = f.grad(x)
    assert f.batch_grad(x, f.samples, stream(0)).tobytes() == g.tobytes()
    singles = [f.part(np.array([j])).grad(x) for j in range(f.samples)]
    assert np.mean(singles, axis=0) == pytest.approx(g, rel=1e-10, abs=1e-13 * np.abs(g).max())
    with pytest.raises(ConfigError, match="allowed: 1 to"):
        f.batch_grad(x, f.samples + 1, stream(0))


# Threads


def test_blas_is_held_to_one_thread():
    """Where two threads are allowed, BLAS has one once an objective is made, and the bits are the same."""
    script = """if True:
        import hashlib, numpy as np, threadpoolctl
        from mpicomp.problems import *
        digest = hashlib.sha256()
        for problem in (Softmax("digits"), MLP("digits", hidden=64), Autoencoder("digits", r=32)):
            f = problem.objective(0, 1)
            pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
            assert {pool["num_threads"] for pool in pools} == {1}, pools
            digest.update(f.grad(problem.x0() + np.float32(0.01)).tobytes())
        print(digest.hexdigest())
    """
    printed = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        root = Path(mpicomp.__file__).parents[1]
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
        assert done.returncode == 0, done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_bits_do_not_depend_on_where_the_data_lie_in_memory(problem):
    f = problem.objective(0, N)
    x = problem.x0() + np.float32(0.01)
    bits = f.grad(x).tobytes()
    name = "X" if isinstance(problem, MLP) else "S" if isinstance(problem, Autoencoder) else "A"
    data = getattr(f, name)
    for offset in range(data.itemsize, 65, data.itemsize):
        moved = np.empty(data.nbytes + 64, dtype=np.uint8)[offset:][: data.nbytes].view(data.dtype)
        moved = moved.reshape(data.shape)
        moved[:] = data
        setattr(f, name, moved)
        assert f.grad(x).tobytes() == bits


# Softmax


def test_the_spectrum_of_dense_shards_is_that_of_sparse_rows():
    from scipy.sparse import csr_array

    images = load_images("digits")
    X = np.hstack([images.pixels / 16.0, np.ones((1797, 1))])
    expected = spectrum(Dataset("with ones", csr_array(X), images.labels, "with ones"), "sorted", 6)
    shards = [X[rows_of(i, 6, images.labels, "sorted")] for i in range(6)]
    found = dense_spectrum("digits", iter(shards), 6, 65)
    assert found.workers == pytest.approx(expected.workers, rel=1e-12)
    assert (found.mean, found.weighted, found.samples) == pytest.approx(
        (expected.mean, expected.weighted, expected.samples), rel=1e-12
    )


@pytest.mark.parametrize("penalty", ["ridge", "bounded"])
def test_softmax_constants_bound_every_gradient_difference(penalty):
    """And L is no empty bound: where two classes share the probability it is attained within a tenth."""
    n, problem = 3, Softmax("digits", lam=0.5, penalty=penalty, split="sorted")
    found, fs = problem.constants(n), [problem.objective(i, n) for i in range(n)]
    assert found.mu == (0.5 if penalty == "ridge" else None)
    A = np.vstack([f.A for f in fs])
    top = np.linalg.eigh(A.T @ A)[1][:, -1]
    W = np.zeros((10, 65))
    W[0], W[1] = top, -top
    near = np.zeros((10, 65))
    near[:2] = 3 * np.sign(top.sum()) * top  # classes 0 and 1, about 1/2 each: the Hessian at its largest
    pairs = [(near + 1e-3 * W, near - 1e-3 * W)]
    pairs += [s * rng(4).normal(size=(2, 10, 65)) for s in (1e-2, 1.0, 10.0)]
    parts = [[f.part(np.array([j])) for j in range(0, f.samples)] for f in fs]
    best = 0.0
    for x, y in pairs:
        x, y = x.ravel(), y.ravel()
        D = np.array([f.grad(x) - f.grad(y) for f in fs])
        step, mean = np.sum((x - y) ** 2), D.mean(axis=0)
        squares = np.sum(D**2, axis=1)
        assert np.all(squares <= np.square(found.L_i) * step * (1 + 1e-9))
        assert np.sum(mean**2) <= found.L**2 * step * (1 + 1e-9)
        assert np.mean(squares) <= found.L_plus**2 * step * (1 + 1e-9)
        assert np.mean(squares) - np.sum(mean**2) <= found.L_pm**2 * step * (1 + 1e-9)
        Ds = [np.array([g.grad(x) - g.grad(y) for g in part]) for part in parts]
        samples = [np.sum(D_i**2, axis=1) for D_i in Ds]
        assert np.mean([s.mean() for s in samples]) <= found.L_sample**2 * step * (1 + 1e-9)
        variances = [np.mean(np.sum((D_i - D_i.mean(axis=0)) ** 2, axis=1)) for D_i in Ds]
        assert np.mean(variances) <= found.L_sigma**2 * step * (1 + 1e-9)
        assert max(s.max() for s in samples) <= found.L_ij**2 * step * (1 + 1e-9)
        best = max(best, np.sqrt(np.sum(mean**2) / step) / found.L)
    if penalty == "ridge":  # the other curves most at 0
        assert best > 0.9


def test_the_smoothness_of_one_image_is_attained():
    """L_ij - lam = |a_j|²/2 of the largest image, where two classes share its probability: x along a_j."""
    problem = Softmax("digits", lam=0.5)
    found = problem.constants(3)
    assert found.L_ij == problem.constants(1).L_ij >= found.L_max
    rows = problem.objective(0, 1)
    squares = np.sum(rows.A**2, axis=1)
    j = int(np.argmax(squares))
    assert found.L_ij == pytest.approx(squares[j] / 2 + 0.5, rel=1e-14)
    f, a = rows.part(np.array([j])), rows.A[j]
    near, v = np.zeros((10, 65)), np.zeros((10, 65))
    near[:2], v[0], v[1] = 30 * a / squares[j], a, -a
    x, step = near.ravel(), 1e-4 * v.ravel() / np.linalg.norm(v)
    D = f.grad(x + step) - f.grad(x - step)
    assert np.linalg.norm(D) / np.linalg.norm(2 * step) == pytest.approx(found.L_ij, rel=1e-6)


def test_softmax_starts_at_log_ten_and_learns():
    problem = Softmax("digits", lam=1e-3)
    run = mpicomp.run(GD(), problem, workers=4, rounds=60, every=60)
    assert run.rows[0].f == pytest.approx(np.log(10), rel=1e-12)
    assert run.rows[-1].f < 1.5
    assert run.x.dtype == np.float64
    images, W = load_images("digits"), run.x.reshape(10, 65)
    guesses = np.argmax(images.pixels / 16.0 @ W[:, :64].T + W[:, 64], axis=1)
    assert np.mean(guesses == images.labels) > 0.8


# The network


@pytest.mark.parametrize(("activation", "gain"), [("tanh", 1), ("relu", 2)])
def test_the_network_starts_as_stated(activation, gain):
    problem = MLP("digits", hidden=200, activation=activation)
    x = problem.x0()
    assert x.dtype == np.float32
    assert x.shape == (problem.dimension(),) == (200 * 65 + 10 * 201,)
    W1, b1, W2, b2 = layers(x, 200, 10)
    assert (W1.shape, W2.shape) == ((200, 64), (10, 200))
    assert not b1.any()
    assert not b2.any()
    for W in (W1, W2):  # mean and variance at 5 standard errors
        draws = W.astype(float).ravel() * np.sqrt(W.shape[1] / gain)
        assert abs(draws.mean()) < 5 / np.sqrt(draws.size)
        assert abs(np.mean(draws**2) - 1) < 5 * np.sqrt(2 / draws.size)
    assert np.array_equal(x, problem.x0())
    assert not np.array_equal(x, MLP("digits", hidden=200, activation=activation, seed=1).x0())


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_network_computes_in_the_precision_of_its_start_and_learns(activation):
    problem = MLP("digits", hidden=16, activation=activation)
    f, x = problem.objective(0, N), problem.x0()
    assert f.grad(x).dtype == f.batch_grad(x, 3, stream(0)).dtype == f.X.dtype == np.float32
    double = f.grad(x.astype(np.float64))
    assert np.abs(f.grad(x) - double).max() < 1e-5 * np.abs(double).max()
    run = mpicomp.run(MARINA(Q=RandK(k=0.2), gamma=0.2), problem, workers=5, rounds=150, every=150)
    assert run.x.dtype == np.float32
    assert run.rows[-1].f < 0.5 * run.rows[0].f


# The autoencoder


def test_homogeneity_shares_out_the_parts():
    """p_hat = 0: every image has one worker at most; p_hat = 1: all workers hold the same ones."""
    apart, alike = Autoencoder("digits", p_hat=0.0), Autoencoder("digits", p_hat=1.0)
    assert [apart.part_of(i, N) for i in range(N)] == list(range(1, N + 1))
    assert [alike.part_of(i, N) for i in range(N)] == [0] * N
    x = a_point(alike)
    assert len({alike.objective(i, N).grad(x).tobytes() for i in range(N)}) == 1
    assert len({apart.objective(i, N).grad(x).tobytes() for i in range(N)}) == N
    half = [Autoencoder("digits", p_hat=0.5).part_of(i, 4000) for i in range(4000)]
    assert all(part in (0, i + 1) for i, part in enumerate(half))
    assert half.count(0) == pytest.approx(2000, abs=5 * np.sqrt(1000))  # 5 standard deviations
    assert half != [Autoencoder("digits", p_hat=0.5, seed=1).part_of(i, 4000) for i in range(4000)]


def test_the_autoencoder_starts_off_the_saddle_at_0():
    problem = Autoencoder("digits", r=16)
    x, f = problem.x0(), problem.objective(0, N)
    assert x.shape == (problem.dimension(),) == (2 * 64 * 16,)
    assert x.dtype == np.float64
    assert np.array_equal(f.grad(np.zeros_like(x)), np.zeros_like(x))
    draws = x * np.sqrt(64)
    assert abs(draws.mean()) < 5 / np.sqrt(2048)
    assert abs(np.mean(draws**2) - 1) < 5 * np.sqrt(2 / 2048)
    assert np.array_equal(x, problem.x0())
    assert not np.array_equal(x, Autoencoder("digits", r=16, seed=1).x0())


def test_the_autoencoder_is_the_same_function_with_and_without_its_second_moments():
    problem = Autoencoder("digits", r=3, lam=0.1)
    few, many = problem.objective(0, 100), problem.objective(0, 10)  # 18 images, 164
    assert few.S is None
    assert many.S is not None
    direct, x = many.part(np.arange(many.samples)), a_point(problem)
    assert direct.S is None
    assert many.value(x) == pytest.approx(direct.value(x), rel=1e-13)
    assert many.grad(x) == pytest.approx(direct.grad(x), rel=1e-10, abs=1e-13)


def test_the_autoencoder_at_principal_components_leaves_the_other_variance():
    """With D = E' the top r eigenvectors of A'A/m, f is the sum of the other eigenvalues: its minimum."""
    f = Autoencoder("digits", r=4).objective(0, 1)
    eigenvalues, vectors = np.linalg.eigh(f.A.T @ f.A / f.samples)
    V = vectors[:, -4:]
    x = np.concatenate([V.ravel(), V.T.ravel()])
    assert f.value(x) == pytest.approx(eigenvalues[:-4].sum(), rel=1e-12)
    assert np.abs(f.grad(x)).max() < 1e-12


# The edges


def test_problems_name_the_arrays_that_x_holds():
    """The network's as ``layers`` cuts them out; each problem's have d entries in all."""
    for problem in [*ALL, Noisy(MLP("digits", hidden=5), 0.1)]:
        assert problem.parts().size == problem.dimension()
    network = MLP("digits", hidden=5)
    x = np.arange(network.dimension())
    for (part, where), array in zip(network.parts(), layers(x, 5, 10), strict=True):
        assert np.array_equal(x[where].reshape(part.shape), array)
    assert str(network.parts()) == "W_1 (5, 64), b_1 (5,), W_2 (10, 5), b_2 (10,)"
    assert str(Autoencoder("digits", r=3).parts()) == "D (64, 3), E (3, 64)"
    assert str(Softmax("digits").parts()) == "W (10, 65)"
    assert str(Quadratics(d=7).parts()) == "x (7,)"


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_problems_are_their_repr_and_name_their_data(problem):
    assert eval(repr(problem)) == problem
    assert type(problem) in PROBLEMS.values()
    assert problem.x0().shape == (problem.dimension(),)
    assert problem.fingerprint() == load_images("digits").sha256


def test_what_has_no_constants_says_so():
    for problem in (MLP("digits"), Autoencoder("digits")):
        with pytest.raises(ConfigError, match=f"{type(problem).__name__} gives no constants.*Give gamma"):
            problem.constants(4)
        with pytest.raises(ConfigError, match=r"Give gamma.*as numbers"):
            mpicomp.run(GD(), problem, workers=2, rounds=1)


def test_impossible_parameters_are_refused():
    for cls, wrong in [
        (Softmax, {"lam": -1.0}),
        (Softmax, {"lam": np.nan}),
        (Softmax, {"penalty": "rigde"}),
        (Softmax, {"split": "sort"}),
        (MLP, {"hidden": 0}),
        (MLP, {"activation": "tahn"}),
        (MLP, {"seed": -1}),
        (MLP, {"split": "sort"}),
        (Autoencoder, {"r": 0}),
        (Autoencoder, {"p_hat": 1.1}),
        (Autoencoder, {"p_hat": np.nan}),
        (Autoencoder, {"lam": np.inf}),
        (Autoencoder, {"seed": 2**64}),
    ]:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            cls("digits", **wrong)
    with pytest.raises(ConfigError, match="1797 rows among 1798 workers"):
        Autoencoder("digits").objective(0, 1797)  # n + 1 parts
    with pytest.raises(ConfigError, match="unknown set of images 'a9a'"):
        Softmax("a9a").dimension()
