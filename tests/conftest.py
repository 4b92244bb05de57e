"""Marks, and cases that take long; what tests under mpirun need: one voice, and an end at the first failure.

A rank whose test fails leaves the others waiting in the next collective for ever, so a failure on any
rank is printed there and ends the job.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest

from mpicomp.transports.launcher import launched_rank, launched_ranks
from tests.marks import PRODUCTS, function_of, marks_of
from tests.support import launching

_RANKS = launched_ranks() or 1


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Tests neither use nor fill the user's cache."""
    if "MPICOMP_CACHE" not in os.environ:
        os.environ["MPICOMP_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield


@pytest.fixture(autouse=True, scope="session")
def _numpy_for_short_vectors():
    """As in a process that has loaded nothing, whatever tests came before; and nothing has to be compiled."""
    from mpicomp import kernels

    kernels.preload(kernels.MANY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_short", kernels._NUMPY)
        yield


@pytest.fixture(autouse=True, scope="session")
def _files_without_fsync():
    """No test cuts the power, and a disk takes milliseconds for each file that it is made to keep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", params=["host", "gpu"])
def cuda(request, tmp_path_factory):
    """The CUDA kernels on a CPU that plays the device, and on a GPU where there is one."""
    from mpicomp.base.errors import ConfigError
    from mpicomp.kernels.cuda import Cuda
    from mpicomp.kernels.cuda.gpu import Gpu
    from tests.support.cuda_host import COMPILER, Host, build

    if request.param == "host":
        if COMPILER is None:
            pytest.skip("no C++ compiler")
        return Cuda(Host(build(COMPILER, tmp_path_factory.mktemp("cuda"))))
    try:
        return Cuda(Gpu())
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    had: dict[str, set] = defaultdict(set)
    for item in items:
        function, repeats = function_of(item.nodeid), False
        if function in PRODUCTS:  # of all functions it would take seconds
            values = {*map(repr, item.callspec.params.items())}
            repeats = values <= had[function]
            had[function] |= values
        for mark in marks_of(item.nodeid, repeats):
            item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    launching.may_start_ranks = item.get_closest_marker("jobs") is not None
    return (yield)


_LONG = 3  # seconds
_long: dict[str, float] = {}


def pytest_terminal_summary(terminalreporter):
    """Cases that take long and carry no mark; a list, since time decides no test."""
    if _long:
        terminalreporter.section(f"cases above {_LONG} s that tests/marks.py does not name")
        for nodeid, seconds in sorted(_long.items(), key=lambda case: -case[1]):
            terminalreporter.line(f"{seconds:6.1f} s  {nodeid}")


@pytest.hookimpl(tryfirst=True, specname="pytest_configure")
def pytest_give_each_rank_its_own_folder(config):
    """Ranks that share pytest's folder of temporary files remove it beneath each other as they end."""
    if _RANKS > 1 and config.option.basetemp is None:
        folder = tempfile.TemporaryDirectory(prefix=f"mpicomp-rank-{launched_rank()}-")
        config.add_cleanup(folder.cleanup)
        config.option.basetemp = Path(folder.name, "pytest")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if launched_rank() != 0:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        reporter._tw._file = io.StringIO()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if report.duration > _LONG and report.keywords.keys().isdisjoint(("jobs", "slow")):
        _long[report.nodeid] = _long.get(report.nodeid, 0) + report.duration
    if report.failed and _RANKS > 1:
        from mpi4py import MPI

        sys.__stderr__.write(
            f"\n[rank {launched_rank()}] {report.nodeid} ({report.when})\n{report.longreprtext}\n"
        )
        sys.__stderr__.flush()
        MPI.COMM_WORLD.Abort(1)
