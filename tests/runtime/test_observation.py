"""What a run observes: after which rounds, on which samples, and who is told; and where it begins."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from mpicomp import DCGD, EF21, GD, MARINA, MCM, PermK, RandK, TopK
from mpicomp.base.errors import ConfigError, DivergedError, RecordError
from mpicomp.keys import Key
from mpicomp.lab.experiment.report import plot_files
from mpicomp.lab.experiment.run_tables import summary_table
from mpicomp.problems import Logistic, Objective, Problem, Quadratics
from mpicomp.runtime.callbacks import together
from mpicomp.runtime.observation import Observation
from mpicomp.runtime.rows import read_rows
from tests.support.running import PROBLEM, N, every_method, interrupted, outcome, outcome_of, run

SAMPLES = Logistic(data="breast_cancer", lam=1e-3)
AT = [1, 2, 10, 27]


def rounds_of(result):
    return [row.round for row in result.rows]


# --- after which rounds ---


@every_method
def test_rows_after_the_rounds_that_were_asked_for(method):
    """They are the rows of the run that is observed every round."""
    result, rounds = run(method, at=AT), [0, *AT, 40]
    assert rounds_of(result) == rounds
    assert outcome(result) == outcome_of(method, rounds)


@pytest.mark.parametrize("at", [(27, 1, 10, 2, 1), np.array(AT), [0, *AT, 40, 1000]], ids=str)
def test_their_order_repetitions_and_rounds_beyond_the_end_do_not_matter(at):
    assert outcome(run(at=at)) == outcome(run(at=AT))


def test_none_between_the_start_and_the_end():
    assert rounds_of(run(at=[])) == [0, 40]


@pytest.mark.parametrize("stopped", [1, 2, 5, 10, 27, 39])
def test_a_resumed_run_has_the_rows_of_the_uninterrupted(stopped, tmp_path):
    interrupted(stopped, at=AT, out=tmp_path / "run")
    assert outcome(run(at=AT, out=tmp_path / "run", resume=True)) == outcome(run(at=AT))


def test_a_limit_is_checked_at_these_rows():
    each = run(GD(), every=1)
    assert run(GD(), at=AT, target_grad_norm_sq=each.rows[3].grad_norm_sq).rows[-1].round == 10


@pytest.mark.parametrize("at", ["1,2", 5, [1, 2.5], [-1], [True], ["1"]], ids=repr)
def test_what_names_no_rounds_is_refused(at):
    with pytest.raises(ConfigError, match=r"at="):
        run(at=at)


def test_every_and_at_together_are_refused():
    with pytest.raises(ConfigError, match=r"every=5 and at=\[1, 2\]: both say when"):
        run(every=5, at=[1, 2])


# --- the norm of the model ---


@pytest.mark.parametrize("method", [GD(), MCM(RandK(3), RandK(9))], ids=lambda m: type(m).__name__)
def test_a_row_has_the_norm_of_the_observed_model(method):
    seen = []
    result = run(method, every=7, callback=lambda round, row, x: seen.append((row.x_norm, x.copy())))
    assert seen[-1][1].tobytes() == result.x.tobytes()
    for norm, x in seen:
        assert norm == np.sqrt(np.sum(x**2)) and norm == pytest.approx(np.linalg.norm(x), rel=1e-14)


def test_a_table_of_a_version_without_the_norm_is_read_and_resumed(tmp_path):
    run(every=10, out=tmp_path / "run")
    path = tmp_path / "run" / "rows.csv"
    lines = path.read_text().splitlines()
    path.write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))
    assert not path.read_text().splitlines()[0].endswith("x_norm")
    rows = read_rows(path)
    assert [row.round for row in rows] == [0, 10, 20, 30, 40] and {row.x_norm for row in rows} == {None}
    more = run(rounds=60, out=tmp_path / "run", resume=True)
    assert read_rows(path) == more.rows and more.rows[-1].x_norm > 0
    assert plot_files([tmp_path / "run"])[0].exists()


# --- on which samples ---


@pytest.mark.parametrize("m", [1, 7, 100])
def test_f_and_its_gradient_on_a_sample_of_each_worker(m):
    """The same samples in all rows, other ones with another seed; bytes and iterates are as ever."""
    seen = []
    result = run(problem=SAMPLES, observe=m, callback=lambda round, row, x: seen.append((row, x.copy())))
    functions = [SAMPLES.objective(i, N) for i in range(N)]
    streams = [Key(3, 0, i, N).private("observation") for i in range(N)]
    rows = [np.sort(s.permutation(f.samples, 0, m)) for f, s in zip(functions, streams, strict=True)]
    parts = [f.part(chosen) for f, chosen in zip(functions, rows, strict=True)]
    for row, x in seen:
        assert row.f == pytest.approx(np.mean([part.value(x) for part in parts]), rel=1e-12)
        gradient = np.mean([part.grad(x) for part in parts], axis=0)
        assert row.grad_norm_sq == pytest.approx(np.sum(gradient**2), rel=1e-12)
    full = run(problem=SAMPLES)
    assert outcome(result)[:-1] == outcome(full)[:-1]
    same = {"f": 0.0, "grad_norm_sq": 0.0}
    assert [replace(row, **same) for row in outcome(result)[-1]] == [
        replace(row, **same) for row in outcome(full)[-1]
    ]
    assert result.rows[0].grad_norm_sq != run(problem=SAMPLES, observe=m, seed=4).rows[0].grad_norm_sq


def test_a_sample_of_all_is_all():
    assert outcome(run(problem=SAMPLES, observe=10**6)) == outcome(run(problem=SAMPLES))


def test_a_sampled_objective_has_the_gradient_of_the_batch():
    f, stream = SAMPLES.objective(0, N), Key(1, 2, 0, N).private("any")
    x = np.linspace(-1, 1, SAMPLES.dimension())
    assert f.sampled(9, stream).grad(x).tobytes() == f.batch_grad(x, 9, stream).tobytes()
    assert f.sampled(f.samples, stream) is f
    with pytest.raises(ConfigError, match="allowed: 1 to"):
        f.sampled(f.samples + 1, stream)


class Batches(Objective):
    """It has gradients of batches, and no values of them."""

    samples = 5

    def value(self, x):
        return float(x @ x / 2)

    def grad(self, x):
        return x.copy()

    def batch_grad(self, x, b, stream):
        return x.copy()


class Own(Problem):
    def __init__(self, kind):
        self.kind = kind

    def dimension(self):
        return 3

    def x0(self):
        return np.ones(3)

    def objective(self, i, n):
        return self.kind()


def test_a_sample_is_refused_where_there_are_no_samples():
    with pytest.raises(ConfigError, match=r"observe=5, and .* has no samples .* observe='full'"):
        run(observe=5)
    with pytest.raises(ConfigError, match=r"Batches does not define sampled\(b, stream\)"):
        run(GD(gamma=0.1), problem=Own(Batches), observe=3)
    assert run(GD(gamma=0.1), problem=Own(Batches), observe=5).rows[0].f == 1.5  # all of them


@every_method
def test_rows_without_f_have_all_the_rest(method):
    bare, full = run(method, observe="never"), outcome_of(method)
    assert outcome(bare)[:-1] == full[:-1]
    empty = [replace(row, f=None, grad_norm_sq=None) for row in full[-1]]
    assert outcome(bare)[-1] == empty


def test_nothing_is_evaluated_where_f_is_never_observed():
    class Counted(Batches):
        def value(self, x):
            raise AssertionError("f was evaluated")

    result = run(GD(gamma=0.1), problem=Own(Counted), observe="never", every=1)
    assert result.rows[-1].epochs == 40  # the method's own gradients


def test_the_record_of_a_run_without_f(tmp_path):
    """None in memory, empty in the table, null in JSON; plots say what is missing."""
    result = run(observe="never", out=tmp_path / "run")
    assert read_rows(tmp_path / "run" / "rows.csv") == result.rows
    line = (tmp_path / "run" / "rows.csv").read_text().splitlines()[-1].split(",")
    assert line[:3] == ["40", "", ""]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["f"], summary["grad_norm_sq"], summary["observe"]) == (None, None, "never")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["asked"]["observe"] == "never"
    assert "not observed (observe = never)" in list(summary_table(summary).columns[1].cells)
    with pytest.raises(RecordError, match="observe = never"):
        plot_files([tmp_path / "run"])


def test_the_outcome_says_on_how_many_samples_f_is():
    summary = run(problem=SAMPLES, observe=12).summary()
    said = list(summary_table(summary).columns[1].cells)
    assert any(text.endswith("f on 12 samples of each worker") for text in said)
    assert not any("samples" in text for text in summary_table(run().summary()).columns[1].cells)


def test_a_target_for_what_is_not_observed_is_refused():
    with pytest.raises(ConfigError, match=r"observe='never' leaves .* Give observe a number of samples"):
        run(observe="never", target_grad_norm_sq=1e-3)
    assert run(observe="never", max_bytes=1).status == "max_bytes"


def test_divergence_is_noticed_without_f_where_a_gradient_is_not_finite():
    with pytest.raises(DivergedError, match="the gradient is not finite"):
        run(GD(gamma=1e99, values="f8"), observe="never", rounds=1000, every=1000)


@pytest.mark.parametrize("observe", [12, "never"])
def test_what_was_observed_is_observed_when_resumed(observe, tmp_path):
    interrupted(17, problem=SAMPLES, observe=observe, out=tmp_path / "run")
    with pytest.raises(RecordError, match=f"observe is {observe} there and not given here"):
        run(problem=SAMPLES, out=tmp_path / "run", resume=True)
    last = run(problem=SAMPLES, observe=observe, out=tmp_path / "run", resume=True)
    assert outcome(last) == outcome(run(problem=SAMPLES, observe=observe))


@pytest.mark.parametrize("observe", ["none", 0, -3, 2.5, True, None, [1]], ids=repr)
def test_what_cannot_be_observed_is_refused(observe):
    with pytest.raises(ConfigError, match=r"observe="):
        Observation(observe=observe)


# --- the callback ---


def test_a_callback_is_told_each_row_and_the_model():
    told = []
    result = run(at=AT, callback=lambda *one: told.append((*one[:2], one[2].copy())))
    assert [row for _, row, _ in told] == result.rows
    assert [round for round, _, _ in told] == [0, *AT, 40]
    assert told[0][2].tobytes() == PROBLEM.x0().tobytes() and told[-1][2].tobytes() == result.x.tobytes()


@pytest.mark.parametrize("answer", [True, np.True_], ids=["bool", "numpy"])
@pytest.mark.parametrize("end", [0, 20, 40])
def test_a_callback_ends_the_run(end, answer):
    result = run(callback=lambda round, row, x: answer if round == end else None)
    assert (result.status, rounds_of(result)) == ("callback", list(range(0, end + 1, 10)))
    if end:
        assert outcome(result) == outcome(run(rounds=end))


@pytest.mark.parametrize("answer", [1, "stop", [0], np.ones(3), False], ids=repr)
def test_another_answer_does_not(answer):
    assert run(callback=lambda round, row, x: answer).status == "rounds"


def test_a_run_that_a_callback_has_ended_can_be_resumed(tmp_path):
    run(out=tmp_path / "run", callback=lambda round, row, x: round == 20)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "callback"
    assert outcome(run(out=tmp_path / "run", resume=True)) == outcome(run())


def test_the_model_is_read_only():
    def write(round, row, x):
        x[0] = 1.0

    with pytest.raises(ValueError, match="read-only"):
        run(callback=write)


def test_an_error_of_a_callback_ends_the_run():
    def fail(round, row, x):
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        run(callback=fail)
    with pytest.raises(ConfigError, match=r"callback=3; allowed: a function"):
        run(callback=3)


def test_a_callback_whose_code_a_call_would_not_run_is_refused():
    async def coroutine(*args):
        raise AssertionError("not reached")

    def generator(*args):
        yield coroutine

    class Called:
        async def __call__(self, *args):
            raise AssertionError("not reached")

    for later in (coroutine, generator, Called()):
        for name in ("callback", "progress"):
            with pytest.raises(ConfigError, match=f"^{name}=.* function.* without async and yield"):
                run(**{name: later})
        with pytest.raises(ConfigError, match=r"^together=.* without async and yield"):
            together(print, later)


# --- the starting point ---


@every_method
def test_a_run_begins_at_the_point_that_it_is_given(method):
    x0 = np.linspace(-1, 1, 13)

    class There(Quadratics):
        def x0(self):
            return x0

    there = There(d=13, noise=0.4, lam=0.01)
    assert outcome(run(method, x0=x0)) == outcome(run(method, problem=there)) != outcome_of(method)


def test_the_point_that_the_problem_has_may_be_given():
    assert outcome(run(x0=PROBLEM.x0())) == outcome(run())


def test_the_starting_point_is_in_the_record_and_has_to_be_the_same_when_resumed(tmp_path):
    x0 = np.linspace(-1, 1, 13)
    interrupted(17, x0=x0, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert config["x0"] == f"sha256 {sha256(x0.tobytes()).hexdigest()}"
    for other in (None, x0 + 1):
        with pytest.raises(RecordError, match="belongs to another run: x0 is sha256"):
            run(x0=other, out=tmp_path / "run", resume=True)
    assert outcome(run(x0=x0, out=tmp_path / "run", resume=True)) == outcome(run(x0=x0))


@pytest.mark.parametrize(
    ("x0", "said"),
    [
        (np.zeros(12), r"x0 has shape \(12,\)"),
        (np.zeros((13, 1)), r"x0 has shape \(13, 1\)"),
        (np.zeros(13, dtype=int), "type int64; expected floats"),
        (np.full(13, np.nan), "x0 is not finite in 13 of its 13"),
        ("origin", r"x0 has shape \(\)"),
    ],
    ids=["short", "matrix", "integers", "nan", "text"],
)
def test_what_is_no_starting_point_is_refused(x0, said):
    with pytest.raises(ConfigError, match=said):
        run(x0=x0)


@pytest.mark.parametrize(
    "method", [DCGD(RandK(5)), EF21(TopK(3)), MARINA(PermK(), p=0.2)], ids=lambda m: type(m).__name__
)
def test_the_given_point_is_not_written_to(method):
    x0 = np.ones(13)
    run(method, x0=x0)
    assert (x0 == 1).all()
