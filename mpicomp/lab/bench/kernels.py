"""The time to compress and to decompress a vector, in units of the time to copy it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, count
from time import perf_counter, thread_time
from typing import Any, Protocol, TypeVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.formats import WIDTH
from mpicomp.compressors import (
    EDEN,
    BlockFloat,
    Dithering,
    HardThreshold,
    Identity,
    Natural,
    NaturalDithering,
    PermK,
    RandK,
    RotatedSign,
    Sign,
    Ternary,
    TiledTopK,
    TopK,
    VaryingSteps,
)
from mpicomp.kernels.threads import threads
from mpicomp.keys import Key, clear_cached_draws
from mpicomp.lab.bench.plain import plain

WORKERS = 100  # number of workers, for PermK
_ONE_PERCENT = 2.5758293035489004  # 1 % of standard normal entries exceed it
_VECTORS = 4

T = TypeVar("T")


class Timed(Protocol):
    """A compressor of this or another library; its messages have an attribute ``nbytes``."""

    def compress(self, x: Array, key: Key) -> Any: ...

    def decompress_add(self, buf: Any, out: Array, key: Key, scale: float = 1.0) -> None: ...


@dataclass(frozen=True)
class Case:
    """A compressor.  The unit is a copy of all d values or, if ``of_sent``, of the values that it sends."""

    C: Timed
    of_sent: bool = False


CASES = [
    Case(Sign()),
    Case(Natural()),
    Case(Dithering(7, "inf")),
    Case(Dithering(7, "2")),
    Case(Dithering(127, "inf")),
    Case(NaturalDithering(7)),
    Case(Ternary()),
    Case(VaryingSteps(3000.0)),
    Case(BlockFloat(bits=8)),
    Case(BlockFloat(bits=4)),
    Case(RotatedSign(1)),
    Case(EDEN(4)),
    Case(TopK(0.01)),
    Case(TopK(0.1)),
    Case(TiledTopK(0.01, rows=1)),
    Case(TiledTopK(0.05, rows=1)),
    Case(HardThreshold(_ONE_PERCENT)),
    Case(RandK(0.01)),
    Case(PermK()),
    Case(Identity("bf16")),
    Case(Identity("f2")),
    Case(RandK(0.01, "block"), of_sent=True),
    Case(PermK("block"), of_sent=True),
]


def kernel_costs(d: int, dtype: str, repeats: int = 6) -> Iterator[dict[str, Any]]:
    """Yield the figures of each compressor, then of torch's compressors if torch is installed.

    Vectors have d standard normal entries of type ``dtype``, "f4" or "f8".  Compressing uses a new key in
    each call, and the caches of draws are emptied before each decoding, so that both draw.  Consecutive calls
    get different vectors or messages.  Times are the least of all calls, for the copy and for the compressor.
    ``error`` is |C(x) - x|^2 / |x|^2 for one vector and one key.  Short vectors use the compiled kernels too,
    as in a run of many rounds.
    """
    kernels.preload(kernels.MANY)
    draw = np.random.default_rng(0)
    vectors = [draw.standard_normal(d, dtype=np.dtype(dtype).type) for _ in range(_VECTORS)]
    keys = (Key(0, round, 0, WORKERS) for round in count())
    return (_cost(case, vectors, keys, repeats) for case in chain(CASES, _peers()))


def _peers() -> Iterator[Case]:
    """torch's compressors, if torch is installed.  They come last: importing torch takes seconds."""
    if find_spec("torch"):
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # pages as large as numpy's
        from mpicomp.lab.bench.peers import PEERS

        yield from map(Case, PEERS)


def _cost(case: Case, vectors: list[Array], keys: Iterator[Key], repeats: int) -> dict[str, Any]:
    C, d, out = case.C, vectors[0].size, np.zeros_like(vectors[0])
    error = _error(C, vectors[0], next(keys))
    own = [next(keys) for _ in vectors]
    messages = [C.compress(x, key) for x, key in zip(vectors, own, strict=True)]
    copied = messages[0].nbytes // WIDTH["f4"] if case.of_sent else d

    # The part to copy lies elsewhere in each call, as a randomly drawn part does.
    parts = [x[start:][:copied] for start in range(0, d - copied + 1, copied) for x in vectors]
    copy = _fastest(lambda x: np.copyto(out[:copied], x), (parts * 2 * repeats)[: 8 * repeats])
    packing = zip(vectors * repeats, keys, strict=False)
    compress = _fastest(lambda call: C.compress(*call), packing)
    adding = _clearing_draws(list(zip(messages, own, strict=True)) * repeats)
    add = _fastest(lambda call: C.decompress_add(call[0], out, call[1], 1e-3), adding)
    return {
        "compressor": str(C),
        **_plain_cost(C, vectors, copy),
        "d": d,
        "dtype": str(out.dtype),
        "copied": copied,
        "copy_seconds": copy,
        "compress_seconds": compress,
        "compress_copies": compress / copy,
        "add_seconds": add,
        "add_copies": add / copy,
        "bits_per_coordinate": 8 * messages[0].nbytes / d,
        "error": error,
    }


def _clearing_draws(calls: list[tuple[Any, Key]]) -> Iterator[tuple[Any, Key]]:
    """The items of ``calls``; the caches of draws are emptied before each."""
    for call in calls:
        clear_cached_draws()
        yield call


def _error(C: Timed, x: Array, key: Key) -> float:
    lost = -x
    C.decompress_add(C.compress(x, key), lost, key)
    return float(np.vdot(lost, lost) / np.vdot(x, x))


def _plain_cost(C: Timed, vectors: list[Array], copy: float) -> dict[str, float | None]:
    """The figures of compressing by ``plain``; None where C has no plain version."""
    draw = np.random.default_rng(1)
    sent = plain(C, vectors[0], WORKERS, draw)
    if sent is None:
        return {"plain_seconds": None, "plain_copies": None, "plain_bits_per_coordinate": None}
    seconds = _fastest(lambda x: plain(C, x, WORKERS, draw), vectors)
    return {
        "plain_seconds": seconds,
        "plain_copies": seconds / copy,
        "plain_bits_per_coordinate": 8 * sum(part.nbytes for part in sent) / vectors[0].size,
    }


def _fastest(call: Callable[[T], object], inputs: Iterable[T]) -> float:
    """The least time of a call, in seconds: CPU time if kernels use one thread, else wall-clock time.

    The inputs should differ: on one input the processor learns to predict every branch.  CPU time excludes
    the time in which other processes have the core, but not delays from their use of memory bandwidth.
    """
    now = thread_time if threads() == 1 else perf_counter
    times = []
    for value in inputs:
        started = now()
        call(value)
        times.append(now() - started)
    return min(times)
