"""One small run of any method, whole or interrupted, and all of it that does not depend on the clock."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest

import mpicomp
from mpicomp import MARINA, PermK
from mpicomp.problems import Quadratics
from mpicomp.transports.local import Local
from tests.support.method_cases import METHOD_CASES

N = 4
PROBLEM = Quadratics(d=13, noise=0.4, lam=0.01)
METHOD = MARINA(PermK(), p=0.2)
every_method = pytest.mark.parametrize(
    "method", [case.method for case in METHOD_CASES], ids=lambda m: type(m).__name__
)


def run(method=METHOD, problem=PROBLEM, workers=N, transport=None, **options):
    """A run of 40 rounds in one process with a row every 10, or with other options of ``mpicomp.run``."""
    options = {"rounds": 40, "every": 10, "seed": 3} | options
    return mpicomp.run(method, problem, workers=workers, transport=transport or Local(workers), **options)


def outcome_of(method, at=range(0, 41, 10)):
    """The ``outcome`` of ``run(method)``, with the rows after the rounds ``at``."""
    *others, rows = _of_every_round(method)
    return *others, [rows[k] for k in at]


@cache
def _of_every_round(method):
    return outcome(run(method, every=1))


def interrupted(at: int, /, *args, **options):
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
        book.paper_bits_down,
        rows,
    )


def file_of(folder, round, name):
    """The file of a generation whose name matches ``name``, or the generation's folder."""
    place = folder / "checkpoint" / f"round-{round}"
    (path,) = place.glob(name) if name else [place]
    return path


@contextmanager
def largest_file(nbytes):
    """No file may grow beyond ``nbytes``: a process that writes more sees a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
