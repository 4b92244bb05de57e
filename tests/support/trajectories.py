"""Small problems, and the runs of methods on them as lists of iterates, to be compared.

Tolerances.  A run and its transcription differ in the order of a few sums, so they agree to 1e-12 of the
largest iterate, through all rounds; a wrong index, sign, memory or factor is off by far more.  Where
values travel in f4 or less, that noise now and then tips a value to the neighbouring float32, which is
6e-8 of it away; there the tolerance is 1e-8 of the largest iterate.  Where all data are integers and all
factors powers of two, floating point is exact as long as 53 bits hold every number, and the tests marked
"exact" ask for equality bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt

import numpy as np
import pytest

from mpicomp.compressors import (
    Bernoulli,
    Dithering,
    HardThreshold,
    Identity,
    Lazy,
    Lossless,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    Ternary,
    TopK,
)
from mpicomp.keys import Key
from mpicomp.problems import Constants, Objective, Problem, Quadratics
from mpicomp.runtime.loop import Loop
from mpicomp.transports.local import Local

rng = np.random.default_rng
EIGHTH = 0.125
EXACT = 9  # rounds: 3 to 5 bits more each, within 53


# --- problems ---


@dataclass(frozen=True, eq=False)
class Square(Objective):
    """x'Ax/2 - b'x, or m(x - c) for a linear map: one worker's quadratic."""

    A: np.ndarray
    b: np.ndarray

    def value(self, x):
        return float(x @ self.A @ x / 2 - self.b @ x)

    def grad(self, x):
        return self.A @ x - self.b


def top(M: np.ndarray) -> float:
    """The largest eigenvalue."""
    return float(np.linalg.eigvalsh(M)[-1])


@dataclass(frozen=True, eq=False)
class Squares(Problem):
    """Quadratics with matrices of shape (n, d, d), vectors (n, d) and a start (d,)."""

    A: np.ndarray = field(repr=False)
    b: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)

    def dimension(self):
        return self.start.size

    def objective(self, i, n):
        assert n == len(self.A)
        return Square(self.A[i], self.b[i])

    def x0(self):
        return self.start.copy()

    @property
    def x_star(self):
        return np.linalg.solve(self.A.mean(axis=0), self.b.mean(axis=0))

    def constants(self, n):
        mean = self.A.mean(axis=0)
        squares = (self.A @ self.A).mean(axis=0)
        x = self.x_star
        return Constants(
            L=top(mean),
            L_i=tuple(map(top, self.A)),
            L_plus=sqrt(top(squares)),
            L_pm=sqrt(max(0.0, top(squares - mean @ mean))),
            mu=float(np.linalg.eigvalsh(mean)[0]),
            convex=bool(np.linalg.eigvalsh(self.A).min() >= 0),
            quadratic=True,
            f_star=float(-self.b.mean(axis=0) @ x / 2),
        )


def squares(n: int, d: int, seed: int, common_optimum: bool = False, identical: bool = False) -> Squares:
    """Random convex quadratics, condition numbers of a few, different on every worker."""
    draw = rng(seed)
    factors = draw.normal(size=(n, d, d)) / sqrt(d)
    A = factors @ factors.transpose(0, 2, 1) + 0.5 * np.eye(d)
    b = draw.normal(size=(n, d))
    if identical:
        A, b = np.broadcast_to(A[:1], A.shape), np.broadcast_to(b[:1], b.shape)
    if common_optimum:
        b = A @ draw.normal(size=d)
    return Squares(A, b, 3 * draw.normal(size=d))


def integers(n: int, d: int, same_hessian: bool = False, identical: bool = False) -> Squares:
    """Quadratics with integer data, n a power of two, mean matrix and mean vector integer as well."""
    draw = rng(5)
    base = np.diag(draw.integers(2, 6, d)) - np.eye(d, k=1) - np.eye(d, k=-1)
    noise = np.triu(draw.integers(-1, 2, (n // 2, d, d)))
    noise = noise + noise.transpose(0, 2, 1)
    A = base + (0 if same_hessian else 1) * np.concatenate([noise, -noise])
    shifts = draw.integers(-3, 4, (n // 2, d))
    b = draw.integers(-3, 4, d) + np.concatenate([shifts, -shifts])
    if identical:
        A, b = np.broadcast_to(base, A.shape), np.broadcast_to(b[:1], b.shape)
    return Squares(A.astype(float), b.astype(float), draw.integers(-4, 5, d).astype(float))


def at_optimum():
    """Integer data, started at x* with gradients that are not 0."""
    problem = integers(4, 8)
    A = problem.A + 4 * np.eye(8)  # every f_i is convex
    return replace(problem, A=A, b=A @ problem.start + (problem.b - problem.b.mean(axis=0)))


@dataclass(frozen=True)
class Entropy(Problem):
    """Logistic regression on random rows that differ in scale and sign from worker to worker."""

    d: int = 12
    rows: int = 9
    lam: float = 0.05

    def dimension(self):
        return self.d

    def objective(self, i, n):
        return Margins(rng(100 + i).normal(size=(self.rows, self.d)) * (1 + i) / n, self.lam)

    def x0(self):
        return rng(99).normal(size=self.d)

    def constants(self, n):
        grams = [self.objective(i, n).rows for i in range(n)]
        tops = [float(np.linalg.eigvalsh(a.T @ a)[-1]) / (4 * self.rows) + self.lam for a in grams]
        return Constants(
            L=float(np.mean(tops)),
            L_i=tuple(tops),
            L_plus=max(tops),
            L_pm=max(tops),
            mu=self.lam,
            convex=True,
            diagonals=partial(self.diagonals, n),
        )


@dataclass(frozen=True, eq=False)
class Margins(Objective):
    """mean log(1 + exp(-a'x)) + lam |x|^2 / 2."""

    rows: np.ndarray
    lam: float

    def value(self, x):
        return float(np.mean(np.logaddexp(0, -self.rows @ x)) + self.lam * (x @ x) / 2)

    def grad(self, x):
        return -self.rows.T @ (1 / (1 + np.exp(self.rows @ x))) / len(self.rows) + self.lam * x

    def smoothness_matrix(self):
        return self.rows.T @ self.rows / (4 * len(self.rows)) + self.lam * np.eye(self.rows.shape[1])


# --- running ---


def gradients(problem: Problem, n: int) -> list:
    """The workers' gradients, as functions of x."""
    return [problem.objective(i, n).grad for i in range(n)]


def trajectory(loop: Loop, rounds: int) -> list[np.ndarray]:
    """The iterates x^0, .., x^rounds of a loop."""
    iterates = [loop.x.copy()]
    for k in range(rounds):
        loop.step(k)
        iterates.append(loop.x.copy())
    return iterates


def start(method, problem: Problem, n: int, seed: int = 0) -> Loop:
    """A loop of the method in one process, before its first round."""
    return Loop(method, problem, Local(n), seed)


def codec(C, seed: int, n: int):
    """The function (i, k, v) -> C_i(v) of round k, by way of the bytes and with the keys of a run."""

    def compress(i, k, v):
        key = Key(seed, k, i, n)
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


def named_codec(C, seed: int, n: int, shifts: dict[str, int]):
    """Like ``codec``, for one of several messages of round k, which travels ``shifts[name]`` rounds later."""

    def compress(i, k, name, v):
        key = Key(seed, k + shifts[name], i, n).named(name)
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


def beginning(name: str, C, seed: int, n: int):
    """The ``codec`` of what is sent for the start of that name; None where nothing is sent."""
    return {"zero": None, "gradient": codec(Identity(), seed, n), "compressed": codec(C, seed, n)}[name]


def server_codec(C, seed: int, n: int, shift: int = 0):
    """(k, v) -> C(v) for the server's message of round k, which travels ``shift`` rounds later."""

    def compress(k, v):
        key = Key(seed, k + shift, None, n)
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


def coin_of(tag: str, seed: int, n: int, p: float, shift: int = 0):
    """The coin that falls in round k with probability p, drawn in round k + ``shift``."""
    return lambda k: Key(seed, k + shift, None, n).shared(tag).coin(p)


def rounding(method) -> float:
    """The tolerance for a method or compressor: 1e-12, or 1e-8 if some values travel in less than f8."""
    return 1e-8 if any(repr(short) in repr(method) for short in ("f4", "f2", "bf16")) else 1e-12


def assert_close(got: list, wanted: list, tolerance: float) -> None:
    """All iterates agree relative to the largest; and they went somewhere, so that this means something."""
    assert len(got) == len(wanted)
    scale = np.abs(wanted).max()
    assert np.abs(np.subtract(got, wanted)).max() <= tolerance * scale
    assert np.abs(wanted[-1] - wanted[0]).max() > 1e-3 * scale


def assert_equal(got: list, wanted: list) -> None:
    """All iterates are equal bit for bit; and they went somewhere."""
    assert np.array_equal(got, wanted)
    assert not np.array_equal(wanted[0], wanted[-1])


def mean_of(loop, name: str) -> np.ndarray:
    """The mean of the workers' records of that name."""
    return np.mean([getattr(w, name) for w in loop.workers.values()], axis=0)


def assert_mean(got: np.ndarray, loop, name: str) -> None:
    """``got`` is the mean of the workers' records of that name, to rounding relative to the largest."""
    scale = max(np.abs(getattr(w, name)).max() for w in loop.workers.values())
    assert np.abs(got - mean_of(loop, name)).max() <= 1e-14 * scale


def mean_gradient(problem: Problem, n: int, x: np.ndarray) -> np.ndarray:
    """grad f(x)."""
    return np.mean([grad(x) for grad in gradients(problem, n)], axis=0)


def grad_norm_sq(problem: Problem, n: int, x: np.ndarray) -> float:
    """|grad f(x)|²."""
    return float(np.sum(mean_gradient(problem, n, x) ** 2))


def objective_value(problem: Problem, n: int, x: np.ndarray) -> float:
    """f(x)."""
    return float(np.mean([problem.objective(i, n).value(x) for i in range(n)]))


# --- compressors and places ---


def unbiased(values: str) -> list:
    """Unbiased compressors of every kind, whose numbers are sent in that format."""
    scaled = {"values": values}
    return [
        RandK(3, **scaled),
        RandK(0.4, layout="block", **scaled),
        RandK(2, mask="shared", **scaled),
        PermK(**scaled),
        PermK(layout="block", **scaled),
        Bernoulli(0.4, **scaled),
        Lazy(0.5, **scaled),
        Dithering(3, **scaled),
        Dithering(1, p="inf", **scaled),
        Ternary(**scaled),
        Natural(**scaled),
        NaturalDithering(4, **scaled),
        Quantized(RandK(3, **scaled), Natural(**scaled)),
        Quantized(PermK(**scaled), Dithering(3, **scaled)),
        Identity(**scaled),
    ]


def contractive(values: str) -> list:
    """Contractive compressors of every kind, whose numbers are sent in that format."""
    scaled = {"values": values}
    return [
        TopK(2, **scaled),
        Sign(**scaled),
        QuantizedTopK(3, Natural(**scaled)),
        Shrunk(RandK(2, **scaled)),
        Shrunk(PermK(**scaled)),
        Identity(**scaled),
    ]


UNBIASED = [*unbiased("f4"), *unbiased("f8"), RandK(3, values="f2"), RandK(3, values="bf16"), Lossless()]
CONTRACTIVE = [*contractive("f4"), *contractive("f8"), TopK(3, values="f2"), Lossless()]
ABSOLUTE = [HardThreshold(0.02), HardThreshold(0.02, values="f8"), HardThreshold(0.0)]
WHOLE = Identity("f8")
UPLINKS = [
    RandK(3, values="f8"),
    PermK(values="f8"),
    Natural(values="f8"),
    Identity("f8"),
    RandK(3),
    Natural(),
]
PAIRS = [
    (RandK(3, values="f8"), TopK(2, values="f8")),
    (PermK(values="f8"), Sign(values="f8")),
    (Natural(values="f8"), Shrunk(RandK(2, values="f8"))),
    (WHOLE, TopK(2, values="f8")),
    (RandK(3, values="f8"), WHOLE),
    (Natural(), TopK(3)),
]
PLACES = [  # problem, n: more coordinates than workers (dealt evenly and not), and fewer
    (Entropy(), 4),
    (Quadratics(d=13, noise=0.5, lam=0.01), 5),
    (Quadratics(d=4, noise=0.5, lam=0.3), 9),  # every f_i is convex here too
]
ROUNDS = 50
every_place = pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])
every_uplink = pytest.mark.parametrize("Q", UPLINKS, ids=repr)
every_pair = pytest.mark.parametrize(("Q", "C"), PAIRS, ids=repr)


def everywhere(name: str, cases: list):
    """Every case on the first place's problem; on the other problems the cases whose values are all f8."""
    chosen = [(*PLACES[0], C) for C in cases]
    chosen += [(*place, C) for place in PLACES[1:] for C in cases if rounding(C) == 1e-12]
    return pytest.mark.parametrize(
        ("problem", "n", name), chosen, ids=lambda v: "" if isinstance(v, Problem) else repr(v)
    )


# --- step sizes ---

HAND = Constants(L=3.0, L_i=(2.0, 4.0, 5.0, 1.0), L_plus=3.5, L_pm=1.25, mu=0.1, convex=True)  # L_max = 5
L_MEAN = 3.0
L_TILDE = sqrt((4 + 16 + 25 + 1) / 4)


def resolved(method, d: int, n: int, c: Constants = HAND):
    """The method with step sizes as numbers, for a problem with the constants c."""
    return method.resolve(lambda: c, d, n)


# Q, omega and A by hand, for d = 12, n = 4
BY_HAND = [
    (RandK(3), 3, 3 / 4),
    (RandK(3, mask="shared"), 3, 3),
    (PermK(), 3, 1),
    (Natural(), 1 / 8, 1 / 32),
    (Quantized(RandK(3), Natural()), 7 / 2, 7 / 8),
]


def on_batches(problem: Problem, n: int, batch: int, seed: int, rounds_a_step: int = 1) -> list:
    """For each worker, (step, x) -> its gradient at x on the batch of that step."""

    def gradient(i):
        f = problem.objective(i, n)
        return lambda t, x: f.batch_grad(x, batch, Key(seed, rounds_a_step * t, i, n).private("batch"))

    return [gradient(i) for i in range(n)]


def on_everything(problem: Problem, n: int) -> list:
    return [lambda t, x, g=g: g(x) for g in gradients(problem, n)]
