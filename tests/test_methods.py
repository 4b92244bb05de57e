"""Methods against plain transcriptions of their papers, and against the identities and theorems they obey.

Tolerances.  A run and its transcription differ in the order of a few sums, so they agree to 1e-12 of the
largest iterate, through all rounds; a wrong index, sign, memory or factor is off by far more.  Where
values travel in f4 or less, that noise now and then tips a value to the neighbouring float32, which is
6e-8 of it away; there the tolerance is 1e-8 of the largest iterate.  Where all data are integers and all
factors powers of two, floating point is exact as long as 53 bits hold every number, and the tests marked
"exact" ask for equality bit for bit.

Correspondence of rounds.  Round k of a run turns x^k into x^{k+1} with the draws of ``Key(seed, k, i, n)``.
GD, AGD, DCGD, DIANA and EF14 are so numbered in their papers.  MARINA and EF21 form g^k in round k: round 0
is their initialisation (MARINA's dense g^0, EF21's g_i^0 = C(grad f_i(x^0))), and the message that makes
g^{k+1} in the paper's round k is our round k+1.  The transcriptions number messages by the g they make.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from mpicomp import compressors
from mpicomp.compressors import (
    Bernoulli,
    BlockSteps,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Lazy,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    Shrunk,
    Sign,
    Sparse,
    Ternary,
    TopK,
    VaryingSteps,
)
from mpicomp.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.loop import Loop
from mpicomp.methods import (
    ADIANA,
    AGD,
    DASHA,
    DASHAMVR,
    DASHAPAGE,
    DCGD,
    DIANA,
    EF14,
    EF21,
    EF21P,
    EF21SGD2M,
    EF21SGDM,
    EFSGD,
    GD,
    MARINA,
    MCM,
    METHODS,
    PPMARINA,
    VRDIANA,
    VRMARINA,
    ADIANAPlus,
    Artemis,
    DCGDPlus,
    DIANAPlus,
    Dore,
    DoubleSqueeze,
    EF21Plus,
    PerturbedSGD,
    PowerSGD,
    TwoDirection,
)
from mpicomp.problems import Constants, Objective, Problem, Quadratics
from mpicomp.transports.local import Local
from tests.reference.agd import agd
from tests.reference.dcgd import dcgd
from tests.reference.diana import diana
from tests.reference.ef14 import ef14
from tests.reference.ef21 import ef21
from tests.reference.gd import gd
from tests.reference.marina import marina

REFERENCES = Path(__file__).parent / "reference"
rng = np.random.default_rng


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
        top = lambda M: float(np.linalg.eigvalsh(M)[-1])  # noqa: E731
        x = self.x_star
        return Constants(
            L=top(mean),
            L_i=tuple(top(A) for A in self.A),
            L_plus=sqrt(top(squares)),
            L_pm=sqrt(max(0.0, top(squares - mean @ mean))),
            mu=float(np.linalg.eigvalsh(mean)[0]),
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
    return [problem.objective(i, n).grad for i in range(n)]


def trajectory(loop: Loop, rounds: int) -> list[np.ndarray]:
    """x^0, .., x^rounds of a loop."""
    iterates = [loop.x.copy()]
    for k in range(rounds):
        loop.step(k)
        iterates.append(loop.x.copy())
    return iterates


def start(method, problem: Problem, n: int, seed: int = 0) -> Loop:
    return Loop(method, problem, Local(n), seed)


def codec(C, seed: int, n: int):
    """What the server makes of v: through the bytes, with the key of the run."""

    def compress(i, k, v):
        key = Key(seed, k, i, n)
        return C.decompress(C.compress(v, key), v.size, key)

    return compress


def rounding(method) -> float:
    """The tolerance for a method: whether some of its values travel in less than f8."""
    return 1e-8 if any(repr(short) in repr(method) for short in ("f4", "f2", "bf16")) else 1e-12


def assert_close(got: list, wanted: list, tolerance: float) -> None:
    """All iterates agree relative to the largest; and they went somewhere, so that this means something."""
    assert len(got) == len(wanted)
    scale = np.abs(wanted).max()
    assert np.abs(np.subtract(got, wanted)).max() <= tolerance * scale
    assert np.abs(wanted[-1] - wanted[0]).max() > 1e-3 * scale


def assert_equal(got: list, wanted: list) -> None:
    assert np.array_equal(got, wanted)
    assert not np.array_equal(wanted[0], wanted[-1])


def mean_gradient(problem: Problem, n: int, x: np.ndarray) -> np.ndarray:
    return np.mean([grad(x) for grad in gradients(problem, n)], axis=0)


def grad_norm_sq(problem: Problem, n: int, x: np.ndarray) -> float:
    return float(np.sum(mean_gradient(problem, n, x) ** 2))


def objective_value(problem: Problem, n: int, x: np.ndarray) -> float:
    return float(np.mean([problem.objective(i, n).value(x) for i in range(n)]))


# --- the transcriptions ---


@pytest.mark.parametrize("path", sorted(REFERENCES.glob("*.py")), ids=lambda path: path.stem)
def test_transcriptions_import_numpy_only(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + (node.module or ""))
    assert imported <= {"numpy"}


def test_every_method_has_a_transcription():
    problems = {"networks"}
    assert set(METHODS) == {path.stem for path in REFERENCES.glob("*.py")} - {"__init__"} - problems


def unbiased(values: str) -> list:
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
    scaled = {"values": values}
    return [
        TopK(2, **scaled),
        Sign(**scaled),
        QuantizedTopK(3, Natural(**scaled)),
        Shrunk(RandK(2, **scaled)),
        Shrunk(PermK(**scaled)),
        Identity(**scaled),
    ]


UNBIASED = [*unbiased("f4"), *unbiased("f8"), RandK(3, values="f2"), RandK(3, values="bf16"), Sparse()]
CONTRACTIVE = [*contractive("f4"), *contractive("f8"), TopK(3, values="f2"), Sparse()]
ABSOLUTE = [HardThreshold(0.02), HardThreshold(0.02, values="f8"), HardThreshold(0.0)]
PLACES = [  # problem, n: more coordinates than workers (dealt evenly and not), and fewer
    (Entropy(), 4),
    (Quadratics(d=13, noise=0.5, lam=0.01), 5),
    (Quadratics(d=4, noise=0.5, lam=0.01), 9),
]
ROUNDS = 50
every_place = pytest.mark.parametrize(("problem", "n"), PLACES, ids=["d12-n4", "d13-n5", "d4-n9"])


def everywhere(name: str, cases: list):
    """Every compressor in the first place, those of full precision in all of them."""
    chosen = [(*PLACES[0], C) for C in cases]
    chosen += [(*place, C) for place in PLACES[1:] for C in cases if rounding(C) == 1e-12]
    return pytest.mark.parametrize(
        ("problem", "n", name), chosen, ids=lambda v: "" if isinstance(v, Problem) else repr(v)
    )


def travelled_mean(problem: Problem, n: int, values: str):
    """The mean gradient as GD's ranks know it: rounded on the way up and once more on the way down.

    A mean of a few float32 is often a tie for the second rounding, so it is summed as the server does.
    """
    through = codec(Identity(values), 0, n)

    def gradient(x):
        mean = np.zeros_like(x)
        for g in gradients(problem, n):
            mean += through(0, 0, g(x)) * (1 / n)
        return through(0, 0, mean)

    return gradient


@every_place
@pytest.mark.parametrize("values", ["f4", "f8"])
def test_gd_is_its_transcription(problem, n, values):
    """Section 1.1; the mean travels in ``values`` as well: in f4 it is the rounded mean of rounded ones."""
    gradient = travelled_mean(problem, n, values)
    loop = start(GD(values=values), problem, n)
    assert_close(trajectory(loop, 100), gd([gradient], problem.x0(), loop.method.gamma, 100), 1e-12)


@every_place
@pytest.mark.parametrize("values", ["f4", "f8"])
@pytest.mark.parametrize("mu", ["theory", 0])
def test_agd_is_its_transcription(problem, n, values, mu):
    """Section 1.2, both momenta."""
    gradient = travelled_mean(problem, n, values)
    loop = start(AGD(mu=mu, values=values), problem, n)
    assert loop.method.mu == (problem.constants(n).mu if mu else 0)
    wanted = agd([gradient], problem.x0(), 1 / loop.method.gamma, loop.method.mu, 100)
    assert_close(trajectory(loop, 100), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_dcgd_is_its_transcription(problem, n, Q):
    """Section 2.1."""
    loop = start(DCGD(Q), problem, n, seed=11)
    wanted = dcgd(gradients(problem, n), problem.x0(), loop.method.gamma, codec(Q, 11, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_diana_is_its_transcription(problem, n, Q):
    """Section 2.2, h_i = 0 at the start."""
    loop = start(DIANA(Q, gamma="theory*2"), problem, n, seed=12)
    gamma, alpha = loop.method.gamma, loop.method.alpha
    wanted = diana(gradients(problem, n), problem.x0(), gamma, alpha, codec(Q, 12, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("Q", UNBIASED)
def test_marina_is_its_transcription(problem, n, Q):
    """Section 4.1; our round k makes g^k and round 0 is dense.  Dense messages are in f4 where Q's are."""
    sync = Identity("f8" if rounding(Q) == 1e-12 else "f4")
    loop = start(MARINA(Q, p=0.2, sync=sync), problem, n, seed=13)
    dense = codec(sync, 13, n)

    def coin(k):
        return Key(13, k, None, n).shared("marina/coin").coin(0.2)

    assert 0 < sum(coin(k) for k in range(1, ROUNDS)) < ROUNDS / 2  # both kinds of round occur
    wanted = marina(
        gradients(problem, n),
        problem.x0(),
        loop.method.gamma,
        codec(Q, 13, n),
        coin,
        ROUNDS,
        lambda i, v: dense(i, 0, v),
    )
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@everywhere("C", [*CONTRACTIVE, *ABSOLUTE])
def test_ef14_is_its_transcription(problem, n, C):
    """Section 5.1, e_i = 0 at the start; section 5.4 for the hard threshold."""
    gamma = 0.5 * compressors_alpha(C, problem.dimension(), n) / problem.constants(n).L_max
    loop = start(EF14(C, gamma=gamma), problem, n, seed=14)
    wanted = ef14(gradients(problem, n), problem.x0(), gamma, codec(C, 14, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


def compressors_alpha(C, d: int, n: int) -> float:
    return C.alpha(d, n) if isinstance(C, compressors.Contractive) else 1.0


@everywhere("C", CONTRACTIVE)
def test_ef21_is_its_transcription(problem, n, C):
    """Section 5.2; our round k makes g^k, and g_i^0 = C(grad f_i(x^0)) comes of g_i^{-1} = 0."""
    loop = start(EF21(C, gamma="theory*2"), problem, n, seed=15)
    wanted = ef21(gradients(problem, n), problem.x0(), loop.method.gamma, codec(C, 15, n), ROUNDS)
    assert_close(trajectory(loop, ROUNDS), wanted, rounding(loop.method))


@pytest.mark.parametrize(
    ("method", "reference"),
    [
        (DCGD(RandK(2), gamma=0.1, down=Sparse("bf16")), dcgd),
        (EF14(TopK(2), gamma=0.1, down=Sparse("bf16")), ef14),
    ],
)
def test_a_rounded_broadcast_is_what_every_rank_goes_on_with(method, reference):
    """``down`` in bf16: x^{k+1} - x^k is a bf16 vector times the step, and not the mean itself."""
    problem = squares(4, 6, seed=8)
    loop = start(method, problem, 4, seed=3)
    step = 0.1 if reference is dcgd else 1.0
    for k in range(20):
        x = loop.replica.x.copy()
        loop.step(k)
        sent = np.float32((x - loop.replica.x) / step)
        # 8 significant bits, found again to the rounding of the subtraction.
        nearest = ((sent.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        assert np.allclose(sent, nearest, rtol=1e-6, atol=1e-12)
    exact = replace(method, down=Sparse())
    assert not np.array_equal(trajectory(start(exact, problem, 4, seed=3), 20)[-1], loop.replica.x)


# --- identities that hold bit for bit ---

EIGHTH = 0.125
EXACT = 9  # rounds: 3 to 5 bits more each, within 53


def lossless() -> list:
    whole = Identity("f8")
    return [
        GD(gamma=EIGHTH, values="f8"),
        AGD(gamma=EIGHTH, mu=8.0, values="f8"),
        DCGD(whole, gamma=EIGHTH),
        DCGD(Sparse(), gamma=EIGHTH),
        DCGD(RandK(8, values="f8"), gamma=EIGHTH),  # k = d: gain 1
        DIANA(whole, gamma=EIGHTH),
        DIANA(whole, gamma=EIGHTH, alpha=0.5),
        MARINA(whole, gamma=EIGHTH, p=0.01, sync=whole),
        MARINA(whole, gamma=EIGHTH, p=0.5, sync=whole),
        MARINA(RandK(2, values="f8"), gamma=EIGHTH, p=1.0, sync=whole),
        MARINA(Natural(), gamma=EIGHTH, p=1.0, sync=whole),
        EF14(whole, gamma=EIGHTH),
        EF14(TopK(8, values="f8"), gamma=EIGHTH),
        EF14(HardThreshold(0.0, values="f8"), gamma=EIGHTH),
        EF21(whole, gamma=EIGHTH),
        EF21(TopK(8, values="f8"), gamma=EIGHTH),
    ]


@pytest.mark.parametrize("method", lossless(), ids=repr)
def test_without_compression_every_method_is_gd(method):
    """Exact.  Sections 1.2 (mu = L), 2.1, 2.2 (any alpha), 4.1 (any p; p = 1), 5.1, 5.2, 5.4 (lambda = 0)."""
    problem = integers(4, 8)
    wanted = gd(gradients(problem, 4), problem.x0(), EIGHTH, EXACT)
    assert_equal(trajectory(start(method, problem, 4), EXACT), wanted)


@pytest.mark.parametrize("layout", ["uniform", "block"])
@pytest.mark.parametrize(
    ("n", "d", "kind"),
    [
        (4, 8, {"identical": True}),
        (4, 6, {"identical": True}),  # blocks of 1 and 2
        (8, 4, {"identical": True}),  # two copies of each coordinate
        (4, 8, {"same_hessian": True}),
        (4, 7, {"same_hessian": True}),
        (8, 4, {"same_hessian": True}),
    ],
)
def test_marina_with_permk_is_gd_where_hessians_agree(layout, n, d, kind):
    """Exact.  Section 4.1: identical f_i; L_pm = 0 with heterogeneous b_i, as gradient differences agree."""
    problem = integers(n, d, **kind)
    method = MARINA(PermK(layout, values="f8"), gamma=EIGHTH, p=0.1, sync=Identity("f8"))
    assert len(set(map(bytes, problem.b))) == (1 if "identical" in kind else n)
    wanted = gd(gradients(problem, n), problem.x0(), EIGHTH, EXACT)
    assert_equal(trajectory(start(method, problem, n), EXACT), wanted)


@pytest.mark.parametrize(("n", "d"), [(5, 13), (13, 4), (3, 3), (1, 6)])
def test_marina_with_permk_is_gd_for_any_n_and_d(n, d):
    """The same to rounding, as 1/n is no power of two; also where copies leave blanks, and for one worker."""
    problem = squares(n, d, seed=2, identical=True)
    loop = start(MARINA(PermK(values="f8"), p=0.05, sync=Identity("f8")), problem, n)
    wanted = gd(gradients(problem, n), problem.x0(), loop.method.gamma, 100)
    assert_close(trajectory(loop, 100), wanted, 1e-12)


def test_marina_with_randk_is_not_gd():
    """The two tests above can fail: a RandK that sends as much does not have the property."""
    problem = integers(4, 8, identical=True)
    method = MARINA(RandK(2, values="f8"), gamma=EIGHTH, p=0.1, sync=Identity("f8"))
    assert not np.array_equal(
        trajectory(start(method, problem, 4), 3)[-1], gd(gradients(problem, 4), problem.x0(), EIGHTH, 3)[-1]
    )


@pytest.mark.parametrize(
    "Q",
    [RandK(4, values="f8"), PermK(values="f8"), Bernoulli(0.5, values="f8"), Lazy(0.5, values="f8")],
    ids=repr,
)
def test_diana_keeps_h_the_mean_of_h_i(Q):
    """Exact, in every round.  Section 2.2; all factors are powers of two, PermK's alpha 1/n too."""
    problem = integers(4, 8)
    loop = start(DIANA(Q, gamma=EIGHTH), problem, 4)
    for k in range(7):
        loop.step(k)
        assert np.array_equal(loop.replica.h, np.mean([w.h for w in loop.workers.values()], axis=0))
        assert loop.replica.h.any()


@pytest.mark.parametrize("Q", UNBIASED, ids=repr)
def test_diana_keeps_h_the_mean_of_h_i_for_every_compressor(Q):
    """To rounding: the memories take the decoded message on both sides, in whatever format it travelled."""
    loop = start(DIANA(Q), Entropy(), 4)
    for k in range(50):
        loop.step(k)
        mean = np.mean([w.h for w in loop.workers.values()], axis=0)
        assert np.abs(loop.replica.h - mean).max() <= 1e-14 * max(
            np.abs(w.h).max() for w in loop.workers.values()
        )


def test_diana_without_compression_ignores_the_shifts():
    """Exact.  Section 2.2: identity => g = grad f(x) whatever h_i is; here h_i are random integers."""
    problem = integers(4, 8)
    loop = start(DIANA(Identity("f8"), gamma=EIGHTH, alpha=0.25), problem, 4)
    shifts = rng(3).integers(-50, 50, (4, 8)).astype(float)
    for i, w in loop.workers.items():
        w.h[:] = shifts[i]
    loop.replica.h[:] = shifts.mean(axis=0)
    wanted = gd(gradients(problem, 4), problem.x0(), EIGHTH, EXACT)
    assert_equal(trajectory(loop, EXACT), wanted)


@pytest.mark.parametrize("Q", unbiased("f4"), ids=repr)
def test_diana_stays_at_the_optimum(Q):
    """Exact, for ever, any compressor.  Section 2.2: x = x*, h_i = grad f_i(x*): messages are C(0) = 0."""
    problem = integers(4, 8)
    problem = replace(problem, b=problem.A @ problem.start + (problem.b - problem.b.mean(axis=0)))
    loop = start(DIANA(Q), problem, 4)
    for i, w in loop.workers.items():
        w.h[:] = problem.objective(i, 4).grad(problem.start)
        assert w.h.any()
    for x in trajectory(loop, 30):
        assert np.array_equal(x, problem.start)


@pytest.mark.parametrize("Q", [RandK(3), PermK(), Natural(), Quantized(RandK(4), Natural())], ids=repr)
def test_diana_learns_the_gradients_at_the_optimum(Q):
    """Section 2.2: h_i -> grad f_i(x*), which are not 0, and x -> x*, although payloads are in f4."""
    problem = squares(3, 6, seed=4)
    loop = start(DIANA(Q, gamma="theory*2"), problem, 3)
    x = trajectory(loop, 1200)[-1]
    assert np.abs(x - problem.x_star).max() < 1e-10
    for i, w in loop.workers.items():
        limit = problem.objective(i, 3).grad(problem.x_star)
        assert np.abs(w.h - limit).max() < 1e-10 < np.abs(limit).max()


@pytest.mark.parametrize("C", [TopK(3, values="f8"), Identity("f8"), Shrunk(RandK(4, values="f8"))], ids=repr)
def test_ef21_keeps_g_the_mean_of_g_i(C):
    """Exact, in every round.  Section 5.2."""
    problem = integers(4, 8)
    loop = start(EF21(C, gamma=EIGHTH), problem, 4)
    for k in range(7):
        loop.step(k)
        assert np.array_equal(loop.replica.g, np.mean([w.g for w in loop.workers.values()], axis=0))


@pytest.mark.parametrize("C", CONTRACTIVE, ids=repr)
def test_ef21_keeps_g_the_mean_of_g_i_for_every_compressor(C):
    """To rounding, in every format."""
    loop = start(EF21(C), Entropy(), 4)
    for k in range(50):
        loop.step(k)
        mean = np.mean([w.g for w in loop.workers.values()], axis=0)
        assert np.abs(loop.replica.g - mean).max() <= 1e-14 * max(
            np.abs(w.g).max() for w in loop.workers.values()
        )


@pytest.mark.parametrize(
    "C", [TopK(3, values="f8"), TopK(1, values="f8"), HardThreshold(0.5, values="f8")], ids=repr
)
def test_ef14_virtual_iterate(C):
    """Exact.  Section 5.1: x_t - mean e_t = x_0 - gamma sum_{s<t} mean s_i."""
    problem = integers(4, 8)
    loop = start(EF14(C, gamma=EIGHTH), problem, 4)
    virtual = problem.x0()
    for k in range(7):
        virtual -= EIGHTH * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        errors = [w.e for w in loop.workers.values()]
        assert np.array_equal(loop.replica.x - np.mean(errors, axis=0), virtual)
        assert np.any(errors)


@pytest.mark.parametrize("C", [*CONTRACTIVE, *ABSOLUTE], ids=repr)
def test_ef14_virtual_iterate_for_every_compressor(C):
    """The same to rounding, for 60 rounds of any C in any format.  The bound: a few ulp of x a round."""
    problem = Entropy()
    gamma = 0.5 / problem.constants(4).L_max
    loop = start(EF14(C, gamma=gamma), problem, 4)
    virtual = problem.x0()
    scale = np.abs(virtual).max()
    for k in range(ROUNDS):
        virtual -= gamma * mean_gradient(problem, 4, loop.replica.x)
        loop.step(k)
        errors = np.array([w.e for w in loop.workers.values()])
        scale = max(scale, np.abs(loop.replica.x).max(), np.abs(errors).max())
        assert np.abs(loop.replica.x - errors.mean(axis=0) - virtual).max() <= 1e-15 * (k + 10) * scale


@pytest.mark.parametrize("lam", [0.0, 0.01, 0.3])
def test_ef14_errors_stay_below_the_hard_threshold(lam):
    """Exact.  Section 5.4: |e_j| < lambda for all j, t, payloads being f8; lambda = 0 gives e = 0."""
    loop = start(EF14(HardThreshold(lam, values="f8"), gamma=0.1), Entropy(), 4)
    for k in range(40):
        loop.step(k)
        assert all((np.abs(w.e) < lam).all() or not w.e.any() for w in loop.workers.values())


def test_gd_on_a_quadratic_is_a_matrix_power():
    """Exact.  Section 1.1: error_t = (I - gamma A)^t error_0."""
    problem = integers(4, 6)
    x_star = rng(6).integers(-3, 4, 6).astype(float)
    problem = replace(problem, b=problem.A @ x_star)
    step = np.eye(6) - EIGHTH * problem.A.mean(axis=0)
    error = problem.x0() - x_star
    for x in trajectory(start(GD(gamma=EIGHTH, values="f8"), problem, 4), EXACT):
        assert np.array_equal(x - x_star, error)
        error = step @ error


# --- what methods do ---


@pytest.mark.parametrize(("problem", "n"), PLACES[:2], ids=["d12-n4", "d13-n5"])
@pytest.mark.parametrize("factor", [0.3, 1.0])
def test_gd_decreases_f_by_the_descent_lemma(problem, n, factor):
    """Section 1.1: gamma <= 1/L gives f(x+) <= f(x) - gamma (1 - gamma L/2) |grad f(x)|^2 in every round."""
    loop = start(GD(gamma=f"theory*{factor}", values="f8"), problem, n)
    gamma, L = loop.method.gamma, problem.constants(n).L
    assert gamma == pytest.approx(factor / L)
    iterates = trajectory(loop, 100)
    for x, following in pairwise(iterates):
        bound = objective_value(problem, n, x) - gamma * (1 - gamma * L / 2) * grad_norm_sq(problem, n, x)
        assert objective_value(problem, n, following) <= bound + 1e-14


def test_dcgd_plateaus_unless_the_local_gradients_vanish():
    """Section 2.1, RandK, theory step: grad f_i(x*) != 0 leaves a neighbourhood, = 0 none; DIANA never."""
    hard, easy = squares(3, 6, seed=4), squares(3, 6, seed=4, common_optimum=True)

    def plateau(method, problem):
        iterates = trajectory(start(method, problem, 3), 1000)
        first = grad_norm_sq(problem, 3, iterates[0])
        return np.mean([grad_norm_sq(problem, 3, x) for x in iterates[-200:]]) / first

    assert plateau(DCGD(RandK(2)), hard) > 1e-4
    assert plateau(DCGD(RandK(2)), easy) < 1e-20
    assert plateau(DIANA(RandK(2)), hard) < 1e-20


def counterexample() -> Squares:
    """Beznosikov et al. (2020): <a_i, x>^2 + |x|^2/4, a = (-3,2,2), (2,-3,2), (2,2,-3), from x0 = (1,1,1)."""
    a = np.array([[-3.0, 2, 2], [2, -3, 2], [2, 2, -3]])
    A = 2 * a[:, :, None] * a[:, None, :] + np.eye(3) / 2
    return Squares(A, np.zeros((3, 3)), np.ones(3))


def test_ef21_converges_where_gradient_descent_with_top1_diverges():
    """Section 5.2.  There grad f_i(x0) has its largest entry, -11/2, at i, so Top1 sends an ascent direction:
    x^k = (1 + 11 gamma/6)^k x^0.  EF21 with the same Top1 and its theory step goes to x* = 0."""
    problem = counterexample()
    loop = start(EF21(TopK(1)), problem, 3)
    gamma = loop.method.gamma
    diverging = dcgd(gradients(problem, 3), problem.x0(), gamma, codec(TopK(1, values="f8"), 0, 3), 200)
    for k, x in enumerate(diverging):
        assert np.allclose(x, (1 + 11 * gamma / 6) ** k, rtol=1e-10)
    assert np.abs(trajectory(loop, 3000)[-1]).max() < 1e-8


def test_ef14_plateaus_where_ef21_converges():
    """Sections 5.1 and 5.2: the same heterogeneous problem, TopK and step size."""
    problem = squares(4, 8, seed=9)
    gamma = start(EF21(TopK(2)), problem, 4).method.gamma

    def final(method):
        iterates = trajectory(start(method, problem, 4), 1500)[-200:]
        return np.mean([grad_norm_sq(problem, 4, x) for x in iterates])

    assert final(EF14(TopK(2), gamma=gamma)) > 1e-6
    assert final(EF21(TopK(2), gamma=gamma)) < 1e-20


# --- step sizes ---

HAND = Constants(L=3.0, L_i=(2.0, 4.0, 5.0, 1.0), L_plus=3.5, L_pm=1.25, mu=0.1)  # L_max = 5
L_TILDE = sqrt((4 + 16 + 25 + 1) / 4)


def resolved(method, d: int, n: int, c: Constants = HAND):
    return method.resolve(lambda: c, d, n)


def test_steps_of_the_uncompressed():
    """Sections 1.1 and 1.2."""
    assert resolved(GD(), 12, 4).gamma == pytest.approx(1 / 3)
    assert resolved(GD("theory*8"), 12, 4).gamma == pytest.approx(8 / 3)
    assert resolved(GD(0.7), 12, 4).gamma == 0.7
    method = resolved(AGD(), 12, 4)
    assert (method.gamma, method.mu) == (pytest.approx(1 / 3), 0.1)
    assert resolved(AGD(), 12, 4, replace(HAND, mu=None)).mu == 0
    assert resolved(AGD(gamma=0.2, mu=0.3), 12, 4).mu == 0.3


# Q, d, n, omega, A, B: the table of section 3 and of section 8, by hand.
JOINT = [
    (Identity(), 12, 4, 0, 0, 0),
    (Sparse(), 12, 4, 0, 0, 0),
    (RandK(3), 12, 4, 3, 3 / 4, 0),
    (RandK(0.25, layout="block"), 12, 4, 3, 3 / 4, 0),
    (RandK(3, mask="shared"), 12, 4, 3, 3, 0),  # the same mask everywhere: averaging gains nothing
    (Bernoulli(0.25), 12, 4, 3, 3 / 4, 0),
    (Lazy(0.2), 12, 4, 4, 1, 0),
    (PermK(), 12, 4, 3, 1, 1),
    (PermK(), 13, 4, 3, 1, 1),
    (PermK("block"), 12, 4, 3, 1, 1),
    (PermK(), 4, 12, 3, 3 / 11, 3 / 11),  # (d-1)/(n-1) where d divides n
    (PermK(), 4, 13, 13 / 3 - 1, 10 / 36, 10 / 36),  # q = 3: (n-q)/(q(n-1))
    (PermK(), 6, 1, 0, 1, 1),
    (Natural(), 12, 4, 1 / 8, 1 / 32, 0),
    (Dithering(3), 12, 4, 1 / 3, 1 / 12, 0),  # min{d/(4 s^2), sqrt(d)/s}
    (Dithering(1), 12, 4, 3, 3 / 4, 0),
    (Dithering(1), 100, 4, 10, 5 / 2, 0),
    (Ternary(), 16, 4, 3 / 2, 3 / 8, 0),
    (NaturalDithering(3), 16, 4, 1 / 8 + 1, 9 / 32, 0),
    (NaturalDithering(5), 16, 4, 1 / 8 + 1 / 16, 3 / 64, 0),
    (Quantized(RandK(3), Natural()), 12, 4, 7 / 2, 7 / 8, 0),  # (1 + 3)(1 + 1/8) - 1
    (Quantized(PermK(), Natural()), 12, 4, 7 / 2, 9 / 8, 1),
]


@pytest.mark.parametrize(
    ("Q", "d", "n", "omega", "A", "B"), JOINT, ids=lambda v: repr(v) if hasattr(v, "omega") else ""
)
def test_steps_for_unbiased_compressors(Q, d, n, omega, A, B):
    """Sections 2.1, 2.2 (convex and not) and 4.1, with A for omega/n."""
    assert resolved(DCGD(Q), d, n).gamma == pytest.approx(1 / (3 + 2 * A * 5))
    convex = resolved(DIANA(Q), d, n)
    assert convex.gamma == pytest.approx(1 / ((1 + 6 * A) * 5))
    assert convex.alpha == pytest.approx(1 / (1 + omega))
    nonconvex = resolved(DIANA(Q), d, n, replace(HAND, mu=None))
    assert nonconvex.gamma == pytest.approx(1 / (10 * 3 * sqrt(1 + A) * (1 + omega + 1)))
    assert resolved(DIANA(Q, alpha=0.3), d, n).alpha == 0.3
    p = 0.15
    marina = resolved(MARINA(Q, p=p), d, n)
    assert marina.gamma == pytest.approx(1 / (3 + sqrt((1 - p) / p * ((A - B) * 3.5**2 + B * 1.25**2))))


def test_marina_steps_as_its_papers_state_them():
    """Section 4.1: 1/(L(1 + omega/sqrt n)) if p = 1/(1+omega); PermK 1/(L + sqrt((1-p)/p) L_pm); p = 1."""
    equal = replace(HAND, L_plus=3.0)
    assert resolved(MARINA(RandK(3), p=1 / 4), 12, 4, equal).gamma == pytest.approx(1 / (3 * (1 + 3 / 2)))
    assert resolved(MARINA(PermK(), p=1 / 4), 12, 4).gamma == pytest.approx(1 / (3 + sqrt(3) * 1.25))
    assert resolved(MARINA(PermK()), 12, 4, replace(HAND, L_pm=0.0)).gamma == pytest.approx(1 / 3)
    assert resolved(MARINA(RandK(3), p=1.0), 12, 4).gamma == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("method", "d", "n", "p"),
    [
        (MARINA(RandK(3)), 12, 4, 1 / 4),  # K/d
        (MARINA(RandK(3), sync=Identity("f8")), 12, 4, 1 / 8),  # in bytes
        (MARINA(PermK()), 12, 4, 1 / 4),
        (MARINA(PermK()), 13, 4, 1 / 4),  # 3.25 floats on average
        (MARINA(PermK()), 4, 12, 1 / 4),
        (MARINA(PermK()), 4, 13, 12 / 13 / 4),  # one worker of 13 sends nothing
        (MARINA(Bernoulli(0.25)), 12, 4, 1 / 4),
        (MARINA(Lazy(0.25)), 12, 4, 1 / 4),
        (MARINA(Natural()), 12, 4, 14 / 48),  # 2 bytes of signs, 12 of exponents
        (MARINA(Dithering(3)), 12, 4, 9 / 48),  # a norm and 36 bits
        (MARINA(Identity()), 12, 4, 1.0),
        (MARINA(Identity("f8")), 12, 4, 1.0),  # never above 1
    ],
    ids=lambda v: repr(v) if isinstance(v, MARINA) else "",
)
def test_marina_default_p_balances_the_bytes(method, d, n, p):
    """Section 4.1, p = zeta/d, taken in bytes."""
    assert resolved(method, d, n).p == pytest.approx(p)
    assert resolved(replace(method, p=0.3), d, n).p == 0.3


SHRINKING = [
    (TopK(3), 12, 4, 1 / 4),
    (Sign(), 12, 4, 1 / 12),
    (QuantizedTopK(4, Natural()), 12, 4, 4 / (12 * 9 / 8)),
    (Shrunk(RandK(3)), 12, 4, 1 / 4),
    (Shrunk(PermK()), 12, 4, 1 / 4),
    (Shrunk(PermK()), 4, 13, 3 / 13),
    (Identity(), 12, 4, 1),
]


@pytest.mark.parametrize(
    ("C", "d", "n", "alpha"), SHRINKING, ids=lambda v: repr(v) if hasattr(v, "alpha") else ""
)
def test_steps_for_contractive_compressors(C, d, n, alpha):
    """Sections 5.1 (alpha/(10 L)) and 5.2, with theta and beta as there."""
    theta = 1 - sqrt(1 - alpha)
    beta = (1 - alpha) / theta
    assert resolved(EF21(C), d, n).gamma == pytest.approx(1 / (3 + L_TILDE * sqrt(beta / theta)))
    assert resolved(EF14(C), d, n).gamma == pytest.approx(alpha / 30)


def test_a_hard_threshold_has_no_theory_step():
    with pytest.raises(ConfigError, match="gamma"):
        resolved(EF14(HardThreshold(0.1)), 12, 4)
    assert resolved(EF14(HardThreshold(0.1), gamma=0.2), 12, 4).gamma == 0.2


def test_constants_are_asked_for_only_if_a_step_needs_them():
    def refuse():
        raise AssertionError("asked")

    for method in (GD(0.1), AGD(0.1, mu=0), DIANA(RandK(2), 0.1), MARINA(PermK(), 0.1), EF21(TopK(2), 0.1)):
        assert method.resolve(refuse, 12, 4).gamma == 0.1


# --- theorems, with gamma='theory' ---


def test_gd_contracts_linearly():
    """Section 1.1: |x_k - x*|^2 <= (1 - mu/L)^k |x_0 - x*|^2, in every round."""
    problem = squares(4, 8, seed=21)
    c, x_star = problem.constants(4), problem.x_star
    errors = [np.sum((x - x_star) ** 2) for x in trajectory(start(GD(values="f8"), problem, 4), 40)]
    assert all(e <= (1 - c.mu / c.L) ** k * errors[0] * (1 + 1e-10) for k, e in enumerate(errors))


def test_agd_contracts_with_the_root_of_the_condition_number():
    """Section 1.2: f_k - f* <= (1 - sqrt(mu/L))^k (f_0 - f* + mu/2 |x_0 - x*|^2), which GD misses here."""
    problem = Quadratics(d=40, noise=0.2, lam=1e-3)
    c = problem.constants(3)
    x_star = agd(gradients(problem, 3), problem.x0(), c.L, c.mu, 4000)[-1]
    bound = (
        objective_value(problem, 3, problem.x0()) - c.f_star + c.mu / 2 * np.sum((problem.x0() - x_star) ** 2)
    )

    def gaps(method):
        return [objective_value(problem, 3, x) - c.f_star for x in trajectory(start(method, problem, 3), 400)]

    rate = 1 - sqrt(c.mu / c.L)
    assert all(gap <= rate**k * bound + 1e-12 for k, gap in enumerate(gaps(AGD(values="f8"))))
    assert not all(gap <= rate**k * bound + 1e-12 for k, gap in enumerate(gaps(GD(values="f8"))))


def test_agd_without_strong_convexity():
    """Section 1.2, mu = 0: f_k - f* <= 2 L |x_0 - x*|^2 / (k + 1)^2."""
    problem = Quadratics(d=40, noise=0.2, lam=1e-3)
    c = problem.constants(3)
    x_star = agd(gradients(problem, 3), problem.x0(), c.L, c.mu, 4000)[-1]
    distance = np.sum((problem.x0() - x_star) ** 2)
    iterates = trajectory(start(AGD(mu=0, values="f8"), problem, 3), 200)
    for k, x in enumerate(iterates[1:], 1):
        assert objective_value(problem, 3, x) - c.f_star <= 2 * c.L * distance / (k + 1) ** 2 + 1e-12


@pytest.mark.parametrize("Q", [RandK(2), RandK(2, mask="shared"), Natural(), Ternary(), PermK()], ids=repr)
def test_diana_contracts_linearly(Q):
    """Section 2.2.  With V = |x - x*|^2 + M gamma^2 mean |h_i - grad f_i(x*)|^2, M = 4A/alpha, A for omega/n:
    E V_k <= max{1 - gamma mu, 1 - alpha/2}^k V_0 (Gorbunov, Hanzely, Richtarik, 2020, Theorem 4.1, DIANA).
    The mean over 10 seeds, at every tenth round; runs lie well below the bound, so no slack is given."""
    problem, n, d = squares(4, 8, seed=21), 4, 8
    mu, x_star = problem.constants(n).mu, problem.x_star
    limits = [g(x_star) for g in gradients(problem, n)]
    A, _ = Q.ab(d, n)
    values = []
    for seed in range(10):
        loop = start(DIANA(Q), problem, n, seed)
        gamma, alpha = loop.method.gamma, loop.method.alpha
        history = []
        for k in range(91):
            if k % 10 == 0:
                spread = np.mean([np.sum((w.h - limits[i]) ** 2) for i, w in loop.workers.items()])
                history.append(np.sum((loop.replica.x - x_star) ** 2) + 4 * A / alpha * gamma**2 * spread)
            loop.step(k)
        values.append(history)
    rate = max(1 - gamma * mu, 1 - alpha / 2)
    mean = np.mean(values, axis=0)
    assert mean[-1] < mean[0] / 10
    assert all(v <= rate ** (10 * j) * mean[0] for j, v in enumerate(mean))


@pytest.mark.parametrize(
    "Q", [RandK(4), RandK(4, mask="shared"), PermK(), Natural(), Quantized(PermK(), Natural())], ids=repr
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_marina_reaches_the_rate_of_its_theorem(Q, noise):
    """Section 4.1: (1/T) sum_{t<T} E |grad f(x_t)|^2 <= 2 Delta_0 / (gamma T).  The mean over 4
    seeds, no slack: the left side is half to three quarters of the right one, and means spread by 6 %."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 100
    gap = objective_value(problem, n, problem.x0()) - problem.constants(n).f_star
    means = []
    for seed in range(4):
        loop = start(MARINA(Q), problem, n, seed)
        means.append(np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)]))
    assert np.mean(means) <= 2 * gap / (loop.method.gamma * T)


@pytest.mark.parametrize("C", [TopK(4), TopK(1), Sign(), Identity()], ids=repr)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_ef21_reaches_the_rate_of_its_theorem(C, noise):
    """Section 5.2: (1/T) sum_{t<T} |grad f(x_t)|^2 <= 2 Delta_0 / (gamma T) + G_0 / (theta T), for
    certain, C being deterministic; G_0 = mean |g_i^0 - grad f_i(x^0)|^2."""
    problem, n, T = Quadratics(d=20, noise=noise, lam=1e-3), 5, 150
    x0 = problem.x0()
    gap = objective_value(problem, n, x0) - problem.constants(n).f_star
    local = [g(x0) for g in gradients(problem, n)]
    G0 = np.mean([np.sum((codec(C, 0, n)(i, 0, g) - g) ** 2) for i, g in enumerate(local)])
    theta = 1 - sqrt(1 - C.alpha(20, n))
    loop = start(EF21(C), problem, n)
    mean = np.mean([grad_norm_sq(problem, n, x) for x in trajectory(loop, T - 1)])
    assert mean <= 2 * gap / (loop.method.gamma * T) + G0 / (theta * T)


# --- the hash over the iterates ---

ONE_OF_EACH = [
    GD(),
    AGD(),
    DCGD(RandK(3)),
    DIANA(Natural()),
    MARINA(PermK()),
    EF14(QuantizedTopK(3, Natural())),
    EF21(Shrunk(RandK(3))),
    DASHA(RandK(3)),
    ADIANA(Natural()),
    EF21P(TopK(3), RandK(3)),
    TwoDirection(TopK(3), RandK(3)),
    Artemis(RandK(3), Natural(), p=0.6),
    MCM(RandK(3), Natural()),
    Dore(RandK(3), Natural()),
    DoubleSqueeze(QuantizedTopK(3, Natural()), TopK(3)),
    EF21Plus(Shrunk(RandK(3))),
    EF21SGDM(QuantizedTopK(3, Natural())),
    EF21SGD2M(Shrunk(RandK(3)), eta=0.3),
    EFSGD(Shrunk(Natural())),
    PerturbedSGD(TopK(3), eta=0.1, r=0.2, I_reset=4),
    PowerSGD(2, rows=3, gamma=0.1),
    VRMARINA(RandK(3), batch=None),
    PPMARINA(RandK(3), r=2),
    VRDIANA(RandK(3), batch=None),
    DASHAPAGE(RandK(3), batch=None),
    DASHAMVR(RandK(3), batch=None, b=0.5),
    DCGDPlus(Importance(0.3)),
    DIANAPlus(VaryingSteps(6.0)),
    ADIANAPlus(BlockSteps(6.0, 3)),
]
SEEDED = ONE_OF_EACH[2:]


def test_one_of_each_is_complete():
    assert {type(m) for m in ONE_OF_EACH} == set(METHODS.values())


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=repr)
def test_the_hash_is_a_chain_over_the_iterates(method):
    """h_0 = SHA-256(x^0), h_k = SHA-256(h_{k-1}, x^k); a second run gives the same one."""
    loops = [start(method, Entropy(), 4, seed=1) for _ in range(2)]
    iterates = trajectory(loops[0], 20)
    trajectory(loops[1], 20)
    assert loops[0].digest.value == loops[1].digest.value == chained(iterates)


def chained(iterates: list) -> bytes:
    digest = sha256(iterates[0].tobytes()).digest()
    for x in iterates[1:]:
        digest = sha256(digest + x.tobytes()).digest()
    return digest


def test_the_hash_of_long_iterates_is_the_same_chain():
    """They are hashed beside the next round, which changes them in place."""
    loop = start(GD(), Quadratics(d=30_000), 2)
    assert loop.digest.value == chained([loop.replica.x])
    iterates = trajectory(loop, 5)
    assert loop.digest.value == chained(iterates)


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=repr)
def test_the_hash_changes_with_the_seed_where_there_are_draws(method):
    loops = [start(method, Entropy(), 4, seed=seed) for seed in (1, 2)]
    for loop in loops:
        trajectory(loop, 5)
    assert (loops[0].digest.value != loops[1].digest.value) == (method in SEEDED)


def test_a_deterministic_compressor_needs_no_seed():
    """Section 5.2: EF21 and EF14 with TopK are reproducible whatever the seed."""
    for method in (EF21(TopK(2)), EF14(Sign())):
        first, second = (start(method, Entropy(), 4, seed=seed) for seed in (1, 2))
        assert np.array_equal(trajectory(first, 20), trajectory(second, 20))


# --- what is refused ---


WRONG = [
    *[
        (m, "Q", C)
        for m in (DCGD, DIANA, MARINA)
        for C in (TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1))
    ],
    *[(m, "C", C) for m in (EF14, EF21) for C in (RandK(2), PermK(), Natural(), Bernoulli(0.5))],
    (EF21, "C", HardThreshold(0.1)),
]


@pytest.mark.parametrize(("method", "name", "C"), WRONG, ids=lambda v: getattr(v, "__name__", repr(v)))
def test_a_compressor_of_the_wrong_kind_is_refused(method, name, C):
    """The message says what came and which kind is wanted, and names a compressor that would do."""
    with pytest.raises(ConfigError) as caught:
        method(**{name: C})
    message = str(caught.value)
    assert method.__name__ in message and name in message and repr(C) in message
    assert ("unbiased" if name == "Q" else "contractive") in message
    table = vars(compressors)
    candidates = [f"Shrunk({C!r})", "RandK(k=0.01)", "Natural()", "TopK(k=0.01)", "Sign()", "Identity()"]
    remedies = [eval(text, dict(table)) for text in candidates if text in message]
    assert remedies
    for remedy in remedies:
        method(**{name: remedy})


@pytest.mark.parametrize("C", ["randk", 3, RandK, None], ids=repr)
@pytest.mark.parametrize(
    ("method", "name"), [(DCGD, "Q"), (DIANA, "Q"), (MARINA, "Q"), (EF14, "C"), (EF21, "C")]
)
def test_what_is_no_compressor_is_refused(method, name, C):
    kind, remedy = ("unbiased", "RandK") if name == "Q" else ("contractive", "TopK")
    with pytest.raises(
        ConfigError, match=rf"{method.__name__} needs {name} .*{kind}.*given .*{remedy}\(k=0\.01\)"
    ):
        method(**{name: C})


@pytest.mark.parametrize("method", [DCGD, DIANA, MARINA, EF14, EF21])
def test_the_broadcast_is_lossless_or_rounded_never_compressed(method):
    C = {"Q": RandK(2)} if method in (DCGD, DIANA, MARINA) else {"C": TopK(2)}
    for wrong in (RandK(2), TopK(2), PermK()):
        with pytest.raises(ConfigError, match=r"down.*sparse"):
            method(**C, down=wrong)
    with pytest.raises(ConfigError, match=r"sync.*identity"):
        MARINA(RandK(2), sync=RandK(2))


BAD_STEPS = [0, -1.0, float("nan"), True, "theroy", "theory*", "theory*0", "theory*-1", "theory*x", "", None]


@pytest.mark.parametrize("gamma", BAD_STEPS, ids=repr)
@pytest.mark.parametrize("method", ONE_OF_EACH, ids=lambda m: type(m).__name__)
def test_a_step_that_is_none_is_refused(method, gamma):
    step = method.steps[0]
    with pytest.raises(ConfigError, match=rf"{step}.*theory"):
        replace(method, **{step: gamma})


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (MARINA(PermK()), "p", 0.0),
        (MARINA(PermK()), "p", 1.5),
        (MARINA(PermK()), "p", float("nan")),
        (MARINA(PermK()), "p", "theory"),
        (DIANA(RandK(2)), "alpha", 0.0),
        (DIANA(RandK(2)), "alpha", -0.5),
        (DIANA(RandK(2)), "alpha", float("nan")),
        (DIANA(RandK(2)), "alpha", "theory"),
        (AGD(), "mu", -1.0),
        (AGD(), "mu", "theory*x"),
        (GD(), "values", "f5"),
        (AGD(), "values", "f5"),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "paper") else repr(v),
)
def test_other_parameters_are_checked_too(method, name, value):
    """At once, by a message that names the parameter, and not in the middle of a run."""
    with pytest.raises(ConfigError, match=name if name != "values" else "value format"):
        replace(method, **{name: value})


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=repr)
def test_a_method_is_its_repr(method):
    """eval(repr(m)) == m, and records on the state side hold arrays and numbers only."""
    assert eval(repr(method), vars(compressors) | {type(method).__name__: type(method)}) == method
    loop = start(method, Entropy(), 4)
    loop.step(0)
    for state in (loop.replica, loop.server, *loop.workers.values()):
        assert all(isinstance(getattr(state, f.name), np.ndarray | float | int) for f in fields(state))
