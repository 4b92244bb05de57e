"""The run: its ledger, rows and ends, its record on disk, resuming it, and what goes wrong."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpicomp
from mpicomp import (
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
    messages,
)
from mpicomp.clock import PHASES
from mpicomp.coding.bits import Bytes
from mpicomp.compressors import (
    Bernoulli,
    BlockSteps,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Lazy,
    Natural,
    PermK,
    QuantizedTopK,
    RandK,
    Shrunk,
    TopK,
    VaryingSteps,
)
from mpicomp.errors import ConfigError, DivergedError, MessageError, RecordError
from mpicomp.methods import METHODS
from mpicomp.problems import Objective, Problem, Quadratics, Saddle
from mpicomp.record import Row, read_rows
from mpicomp.transports.base import placement
from mpicomp.transports.local import Local

N = 4
PROBLEM = Quadratics(d=13, noise=0.4, lam=0.01)
EVERY_METHOD = [
    GD(),
    AGD(mu=0),  # its t is state as well
    DCGD(Bernoulli(0.3)),
    DIANA(Dithering(3)),
    MARINA(PermK(), p=0.2),
    EF14(HardThreshold(0.05), gamma=0.1),
    EF21(QuantizedTopK(3, Dithering(3))),
    DASHA(Natural()),
    ADIANA(RandK(0.3), p=0.2),
    EF21P(TopK(3), RandK(0.3)),
    TwoDirection(TopK(3), Natural(), Lbar=8.0, p=0.2),
    Artemis(RandK(0.3), Natural(), alpha_down=None),
    MCM(RandK(0.3), Natural()),
    Dore(RandK(0.3), RandK(0.5)),
    DoubleSqueeze(TopK(3), HardThreshold(0.05), gamma=0.1),
    EF21Plus(Shrunk(RandK(3)), gamma="theory*4"),
    EF21SGDM(TopK(3)),
    EF21SGD2M(Shrunk(RandK(3)), eta=0.3),
    EFSGD(HardThreshold(0.05)),
    PerturbedSGD(TopK(3), eta=0.1, r=0.2, I_reset=7, R=0.5),
    PowerSGD(1, rows=1, gamma=0.1),
    VRMARINA(PermK(), batch=None, p=0.2),
    PPMARINA(RandK(3), r=3, p=0.2),
    VRDIANA(RandK(3), batch=None, p=0.3),
    DASHAPAGE(RandK(3), batch=None, p=0.3),
    DASHAMVR(Natural(), batch=None, b=0.3),
    DCGDPlus(Importance(0.3)),
    DIANAPlus(VaryingSteps(6.0), alpha=0.2),
    ADIANAPlus(BlockSteps(6.0, 3), p=0.2, alpha=0.2),
]
every_method = pytest.mark.parametrize("method", EVERY_METHOD, ids=lambda m: type(m).__name__)
METHOD = EVERY_METHOD[4]


def run(method=METHOD, problem=PROBLEM, workers=N, transport=None, **options):
    options = {"rounds": 40, "every": 10, "seed": 3} | options
    return mpicomp.run(method, problem, workers=workers, transport=transport or Local(workers), **options)


def interrupted(at: int, *args, **options):
    """A run that is asked to stop during round number ``at``, counted from 1."""
    transport = Local(options.get("workers", N))

    def ask(round, row):
        transport.stop = round >= at - 1

    transport.stop = at == 1
    result = run(*args, transport=transport, progress=ask, **options)
    assert result.status == "interrupted" and result.rows[-1].round == at
    return result


def outcome(result):
    """All of a run that does not depend on the clock."""
    rows = [replace(row, seconds=0.0) for row in result.rows]
    book = result.ledger
    return (
        result.x.tobytes(),
        result.iterates_sha256,
        book.up.tolist(),
        book.down.tolist(),
        book.paper_bits_up,
        rows,
    )


def with_step(method, value, **more):
    """The method with its step size, whatever that is called, given as a number."""
    return replace(method, **{method.steps[0]: value}, **more)


def test_every_method_is_run_here():
    assert {type(m) for m in EVERY_METHOD} == set(METHODS.values())


# --- bytes ---


class Wiretap(Local):
    """Notes the length of whatever is handed to the transport."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.up: list[list[int]] = []
        self.down: list[int] = []

    def gather(self, messages, senders):
        lengths = [0] * self.n
        self.up.append(lengths)
        for i, (worker, message) in zip(senders, super().gather(messages, senders), strict=True):
            assert i == worker  # worker order, and nobody else
            lengths[i] = len(bytes(message))
            yield i, message

    def broadcast(self, message):
        self.down.append(len(bytes(message)))
        return super().broadcast(message)


@every_method
def test_the_ledger_is_what_the_transport_carried(method):
    tap = Wiretap(N)
    result = run(method, transport=tap)
    assert len(tap.up) == len(tap.down) == 40
    assert result.ledger.up.tolist() == np.sum(tap.up, axis=0).tolist()
    assert result.ledger.down.tolist() == [sum(tap.down)] * N
    for row in result.rows:
        assert row.up_bytes == np.sum(tap.up[: row.round])
        assert row.down_bytes == N * sum(tap.down[: row.round])
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
def test_observing_is_invisible(method):
    often, seldom = run(method, rounds=50, every=1), run(method, rounds=50, every=50)
    assert outcome(often)[:-1] == outcome(seldom)[:-1]
    assert outcome(often)[-1][::50] == outcome(seldom)[-1]


@every_method
def test_a_run_can_be_repeated(method):
    assert outcome(run(method)) == outcome(run(method))


def test_ends_at_the_target():
    whole = run(GD(), every=5)
    target = whole.rows[3].grad_norm_sq
    result = run(GD(), every=5, target_grad_norm_sq=target)
    assert result.status == "target"
    assert outcome(result)[-1] == outcome(whole)[-1][:4]
    assert run(GD(), target_grad_norm_sq=np.inf).rows[-1].round == 0


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
    monkeypatch.setattr(sys.modules["mpicomp.session"], "perf_counter", lambda: next(ticks))
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


@pytest.mark.parametrize(
    ("ranks", "dedicated"), [(r, False) for r in range(1, 9)] + [(r, True) for r in range(2, 9)]
)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 100])
def test_workers_are_placed_contiguously_and_completely(n, ranks, dedicated):
    """Each on one rank, in order, evenly; a dedicated server hosts none."""
    shares = placement(n, ranks, dedicated)
    assert len(shares) == ranks
    assert [i for share in shares for i in share] == list(range(n))
    hosts = shares[1:] if dedicated else shares
    assert len(shares[0]) == 0 or not dedicated
    assert max(map(len, hosts)) - min(map(len, hosts)) <= 1


# --- resuming ---


@every_method
@pytest.mark.parametrize("seed", range(3))
def test_resumed_runs_are_the_uninterrupted_one(method, seed, tmp_path):
    """Bit for bit, interrupted twice at random rounds, once with a checkpoint in between."""
    whole = run(method, rounds=40)
    first, second = sorted(np.random.default_rng(seed).choice(np.arange(1, 40), 2, replace=False).tolist())
    interrupted(first, method, out=tmp_path / "run", checkpoint_every=3)
    interrupted(second, method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    last = run(method, out=tmp_path / "run", resume=True, checkpoint_every=3)
    assert outcome(last) == outcome(whole)
    assert read_rows(tmp_path / "run" / "rows.csv") == last.rows
    assert last.rows[-1].seconds > 0


def test_a_finished_run_resumed_is_as_it_was(tmp_path):
    """Whether or not its last round is a regular one; and its rows and summary stay consistent."""
    for rounds in (40, 35):
        whole = run(rounds=rounds, out=tmp_path / str(rounds))
        again = run(rounds=rounds, out=tmp_path / str(rounds), resume=True)
        assert outcome(again) == outcome(whole)
        assert again.summary()["rounds"] == rounds
        assert read_rows(tmp_path / str(rounds) / "rows.csv") == whole.rows


def test_a_finished_run_can_be_prolonged(tmp_path):
    run(rounds=25, out=tmp_path / "run")
    assert outcome(run(rounds=40, out=tmp_path / "run", resume=True)) == outcome(run(rounds=40))


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    """Not stopped in order: the process is gone in the middle of round 18, checkpoints are at 5, 10, 15."""

    class Killed(BaseException):
        pass

    def kill(round, row):
        if round == 18:
            raise Killed

    with pytest.raises(Killed):
        run(every=4, out=tmp_path / "run", checkpoint_every=5, progress=kill)
    assert [row.round for row in read_rows(tmp_path / "run" / "rows.csv")] == [0, 4, 8, 12, 16]
    last = run(every=4, out=tmp_path / "run", resume=True)
    assert outcome(last) == outcome(run(every=4))


def generations(folder):
    return sorted(int(path.name.removeprefix("round-")) for path in (folder / "checkpoint").iterdir())


@pytest.fixture
def stopped(tmp_path):
    """A run interrupted in round 30 with checkpoints every 10 rounds."""
    interrupted(30, out=tmp_path / "run", checkpoint_every=10)
    return tmp_path / "run"


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


DAMAGE = [
    *[
        (name, damage)
        for name in ("part-0.npz", "manifest.json")
        for damage in (flip, truncate, empty, remove)
    ],
    ("", shutil.rmtree),
]


def test_two_generations_are_kept(stopped):
    assert generations(stopped) == [20, 30]
    assert not list(stopped.rglob("*.tmp"))


@pytest.mark.parametrize(("name", "damage"), DAMAGE, ids=lambda v: getattr(v, "__name__", v))
def test_a_damaged_checkpoint_gives_way_to_the_one_before(name, damage, stopped):
    damage(stopped / "checkpoint" / "round-30" / name)
    started = []
    last = run(out=stopped, resume=True, progress=lambda round, row: started.append(round))
    assert started[0] == 21
    assert outcome(last) == outcome(run())


@pytest.mark.parametrize("damage", [flip, truncate, empty, remove])
@pytest.mark.parametrize("name", ["part-0.npz", "manifest.json"])
def test_without_a_sound_checkpoint_the_files_are_named(name, damage, stopped):
    for round in (20, 30):
        damage(stopped / "checkpoint" / f"round-{round}" / name)
    rows = (stopped / "rows.csv").read_text()
    with pytest.raises(RecordError) as caught:
        run(out=stopped, resume=True)
    named = f"round-30/{name}" if (name, damage) != ("manifest.json", remove) else "checkpoint"
    assert named in str(caught.value)
    assert (stopped / "rows.csv").read_text() == rows


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("seed", {"seed": 4}),
        ("workers", {"workers": 5, "transport": None}),
        ("method.gamma", {"method": replace(METHOD, gamma=0.2)}),
        ("method.p", {"method": replace(METHOD, gamma=0.1, p=0.3)}),
        ("method.Q", {"method": replace(METHOD, gamma=0.1, Q=PermK("block"))}),
        ("method", {"method": GD(0.1)}),
        ("problem", {"problem": replace(PROBLEM, noise=0.5)}),
    ],
)
def test_another_configuration_is_not_resumed(field, changed, tmp_path):
    method = replace(METHOD, gamma=0.1)
    run(method, rounds=20, out=tmp_path / "run")
    before = (tmp_path / "run" / "rows.csv").read_text()
    with pytest.raises(RecordError, match=rf"another run: {field} is .* there and .* here"):
        run(**{"method": method, "out": tmp_path / "run", "resume": True} | changed)
    assert (tmp_path / "run" / "rows.csv").read_text() == before
    assert run(method, out=tmp_path / "run", resume=True).rows[-1].round == 40


@pytest.mark.parametrize(("field", "changed"), [("workers", {"workers": 5}), ("seed", {"seed": 4})])
def test_what_was_changed_is_named_and_not_what_follows_from_it(field, changed, tmp_path):
    """A theory step follows from the number of workers; the message names that number."""
    run(rounds=20, out=tmp_path / "run")
    with pytest.raises(RecordError, match=rf"another run: {field} is"):
        run(out=tmp_path / "run", resume=True, **changed)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    run(out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for options in ({}, {"seed": 9}):
        with pytest.raises(RecordError, match="already holds a run"):
            run(out=tmp_path / "run", **options)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(RecordError, match="no run to resume"):
        run(out=tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="out"):
        run(resume=True)
    with pytest.raises(ConfigError, match="out"):
        run(checkpoint_every=5)
    assert not (tmp_path / "run").exists()


def test_resume_none_starts_continues_and_leaves_alone(tmp_path):
    """The same call each time: nothing there, interrupted, finished."""
    again = {"out": tmp_path / "run", "resume": None}
    interrupted(17, **again)
    assert outcome(run(**again)) == outcome(run())
    assert outcome(run(**again)) == outcome(run())
    with pytest.raises(RecordError, match="belongs to another run"):
        run(seed=9, **again)
    with pytest.raises(ConfigError, match="out"):
        run(resume=None)


def test_resume_none_begins_again_what_ended_before_its_first_checkpoint(tmp_path):
    again = {"out": tmp_path / "run", "resume": None}
    interrupted(17, out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(RecordError, match="another configuration"):
        run(seed=9, **again)
    assert outcome(run(**again)) == outcome(run())
    rows = (tmp_path / "run" / "rows.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in rows[1:]] == ["0", "10", "20", "30", "40"]


def test_a_lost_table_is_no_lost_run(stopped):
    """rows.csv removed: the run goes on from its checkpoint, or says which file is missing."""
    (stopped / "rows.csv").unlink()
    try:
        result = run(out=stopped, resume=True)
    except RecordError as error:
        assert "rows.csv" in str(error)
    else:
        assert outcome(result)[:-1] == outcome(run())[:-1]


@pytest.mark.parametrize("name", ["workers", "rounds", "every"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "3", None])
def test_counts_are_checked(name, value):
    with pytest.raises(ConfigError, match=name):
        run(transport=Local(N), **{name: value})


@pytest.mark.parametrize("value", [-1, 2.5, "3"])
def test_checkpoint_every_is_checked(value, tmp_path):
    with pytest.raises(ConfigError, match="checkpoint_every"):
        run(out=tmp_path / "run", checkpoint_every=value)


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "3"])
def test_the_seed_is_checked(value):
    """A key of Philox has 64 bits."""
    with pytest.raises(ConfigError, match="seed"):
        run(DCGD(Bernoulli(0.5)), seed=value)
    assert run(DCGD(Bernoulli(0.5)), seed=2**64 - 1).status == "rounds"


# --- a disk that refuses ---


@contextmanager
def largest_file(nbytes):
    """No file may grow beyond ``nbytes``: to who writes, a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "place", ["file/run", "file", "x" * 300, "/proc/run", "/dev/null/run"], ids=lambda p: p[:20]
)
def test_a_folder_that_cannot_be_made_is_named(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError) as caught:
        run(out=tmp_path / place)
    assert str(tmp_path / place) in str(caught.value)


def test_a_table_that_cannot_be_written_is_named(tmp_path):
    """The disk is full once run.json is there."""
    folder = tmp_path / "run"
    with ExitStack() as until_later:

        class Full(Local):
            def together(self, action):
                result = super().together(action)
                if (folder / "run.json").exists():
                    until_later.enter_context(largest_file(10))
                return result

        with pytest.raises(RecordError, match=r"cannot write .*rows\.csv"):
            run(out=folder, transport=Full(N))


def test_rows_written_before_the_disk_was_full_are_kept(tmp_path):
    whole = run(every=1, rounds=200)
    with largest_file(4000), pytest.raises(RecordError, match=r"rows\.csv"):
        run(every=1, rounds=200, out=tmp_path / "run")
    kept = [replace(row, seconds=0.0) for row in read_rows(tmp_path / "run" / "rows.csv")]
    assert len(kept) > 10
    assert kept == outcome(whole)[-1][: len(kept)]


def test_resuming_on_a_full_disk_loses_nothing(stopped):
    """Neither the rows nor the checkpoints of before."""
    rows = read_rows(stopped / "rows.csv")
    with largest_file(100), pytest.raises(RecordError, match="cannot write"):
        run(out=stopped, resume=True)
    assert read_rows(stopped / "rows.csv")[:3] == rows[:3]
    assert outcome(run(out=stopped, resume=True)) == outcome(run())


@pytest.mark.parametrize("limit", [0, 300, 1500])
def test_checkpoints_on_a_full_disk(limit, tmp_path):
    """The part or the manifest cannot be written: the file is named, and no half of a generation counts."""
    folder = tmp_path / "run"
    with ExitStack() as until_later:

        def fill(round, row):
            if round == 15:
                until_later.enter_context(largest_file(limit))

        with pytest.raises(RecordError, match=r"cannot write .*/round-20/(part-0\.npz|manifest\.json)"):
            run(every=100, out=folder, checkpoint_every=10, progress=fill)
    assert not list(folder.rglob("*.tmp"))
    started = []
    last = run(every=100, out=folder, resume=True, progress=lambda round, row: started.append(round))
    assert started[0] == 11
    assert outcome(last) == outcome(run(every=100))


def test_a_checkpoint_folder_that_cannot_be_made_is_named(tmp_path):
    def obstruct(round, row):
        if round == 1:
            (tmp_path / "run" / "checkpoint").write_text("in the way")

    with pytest.raises(RecordError, match="checkpoint"):
        run(out=tmp_path / "run", progress=obstruct)


def test_a_table_cut_off_anywhere_is_read_up_to_its_last_whole_line(tmp_path):
    """Cut inside the last number too, which then still looks like one."""
    run(out=tmp_path / "run")
    path = tmp_path / "run" / "rows.csv"
    content, rows = path.read_bytes(), read_rows(path)
    last = content.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(last, len(content)):
        path.write_bytes(content[:end])
        assert read_rows(path) == rows[:-1], content[last:end]


# --- problems of one's own, good and bad ---


@dataclass(frozen=True)
class Ball(Problem):
    """f_i(x) = |x - i|^2 / 2."""

    d: int = 3

    def dimension(self):
        return self.d

    def objective(self, i, n):
        return Bowl(i)


@dataclass(frozen=True)
class Bowl(Objective):
    centre: float

    def value(self, x):
        return float(np.sum((x - self.centre) ** 2) / 2)

    def grad(self, x):
        return x - self.centre

    def smoothness_matrix(self):
        return np.eye(3)


def test_a_problem_of_ones_own(tmp_path):
    """Dimension and objectives are enough where gamma is a number."""
    result = run(GD(0.5, values="f8"), Ball(), rounds=60, out=tmp_path / "run")
    assert np.allclose(result.x, 1.5, atol=1e-14)
    assert result.rows[-1].f == pytest.approx(np.mean((np.arange(4) - 1.5) ** 2) * 3 / 2)
    with pytest.raises(ConfigError, match=r"Ball gives no constants.*gamma"):
        run(GD(), Ball())


@dataclass(frozen=True)
class Broken(Problem):
    """Worker 2's gradient has one bad entry once x has left 0."""

    bad: float = np.nan

    def dimension(self):
        return 3

    def objective(self, i, n):
        return BrokenBowl(float(i + 1), self.bad if i == 2 else 0.0)


@dataclass(frozen=True)
class BrokenBowl(Bowl):
    bad: float

    def grad(self, x):
        g = super().grad(x)
        g[1] = self.bad if x.any() and self.bad else g[1]
        return g


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@every_method
def test_a_gradient_that_is_not_finite_names_worker_and_round(method, bad, tmp_path):
    """Refused before it is compressed, so no memory takes it in."""
    # Round 0 of TwoDirection and of PowerSGD does not move x, and worker 2 sits out PPMARINA's round 1.
    leaves = 2 if isinstance(method, TwoDirection | PowerSGD | PPMARINA) else 1
    leaves += method.set_up
    step = method.steps[0]
    method = with_step(method, 0.1, **({"mu": 0.1} if "mu" in method.steps else {}))
    with pytest.raises(DivergedError, match=rf"^round {leaves}: worker 2: .*not finite.*{step}=0\.1"):
        run(method, Broken(bad), every=10, out=tmp_path / "run")
    assert [row.round for row in read_rows(tmp_path / "run" / "rows.csv")] == [0]


@pytest.mark.parametrize("method", [GD(0.1), EF21(TopK(2), 0.1)], ids=lambda m: type(m).__name__)
def test_a_bad_gradient_in_an_observation_is_a_divergence(method):
    with pytest.raises(DivergedError, match=r"gamma=0\.1"):
        run(method, Broken(np.inf), every=1)


def test_leaving_a_stationary_start_is_no_divergence():
    """There all gradients are 0, and any other is infinitely many times larger."""
    method = PerturbedSGD(TopK(2), eta=0.02, r=30.0, I_reset=50, R=10.0)
    rows = mpicomp.run(method, Saddle(d=4, curvature=100.0), workers=2, rounds=20, every=1).rows
    assert rows[0].grad_norm_sq == 0 and max(row.grad_norm_sq for row in rows) > 1


@every_method
def test_divergence_names_the_step_and_keeps_the_record(method, tmp_path):
    """Stopped at the first row whose squared gradient norm is 10^12 times the first one."""
    step, value = method.steps[0], 50
    method = with_step(method, value)
    if isinstance(method, TwoDirection):  # an inverse step; and mu > 0 would tame it
        value, method = 0.01, with_step(method, 0.01, mu=0)
    with pytest.raises(DivergedError, match=rf"diverged.*{step}={value}"):
        run(method, rounds=400, every=2, out=tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "rows.csv")
    assert len(rows) >= 2
    assert rows[-1].grad_norm_sq > 1e12 * rows[0].grad_norm_sq or not np.isfinite(rows[-1].f)
    assert all(row.grad_norm_sq <= 1e12 * rows[0].grad_norm_sq for row in rows[:-1])


@pytest.mark.parametrize("values", ["f4", "f8"])
def test_divergence_between_rows_is_found_too(values):
    """Whatever overflows first, a value on the wire or the gradient: an error, and no warning from numpy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DivergedError, match=r"round \d+: worker 0: .*gamma=50"):
            run(GD(50.0, values=values), rounds=5000, every=5000)


@dataclass(frozen=True)
class Far(Ball):
    """Gradients that fit float32, which twice of them do not."""

    def objective(self, i, n):
        return Bowl(3e38)


def test_a_mean_that_does_not_fit_the_wire_comes_with_the_same_advice():
    """Met by the server when it rounds the broadcast, and by no worker."""
    with pytest.raises(DivergedError, match=r"'f4'.*gamma=1e-40"):
        run(DCGD(Lazy(0.5), gamma=1e-40, down=mpicomp.Sparse("f4")), Far(), rounds=20, every=1)


def test_an_unexpected_error_is_not_dressed_up():
    """A defect in a problem keeps its own exception."""

    class Faulty(Ball):
        def objective(self, i, n):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(GD(0.1), Faulty())


# --- messages ---


@dataclass
class One:
    m: Bytes


@dataclass
class Two:
    a: Bytes
    b: Bytes


@dataclass
class Mixed:
    """Floats go first whatever the order of the fields."""

    first: Bytes
    rho: float
    second: Bytes
    sigma: float
    third: Bytes


@dataclass
class Numbers:
    rho: float
    sigma: float


payload = st.binary(max_size=400).map(lambda b: np.frombuffer(b, np.uint8))
number = st.floats(allow_nan=False)
records = st.one_of(
    st.builds(One, payload),
    st.builds(Two, payload, payload),
    st.builds(Mixed, payload, number, payload, number, payload),
    st.builds(Numbers, number, number),
)


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


@given(records)
def test_records_survive_the_wire(record):
    assert same(messages.decode(type(record), messages.encode(record)), record)


def test_a_single_payload_is_the_message_itself():
    m = np.arange(1000, dtype=np.uint32).view(np.uint8)
    assert messages.encode(One(m)) is m
    assert np.shares_memory(messages.decode(One, m).m, m)


@pytest.mark.parametrize(("length", "header"), [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3)])
def test_each_earlier_payload_costs_its_length(length, header):
    """LEB128; and 8 bytes a float."""
    a, b = np.full(length, 7, np.uint8), np.full(11, 9, np.uint8)
    assert len(messages.encode(Two(a, b))) == header + length + 11
    assert len(messages.encode(Mixed(a, 0.5, b, 1.5, b))) == 16 + header + length + 1 + 22
    assert same(messages.decode(Two, messages.encode(Two(a, b))), Two(a, b))


@pytest.mark.parametrize(
    ("record", "fixed"),
    [
        (Two(np.zeros(300, np.uint8), np.zeros(5, np.uint8)), 302),
        (Mixed(np.full(3, 255, np.uint8), 1.0, np.full(200, 255, np.uint8), 2.0, np.zeros(5, np.uint8)), 222),
        (Numbers(1.0, 2.0), 16),
    ],
    ids=["two", "mixed", "numbers"],
)
def test_a_truncated_record_is_refused(record, fixed):
    """Anywhere before its last payload, whose length only its compressor knows."""
    message = messages.encode(record)
    assert same(messages.decode(type(record), message), record)
    for end in range(fixed):
        with pytest.raises(MessageError, match="truncated"):
            messages.decode(type(record), message[:end])


def test_a_record_of_numbers_that_is_too_long_is_refused():
    with pytest.raises(MessageError, match="too long"):
        messages.decode(Numbers, np.zeros(17, np.uint8))


def test_a_length_without_end_is_refused():
    with pytest.raises(MessageError):
        messages.decode(Two, np.full(30, 0xFF, np.uint8))
    with pytest.raises(MessageError):
        messages.decode(Two, np.array([*[0xFF] * 8, 0x7F, 0, 0], np.uint8))


@pytest.mark.parametrize("damage", [lambda m: m[:-1], lambda m: np.append(m, m[:1])], ids=["short", "long"])
@pytest.mark.parametrize(
    "method", [GD(0.1), DCGD(RandK(5), 0.1), EF21(TopK(3), 0.1)], ids=lambda m: type(m).__name__
)
def test_a_message_damaged_on_its_way_is_refused(method, damage):
    """The last payload's length is checked by who decodes it."""

    class Noisy(Local):
        def gather(self, messages, senders):
            for i, message in super().gather(messages, senders):
                yield i, damage(message) if i == 2 else message

    with pytest.raises(MessageError):
        run(method, transport=Noisy(N))


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
