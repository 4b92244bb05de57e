"""The transport of tests that run on every rank at once."""

from __future__ import annotations

import pytest


@pytest.fixture
def transport():
    from mpicomp.transports.mpi import Mpi

    t = Mpi(10)
    yield t
    t.close()
