"""Runs that go on after they have lost workers."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console

import mpicomp
from mpicomp import GD, PPMARINA, RandK
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.keys import Key
from mpicomp.lab.experiment.run_tables import summary_table
from mpicomp.lab.jobs.launcher import find_launcher
from mpicomp.problems.base import Problem
from mpicomp.problems.objective import Objective
from mpicomp.runtime.rows import read_rows
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.transports import header
from mpicomp.transports.header import GarbledError
from tests.support.fault_injection import METHODS, OPTIONS, PROBLEM, Strike, struck
from tests.support.launching import TESTS
from tests.support.launching import mpicomp as command
from tests.support.rank_loss import Died, Losing, lose, outlive
from tests.support.running import outcome

LOSSES = {11: [2, 5], 20: [0]}


@pytest.fixture(autouse=True)
def _ulfm(request):
    """A job whose rank dies ends, but for Open MPI 5 with ULFM."""
    if request.node.get_closest_marker("jobs") is not None:
        launcher = find_launcher()  # without any the test fails
        try:
            launcher.surviving()
        except ConfigError as error:
            pytest.skip(str(error))


@dataclass(frozen=True)
class Left(Problem):
    """What is left of ``problem`` for n workers when only the ``crew`` works, to be begun at ``start``."""

    problem: Problem
    n: int
    crew: tuple[int, ...]
    start: tuple[float, ...]

    def dimension(self) -> int:
        return len(self.start)

    def objective(self, i: int, n: int):
        return self.problem.objective(self.crew[i], self.n)

    def x0(self) -> Array:
        return np.array(self.start)


# --- the mathematics: from the loss on it is the method, begun at that iterate, for those that are left ---


@pytest.mark.parametrize("heard", [0, 1, 8])
@pytest.mark.parametrize("method", METHODS.values())
def test_after_a_loss_the_method_begins_anew_for_those_that_are_left(method, heard):
    """However many messages of the round had arrived, or the server had made its step, when the loss came."""
    n, seed = OPTIONS["workers"], 3
    before = lose(method, {}, rounds=11, seed=seed)
    after = lose(method, {11: [2, 5]}, heard, seed=seed)
    crew = tuple(i for i in range(n) if i not in (2, 5))
    anew = Key(seed, 11, None, 0).shared("loop/begun").below(2**64)
    left = Left(parse_problem(PROBLEM), n, crew, tuple(before.x))
    rest = mpicomp.run(before.method, left, workers=6, rounds=19, every=19, seed=anew)
    assert np.array_equal(after.x, rest.x)
    assert (after.rows[-1].f, after.rows[-1].grad_norm_sq) == (rest.rows[-1].f, rest.rows[-1].grad_norm_sq)
    assert [row.round for row in after.rows] == [0, 4, 8, 11, 12, 16, 20, 24, 28, 30]


def test_a_second_loss_while_the_others_begin_anew_is_as_one_loss_of_all():
    method = METHODS["ppmarina"]
    together, apart = lose(method, {11: [2, 5]}), lose(method, {11: [2]}, later=(5,))
    assert apart.iterates_sha256 == together.iterates_sha256
    assert apart.lost == together.lost
    assert (apart.ledger.up == together.ledger.up).all() and (apart.ledger.down == together.ledger.down).all()


def test_a_loss_after_a_row_makes_another_of_the_same_round_for_those_that_are_left():
    after = lose("gd(gamma=0.1)", {12: [2]})
    assert [row.round for row in after.rows] == [0, 4, 8, 12, 12, 16, 20, 24, 28, 30]
    with_all, without = after.rows[3:5]
    assert with_all.f != without.f and without.down_bytes - with_all.down_bytes == 7 * after.x.nbytes


def test_the_ledger_goes_on_without_the_lost_and_charges_the_iterate_that_the_others_are_sent():
    """Identity messages of d float32 and a dense broadcast of float64, so every byte is known."""
    method = "gd(gamma=0.1)"
    whole, after = lose(method, {}), lose(method, {11: [2, 5]})
    up, down = int(whole.ledger.up[0]), int(whole.ledger.down[0])
    lost = [2, 5]
    left = [i for i in range(8) if i not in lost]
    assert (after.ledger.up[left] == up).all()
    assert (after.ledger.up[lost] * 30 == 11 * up).all()
    assert (after.ledger.down[left] == down + after.x.nbytes).all()
    assert (after.ledger.down[lost] * 30 == 11 * down).all()
    in_rounds = whole.ledger.paper_bits_down * (11 * 8 + 19 * 6) // (30 * 8)
    assert after.ledger.paper_bits_down == in_rounds + 32 * after.x.size * 6


def test_partial_participation_goes_on_with_a_fraction_of_those_that_are_left():
    after = lose("ppmarina(Q=randk(k=5), r=0.5, gamma=0.001, p=0.2)", LOSSES)
    assert [row.round for row in after.rows if row.round % 4 and row.round < 30] == [11]
    assert [(one["round"], one["workers"]) for one in after.lost] == [(11, [2]), (11, [5]), (20, [0])]
    assert (after.ledger.up[[1, 3, 4, 6, 7]] > after.ledger.up[[2, 5, 0]].max()).all()


def test_more_clients_a_round_than_are_left_is_an_error():
    with pytest.raises(ConfigError, match="r=8 of 7 workers"):
        lose("ppmarina(Q=randk(k=5), r=8, gamma=0.001, p=0.2)", {20: [0]})


# --- the target ---


@dataclass(frozen=True)
class Lifted(Problem):
    """f_i(x) = |x|²/2 + h_i, begun at x = 1."""

    heights: tuple[float, ...]

    def dimension(self) -> int:
        return 3

    def objective(self, i: int, n: int):
        return Bowl(self.heights[i])

    def x0(self) -> Array:
        return np.ones(3)


@dataclass(frozen=True)
class Bowl(Objective):
    height: float

    def value(self, x: Array) -> float:
        return float(x @ x) / 2 + self.height

    def grad(self, x: Array) -> Array:
        return x.copy()


def test_after_a_loss_the_target_counts_from_where_the_others_began_anew():
    """The lost worker's part of f was so low that f of the others is above f(x⁰) for ever."""
    problem = Lifted((0.0, 0.0, -100.0, 0.0))
    options = {"workers": 4, "rounds": 40, "target_grad_norm_sq": 1e-6}
    seen = mpicomp.run(GD(gamma=0.5), problem, transport=Losing(4, {3: [2]}), **options)
    assert [one["workers"] for one in seen.lost] == [[2]]
    assert seen.status == "target" and seen.rows[-1].f > seen.rows[0].f


# --- the record, and the way back ---


def test_the_record_says_when_and_who_and_a_resumed_run_has_everybody_back(tmp_path):
    method, folder = METHODS["marina"], tmp_path / "run"
    seen = lose(method, LOSSES, rounds=24, out=folder)
    entries = [
        {"round": 11, "rank": 2, "host": "here", "workers": [2]},
        {"round": 11, "rank": 5, "host": "here", "workers": [5]},
        {"round": 20, "rank": 0, "host": "here", "workers": [0]},
    ]
    assert seen.lost == entries
    assert json.loads((folder / "run.json").read_text())["lost"] == entries
    assert json.loads((folder / "summary.json").read_text())["lost"] == entries

    again = lose(method, {}, out=folder, resume=True)
    assert again.lost == [one | {"back": 24} for one in entries]
    anew = Key(0, 24, None, 0).shared("loop/begun").below(2**64)
    everybody = Left(parse_problem(PROBLEM), 8, tuple(range(8)), tuple(seen.x))
    rest = mpicomp.run(seen.method, everybody, workers=8, rounds=6, every=6, seed=anew)
    assert np.array_equal(again.x, rest.x)


def test_a_loss_after_the_last_checkpoint_is_in_the_one_at_the_end(tmp_path):
    """The last checkpoint and the one at the end are of the same round."""
    transport, asked = Losing(8, {}), []

    def collect(value):
        if transport.activity == "checkpoint after round 10":
            asked.append(value)
            if len(asked) == 2:  # the first is for the checkpoint, this one compares the replicas
                transport.dying = [2]
                raise Died
        return [value]

    transport.collect = collect
    method, problem = parse_method(METHODS["marina"]), parse_problem(PROBLEM)
    options = {"workers": 8, "checkpoint_every": 5, "out": tmp_path / "run"}
    seen = mpicomp.run(method, problem, rounds=10, transport=transport, **options)
    assert [one["workers"] for one in seen.lost] == [[2]]
    again = mpicomp.run(method, problem, rounds=14, resume=True, **options)
    assert again.lost == [{"back": 10} | one for one in seen.lost]


def test_a_loss_that_no_checkpoint_has_seen_leaves_no_row_in_the_resumed_run(tmp_path):
    """The loss comes after the row and the checkpoint of round 12, and the run is killed before the next."""
    method, options = METHODS["marina"], {"checkpoint_every": 4}

    def die(round, row):
        if round == 15:
            raise ZeroDivisionError

    whole = lose(method, {}, out=tmp_path / "whole", **options)
    with pytest.raises(ZeroDivisionError):
        lose(method, {12: [2], 13: [5]}, out=tmp_path / "run", progress=die, **options)
    rows = read_rows(tmp_path / "run" / "rows.csv")
    assert [row.round for row in rows] == [0, 4, 8, 12, 12, 13]
    again = lose(method, {}, out=tmp_path / "run", resume=True, **options)
    assert again.lost == []
    assert outcome(again) == outcome(whole)


def test_the_summary_says_whose_values_are_missing(capsys):
    def without(summary):
        Console(width=300).print(summary_table(summary))
        lines = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        return [rest.strip() for name, rest in lines if name == "without"]

    summary = lose(METHODS["marina"], LOSSES, rounds=24).summary()
    assert without(summary) == ["worker 2 after round 11; worker 5 after round 11; worker 0 after round 20"]
    back = {"round": 11, "workers": [2, 5], "back": 22}
    assert without(summary | {"lost": [back]}) == ["workers 2, 5 after round 11 to 22"]
    assert without(summary | {"lost": [{"round": 11, "workers": []}]}) == []


def test_a_run_that_was_begun_anew_is_resumed_bit_for_bit(tmp_path):
    """From a checkpoint that everybody is in again, so that nothing has to begin anew."""
    method, options = METHODS["marina"], {"checkpoint_every": 5}
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        lose(method, {11: [2]}, rounds=15, out=folder, **options)
    whole = lose(method, {}, rounds=30, out=tmp_path / "whole", resume=True)
    lose(method, {}, rounds=20, out=tmp_path / "parts", resume=True)
    assert lose(method, {}, rounds=30, out=tmp_path / "parts", resume=True).iterates_sha256 == (
        whole.iterates_sha256
    )


# --- on real ranks ---


PARTIAL = "ppmarina(Q=randk(k=5), r=0.5, gamma=0.001, p=0.2)"


@pytest.mark.parametrize("phase", ["gradient", "compress", "replica_step", "observe", "part"])
def test_the_others_go_on_when_a_rank_is_killed(phase, tmp_path):
    outlive(Strike(PARTIAL, phase, "kill", 2, round=13), tmp_path / "run")


def test_the_others_go_on_when_a_rank_is_killed_at_its_own_message(tmp_path):
    outlive(Strike(METHODS["marinap"], "receive", "kill", 2, round=13), tmp_path / "run")


@pytest.mark.parametrize(("phase", "rank"), [("server", 0), ("data", 1)])
def test_without_the_server_or_before_the_run_has_begun_the_job_ends(phase, rank, tmp_path):
    strike = Strike(PARTIAL, phase, "kill", rank, round=13)
    outcome = struck(strike, tmp_path / "run", 4, launched=True, on_failure="shrink")
    assert outcome.status != 0
    assert outcome.said.count(f"rank {rank} on ") == 1 and "died. The job ends" in outcome.said


@pytest.mark.parametrize("met", ["other", "bytes", "garbled"])
def test_an_error_that_a_death_is_behind_is_survived_whatever_it_says(met):
    expect_outlived(met)


def test_a_garbled_broadcast_that_no_death_is_behind_ends_the_job():
    done = command("launch", "--ranks", "3", "--on-failure", "shrink", OUTLIVED, "garbled", "alone")
    assert done.returncode == 1
    assert done.stderr.count("mpicomp: rank 2 failed") == 1, done.stderr
    assert done.stderr.count("GarbledError: a broadcast has come garbled, and no rank is known") == 1


@pytest.mark.parametrize("length", [0, 1, 1000])
def test_a_header_that_is_not_as_it_was_sent_is_refused(length):
    message = np.arange(length, dtype=np.uint8)
    head = header.write(message, 1, checked=True)
    assert header.read(head) == (length, 1)
    header.check(head, message)
    for bit in range(64 * len(head)):
        garbled = head.view(np.uint8).copy()
        garbled[bit // 8] ^= 1 << bit % 8
        with pytest.raises(GarbledError):
            header.read(garbled.view(np.int64))
    with pytest.raises(GarbledError):  # nothing has come
        header.read(header.write(None, 1, checked=True))


def test_a_message_that_is_not_the_headers_is_refused():
    message = np.arange(5, dtype=np.uint8)
    head = header.write(message, 1, checked=True)
    for garbled in (message[::-1].copy(), np.zeros(5, np.uint8), message + 1):
        with pytest.raises(GarbledError):
            header.check(head, garbled)


# --- where it cannot be ---


OUTLIVED = str(TESTS / "mpi" / "outlived.py")


def expect_outlived(*met: str) -> None:
    done = command("launch", "--ranks", "3", "--on-failure", "shrink", OUTLIVED, *met)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("20 rounds. this job has lost ranks"), done.stdout


def test_a_job_that_has_lost_ranks_is_refused_a_second_run():
    expect_outlived()


RUN = ("run", "--problem", "quadratics(d=10)", "--method", "gd(gamma=0.1)", "--workers", "4", "--rounds", "3")


def test_an_mpi_without_ulfm_is_refused_at_the_start():
    """mpirun is started as it is by default: it would end the job with the first rank that dies."""
    done = command("launch", "--ranks", "2", "-m", "mpicomp", *RUN, "--on-failure", "shrink")
    assert done.returncode == 1 and done.stderr.count("it was started without ULFM") == 1, done.stderr


def test_what_cannot_be_combined_is_refused():
    method = PPMARINA(Q=RandK(k=2), r=2, gamma=0.1)
    problem = parse_problem("quadratics(d=10)")
    with pytest.raises(ConfigError, match="cannot be combined with stall_timeout"):
        mpicomp.run(method, problem, workers=4, on_failure="shrink", stall_timeout=3.0)
    with pytest.raises(ConfigError, match=r"unknown on_failure 'shrik'\. Did you mean 'shrink'\?"):
        mpicomp.run(method, problem, workers=4, on_failure="shrik")
