"""Processes that a rank starts: they are no ranks."""

from __future__ import annotations

import pytest

from tests.support.launching import mpirun

# Each rank starts a process, before or after its own first run.
JOB = """
import multiprocessing, sys
import numpy as np
import mpicomp

def outcome(_):
    try:
        return mpicomp.run("gd", "quadratics(d=4)", workers=2, rounds=1).ranks
    except mpicomp.ConfigError as error:
        return str(error)

if __name__ == "__main__":
    way, first = sys.argv[1:]
    loop = mpicomp.Aggregator("ef21(topk(k=1))", np.zeros(4)) if first == "after" else None
    if first == "after":
        outcome(0), loop(np.ones(4))
    with multiprocessing.get_context(way).Pool(1) as pool:
        answer = pool.map(outcome, [0])[0]
    print(outcome(0), answer, flush=True)
"""


@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.parametrize("first", ["before", "after"])
def test_a_child_of_a_rank_is_refused_and_the_ranks_go_on(way, first, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    job = mpirun(2, str(tmp_path / "job.py"), way, first)
    assert job.returncode == 0, job.stderr
    lines = job.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("2 this process was started by a rank, as multiprocessing does")
        assert line.endswith(
            "Make this call in the rank itself, or start the program without mpirun and --ranks."
        )


FORKS = """
import os
import numpy as np
import mpicomp

loop = mpicomp.Aggregator("ef21(topk(k=1))", np.zeros(4))
loop(np.ones(4))
child = os.fork()
if child == 0:
    try:
        loop(np.ones(4))
    except mpicomp.ConfigError as error:
        os._exit(0 if "was started by a rank" in str(error) else 1)
    os._exit(1)
print(os.waitpid(child, 0)[1], loop(np.ones(4)).tolist(), flush=True)
"""


def test_a_fork_takes_no_message_of_its_rank():
    job = mpirun(2, "-c", FORKS)
    assert job.stdout.splitlines() == ["0 [1.0, 1.0, 0.0, 0.0]"] * 2, job.stderr
