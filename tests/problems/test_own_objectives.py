"""Objectives of a user's own: the run's arrays are the run's, whatever an objective does with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpicomp
from mpicomp import GD, MARINA, VRMARINA
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.compressors import Identity, TopK
from mpicomp.keys import Key
from mpicomp.problems import Logistic, Problem
from mpicomp.problems.linear import LinearModel
from mpicomp.problems.objective import Objective
from tests.support.launching import mpirun

D = 6


class Bowl(Objective):
    """|x - a|²/2."""

    samples = 4

    def __init__(self, a):
        self.a = a

    def value(self, x):
        return float(np.sum((x - self.a) ** 2) / 2)

    def grad(self, x):
        return x - self.a

    def batch_grad(self, x, b, stream):
        return self.grad(x)


class ShrinksInValue(Bowl):
    def value(self, x):
        x *= 0.5
        return super().value(x)


class ShrinksInGrad(Bowl):
    def grad(self, x):
        x *= 0.5
        return super().grad(x)


class ShrinksInBatchGrad(Bowl):
    def batch_grad(self, x, b, stream):
        x -= self.a
        return x


class Sets(Bowl):
    def value(self, x):
        x[0] = 0.0
        return super().value(x)


class ChangesLater(Bowl):
    """Changes the gradient that it has returned, whenever it is asked for a value."""

    g = np.zeros(D)

    def grad(self, x):
        self.g = super().grad(x)
        return self.g

    def value(self, x):
        self.g[:] = 0
        return super().value(x)


class TakesTurns(Bowl):
    """Writes into one of two arrays in turn."""

    def __init__(self, a):
        super().__init__(a)
        self.both, self.turn = [np.empty(D), np.empty(D)], 0

    def grad(self, x):
        self.turn = 1 - self.turn
        return np.subtract(x, self.a, out=self.both[self.turn])


class TakesTurnsInRows(TakesTurns):
    """Like ``TakesTurns``, in the rows of one array, which others than the run may see: each is copied."""

    def __init__(self, a):
        super().__init__(a)
        self.both = np.empty((100, D))

    def grad(self, x):
        self.turn += 1
        np.subtract(x, self.a, out=self.both[self.turn])
        self.both[: self.turn] = 0  # all that it has returned before
        return self.both[self.turn]


class Remembers(Bowl):
    """Computes nothing anew at the x of its last call, which it keeps as it was given."""

    x = None

    def grad(self, x):
        if self.x is None or not np.array_equal(self.x, x):
            self.x, self.g = x, super().grad(x)
        return self.g.copy()


@dataclass(frozen=True)
class Own(Problem):
    kind: type

    def dimension(self):
        return D

    def x0(self):
        return np.linspace(1, 2, D)

    def objective(self, i, n):
        return self.kind(np.arange(D) + i)


def run(kind, method, **options):
    return mpicomp.run(method, Own(kind), workers=2, rounds=6, **{"every": 2, "seed": 1} | options)


METHODS = [
    GD(0.3, values="f8"),
    MARINA(Identity("f8"), gamma=0.3, p=0.4),
    VRMARINA(Identity("f8"), gamma=0.3, p=0.4, batch=2),
    mpicomp.EF21(TopK(2), gamma=0.3),
    mpicomp.AGD(gamma=0.3, mu=0.1),
]


class Odd(np.ndarray):
    """An array with operators of its own, as of quantities with units."""

    def sum(self, *_, **__):
        return 0.0

    def __sub__(self, other):
        return 5


class Odds(Bowl):
    def grad(self, x):
        return super().grad(x).view(Odd)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_gradient_of_another_class_of_arrays_counts_by_its_entries(method):
    assert run(Odds, method).iterates_sha256 == run(Bowl, method).iterates_sha256


@pytest.mark.parametrize("kind", [ShrinksInValue, ShrinksInGrad, Sets, ChangesLater, TakesTurns])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_writing_into_an_array_of_the_runs_is_refused(kind, method):
    with pytest.raises(ConfigError, match=rf"{kind.__name__} writes into x, or into a gradient.*copy"):
        run(kind, method)


def test_writing_into_x_for_a_batch_is_refused():
    with pytest.raises(ConfigError, match="ShrinksInBatchGrad writes into x"):
        run(ShrinksInBatchGrad, METHODS[2])


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_gradient_in_memory_that_others_hold_is_copied(method):
    assert run(TakesTurnsInRows, method).iterates_sha256 == run(Bowl, method).iterates_sha256


@pytest.mark.parametrize("around", [lambda problem: problem, lambda problem: mpicomp.Noisy(problem, 0.0)])
def test_an_objective_may_keep_the_x_of_its_last_call(around):
    of = {kind: mpicomp.run(METHODS[0], around(Own(kind)), workers=2, rounds=6) for kind in (Remembers, Bowl)}
    assert of[Remembers].iterates_sha256 == of[Bowl].iterates_sha256
    assert of[Remembers].rows[-1].f == of[Bowl].rows[-1].f


def test_observing_changes_nothing():
    """Observed in every round or at the end alone, the iterates are the same."""
    often, seldom = (run(Bowl, METHODS[0], every=every) for every in (1, 6))
    assert often.iterates_sha256 == seldom.iterates_sha256


def test_other_value_errors_are_the_objectives_own():
    class Wrong(Bowl):
        def value(self, x):
            raise ValueError("shapes do not match")

    with pytest.raises(ValueError, match="shapes do not match"):
        run(Wrong, METHODS[0])


def test_a_starting_point_stays_the_problems():
    """Each run begins at a copy of the array that x0 returns, whatever becomes of its iterate."""
    start = np.linspace(1, 2, D)

    class Kept(Own):
        def x0(self):
            return start

    first, again = (mpicomp.run(METHODS[0], Kept(Bowl), workers=2, rounds=6) for _ in range(2))
    assert first.iterates_sha256 == again.iterates_sha256
    assert (start == np.linspace(1, 2, D)).all() and not np.may_share_memory(first.x, start)


@pytest.mark.parametrize("place", ["value", "grad"])
def test_ranks_end_together_and_name_the_objective(place):
    kind = {"value": "ShrinksInValue", "grad": "ShrinksInGrad"}[place]
    code = f"from tests.problems.test_own_objectives import *; run({kind}, METHODS[0])"
    done = mpirun(2, "-c", code)
    assert done.returncode != 0
    assert f"{kind} writes into x" in done.stderr


@pytest.mark.skipif(np.finfo(np.longdouble).bits == 64, reason="no float is longer than 64 bits here")
def test_floats_that_no_message_carries_are_refused():
    class Long(Bowl):
        def grad(self, x):
            return super().grad(x).astype(np.longdouble)

    class LongStart(Own):
        def x0(self):
            return np.zeros(D, np.longdouble)

    with pytest.raises(
        ConfigError, match=r"grad returned shape \(6,\), type float128; expected floats of at"
    ):
        run(Long, METHODS[0])
    with pytest.raises(
        ConfigError, match=r"x0 has shape \(6,\) and type float128; expected floats of at most"
    ):
        mpicomp.run(METHODS[0], LongStart(Bowl), workers=2)


class Masks(Bowl):
    """Gives a mask where ``place`` says."""

    place = ""

    def value(self, x):
        return np.ma.masked if self.place == "value" else super().value(x)

    def grad(self, x):
        g = super().grad(x)
        return np.ma.array(g, mask=g > 0) if self.place == "grad" else g

    def batch_grad(self, x, b, stream):
        g = super().grad(x)
        return np.ma.array(g, mask=g > 0) if self.place == "batch_grad" else g


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("value", "the value has a mask"),
        ("grad", "the gradient has"),
        ("batch_grad", "the gradient has a mask"),
    ],
)
def test_masks_of_values_and_gradients_are_refused(where, said):
    kind = type("MasksHere", (Masks,), {"place": where})
    with pytest.raises(ConfigError, match=f"{said}.*ignored"):
        run(kind, METHODS[2])
    run(Masks, METHODS[2])


def test_the_start_is_an_array_of_any_library_without_a_mask():
    start = np.linspace(1, 2, D)
    plain = run(Bowl, METHODS[0], x0=start).iterates_sha256
    for given in (start.tolist(), tuple(start), start.astype(">f8")):
        assert run(Bowl, METHODS[0], x0=given).iterates_sha256 == plain
    for given in (np.ma.array(start, mask=start > 1.5), [np.ma.masked] * D):
        with pytest.raises(ConfigError, match="x0 has a mask, which would be ignored"):
            run(Bowl, METHODS[0], x0=given)
    with pytest.raises(ConfigError, match="x0 is ragged"):
        run(Bowl, METHODS[0], x0=[[1.0], [2.0, 3.0]])

    class MaskedStart(Own):
        def x0(self):
            return np.ma.array(start, mask=start > 1.5)

    with pytest.raises(ConfigError, match="x0 has a mask"):
        mpicomp.run(METHODS[0], MaskedStart(Bowl), workers=2)


def test_a_value_is_one_real_number_in_any_of_its_types():
    for make in (float, np.float32, lambda v: np.array(v), np.longdouble):

        class Made(Bowl):
            def value(self, x, make=make):
                return make(0.25)

        assert run(Made, METHODS[0]).rows[-1].f == 0.25
    refused = {
        r"ndarray of shape \(1,\)": np.array([0.25]),
        r"ndarray of shape \(1, 1\)": np.array([[0.25]]),
        "NoneType": None,
        "str": "0.25",
        "list": [0.25],
        "complex": 0.25 + 1j,
        r"complex128 of shape \(\)": np.complex128(0.25 + 1j),
    }
    for said, given in refused.items():

        class Gives(Bowl):
            def value(self, x, given=given):
                return given

        with pytest.raises(ConfigError, match=f"value returned a {said}; expected one real number"):
            run(Gives, METHODS[0])


def test_an_integer_beyond_all_doubles_is_infinite():
    class Huge(Bowl):
        def value(self, x):
            return 10**400

    with pytest.raises(DivergedError, match="f is inf"):
        run(Huge, METHODS[0])


def test_value_and_grad_returns_a_pair():
    class One(Bowl):
        def value_and_grad(self, x):
            return self.grad(x)

    with pytest.raises(
        ConfigError, match="value_and_grad returned a ndarray; expected a pair, the value and"
    ):
        run(One, METHODS[0])


def test_a_value_may_be_a_tensor_that_has_a_gradient():
    torch = pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

    class Made(Bowl):
        def value(self, x):
            return torch.tensor(0.25, requires_grad=True) * 1

    assert run(Made, METHODS[0]).rows[-1].f == 0.25


class Tilted(LinearModel):
    """A loss of the package's with a linear term."""

    def value(self, x):
        return super().value(x) + float(np.sum(x))

    def grad(self, x):
        return super().grad(x) + 1


class TiltedInPart(Tilted):
    def part(self, rows):
        return TiltedInPart(self.X[rows], self.y[rows], self.phi, self.lam, self.rho)


@dataclass(frozen=True)
class OfLosses(Logistic):
    kind: type = Tilted

    def objective(self, i, n):
        f = super().objective(i, n)
        return self.kind(f.X, f.y, f.phi, f.lam, f.rho)


def test_batches_of_a_function_that_was_changed_are_not_those_of_its_base():
    """They were, without a word: part(rows) of the base makes an objective of the base."""
    method = mpicomp.DCGD(mpicomp.RandK(k=0.5), gamma=0.1, batch=2)
    run = partial(mpicomp.run, workers=3, rounds=3)
    with pytest.raises(ConfigError, match=r"Tilted has a value or grad of its own.* Define part\(rows\) too"):
        run(method, OfLosses(data="digits", lam=0.1))
    with pytest.raises(ConfigError, match="gives batches of another function"):
        run(GD(gamma=0.1), OfLosses(data="digits", lam=0.1), observe=5)
    f = OfLosses(data="digits", lam=0.1, kind=TiltedInPart).objective(0, 3)
    assert type(f.sampled(4, Key(0, 0, 0, 3).shared("rows"))) is TiltedInPart
    assert run(GD(gamma=0.1), OfLosses(data="digits", lam=0.1)).rows  # which asks for no batches


def test_a_dimension_is_an_integer_in_any_of_its_types():
    class Sized(Own):
        def dimension(self):
            return sizes[-1]

    sizes = []
    for given in (np.int64(D), np.uint8(D)):
        sizes.append(given)
        assert mpicomp.run(METHODS[0], Sized(Bowl), workers=2, rounds=1).x.shape == (D,)
    for given in (0, -1, float(D), str(D), None, True, np.array([D])):
        sizes.append(given)
        with pytest.raises(
            ConfigError, match=rf"has dimension {re.escape(repr(given))}; allowed: an integer, 1"
        ):
            mpicomp.run(METHODS[0], Sized(Bowl), workers=2, rounds=1)


def test_a_gradient_of_another_length_names_its_worker():
    class Shorter(Bowl):
        def grad(self, x):
            return super().grad(x)[: D - (self.a[0] == 1)]

    for observe in ("full", "never"):
        with pytest.raises(ConfigError, match=rf"worker 1: grad returned shape \({D - 1},\).*\({D},\)"):
            run(Shorter, METHODS[0], observe=observe)


@pytest.mark.parametrize("samples", ["10", 1.5, float("nan"), -1, np.array([10])])
def test_a_number_of_samples_that_is_none_is_refused(samples):
    with pytest.raises(ConfigError, match=r"Own\.objective\(0, 2\)\.samples=.*allowed: an integer from 0"):
        run(type("Counts", (Bowl,), {"samples": samples}), METHODS[0])


def test_parts_of_another_vector_are_refused():
    class Split(Own):
        def parts(self):
            return mpicomp.Parts((mpicomp.Part("w", (2, D)),))

    with pytest.raises(ConfigError, match=rf"Split\.parts\(\) has {2 * D} entries, .*\(\) is {D}: w"):
        mpicomp.run(METHODS[0], Split(Bowl), workers=2, rounds=1)


def test_what_is_no_objective_is_refused():
    class Gives(Own):
        def objective(self, i, n):
            return made[-1]

    made = []
    for given, said in ((None, "None"), (Bowl, "<class"), (lambda x: x, "<function")):
        made.append(given)
        with pytest.raises(ConfigError, match=rf"Gives\.objective\(0, 2\) gives {said}.*Objective"):
            mpicomp.run(METHODS[0], Gives(Bowl), workers=2, rounds=1)


@pytest.mark.parametrize(("given", "said"), [([("w", (4, 5))], r"\[\('w', \(4, 5\)\)\]"), (None, "None")])
def test_parts_that_are_none_are_refused_by_name(given, said):
    class Gives(Own):
        def parts(self):
            return given

    with pytest.raises(ConfigError, match=rf"Gives\.parts\(\) gives {said}; expected mpicomp\.Parts"):
        mpicomp.run(METHODS[0], Gives(Bowl), workers=2, rounds=1)


def test_the_traceback_of_an_error_in_a_gradient_shows_the_rounds_the_method_and_the_user():
    """At most 10 of its frames are ours, and none is of a compressor, a codec or the server's averaging."""

    @dataclass(frozen=True)
    class Labelled(Problem):
        def dimension(self):
            return 5

        def objective(self, i, n):
            return Missing()

    class Missing(Objective):
        def value(self, x):
            return 0.0

        def grad(self, x):
            if x.any():
                raise KeyError("label")
            return np.ones_like(x)

    with pytest.raises(KeyError) as error:
        mpicomp.run(mpicomp.EF21(mpicomp.TopK(2), gamma=0.1), Labelled(), workers=2, rounds=5)
    package = str(Path(mpicomp.__file__).parent)
    ours = [str(f.path) for f in error.traceback if str(f.path).startswith(package)]
    rooms = {Path(path).relative_to(package).parts[0] for path in ours}
    assert len(ours) <= 10 and rooms == {"runtime", "averaging", "methods"}
