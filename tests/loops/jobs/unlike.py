"""What one rank gives or calls and the others do not."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

import mpicomp
from mpicomp import (
    DCGD,
    DIANA,
    EF21,
    EF21P,
    EF21SGDM,
    MARINA,
    Aggregator,
    Descent,
    Identity,
    RandK,
    TopK,
)
from mpicomp.compressors import Contractive
from tests.loops.jobs.common import METHOD, MPI, RANK
from tests.loops.test_aggregator import PROBLEM


def wrong_shape():
    agg = Aggregator(METHOD, like=np.zeros(8))
    for _ in range(2):
        agg(np.ones(8))
    agg(np.ones(9 if RANK == 1 else 8))


def other_method():
    Aggregator(EF21SGDM(TopK(k=3 + (RANK == 1)), eta=0.3), like=np.zeros(8))


@dataclass(frozen=True)
class Chosen(Contractive):
    """The coordinates where ``keep`` is true."""

    keep: np.ndarray

    def compress(self, x, key):
        return x[self.keep].view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out[self.keep] += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * int(self.keep.sum())

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def alpha(self, d, n):
        return 0.5


def other_array():
    """A long array in a compressor of one's own differs in an entry that numpy does not print."""
    keep = np.arange(5000) % 2 == 0
    keep[2000 + 2 * (RANK == 1)] = False
    agg = Aggregator(EF21(Chosen(keep)), like=np.zeros(keep.size))
    agg(np.ones(keep.size))


def other_like():
    Aggregator(METHOD, like=np.zeros(8 + (RANK == 1)))


def other_workers():
    Aggregator(METHOD, like=np.zeros(8), workers=4 + (RANK == 1))


def other_verify():
    """Rank 1 waited for ever for the others to count with it."""
    Aggregator(METHOD, like=np.zeros(8), verify_bytes=RANK == 1)


def other_timeout():
    """Rank 1 alone gives a stall timeout, which ended by an error of MPI's."""
    Aggregator(METHOD, like=np.zeros(8), stall_timeout=100.0 if RANK == 1 else None)


def other_slices():
    """Rank 1 holds other coordinates, or none; or gives up a step that the others end.  Then they go on."""
    told = []
    agg = Aggregator(DIANA(RandK(k=3), gamma=0.1), like=np.zeros(8))
    g = np.arange(8.0) + RANK
    g[:4] = 0
    for there in ([slice(0, 2)], []):
        try:
            with agg.holding(there if RANK == 1 else [slice(0, 4)]):
                agg(g)
        except mpicomp.MpicompError as error:
            told.append(str(error))
    with agg.holding([slice(0, 2), slice(2, 4)] if RANK == 1 else [slice(2, 4), slice(0, 2)]):
        told.append(agg(g).tobytes().hex())
    early = Aggregator(EF21SGDM(TopK(k=0.5), eta=0.3), like=np.zeros(8), server="sharded", blocks=3)
    blocks = early.overlap()
    for b in (2, 1, 0):
        early.bring(b, g[blocks[b]])
    try:
        early(g) if RANK == 0 else early.drop()
    except mpicomp.MpicompError as error:
        told.append(str(error))
    told.append(early(g).tobytes().hex())
    for b in (2, 1, 0)[RANK:]:
        early.bring(b + RANK, g[blocks[b + RANK]])  # each rank another number of them
    early.drop()
    told.append(early(g).tobytes().hex())
    return MPI.COMM_WORLD.gather(told)


def left_out_on_the_server():
    """What a dedicated server warns of: in its first step with a gradient, and not of None or a dict."""
    told = []
    for gradient in (np.ones(8), None):
        agg = Aggregator(METHOD, like=np.zeros(8), server="dedicated")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                agg(gradient if RANK == 0 else np.ones(8))
        assert {one.filename for one in seen} <= {__file__}
        told.append([str(one.message) for one in seen])
    return MPI.COMM_WORLD.gather(told)


def array_for_function():
    Aggregator(MARINA(RandK(k=2), p=0.3), like=np.zeros(8))(np.ones(8))


def once_more(rank):
    """One rank makes a call more than the others, whose program ends."""
    agg = Aggregator(METHOD, like=np.zeros(8))
    for _ in range(3 + (RANK == int(rank))):
        agg(np.ones(8))


def closes_early():
    agg = Aggregator(METHOD, like=np.zeros(8))
    agg(np.ones(8))
    if RANK == 2:
        agg.close()
    else:
        agg(np.ones(8))


def goes_on_after_closing_early():
    """Rank 1 closes where the others call, and all catch the error: it is still open, and the job ends."""
    agg = Aggregator(DCGD(Identity("f8")), like=np.zeros(2))
    try:
        agg.close() if RANK == 1 else agg(np.ones(2))
    except mpicomp.MpicompError:
        return agg(np.full(2, float(RANK))).tolist()


def stays_away():
    """Rank 1 computes for ever: the others name it."""
    agg = Aggregator(METHOD, like=np.zeros(8), stall_timeout=1.0)
    agg(np.ones(8))
    if RANK == 1:
        time.sleep(100)
    agg(np.ones(8))


def different_calls(folder):
    """What is said where rank 0 makes one call and the others another; afterwards all goes on as before."""
    agg, same, other = (Aggregator(EF21(TopK(k=2)), like=np.zeros(d)) for d in (4, 4, 6))
    descent = Descent(EF21P(TopK(k=2), gamma=0.1), np.zeros(3))
    agg.save(folder)
    g = np.arange(4.0) + RANK
    pairs = {
        "another": (lambda: agg(g), lambda: other(np.ones(6))),
        "its like": (lambda: agg(g), lambda: same(g)),
        "Descent": (lambda: descent.step(np.ones(3)), lambda: agg(g)),
        "save": (lambda: agg.save(folder), lambda: agg(g)),
        "load": (lambda: agg(g), lambda: agg.load(folder)),
        "settle": (agg.settle, lambda: agg.save(folder)),
        "model": (descent.model, lambda: descent.step(np.ones(3))),
        "start": (lambda: agg.start(g), lambda: other.start(np.ones(6))),
        "made": (lambda: Aggregator(METHOD, like=np.zeros(3)), lambda: agg(g)),
        "run": (lambda: agg(g), lambda: mpicomp.run(mpicomp.GD(gamma=0.1), PROBLEM, workers=2, rounds=1)),
        "made before": (
            lambda: Aggregator(METHOD, like=np.zeros(3)),
            lambda: Aggregator(EF21(TopK(k=2)), like=np.zeros(3)),
        ),
        "of another class": (
            lambda: Aggregator(mpicomp.GD(gamma=0.1), like=np.zeros(3)),
            lambda: Descent(mpicomp.GD(gamma=0.1), np.zeros(3)),
        ),
    }
    told = {}
    for name, (first, second) in pairs.items():
        try:
            (first if RANK == 0 else second)()
        except mpicomp.MpicompError as error:
            told[name] = str(error)
        assert len(set(MPI.COMM_WORLD.allgather(told.get(name)))) == 1, name
    for step in range(3):
        assert agg(g + step).tobytes() == same(g + step).tobytes() and agg.steps == step + 1
    return told


def closes_another():
    agg, other = (Aggregator(METHOD, like=np.zeros(8)) for _ in range(2))
    other.close() if RANK == 0 else agg(np.ones(8))


def bad_option():
    """An option that one rank alone gives, and that is refused before the ranks are joined."""
    Aggregator(METHOD, like=np.zeros(8), on_nonfinite="stop" if RANK == 1 else "raise")
