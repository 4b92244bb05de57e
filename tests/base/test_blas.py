"""One thread in BLAS: that of numpy and that of scipy, which is loaded later."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
SCRIPT = """
import json

import threadpoolctl
from mpicomp.base.blas import one_thread

def threads():
    pools = threadpoolctl.threadpool_info()
    return [pool["num_threads"] for pool in pools if pool["user_api"] == "blas"]

print(json.dumps(threads()))
with one_thread():
    import scipy.sparse.linalg
    print(json.dumps(threads()))
print(json.dumps(threads()))
"""


@pytest.mark.skipif(CORES < 2, reason="BLAS takes one thread on one core")
def test_scipys_blas_has_one_thread_too_until_the_end():
    """A limit holds for the libraries that are loaded, and scipy loads its own with its first part."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    before, within, after = map(json.loads, done.stdout.splitlines())
    if not before:
        pytest.skip("threadpoolctl does not know this numpy's BLAS")
    assert set(before) == {2} == set(after)
    assert set(within) == {1} and len(within) == len(after)
