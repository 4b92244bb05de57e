"""A comparison whose rows are chosen: after which rounds, and on how many samples."""

from __future__ import annotations

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.report import publish
from mpicomp.lab.experiment.study import parse
from mpicomp.lab.experiment.suite_file import parse_suite

SUITE = """
problem = "logistic(data=breast_cancer, lam=1e-3)"
workers = 3
rounds = 60
at = [5, 20]
observe = 40

[[method]]
method = "gd"
tune = [0, 1]

[[method]]
method = "diana(randk(k=5))"
"""


def test_its_runs_have_these_rows_and_are_kept_when_resumed(tmp_path):
    suite = parse_suite(SUITE)
    assert (suite.observation.at, suite.observation.observe) == ((5, 20), 40)
    done = compare(suite, tmp_path)
    assert [[row.round for row in outcome.rows] for outcome in done.outcomes] == [[0, 5, 20, 60]] * 2
    assert {outcome.summary["observe"] for outcome in done.outcomes} == {40}
    assert compare(suite, tmp_path, resume=True) == done
    publish(tmp_path)
    assert "f and ∇f are of 40 samples of each worker." in (tmp_path / "table.md").read_text()
    assert (tmp_path / "figure.png").exists()


def test_rows_far_apart_are_said_to_make_costs_too_high(tmp_path):
    compare(parse_suite(SUITE.replace("rounds = 60", "rounds = 60\ntarget_grad_norm_sq = 0.5")), tmp_path)
    publish(tmp_path)
    assert "Observed after few rounds: costs of" in (tmp_path / "table.md").read_text()


def test_what_a_comparison_cannot_do_without_is_refused():
    with pytest.raises(ConfigError, match="a comparison tunes and draws by f"):
        parse_suite(SUITE.replace("observe = 40", 'observe = "never"'))
    with pytest.raises(ConfigError, match="every and at: both say when"):
        parse_suite(SUITE.replace("observe = 40", "every = 5"))
    for wrong in ("at = [0.5]", "at = ['1']", "at = 5"):
        with pytest.raises(ConfigError, match=r"at ?="):
            parse_suite(SUITE.replace("at = [5, 20]", wrong))


def test_rounds_in_any_order_are_those_of_the_record(tmp_path):
    suite = parse_suite(SUITE.replace("at = [5, 20]", "at = [20, 5, 5]"))
    assert suite == parse_suite(SUITE)
    compare(suite, tmp_path)
    compare(suite, tmp_path, resume=True)


def test_a_case_of_a_study_has_its_own_rows():
    case = '[[case]]\nlabel = "one"\nproblem = "quadratics(d=5)"\n'
    methods = '[[method]]\nmethod = "gd"\n'
    (own,) = parse(f"workers = 2\nrounds = 9\nevery = 5\n{case}at = [1, 2]\n{methods}").cases
    assert own.suite.options()["at"] == [1, 2]
    (own,) = parse(f"workers = 2\nrounds = 9\nat = [3]\n{case}every = 4\n{methods}").cases
    assert own.suite.options()["every"] == 4 and own.suite.observation.at is None
