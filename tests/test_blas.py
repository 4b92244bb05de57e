"""One thread in BLAS: that of numpy and that of scipy, which is loaded later."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
SCRIPT = """
import threadpoolctl
from mpicomp.blas import one_thread

def threads():
    pools = threadpoolctl.threadpool_info()
    return [pool["num_threads"] for pool in pools if pool["user_api"] == "blas"]

print(threads())
with one_thread():
    import scipy.sparse.linalg
    print(threads())
print(threads())
"""


@pytest.mark.skipif(CORES < 2, reason="BLAS takes one thread on one core")
def test_scipys_blas_has_one_thread_too_until_the_end():
    """A limit holds for the libraries that are loaded, and scipy loads its own with its first part."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    before, within, after = done.stdout.splitlines()
    if not eval(before):
        pytest.skip("threadpoolctl does not know this numpy's BLAS")
    assert set(eval(before)) == {2} == set(eval(after))
    assert set(eval(within)) == {1} and len(eval(within)) == len(eval(after))
