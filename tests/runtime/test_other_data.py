"""A problem of one's own is told apart by the content of its fields: arrays, matrices, tables, tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
import scipy

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import RecordError
from mpicomp.problems import Objective, Problem
from mpicomp.text.config import to_text
from tests.support.running import run


class Squares(Objective):
    """|x - b|²/2"""

    def __init__(self, b):
        self.b = b

    def value(self, x):
        return np.sum((x - self.b) ** 2) / 2

    def grad(self, x):
        return x - self.b


@dataclass(frozen=True)
class Given(Problem):
    """A problem of one's own with an array, of which numpy prints the ends alone."""

    b: np.ndarray

    def dimension(self):
        return len(self.b)

    def objective(self, i, n):
        return Squares(self.b)


class Plain(Given):
    """The same, printed by its address."""

    __repr__ = object.__repr__


def test_other_arrays_in_a_problem_of_ones_own_are_refused(tmp_path):
    """Where numpy leaves the difference out, the run went on with the other arrays."""
    asked = {"method": GD(gamma=0.5), "workers": 2, "out": tmp_path / "run", "every": 1}
    b = np.arange(3000.0)
    run(problem=Given(b), rounds=2, **asked)
    run(problem=Given(b.copy()), rounds=4, resume=True, **asked)
    b[1500] = 0
    with pytest.raises(RecordError, match="belongs to another run: problem is"):
        run(problem=Given(b), rounds=6, resume=True, **asked)


def _sparse(kind):
    return lambda b: getattr(scipy.sparse, kind)(b[:, None])


def _labelled(b):
    """Columns of several types; no float tells the entries 2^53 and 2^53 + 1 apart."""
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"x": 1.5, "n": 2**53 + b.astype(int), "of": [f"client {v}" for v in b]})


SPARSE = ("csr_array", "csc_matrix", "coo_array", "dok_array", "lil_matrix")
HELD = {kind: _sparse(kind) for kind in SPARSE} | {
    "table": _labelled,
    "texts": lambda b: _labelled(b).of,
    "index": lambda b: _labelled(b).set_index("of").x,
    "pandas' integers": lambda b: _labelled(b).n.astype("Int64").array,
    "an index alone": lambda b: _labelled(b).set_index("of").index,
    "tensor": lambda b: pytest.importorskip("torch").tensor(b),
    "sparse tensor": lambda b: pytest.importorskip("torch").tensor(b).to_sparse(),
    "objects": lambda b: np.array([f"client {v}" for v in b], object),
    "a mask": lambda b: np.ma.array(np.zeros(len(b)), mask=b == 1),
    "unlike lengths": lambda b: np.array([b, b[:2], None], object)[:2],
}


@pytest.mark.parametrize("kind", HELD)
def test_so_are_other_matrices_tables_and_tensors(tmp_path, kind):
    """Their texts leave out most entries, too."""
    asked = {"method": GD(gamma=0.5), "workers": 2, "out": tmp_path / "run", "every": 1}
    b = np.full(3000, 2.0)
    run(problem=Tabled(HELD[kind](b)), rounds=2, **asked)
    run(problem=Tabled(HELD[kind](b.copy())), rounds=4, resume=True, **asked)
    b[1500] = 1
    with pytest.raises(RecordError, match="belongs to another run: problem is") as refused:
        run(problem=Tabled(HELD[kind](b)), rounds=6, resume=True, **asked)
    assert "\n" not in str(refused.value)


def test_a_problem_with_an_array_is_compared():
    """Its text asked whether the array was the field's default, which ended in an error of numpy."""
    given = Given(np.arange(3.0))
    compared = mpicomp.compare({"GD": GD(gamma=0.5)}, given, workers=2, rounds=3)
    assert compared.outcomes[0].rows[-1].f == 2.5 / 4**3  # Exact: |b|²/2, and a step halves x - b
    assert re.search(r"Given\(b=<3, sha256 [0-9a-f]{12}>\)", to_text(given))
    assert to_text(given) != to_text(Given(np.arange(3.0) + 1))


@dataclass(frozen=True)
class Tabled(Problem):
    """A problem of one's own with a table of pandas, which has a default."""

    table: object = None

    def dimension(self):
        return 3

    def objective(self, i, n):
        return Squares(np.zeros(3))


def test_so_is_one_with_a_table():
    """Whether it was the default asked pandas for the truth of a table."""
    table = pytest.importorskip("pandas").DataFrame({"a": [1, 2]})
    compared = mpicomp.compare({"GD": GD(gamma=0.5)}, Tabled(table), workers=2, rounds=1)
    assert compared.outcomes[0].rows[-1].f == 0


def test_a_problem_without_a_text_is_told_to_have_one(tmp_path):
    asked = {"method": GD(gamma=0.5), "workers": 2, "out": tmp_path / "run"}
    first, second = Plain(np.ones(3)), Plain(np.ones(3))
    run(problem=first, rounds=2, **asked)
    with pytest.raises(RecordError, match="differs in each program: make the class a dataclass"):
        run(problem=second, rounds=4, resume=True, **asked)
