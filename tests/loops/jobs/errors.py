"""Errors of one rank, exits, and a rank that dies."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import numpy as np

import mpicomp
from mpicomp import (
    EF21,
    VRMARINA,
    Aggregator,
    Identity,
    TopK,
)
from tests.loops.jobs.common import METHOD, MPI, RANK


def not_finite():
    """Rank 1 alone has a bad gradient: all ranks skip, and the estimates go on as if it had not been."""
    rng = np.random.default_rng(RANK)
    plain = Aggregator(METHOD, like=np.zeros(8), seed=1)
    skipping = Aggregator(METHOD, like=np.zeros(8), seed=1, on_nonfinite="skip")
    for step in range(4):
        good = rng.normal(size=8)
        bad = good * np.nan if RANK == 1 else good
        assert skipping(bad) is None
        try:
            plain(bad)
            raise AssertionError("a bad gradient was taken")
        except mpicomp.DivergedError as error:
            assert str(error) == "worker 1: the gradient is not finite."
        assert plain(good).tobytes() == skipping(good).tobytes(), step
    return skipping.skipped


def raises():
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 1:
        raise RuntimeError("the user's own error")
    agg(np.ones(8))


def function_raises():
    def gradient(x):
        if RANK == 1:
            raise RuntimeError("the user's own error")
        return x + 1

    Aggregator(METHOD, like=np.zeros(8))(gradient, at=np.zeros(8))


def goes_on_after_its_error(caught=KeyError):
    """Rank 1's function raises at the second point of step 2, when the others have sent, or wait."""
    agg = Aggregator(VRMARINA(Identity("f8"), batch=None, p=1e-9), like=np.zeros(8))
    for step in range(4):

        def gradient(x, step=step):
            if RANK == 1 and step == 2 and x[0] == 1:
                raise KeyError("label")
            return x + 1

        try:
            agg(gradient, at=np.full(8, float(step)))
        except caught:
            continue


def hides_all_errors():
    goes_on_after_its_error(Exception)


def interrupted(where):
    """Rank 1 is interrupted at ``where`` of step 2, when the other ranks count on it, and goes on."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    tell_all = agg.transport.tell_all

    def interrupt(*_):
        raise KeyboardInterrupt

    def told(number):
        tell_all(number)
        agg.transport.tell_all = tell_all
        raise KeyboardInterrupt

    for step in range(4):
        if RANK == 1 and step == 2:
            if where == "telling":
                agg.transport.tell_all = told
            elif where == "checking":
                agg._watch.check = interrupt
            elif where == "ending":
                type(agg._play.running).ends_step = interrupt
            else:
                agg.transport.ask_server = interrupt
        with suppress(KeyboardInterrupt):
            agg(np.ones(8))
            agg.start(np.ones(8))


def interrupted_in_a_block():
    """Rank 1 is interrupted as it makes a message that the other ranks wait for, and goes on."""
    agg = Aggregator(METHOD, like=np.zeros(8), server="sharded", blocks=2)
    first, last = agg.overlap()
    agg.bring(1, np.ones(8)[last])
    if RANK == 1:
        agg._early._steps.step = lambda *_: exec("raise KeyboardInterrupt")
    with suppress(KeyboardInterrupt):
        agg.bring(0, np.ones(8)[first])
    agg.bring(0, np.ones(8)[first]) if RANK == 1 else agg.drop()


def before_all():
    """An error before the first collective call, where MPI is loaded."""
    MPI.COMM_WORLD.Barrier()
    if RANK == 1:
        raise RuntimeError("the user's own error")
    MPI.COMM_WORLD.Barrier()


def wrapped_hook():
    """The program's own ``sys.excepthook`` calls the one before it, which is that of mpicomp."""
    before = sys.excepthook

    def logger(kind, error, trace):
        print(f"own logger: {error}", file=sys.stderr, flush=True)
        before(kind, error, trace)

    sys.excepthook = logger
    raises()


def own_hook():
    """The program's own ``sys.excepthook``, from before, still has its turn."""

    def logger(kind, error, trace):
        print(f"own logger: {error}", file=sys.stderr, flush=True)

    sys.excepthook = logger
    raises()


def finalized():
    """The program ends MPI itself, on all ranks, with an aggregator open."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    MPI.COMM_WORLD.Barrier()
    if RANK == 0:
        print(json.dumps(agg.steps), flush=True)
    MPI.Finalize()
    sys.exit()


def exits():
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 1:
        sys.exit(0)
    agg(np.ones(8))


def exits_after_a_part():
    """Ranks 0 and 1 have met on their own too: rank 1 does not wait there while rank 0 calls."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    part = MPI.COMM_WORLD.Split(RANK < 2)
    if RANK < 2:
        with Aggregator(METHOD, like=np.zeros(8), comm=part) as of_part:
            of_part(np.ones(8))
    if RANK == 1:
        sys.exit(0)
    agg(np.ones(8))


def rank_dies():
    import os

    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 1:
        os._exit(3)
    agg(np.ones(8))


def ends_mpi_first():
    """All ranks finalise MPI, and then call and close: both are refused, and the job ends in order."""
    agg, said = Aggregator(METHOD, like=np.zeros(8)), []
    MPI.Finalize()
    for call in (lambda: agg(np.ones(8)), agg.close):
        try:
            call()
        except mpicomp.ConfigError as error:
            said.append(str(error))
    return said


class NoCount(EF21):
    def paper_bits_down(self, broadcast, d, key):
        return -1


def counts_no_bits_down():
    """The server alone sees that the method gives no count: all ranks raise the error, in the next call."""
    agg, said = Aggregator(NoCount(TopK(k=1)), like=np.zeros(2)), []
    for _ in range(2):
        try:
            said.append(agg(np.ones(2)).tolist())
        except mpicomp.ConfigError as error:
            said.append(str(error))
    return MPI.COMM_WORLD.allgather(said)
