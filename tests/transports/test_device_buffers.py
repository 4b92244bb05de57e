"""MPI given the buffers of a device: a CPU plays the device, so that any MPI can be."""

from __future__ import annotations

import json
import subprocess

import pytest

import mpicomp
from mpicomp import EF21, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.problems import Quadratics
from mpicomp.transports.base import shares_of
from tests.mpi.buffers import ROUNDS, WORKERS
from tests.support.cuda_host import COMPILER, build
from tests.support.launching import TESTS, mpirun, no_counter

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernels, built once for all ranks."""
    return str(build(COMPILER, tmp_path_factory.mktemp("kernels")))


@pytest.fixture(
    scope="module",
    params=[
        (1, "plain"),
        (2, "watched"),
        (4, "observed"),
        (3, "dedicated"),
        (3, "chunked observed"),
    ],
    ids=str,
)
def job(request, kernels, tmp_path_factory):
    """Ranks, how, the runs' folder, and method -> way -> outcome."""
    ranks, how = request.param
    if "observed" in how and (missing := no_counter()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("runs")
    script = str(TESTS / "mpi" / "buffers.py")
    done = mpirun(ranks, script, kernels, how, str(folder), PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 0, done.stderr
    return ranks, how, folder, json.loads(done.stdout)


def made(ranks, how):
    """For each rank, the messages that it makes in a run, and those of others that it receives."""
    shares = [len(share) for share in shares_of(WORKERS, ranks, "dedicated" in how)]
    return [
        (ROUNDS * (share + (rank == 0)), ROUNDS * (WORKERS if rank == 0 else 1))
        for rank, share in enumerate(shares)
    ]


def test_iterates_and_bytes_are_those_of_the_host(job):
    """And the library's own count is the ledger's, or an observed run would have failed."""
    *_, found = job
    for method, ways in found.items():
        for outcome in ("iterates", "up", "down", "sent"):
            assert ways["direct"][outcome] == ways["staged"][outcome] == ways["cpu"][outcome], method


def test_no_message_is_copied_to_the_host_or_back(job):
    """Staged, each message is copied once where it is made, and once where it is decoded."""
    ranks, how, _, found = job
    for ways in found.values():
        for rank, (sent, decoded) in enumerate(made(ranks, how)):
            staged, direct = (ways[way]["ranks"][rank]["copies"] for way in ("staged", "direct"))
            broadcast = ROUNDS if rank == 0 else 0  # which the server decodes, too
            assert staged[0] - direct[0] == sent
            assert staged[1] - direct[1] == decoded + broadcast


def test_mpi_is_given_a_buffer_once_nothing_is_under_way_on_the_device(job):
    """Each message sent or received, and each broadcast; staged, none is on the device."""
    ranks, how, _, found = job
    for ways in found.values():
        assert not any(rank["handed"] for way in ("cpu", "staged") for rank in ways[way]["ranks"])
        handed = [rank["handed"] for rank in ways["direct"]["ranks"]]
        assert all(map(all, handed))
        if "chunked" not in how:  # else once for each piece
            hosted = len(shares_of(WORKERS, ranks, "dedicated" in how)[0])
            assert len(handed[0]) == ROUNDS * (WORKERS - hosted + 1)
            assert [len(h) for h in handed[1:]] == [sent + ROUNDS for sent, _ in made(ranks, how)[1:]]


def test_the_record_says_where_messages_were(job):
    _, _, folder, found = job
    for number in range(len(found)):
        said = {
            way: json.loads((folder / f"{number}-{way}" / "run.json").read_text())["message_buffers"]
            for way in ("cpu", "staged", "direct")
        }
        assert said == {"cpu": "host", "staged": "host", "direct": "device"}


@pytest.mark.parametrize(
    ("fault", "text"),
    [("short", "truncated"), ("long", "too long"), ("nan", "the gradient is not finite")],
)
def test_what_fails_is_said_once_and_every_rank_ends(kernels, fault, text):
    """Errors travel in the host's memory, among messages that do not."""
    script = str(TESTS / "mpi" / "faulty.py")
    done = mpirun(4, script, fault, kernels, PYTHONPATH=str(TESTS.parent))
    assert done.returncode == 1
    assert done.stderr.count("round 7: worker 5: ") == done.stderr.count(text) == 1
    assert "Traceback" not in done.stderr


def test_a_library_that_has_no_answer_says_no(tmp_path):
    from mpicomp.transports.mpi import says_cuda_aware

    for name, answers in {
        "silent": "",
        "no": "int MPIX_Query_cuda_support(void) { return 0; }",
        "yes": "int MPIX_Query_cuda_support(void) { return 1; }",
    }.items():
        source, library = tmp_path / f"{name}.cpp", tmp_path / f"{name}.so"
        source.write_text(f'extern "C" {{ {answers} }}')
        subprocess.run([COMPILER, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        assert says_cuda_aware(str(library)) is (name == "yes")


def test_an_answer_that_is_none_is_refused():
    method, problem = EF21(TopK(3), gamma=0.1), Quadratics(d=30)
    with pytest.raises(ConfigError, match=r"cuda_aware 'maybe'.*Allowed: ask, yes, no"):
        mpicomp.run(method, problem, workers=2, rounds=1, cuda_aware="maybe")
