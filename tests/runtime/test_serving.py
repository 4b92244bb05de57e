"""The ranks that average: what sharding keeps, what Allreduce gives, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mpicomp
from mpicomp import (
    AGD,
    DCGD,
    EF14,
    EF21,
    EF21P,
    GD,
    MARINA,
    PPMARINA,
    ARCTopK,
    DIANAPlus,
    Dion,
    HardThreshold,
    Identity,
    PowerSGD,
    RandK,
    TopK,
)
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.compressors import Importance
from mpicomp.lab.bench.contenders import uncompressed
from mpicomp.problems import Quadratics
from mpicomp.runtime.loop import Loop
from mpicomp.transports.local import Local
from tests.support.launching import mpicomp as command
from tests.support.launching import mpirun, no_counter
from tests.support.method_cases import METHOD_CASES

PROBLEM = Quadratics(d=30, noise=0.3, lam=0.1)
RUN = ("run", "--problem", "quadratics(d=60, lam=0.1)", "--workers", "8", "--rounds", "20", "--json")
SHARDED = ("--server", "sharded", "--blocks", "5")
EF = ("--method", "ef21(topk(k=3), gamma=0.05)")


@pytest.mark.parametrize("case", [c for c in METHOD_CASES if c.method.separable], ids=str)
def test_one_block_is_the_root(case):
    a, b = (
        mpicomp.run(case.other, PROBLEM, workers=5, rounds=8, **how)
        for how in ({}, {"server": "sharded", "blocks": 1})
    )
    assert a.iterates_sha256 == b.iterates_sha256 and (a.ledger.up == b.ledger.up).all()
    assert a.ledger.down_bytes == b.ledger.down_bytes and b.blocks == 1


@pytest.mark.parametrize("method", [GD(), AGD(), EF14(HardThreshold(0.1), gamma=0.1), DCGD(Identity("f8"))])
def test_what_treats_each_coordinate_alone_does_not_depend_on_blocks(method):
    """Then iterates are the root's bit for bit, whatever the number of blocks."""
    runs = [
        mpicomp.run(method, PROBLEM, workers=5, rounds=20, **how)
        for how in ({}, {"server": "sharded", "blocks": 4}, {"server": "sharded", "blocks": 7})
    ]
    assert len({run.iterates_sha256 for run in runs}) == 1


UNCOMPRESSED = {type(c.method): uncompressed(c.method) for c in METHOD_CASES if c.method.separable}


@pytest.mark.parametrize("method", [m for m in UNCOMPRESSED.values() if m is not None], ids=str)
def test_without_compression_blocks_do_not_show(method):
    """Every server step treats each coordinate alone, with the constants of the whole vector."""
    hashes = {
        mpicomp.run(method, PROBLEM, workers=5, rounds=12, **how).iterates_sha256
        for how in ({}, {"server": "sharded", "blocks": 3}, {"server": "sharded", "blocks": 7})
    }
    assert len(UNCOMPRESSED) >= 25 and len(hashes) == 1


def test_ef21_in_blocks_transcribed():
    """EF21 with TopK of one coordinate in each of three blocks of ten."""
    run = mpicomp.run(
        EF21(TopK(1, "f8"), gamma=0.1), PROBLEM, workers=4, rounds=15, server="sharded", blocks=3
    )
    f = [PROBLEM.objective(i, 4) for i in range(4)]
    x, g = PROBLEM.x0(), np.zeros((4, 30))
    for _ in range(15):
        for i in range(4):
            difference = (f[i].grad(x) - g[i]).reshape(3, 10)
            largest = np.abs(difference).argmax(axis=1)
            for b in range(3):
                g[i, 10 * b + largest[b]] += difference[b, largest[b]]
        x = x - 0.1 * g.mean(axis=0)
    assert np.allclose(run.x, x, rtol=1e-12, atol=1e-13)
    assert run.ledger.up_bytes == 15 * 4 * 3 * (8 + 1)  # a value, and an index of four bits in a byte


@pytest.mark.parametrize("method", [GD(gamma=0.1), AGD(gamma=0.1, mu=0.1), DCGD(Identity("f8"), gamma=0.1)])
def test_allreduce_gives_the_root_s_iterates_up_to_rounding(method):
    a = mpicomp.run(method, PROBLEM, workers=6, rounds=30)
    b = mpicomp.run(method, PROBLEM, workers=6, rounds=30, server="allreduce")
    assert np.allclose(a.x, b.x, rtol=1e-4, atol=1e-6)
    width = 8 if isinstance(method, DCGD) else 4
    assert b.ledger.up.tolist() == b.ledger.down.tolist() == [30 * 30 * width] * 6


def test_allreduce_sums_the_messages_of_some_workers():
    """PP-MARINA's compressed rounds have two senders of six: the root's iterates, and its ledger."""
    method = PPMARINA(Identity("f8"), r=2, gamma=0.1, p=0.3, sync=Identity("f8"))
    a = mpicomp.run(method, PROBLEM, workers=6, rounds=30)
    b = mpicomp.run(method, PROBLEM, workers=6, rounds=30, server="allreduce")
    assert np.allclose(a.x, b.x, rtol=1e-4, atol=1e-6)
    assert a.ledger.up.tolist() == b.ledger.up.tolist() and len(set(b.ledger.up)) > 1


def test_allreduce_ends_at_the_worker_whose_gradient_is_not_finite():
    """The others' sum is no mean of all."""
    loop = Loop(GD(gamma=0.1), PROBLEM, Local(3), 0, server="allreduce")
    loop.x[:] = np.inf
    with pytest.raises(DivergedError, match=r"worker 0: .* not finite"):
        loop.step(0)


@pytest.mark.parametrize(
    ("method", "entries"),
    [
        (PowerSGD(r=1, rows=5, gamma=0.05, values="f8"), [5, 6] * 10),
        (PowerSGD(r=2, rows=6, gamma=0.05, momentum=0.3), [12, 10] * 10),
        (Dion(r=1, rows=5, gamma=0.05, values="f8"), [6, 5] * 10),
        (ARCTopK(k=2, r=2, width=5, gamma=0.05), [30, *[12, 10] * 10][:20]),
    ],
    ids=["PowerSGD, f8", "PowerSGD, momentum", "Dion", "ARCTopK"],
)
def test_allreduce_sums_factors_too(method, entries):
    """The root's iterates up to rounding; the ledger has the factors, sketches and rows of 20 rounds."""
    a = mpicomp.run(method, PROBLEM, workers=6, rounds=20)
    b = mpicomp.run(method, PROBLEM, workers=6, rounds=20, server="allreduce")
    assert np.allclose(a.x, b.x, rtol=1e-4, atol=1e-5) and not np.allclose(a.x, PROBLEM.x0(), atol=1e-2)
    sent = (8 if method.values == "f8" else 4) * sum(entries)
    assert b.ledger.up.tolist() == b.ledger.down.tolist() == a.ledger.up.tolist() == [sent] * 6
    assert b.ledger.paper_bits_up == a.ledger.paper_bits_up == 6 * 32 * sum(entries)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"server": "root"}, "Allowed: shared, dedicated, sharded, allreduce"),
        ({"blocks": 3}, "blocks=3 with server='shared'"),
        ({"server": "sharded", "blocks": 0}, "blocks=0"),
        ({"stall_timeout": True}, "stall_timeout=True; allowed: a number of seconds above 0"),
        ({"cuda_aware": ["no"]}, "unknown answer for cuda_aware"),
        ({"server": np.array(["shared", "sharded"])}, "unknown server"),
        ({"on_failure": ["end"]}, "unknown on_failure"),
        ({"server": "sharded", "on_failure": "shrink"}, "on_failure='shrink' cannot be combined with"),
        ({"server": "allreduce", "method": EF21(TopK(3), gamma=0.1)}, "Take server='sharded' for EF21"),
        ({"server": "allreduce", "method": GD(gamma=0.1, values="f2")}, "as f4 or f8"),
        ({"server": "sharded", "method": DIANAPlus(Importance(3))}, "use server='shared'"),
        ({"server": "sharded", "method": EF21(TopK(20), gamma=0.1)}, "block 0 of 5: k=20 exceeds"),
    ],
)
def test_what_is_refused(options, said):
    method = options.pop("method", GD(gamma=0.1)) if "method" in options else GD(gamma=0.1)
    with pytest.raises(ConfigError) as refused:
        mpicomp.run(method, PROBLEM, workers=5, rounds=2, **options)
    assert said in str(refused.value)


def test_a_server_s_block_of_state_is_a_block_long():
    """O(d / blocks) of state for a block, also where the server keeps an iterate of its own."""
    loop = Loop(EF21P(TopK(3), RandK(3), gamma=0.01), PROBLEM, Local(5), 0, server="sharded", blocks=3)
    loop.step(0)
    servers = loop.rounds.averaging.states()
    assert sorted(servers) == ["server-0", "server-1", "server-2"]
    assert all(server.x.shape == (10,) for server in servers.values())
    assert loop.model().shape == (30,)


def test_a_resume_needs_the_same_number_of_blocks(tmp_path):
    options = {"workers": 5, "out": tmp_path / "run", "server": "sharded"}
    mpicomp.run(EF21(TopK(2), gamma=0.1), PROBLEM, rounds=5, blocks=3, **options)
    with pytest.raises(mpicomp.MpicompError, match="blocks is 3 there and 4 here"):
        mpicomp.run(EF21(TopK(2), gamma=0.1), PROBLEM, rounds=9, blocks=4, resume=True, **options)
    resumed = mpicomp.run(EF21(TopK(2), gamma=0.1), PROBLEM, rounds=9, blocks=3, resume=True, **options)
    whole = mpicomp.run(EF21(TopK(2), gamma=0.1), PROBLEM, workers=5, rounds=9, server="sharded", blocks=3)
    assert resumed.iterates_sha256 == whole.iterates_sha256
    assert (resumed.ledger.up == whole.ledger.up).all() and resumed.rows[-1].up_bytes == whole.rows[
        -1
    ].up_bytes


@pytest.mark.parametrize(
    "method", ["marina(randk(k=3), gamma=0.05)", "ef21p(topk(k=3), randk(k=3), gamma=0.01)"]
)
def test_begun_on_three_ranks_and_resumed_on_two(tmp_path, method):
    alone = json.loads(command(*RUN, *SHARDED, "--method", method).stdout)
    begun = (*RUN, *SHARDED, "--method", method, "--out", str(tmp_path / "run"))
    assert command(*begun, "--rounds", "9", "--ranks", "3").returncode == 0
    resumed = json.loads(command(*begun, "--resume", "--ranks", "2").stdout)
    same = ("iterates_sha256", "f", "up_bytes", "down_bytes", "paper_bits_up", "paper_bits_down")
    assert [resumed[k] for k in same] == [alone[k] for k in same]


def test_a_gradient_that_is_not_finite_ends_the_run_once():
    """Whichever rank it is on; the message names the worker."""
    for server in ("sharded", "allreduce"):
        diverging = (*RUN[:-1], "--method", "gd(gamma=1e200)", "--server", server, "--ranks", "3")
        done = command(*diverging, "--every", "20")
        assert done.returncode != 0 and done.stderr.count("worker") == 1, done.stderr
        assert "The step size may be too large" in done.stderr
    with pytest.raises(DivergedError):
        mpicomp.run(GD(gamma=1e200), PROBLEM, workers=4, rounds=9, every=9, server="sharded")


def test_ranks_beyond_the_blocks_serve_none_and_follow():
    """Five ranks, two blocks, three workers: two ranks have neither."""
    few = ("run", "--problem", "quadratics(d=60, lam=0.1)", "--workers", "3", "--rounds", "20", "--json", *EF)
    few += ("--server", "sharded", "--blocks", "2")
    a, b = (
        json.loads(done.stdout.splitlines()[-1]) for done in (command(*few), command(*few, "--ranks", "5"))
    )
    assert a["iterates_sha256"] == b["iterates_sha256"] and a["up_bytes"] == b["up_bytes"]


@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
def test_the_busiest_rank_does_not_carry_all():
    """As MPI counts it: with a block and a worker on each rank, all ranks send nearly the same."""
    dense = ("run", "--problem", "quadratics(d=4000)", "--method", "gd(gamma=0.1)", "--rounds", "5", "--json")
    dense += ("--workers", "4", "--ranks", "4", "--verify-bytes")
    root = json.loads(command(*dense).stdout)["mpi_bytes_counted"]
    shared_out = json.loads(command(*dense, "--server", "sharded").stdout)["mpi_bytes_counted"]
    assert root == [3 * 5 * 16000, *[5 * 16000] * 3]
    assert shared_out == [3 * 5 * 4000 + 5 * 12000] * 4


@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
def test_what_allreduce_is_handed_is_what_mpi_counts():
    """The vector and two numbers more, in float32, from each rank and in each of 20 rounds."""
    told = json.loads(
        command(*RUN, "--method", "gd", "--server", "allreduce", "--ranks", "3", "--verify-bytes").stdout
    )
    assert told["mpi_bytes_counted"] == [20 * (60 + 2) * 4] * 3 and told["mpi_messages_counted"] == [20] * 3
    assert told["up_bytes"] == told["down_bytes"] == 8 * 20 * 60 * 4


@pytest.mark.parametrize(
    "method", ["powersgd(r=1, rows=6, gamma=0.05)", "arctopk(k=2, r=2, width=6, gamma=0.05)"]
)
@pytest.mark.skipif(no_counter() is not None, reason=str(no_counter()))
def test_what_allreduce_is_handed_of_factors_is_what_mpi_counts(method):
    """The factors of a round and two numbers more from each rank, and no other message."""
    where = ("--method", method, "--server", "allreduce", "--ranks", "3", "--verify-bytes")
    told = json.loads(command(*RUN, *where).stdout)
    handed = told["up_bytes"] // 8 + 20 * 2 * 4
    assert told["mpi_bytes_counted"] == [handed] * 3 and told["mpi_messages_counted"] == [20] * 3
    assert told["up_bytes"] == told["down_bytes"]


def test_allreduce_on_ranks_ends_alike_everywhere():
    done = mpirun(
        3,
        "-c",
        "import mpicomp; from mpicomp.problems import Quadratics\n"
        "r = mpicomp.run(mpicomp.AGD(gamma=0.1, mu=0.1), Quadratics(d=50), workers=7, rounds=30, "
        "server='allreduce')\nprint(r.iterates_sha256, r.ledger.up_bytes)",
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.splitlines())) == 1 and done.stdout.split()[1] == str(7 * 30 * 50 * 4)


def test_marina_s_coin_is_one_for_all_blocks():
    """A round is dense in all blocks or in none: the uplink has two sizes."""
    loop = Loop(MARINA(RandK(2), gamma=0.1, p=0.5), PROBLEM, Local(3), 0, server="sharded", blocks=3)
    sizes = []
    for k in range(20):
        before = loop.ledger.up_bytes
        loop.step(k)
        loop.rounds.settle()
        sizes.append(loop.ledger.up_bytes - before)
    assert set(sizes) == {3 * 30 * 4, 3 * 3 * 2 * 4}


def test_a_count_of_blocks_of_numpys_is_that_count():
    of = [
        mpicomp.run("gd(gamma=0.1)", PROBLEM, workers=6, rounds=2, server="sharded", blocks=b)
        for b in (3, np.int64(3))
    ]
    assert of[0].iterates_sha256 == of[1].iterates_sha256 and type(of[1].blocks) is int
