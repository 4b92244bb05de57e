"""Interrupts from Python: what a run, a comparison and a tuning keep."""

from __future__ import annotations

import signal
from dataclasses import asdict

import pytest

import mpicomp
from mpicomp import EF21, GD, Interrupted, TopK
from mpicomp.problems import Quadratics

QUADRATICS = Quadratics(d=20, noise=0.5, lam=0.1)
METHODS = {"GD": GD(gamma=0.2), "EF21": EF21(TopK(k=5), gamma=0.1)}
SETTINGS = {"workers": 4, "rounds": 20, "every": 5}


def measured(rows):
    return [asdict(row) | {"seconds": 0} for row in rows]


def outcomes(comparison):
    return [(o.label, o.seed, measured(o.rows), o.summary["status"]) for o in comparison.outcomes]


def strike_in_round(number: int):
    """Progress that interrupts as Ctrl-C does, after that round."""
    return lambda round, row: signal.raise_signal(signal.SIGINT) if round == number else None


def test_an_interrupted_run_is_the_run_so_far():
    """The signal comes after round 7 and is heeded with the broadcast of the next one."""
    whole = mpicomp.run(METHODS["EF21"], QUADRATICS, **SETTINGS | {"rounds": 8})
    part = mpicomp.run(METHODS["EF21"], QUADRATICS, progress=strike_in_round(7), **SETTINGS)
    assert part.status == "interrupted" and part.rows[-1].round == 8
    assert part.iterates_sha256 == whole.iterates_sha256 and (part.x == whole.x).all()
    assert measured(part.rows) == measured(whole.rows)
    assert "8 rounds, status 'interrupted'" in repr(part)


class Struck(Quadratics):
    """Receives the signal ``number`` as the first objective is made; counts the objectives."""

    number, made = signal.SIGINT, 0

    def objective(self, i, n):
        type(self).made += 1
        if i == 0:
            signal.raise_signal(self.number)
        return super().objective(i, n)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_before_the_first_round_is_heeded_at_once(number, monkeypatch):
    """Many workers take minutes to make; there is nothing to save yet."""
    heard: list[int] = []

    def leave(number, frame):
        heard.append(number)
        raise SystemExit

    monkeypatch.setattr(Struck, "number", number)
    monkeypatch.setattr(Struck, "made", 0)
    before = signal.signal(number, leave)
    try:
        with pytest.raises(SystemExit):
            mpicomp.run(METHODS["GD"], Struck(d=20), **SETTINGS)
        assert signal.getsignal(number) is leave
        monkeypatch.setattr(Struck, "made", -1)
        signal.signal(number, lambda number, frame: heard.append(number))  # and goes on
        run = mpicomp.run(METHODS["GD"], Struck(d=20), **SETTINGS)
    finally:
        signal.signal(number, before)
    assert (run.status, run.rows[-1].round, heard) == ("interrupted", 1, [number, number])
    assert Struck.made == -1 + SETTINGS["workers"]


def test_an_interrupt_at_the_start_keeps_its_row():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(Interrupted) as caught:
            mpicomp.run(METHODS["GD"], QUADRATICS, callback=lambda *row: signal.raise_signal(2), **SETTINGS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [row.round for row in caught.value.so_far] == [0]


def test_a_second_interrupt_keeps_the_rows(monkeypatch):
    monkeypatch.setattr("mpicomp.runtime.signals._TOGETHER", -1.0)  # two signals are two requests
    before = signal.getsignal(signal.SIGINT)  # a shell ignores it for what it runs in the background

    def strike_twice(round, row):
        if round == 12:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        mpicomp.run(METHODS["GD"], QUADRATICS, progress=strike_twice, **SETTINGS)
    whole = mpicomp.run(METHODS["GD"], QUADRATICS, **SETTINGS)
    assert measured(caught.value.so_far) == measured(whole.rows[:3])
    assert str(caught.value) == "so_far of this exception keeps 3 rows"
    assert isinstance(caught.value, KeyboardInterrupt) and type(caught.value.__cause__) is KeyboardInterrupt
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_of_ones_own_code_keeps_the_rows():
    def stop(round, row, x):
        if round == 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        mpicomp.run(METHODS["GD"], QUADRATICS, callback=stop, **SETTINGS)
    assert [row.round for row in caught.value.so_far] == [0, 5, 10]


@pytest.mark.parametrize("kept", [False, True])
def test_an_interrupted_comparison_keeps_the_runs_that_ended(kept, tmp_path):
    def strike(stage, round, row):
        if (stage.number, round) == (3, 10):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        out = tmp_path / "out" if kept else None
        mpicomp.compare(METHODS, QUADRATICS, seeds=range(2), progress=strike, out=out, **SETTINGS)
    whole = mpicomp.compare(METHODS, QUADRATICS, seeds=range(2), **SETTINGS)
    assert outcomes(caught.value.so_far) == outcomes(whole)[:2]
    assert "2 of 4 runs ended" in str(caught.value)
    if kept:
        finished = mpicomp.compare(METHODS, QUADRATICS, seeds=range(2), out=out, resume=True, **SETTINGS)
        assert outcomes(finished) == outcomes(whole)


def test_an_interrupt_while_a_comparison_tunes_keeps_the_runs_before(monkeypatch):
    def strike(stage, round, row):
        if (stage.number, round) == (4, 10):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        mpicomp.compare(
            METHODS, QUADRATICS, seeds=range(2), tune={"EF21": (0, 2)}, progress=strike, **SETTINGS
        )
    assert [(o.label, o.seed) for o in caught.value.so_far.outcomes] == [("GD", 0), ("GD", 1)]
    assert caught.value.so_far.tunings == {}


def test_an_interrupted_tuning_keeps_the_steps_that_were_tried():
    def strike(stage, round, row):
        if (stage.number, round) == (3, 10):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        mpicomp.tune(METHODS["GD"], QUADRATICS, exponents=(-3, 0), progress=strike, **SETTINGS)
    whole = mpicomp.tune(METHODS["GD"], QUADRATICS, exponents=(-3, 0), **SETTINGS)
    start = next(i for i, trial in enumerate(whole.trials) if trial.exponent == 0)
    assert caught.value.so_far.trials == whole.trials[start : start + 2]
