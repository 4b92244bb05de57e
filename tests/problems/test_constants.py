"""Constants of which only some are known."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy

import mpicomp
from mpicomp import AGD, DASHA, DCGD, DIANA, EF14, EF21, GD, MARINA, Constants, RandK, TopK
from mpicomp.base.errors import ConfigError, DataError
from mpicomp.problems import LeastSquares, Logistic, Noisy, Objective, Problem, Quadratics


class Square(Objective):
    def value(self, x):
        return float(np.sum(x**2))

    def grad(self, x):
        return 2 * x


@dataclass(frozen=True)
class Own(Problem):
    known: Constants

    def dimension(self):
        return 5

    def x0(self):
        return np.ones(5)

    def objective(self, i, n):
        return Square()

    def constants(self, n):
        return self.known


def resolved(method, known):
    return method.resolve(lambda: known, 5, 3)


def test_the_constant_of_f_alone_suffices_for_gradient_descent():
    run = mpicomp.run(GD(values="f8"), Own(Constants(L=2.0)), workers=3, rounds=1)
    assert run.method.gamma == 0.5 and run.x.tolist() == [0.0] * 5


def test_and_for_other_methods_whose_theorems_ask_for_no_more():
    assert resolved(AGD(), Constants(L=2.0, mu=0.1, convex=True)).gamma == 0.5
    one = EF14(TopK(1)).resolve(lambda: Constants(L=2.0), 5, 1)  # one worker: L_max is L
    assert one.gamma == pytest.approx(0.2 / 20)


# Method, the constants that it asks for beside L, and the field of ``Constants`` that gives them.
ASKS = [
    (DIANA(RandK(2)), "L_max", "L_i"),
    (DCGD(RandK(2)), "L_max", "L_i"),
    (EF21(TopK(2)), "L_mean", "L_i"),
    (DASHA(RandK(2)), "L_tilde", "L_i"),
    (EF14(TopK(2)), "L_max", "L_i"),
    (MARINA(RandK(2)), "L_plus", "L_plus"),
]


@pytest.mark.parametrize(("method", "name", "field"), ASKS, ids=lambda v: getattr(type(v), "__name__", v))
def test_a_theorem_that_needs_more_says_which_constant_and_what_would_do(method, name, field):
    said = (
        f"{type(method).__name__} takes its theory from the constant {name}, and this problem's constants do "
        f"not have it. Give {field} in the Constants"
    )
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        resolved(method, Constants(L=2.0, mu=0.1, convex=True))
    assert "gamma" in str(refused.value)
    whole = Quadratics(d=5, lam=0.1).constants(3)
    assert resolved(method, whole).step > 0
    with pytest.raises(ConfigError, match=name):
        resolved(method, replace(whole, **{field: None}))


def test_a_number_needs_no_constant():
    assert resolved(DIANA(RandK(2), gamma=0.1), Constants(L=2.0)).gamma == 0.1


def test_what_follows_from_the_constants_of_the_f_i_is_not_known_without_them():
    unknown, known = Constants(L=2.0), Constants(2.0, (3.0, 4.0, 0.0))
    assert unknown.L_max is unknown.L_mean is unknown.L_tilde is None
    assert (known.L_max, known.L_mean, known.L_tilde) == (4, 7 / 3, pytest.approx(np.sqrt(25 / 3)))


def test_noise_on_a_problem_that_knows_little():
    noisy = Noisy(Own(Constants(L=2.0)), 0.1)
    assert noisy.constants(3).L == 2.0 and noisy.constants(3).L_ij is None
    assert noisy.shard_sizes(3) is None


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"L": 0.0}, "L=0.0"),
        ({"L": -1.0}, "L=-1.0"),
        ({"L": float("nan")}, "L=nan"),
        ({"L": "1"}, r"L='1'\); allowed: a number above 0"),
        ({"L": None}, "L=None"),
        ({"L": np.ones(2)}, r"L=array\(\[1\., 1\.\]\)"),
        ({"L": 1.0, "f_star": float("nan")}, r"f_star=nan\); allowed: a finite number, or None"),
        ({"L": 1.0, "f_star": "0"}, "f_star='0'"),
        ({"L": 1.0, "mu": "0.1"}, r"mu='0.1'\); allowed: 0 or above"),
        ({"L": 1.0, "mu": -0.1}, "mu=-0.1"),
        ({"L": 1.0, "L_i": (1.0, float("inf"))}, r"L_i\[1\]=inf"),
        ({"L": 1.0, "L_pm": -1e-9, "sigma": float("nan")}, "L_pm=-1e-09, sigma=nan"),
    ],
)
def test_numbers_that_no_function_has_are_refused(known, said):
    with pytest.raises(ConfigError, match=said):
        Constants(**known)


def test_arrays_are_constants_too():
    known = Constants(L=1.0, L_i=np.array([1.0, 2.0, 3.0]))
    assert (known.L_max, known.L_mean, known.L_tilde) == (3.0, 2.0, np.sqrt(14 / 3))


def test_numbers_of_arrays_are_step_sizes_too():
    """gamma of numpy.float32(2) was refused, as a number that the user had not given."""
    single = np.float32(0.1)
    known = Constants(L=single, L_i=np.full(3, single), L_plus=np.array(single), L_pm=0, f_star=np.float16(0))
    plain = Constants(float(single), (float(single),) * 3, float(single), 0.0, f_star=0.0)
    assert known == plain and repr(known) == repr(plain)
    for method in (GD(), EF21(TopK(1)), MARINA(RandK(2))):
        assert repr(resolved(method, known)) == repr(resolved(method, plain))


@dataclass(frozen=True)
class Printed(Own):
    of: object = None

    def fingerprint(self):
        return self.of


@pytest.mark.parametrize("given", [None, 3, b"3f"])
def test_a_fingerprint_is_a_text(given, tmp_path):
    """Another one made a record that could not be read, or not be written."""
    problem = Printed(Constants(L=2.0), given)
    with pytest.raises(ConfigError, match=r"Printed\.fingerprint\(\) gives .*; expected a text"):
        mpicomp.run(GD(gamma=0.1), problem, workers=3, rounds=1, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"Printed\.fingerprint\(\) gives .*; expected a text"):
        mpicomp.compare([GD(gamma=0.1)], problem, workers=3, rounds=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Constants(L=1.0, L_i=(1.0, 1.0)), r"Own\.constants\(3\) gives 2 L_i; expected one for each worker"),
        (
            Constants(L=1.0, mu=5.0),
            r"Own\.constants\(3\) gives mu=5\.0 and L=1\.0; allowed: a mu of L at most",
        ),
        (None, r"Own\.constants\(3\) gives None; expected mpicomp\.Constants"),
        ({"L": 1.0}, r"Own\.constants\(3\) gives \{'L': 1\.0\}; expected mpicomp\.Constants"),
    ],
)
def test_a_problem_s_constants_fit_each_other(known, said):
    with pytest.raises(ConfigError, match=said):
        mpicomp.run(GD(), Own(known), workers=3, rounds=1)
    with pytest.raises(ConfigError, match=said):
        mpicomp.compare([GD()], Own(known), workers=3, rounds=1, tune=(0, 1))
    mpicomp.run(GD(gamma=0.1), Own(known), workers=3, rounds=1)  # which asks for none


class Weighted(LeastSquares):
    """Least squares on the even workers alone."""

    def objective(self, i, n):
        f = super().objective(i, n)
        return Square() if i % 2 else f


class Vouched(Weighted):
    def constants(self, n):
        return LeastSquares.constants(self, n)


class General(Problem):
    """A base of one's own whose constants are those of any objective."""

    def dimension(self):
        return 1

    def constants(self, n):
        return Constants(L=self.objective(0, n).curvature)


class Particular(General):
    def objective(self, i, n):
        return Curved()


class Curved(Square):
    curvature = 4.0


def test_constants_of_a_base_without_an_objective_are_inherited():
    assert Particular().constants(2).L == 4.0


def test_constants_of_another_function_are_not_inherited():
    """A class with another objective had the theory step, and the f*, of its base, without a word."""
    data = {"data": "breast_cancer", "lam": 0.1}
    said = r"Weighted has an objective of its own, .* Define constants\(n\) in Weighted"
    with pytest.raises(ConfigError, match=said):
        mpicomp.run(GD(), Weighted(**data), workers=3, rounds=1)
    assert mpicomp.run(GD(), Vouched(**data), workers=3, rounds=1).method.gamma > 0
    run = mpicomp.run(GD(gamma=0.01), Weighted(**data), workers=3, rounds=3)
    assert r"\min" in mpicomp.plot(run, y="f-f*").get_ylabel()


def test_a_theory_gives_all_that_was_asked_of_it():
    class Silent(GD):
        def theory(self, c, d, n):
            return {}

    with pytest.raises(ConfigError, match=r'Silent\.theory gives no gamma, which says "theory"'):
        resolved(Silent(), Constants(L=1.0))


@pytest.mark.parametrize("problem", [Logistic, LeastSquares])
def test_a_penalty_whose_square_overflows_is_refused(problem):
    """It ended in an OverflowError of Python."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(12, 3)), np.arange(12) % 2
    with pytest.raises(ConfigError, match=r"Constants\(L_plus=inf"):
        problem(data, lam=1e200).constants(3)


@pytest.mark.parametrize("factor", [1e-90, 5e-324])
def test_features_whose_fourth_powers_vanish_are_refused(factor):
    """L_plus was 0, below L, which no function has; a step of theory that rests on it was too long."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(1, 9, (12, 3)) * 1.0, np.arange(12) % 2
    with pytest.raises(DataError, match=r"features of at most .*below double precision\. Scale"):
        Logistic((factor * X, y), lam=0.0).constants(3)
    found, plain = (Logistic((c * X, y), lam=0.0).constants(3) for c in (2.0**-200, 1.0))
    assert found.L_plus == pytest.approx(plain.L_plus * 2.0**-400, rel=1e-12)


def test_a_shard_without_a_value_has_no_smoothness_in_any_dimension():
    """Above d = 1000, where a shard has as many rows, it was a traceback of ARPACK."""
    d, rng = 1001, np.random.default_rng(0)
    X = scipy.sparse.vstack([scipy.sparse.csr_array((d, d)), scipy.sparse.diags_array(rng.random(d))])
    found = LeastSquares((X.tocsr(), np.arange(2 * d) % 2), lam=0.5, split="contiguous").constants(2)
    largest = float(X.max()) ** 2 / d
    assert found.L_i == pytest.approx((0.5, 0.5 + largest)) and found.L == pytest.approx(0.5 + largest / 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"L": np.array([1.0])}, r"Constants\(L=array\(\[1\.\]\)\); allowed: a number above 0"),
        ({"L_i": 3.0}, r"Constants\(L_i=3\.0\); allowed: one number for each worker, or None"),
        ({"L_i": np.ones((3, 1))}, r"Constants\(L_i=array.*; allowed: one number for each worker"),
        ({"L_i": [[1.0], [2.0, 3.0]]}, r"Constants\(L_i=\[\[1\.0\].*; allowed: one number for each worker"),
        ({"samples": "a"}, "Constants.samples='a'; allowed: an integer from 1"),
        ({"samples": -1}, "Constants.samples=-1; allowed: an integer from 1"),
        ({"liars": -1}, "Constants.liars=-1; allowed: an integer from 0"),
        (
            {"diagonals": np.ones((2, 3))},
            r"Constants\(diagonals=array.*; allowed: a function that returns them",
        ),
    ],
)
def test_what_is_no_constant_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        Constants(**{"L": 1.0} | given)
