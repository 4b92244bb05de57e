"""The run: its ledger, its rows, and when it ends."""

from __future__ import annotations

import json
from contextlib import contextmanager
from copy import deepcopy
from itertools import count

import numpy as np
import pytest

import mpicomp
from mpicomp import AGD, DCGD, EF21, GD, MARINA, Quadratics
from mpicomp.base.clock import PHASES
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Bernoulli, Identity, PermK, RandK, TopK
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.rows import Row, read_rows
from mpicomp.transports.base import shares_of
from mpicomp.transports.local import Local
from tests.support.running import PROBLEM, N, every_method, interrupted, outcome, outcome_of, run

# --- bytes ---


class Wiretap(Local):
    """Notes the length of whatever is handed to the transport."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.up: list[list[int]] = []
        self.down: list[list[int]] = []
        self.own = [0] * n

    @contextmanager
    def gather(self, senders, take):
        lengths, awaited = [0] * self.n, iter(senders)
        self.up.append(lengths)

        def noted(i, message):
            assert i == next(awaited)  # worker order, and nobody else
            lengths[i] = len(bytes(message))
            take(i, message)

        with super().gather(senders, noted) as send:
            yield send
        assert next(awaited, None) is None

    def scatter(self, make, take):
        def noted(i, message):
            self.own[i] += len(bytes(message))
            take(i, message)

        super().scatter(make, noted)

    def broadcast(self, message):
        self.down.append([own + len(bytes(message)) for own in self.own])
        self.own = [0] * self.n
        return super().broadcast(message)


@every_method
def test_the_ledger_is_what_the_transport_carried(method):
    tap = Wiretap(N)
    result = run(method, transport=tap)
    assert len(tap.up) == len(tap.down) == 40
    assert result.ledger.up.tolist() == np.sum(tap.up, axis=0).tolist()
    assert result.ledger.down.tolist() == np.sum(tap.down, axis=0).tolist()
    for row in result.rows:
        assert row.up_bytes == np.sum(tap.up[: row.round])
        assert row.down_bytes == np.sum(tap.down[: row.round])
    assert result.ledger.up.all() and result.ledger.down.all()
    assert result.sent == [[0, 0]]  # nothing left this process


@pytest.mark.parametrize(
    ("method", "up", "paper_bits"),
    [
        (GD(), N * 13 * 4, N * 13 * 32),
        (GD(values="f8"), N * 13 * 8, N * 13 * 32),  # the paper charges 32 bits a float
        (DCGD(RandK(5)), N * 5 * 4, N * 5 * 32),  # indices follow from the key
        (MARINA(PermK(), p=1e-9), 13 * 4, 13 * 32),  # a partition: one vector in all
        (EF21(TopK(3, values="f8")), N * (3 * 8 + 2), N * 3 * 32),  # C(13, 3) = 286 supports: two bytes
    ],
    ids=repr,
)
def test_bytes_of_a_round_by_hand(method, up, paper_bits):
    """The rounds after the first, where MARINA's is dense.  The broadcast is charged once for each worker."""
    first, second, third = run(method, rounds=2, every=1).rows
    assert third.up_bytes - second.up_bytes == up
    assert third.paper_bits_up - second.paper_bits_up == paper_bits
    assert third.down_bytes % N == 0
    if isinstance(method, GD):
        assert third.down_bytes - second.down_bytes == up
    assert (first.up_bytes, first.down_bytes, first.paper_bits_up) == (0, 0, 0)


# --- rows and ends ---


@pytest.mark.parametrize(
    ("rounds", "every", "wanted"),
    [
        (40, 10, [0, 10, 20, 30, 40]),
        (35, 10, [0, 10, 20, 30, 35]),
        (3, 10, [0, 3]),
        (3, 1, [0, 1, 2, 3]),
        (1, 1, [0, 1]),
    ],
)
def test_rows_at_the_start_regularly_and_at_the_end(rounds, every, wanted):
    result = run(rounds=rounds, every=every)
    assert [row.round for row in result.rows] == wanted
    assert result.status == "rounds"
    seconds = [row.seconds for row in result.rows]
    assert seconds[0] == 0 and seconds == sorted(seconds)


def test_rows_measure_f_and_its_gradient_at_the_iterate():
    result = run(every=7)
    functions = [PROBLEM.objective(i, N) for i in range(N)]
    for row, x in [(result.rows[0], PROBLEM.x0()), (result.rows[-1], result.x)]:
        assert row.f == pytest.approx(np.mean([f.value(x) for f in functions]), rel=1e-12)
        gradient = np.mean([f.grad(x) for f in functions], axis=0)
        assert row.grad_norm_sq == pytest.approx(np.sum(gradient**2), rel=1e-12)


@every_method
def test_a_run_can_be_repeated_and_observing_is_invisible(method):
    """The other run has a row after every round."""
    assert outcome(run(method)) == outcome_of(method)


def test_ends_at_the_target():
    whole = run(GD(), every=5)
    target = whole.rows[3].grad_norm_sq
    result = run(GD(), every=5, target_grad_norm_sq=target)
    assert result.status == "target"
    assert outcome(result)[-1] == outcome(whole)[-1][:4]
    assert run(GD(), target_grad_norm_sq=np.inf).rows[-1].round == 0


@pytest.mark.parametrize(
    ("norms", "arrival", "end"),
    [
        ([5, 3, 0.5, 0.5], 2, 3),
        ([5, 0.5, 3, 0.5, 0.5, 0.4], 3, 4),  # it leaves the target once
        ([5, 0.5, 0.5, 3], None, 2),
        ([5, 0.5, 3], None, None),
        ([0.5, 0.5], 0, 0),
    ],
)
def test_a_target_holds_from_the_first_row_that_stays_there(norms, arrival, end):
    """With hold = 1/3: from round 1 on up to round 2, from 2 on up to 3, from 3 on up to 4."""
    rows = [Row(k, 1.0, norm, 0, 0, 0, 0, 0.0, 0.0, 0.0) for k, norm in enumerate(norms)]
    limits = Limits(target_grad_norm_sq=1.0, hold=1 / 3)
    first = limits.arrival(rows, 1.0)
    assert first is (None if arrival is None else rows[arrival])
    ends = (k for k in range(len(rows)) if limits.reached(rows[: k + 1], 1.0) == "target")
    assert next(ends, None) == end
    assert limits.row_of_costs(rows, "rounds") is rows[-1]
    assert limits.row_of_costs(rows, "target") is (first or rows[-1])


def test_the_run_goes_on_until_the_target_has_held():
    """AGD meets the target, leaves it, and comes back: the costs are those of the row that stays there."""
    agd, slow = AGD(), Quadratics(d=30, noise=0.0, lam=1e-3)
    whole = run(agd, slow, rounds=400, every=1).rows
    norms = np.array([row.grad_norm_sq for row in whole])
    k = next(k for k in range(10, 390) if norms[k + 1] > norms[k] < norms[k - 1])  # a least one, for a while
    target = float(norms[k])
    options = {"rounds": 400, "every": 1, "target_grad_norm_sq": target}
    at_once, held = run(agd, slow, **options), run(agd, slow, hold=0.5, **options)
    stays = int(np.flatnonzero(norms[: len(held.rows)] > target)[-1]) + 1
    assert at_once.rows[-1].round <= k < stays
    assert held.status == "target" and held.rows[-1].round == int(np.ceil(1.5 * stays))
    assert Limits(400, target, 0.5).row_of_costs(held.rows, held.status).round == stays


def test_a_hold_without_a_target_is_refused():
    with pytest.raises(ConfigError, match=r"hold=1\.0 without a target"):
        run(hold=1.0)


def test_ends_at_max_bytes():
    """Both directions, all workers; looked at with each row."""
    whole = run(every=1)
    budget = whole.rows[17].up_bytes + whole.rows[17].down_bytes
    for less, end in [(0, 17), (1, 17), (-1, 18)]:
        result = run(every=1, max_bytes=budget - less)
        assert (result.status, result.rows[-1].round) == ("max_bytes", end)
    assert run(every=10, max_bytes=budget).rows[-1].round == 20


def test_ends_at_max_seconds(monkeypatch):
    """By a clock that advances one second from the start of a round to its end."""
    ticks = count()
    monkeypatch.setattr("mpicomp.runtime.session.perf_counter", lambda: next(ticks))
    result = run(every=2, max_seconds=7)
    assert (result.status, [row.round for row in result.rows]) == ("max_seconds", [0, 2, 4, 6, 8])
    assert [row.seconds for row in result.rows] == [0, 2, 4, 6, 8]
    assert run(max_seconds=0).rows[-1].round == 0


@pytest.mark.parametrize("at", [1, 7, 10, 39])
def test_an_interrupted_run_ends_after_its_round(at):
    result = interrupted(at)
    assert outcome(result)[:-1] == outcome(run(rounds=at))[:-1]
    assert [row.round for row in result.rows] == sorted({*range(0, at, 10), at})


def test_progress_is_told_every_round():
    told = []
    result = run(rounds=25, progress=lambda round, row: told.append((round, row)))
    assert [round for round, _ in told] == list(range(1, 26))
    assert [row for _, row in told if row is not None] == result.rows[1:]
    assert [round for round, row in told if row is not None] == [10, 20, 25]


def test_phases_are_accounted_for():
    (phases,) = run().phases
    assert {"gradient", "compress", "server", "decode"} <= set(phases) <= set(PHASES)
    assert all(seconds > 0 for name, seconds in phases.items() if name != "wait")
    result = run()
    assert sum(result.phases[0].values()) <= result.rows[-1].seconds * 1.01 + 1e-3


def test_the_summary_is_plain_data(tmp_path):
    result = run(out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == json.loads(json.dumps(result.summary()))
    assert (summary["status"], summary["rounds"], summary["n"], summary["d"]) == ("rounds", 40, N, 13)
    assert summary["up_bytes"] == sum(summary["up_bytes_by_worker"]) == result.ledger.up_bytes
    assert summary["iterates_sha256"] == result.iterates_sha256
    assert read_rows(tmp_path / "run" / "rows.csv") == result.rows


def test_rows_are_what_the_csv_says(tmp_path):
    """Numbers are written so that they are read back to the bit."""
    result = run(MARINA(PermK(), sync=Identity("f8")), out=tmp_path / "run", every=1)
    header, *lines = (tmp_path / "run" / "rows.csv").read_text().splitlines()
    assert header.split(",") == list(Row.__dataclass_fields__)
    assert [float(line.split(",")[1]) for line in lines] == [row.f for row in result.rows]
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    run(MARINA(PermK(), sync=Identity("f8")), out=tmp_path / "run", every=1, resume=True, rounds=50)
    after = json.loads((tmp_path / "run" / "run.json").read_text())
    assert after.pop("resumed")[0]["asked"]["rounds"] == 50 and after == before


@pytest.mark.parametrize(
    ("ranks", "dedicated"), [(r, False) for r in range(1, 9)] + [(r, True) for r in range(2, 9)]
)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 100])
def test_workers_are_placed_contiguously_and_completely(n, ranks, dedicated):
    """Each on one rank, in order, evenly; a dedicated server hosts none."""
    shares = shares_of(n, ranks, dedicated)
    assert len(shares) == ranks
    assert [i for share in shares for i in share] == list(range(n))
    hosts = shares[1:] if dedicated else shares
    assert len(shares[0]) == 0 or not dedicated
    assert max(map(len, hosts)) - min(map(len, hosts)) <= 1


# --- what is refused ---


@pytest.mark.parametrize("name", ["workers", "rounds", "every"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "3", None])
def test_counts_are_checked(name, value):
    with pytest.raises(ConfigError, match=name):
        run(transport=Local(N), **{name: value})


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "3"])
def test_the_seed_is_checked(value):
    """A key of Philox has 64 bits."""
    with pytest.raises(ConfigError, match="seed"):
        run(DCGD(Bernoulli(0.5)), seed=value)
    assert run(DCGD(Bernoulli(0.5)), seed=2**64 - 1).status == "rounds"


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ("mpi", r"transport = 'mpi'; allowed: a Transport, or None"),
        (Local(3), "workers=2, but the transport given is for 3"),
    ],
)
def test_a_transport_is_one_for_the_workers(transport, said):
    with pytest.raises(ConfigError, match=said):
        mpicomp.run("gd(gamma=0.1)", "quadratics(d=3)", workers=2, rounds=1, transport=transport)


def test_a_text_is_no_switch(tmp_path):
    """resume="no" continued the run."""
    run(rounds=2, out=tmp_path)
    for name in ("resume", "verify_bytes"):
        with pytest.raises(ConfigError, match=f"{name}='no'; allowed: True or False"):
            run(rounds=4, out=tmp_path, **{"resume": True, name: "no"})
    with pytest.raises(ConfigError, match="resume='no'; allowed: True or False"):
        mpicomp.compare(["gd"], "quadratics(d=3)", workers=2, rounds=1, out=tmp_path / "two", resume="no")
    assert run(rounds=4, out=tmp_path, resume=np.True_).rows[-1].round == 4


# --- results as values ---


def test_ledgers_and_runs_can_be_compared():
    """numpy refused to say whether two arrays are equal."""
    one, same, other = run(rounds=2), run(rounds=2), run(rounds=3)
    assert one.ledger == same.ledger and one.ledger != other.ledger and one.ledger != 3
    assert one == one and one != deepcopy(one) and {one: 1, same: 2}[one] == 1
