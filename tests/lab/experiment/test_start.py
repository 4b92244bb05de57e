"""The x0 of a suite: all runs start there, and none of another start is taken over."""

from __future__ import annotations

import io

import numpy as np
import pytest

import mpicomp
from mpicomp import GD, ConfigError
from mpicomp.base.errors import RecordError
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.study import parse
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.problems import Quadratics
from tests.support.launching import mpicomp as command

SUITE = """
problem = "quadratics(d=4, noise=0.5, lam=0.1)"
workers = 2
rounds = 5
every = 1
x0 = {}

[[method]]
label = "GD"
method = "gd"
tune = [0, 1]
"""
X0 = np.array([1.0, -2.0, 0.1, 3.0])


def suite(x0):
    return parse_suite(SUITE.format(x0))


def rows(comparison):
    return [(row.round, row.f, row.grad_norm_sq) for o in comparison.outcomes for row in o.rows]


def header(descr, entries):
    """A .npy file's header that announces so many entries of a type."""
    text = io.BytesIO()
    np.lib.format.write_array_header_1_0(text, {"descr": descr, "fortran_order": False, "shape": (entries,)})
    return text.getvalue()


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x0.npy", X0)
    return tmp_path / "x0.npy"


def test_runs_and_tuning_start_there(file):
    by_file, by_list = compare(suite(f'"{file}"'), None), compare(suite(X0.tolist()), None)
    gamma = by_file.tunings["GD"].best.gamma
    problem = Quadratics(d=4, noise=0.5, lam=0.1)
    alone = mpicomp.run(GD(gamma=gamma), problem, workers=2, rounds=5, every=1, x0=X0)
    assert rows(by_file) == rows(by_list) == [(r.round, r.f, r.grad_norm_sq) for r in alone.rows]
    assert rows(by_file) != rows(compare(parse_suite(SUITE.replace("x0 = {}", "")), None))


def test_from_python_it_may_be_an_array():
    problem = Quadratics(d=4, noise=0.5, lam=0.1)
    found = mpicomp.compare({"GD": GD(gamma=0.1)}, problem, workers=2, rounds=5, every=1, x0=X0)
    alone = mpicomp.run(GD(gamma=0.1), problem, workers=2, rounds=5, every=1, x0=X0)
    assert rows(found) == [(r.round, r.f, r.grad_norm_sq) for r in alone.rows]


def test_each_case_may_have_its_own():
    study = parse(
        SUITE.format([0.0] * 4) + f'\n[[case]]\nlabel = "a"\n\n[[case]]\nlabel = "b"\nx0 = {X0.tolist()}\n'
    )
    assert [case.suite.x0 for case in study.cases] == [(0.0,) * 4, tuple(X0)]


def test_another_start_is_not_continued(file, tmp_path):
    text, out = f'"{file}"', tmp_path / "out"
    compare(suite(text), out)
    compare(suite(text), out, resume=True)
    np.save(file, 2 * X0)
    with pytest.raises(RecordError, match=r"started elsewhere: at an x0 of sha256 .* Put x0 back"):
        compare(suite(text), out, resume=True)


@pytest.mark.parametrize(
    ("x0", "said"),
    [
        ('"nowhere.npy"', "^x0: cannot read nowhere.npy: No such file or directory. Give"),
        ('"{file}.txt"', r"^x0: cannot read .*\.txt: .*\. Give a file that numpy\.save wrote\.$"),
        ('"{file}.claims"', r"^x0: cannot read .*claims: .*\. Give a file that numpy\.save wrote\.$"),
        ('"{file}.npz"', r"^x0: cannot read .*npz: .*\. Give a file that numpy\.save wrote\.$"),
        ('"{file}.void"', r"^x0: .* holds an array of type \|V0; allowed: numbers\. Give a file"),
        ("[1.0, 2.0]", r"x0 has shape \(2,\) and type float64; expected floats"),
        ('["a", "b", "c", "d"]', "allowed: a file that numpy.save wrote, or numbers"),
        ("3", "x0 = 3"),
    ],
)
def test_what_is_no_start_is_refused(file, x0, said):
    file.with_suffix(".npy.txt").write_text("1 2 3 4")
    file.with_suffix(".npy.claims").write_bytes(header("<f8", 10**15) + bytes(32))
    file.with_suffix(".npy.void").write_bytes(header("|V0", 10**12))
    np.savez(file.with_suffix(".npy.npz"), X0)
    with pytest.raises(ConfigError, match=said):
        compare(suite(x0.format(file=file)), None)


def test_on_ranks_it_is_the_same(file, tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(SUITE.format(f'"{file}"'))
    for ranks in (1, 2):
        done = command("compare", str(path), "--out", str(tmp_path / str(ranks)), "--ranks", str(ranks))
        assert done.returncode == 0, done.stderr
    one, two = ((tmp_path / n / "table.json").read_text() for n in ("1", "2"))
    assert one.split('"seconds"')[0] == two.split('"seconds"')[0]
