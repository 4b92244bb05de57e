"""A comparison on all ranks at once: `mpicomp launch --ranks 4 -m pytest --only-mpi tests/mpi`."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from hashlib import sha256

import pytest

from mpicomp import Interrupted
from mpicomp.lab.experiment import compare as comparing
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.runtime import placement
from mpicomp.runtime.result import result_of
from mpicomp.transports.launcher import launched_rank, launched_ranks
from mpicomp.transports.local import Local

pytestmark = pytest.mark.mpi(min_size=2)

SUITE = """
problem = "quadratics(d=20, noise=0.5, lam=0.05)"
workers = 5
rounds = 60
every = 10
seeds = [0, 1]
tuning_seeds = 1
target_grad_norm_sq = 1e-3

[[method]]
label = "GD"
method = "gd(gamma=0.2)"

[[method]]
label = "MARINA"
method = "marina(Q=randk(k=5), gamma=0.4)"
tune = [-1, 0]

[[method]]
label = "too far"
method = "gd(gamma=1000)"
"""
# Of a run's summary, the items that depend on the clock or on the number of ranks.
ELSEWHERE = {"ranks", "seconds", "mpi_bytes_sent", "observation_bytes_sent", "phases"}


def content(comparison: Comparison) -> str:
    """The SHA-256 of all of a comparison that depends neither on the clock nor on the ranks."""
    runs = [
        {
            "label": outcome.label,
            "seed": outcome.seed,
            "rows": [asdict(row) | {"seconds": 0} for row in outcome.rows],
            "summary": {k: v for k, v in outcome.summary.items() if k not in ELSEWHERE},
        }
        for outcome in comparison.outcomes
    ]
    tunings = {label: tuning.to_json() for label, tuning in comparison.tunings.items()}
    return sha256(json.dumps([runs, tunings], sort_keys=True).encode()).hexdigest()


def test_a_comparison_is_the_same_here_and_in_one_process(tmp_path, monkeypatch):
    """On every rank, in memory too; and once more when it is resumed, which runs nothing again."""
    from mpi4py import MPI

    suite, asked = parse_suite(SUITE), []
    folder = MPI.COMM_WORLD.bcast(tmp_path / "here")
    here = compare(suite, folder)
    again = compare(suite, folder, resume=True, progress=lambda *seen: asked.append(seen))
    assert not asked
    digests = {content(here), content(again), content(compare(suite, None))}
    assert {o.summary["ranks"] for o in here.outcomes if o.label == "GD"} == {launched_ranks()}
    assert [o.summary["status"] for o in here.outcomes if o.label == "too far"] == ["diverged"] * 2
    if launched_rank() == 0:
        for module in (comparing, placement):
            monkeypatch.setattr(module, "connect", lambda n, *_, **__: Local(n))
        alone = compare(suite, tmp_path / "alone")
        assert {o.summary["ranks"] for o in alone.outcomes if o.label == "GD"} == {1}
        digests.add(content(alone))
    assert len(set().union(*MPI.COMM_WORLD.allgather(digests))) == 1


def test_an_interrupt_that_one_rank_receives_after_the_last_round_ends_the_comparison_on_all(
    tmp_path, monkeypatch
):
    from mpi4py import MPI

    suite, folder = parse_suite(SUITE), MPI.COMM_WORLD.bcast(tmp_path / "here")

    def interrupted(*run):
        if launched_rank() == launched_ranks() - 1:
            signal.raise_signal(signal.SIGINT)
        return result_of(*run)

    monkeypatch.setattr("mpicomp.runtime.run.result_of", interrupted)
    with pytest.raises(Interrupted) as caught:
        compare(suite, folder)
    assert len(caught.value.so_far.outcomes) == 0
    monkeypatch.undo()
    again = compare(suite, folder, resume=True)
    assert [o.summary["status"] for o in again.outcomes if o.label == "GD"] == ["rounds"] * 2
