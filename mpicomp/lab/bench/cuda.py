"""The time of compressing on a CUDA device, beside that of a copy, of plain CuPy, and of torch.

The benchmark times the calls of a run: a compressor's ``compress`` and ``decompress_add``.  A figure is the
mean time of a call over consecutive calls on the current stream, measured between two events.  So it includes
all costs of a call: launches, allocations from CuPy's pool, and the wait before a function can raise.  Calls
alternate between two vectors, so that no call finds its vector in the cache.

``fraction`` is (time of copying x) / (time of the call); the copy of x, a float32 vector, is timed
immediately before.  1 means as fast as copying x, which reads 4 d bytes and writes 4 d.
``gigabytes_per_second`` is the least number of bytes that the call must move, over its time.  Those bytes are
the part of x that it reads (twice if it needs a norm first), the part of the output vector that it reads, and
all that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from typing import Any

import numpy as np

from mpicomp import kernels
from mpicomp.compressors import (
    Bernoulli,
    Dithering,
    HardThreshold,
    Identity,
    Natural,
    NaturalDithering,
    PermK,
    RandK,
    Sign,
    Ternary,
    TiledTopK,
    TopK,
    VaryingSteps,
)
from mpicomp.compressors.base import Compressor
from mpicomp.kernels.cuda import Cuda
from mpicomp.kernels.cuda.gpu import Gpu
from mpicomp.keys import Key, clear_cached_draws

SIZES = (25_000_000, 100_000_000, 1_000_000_000)
_ONE_PERCENT = 2.5758293  # 1 % of standard normal entries exceed it in magnitude
_KEYS = (Key(0, round, 0, 100) for round in count())

Row = dict[str, Any]
Call = Callable[[int], Any]  # the argument is the number of the vector, 0 or 1
Named = tuple[str, float, Call]  # the name of a call, the least number of bytes it moves, the call


def device_kernels(sizes: tuple[int, ...] = SIZES, repeats: int = 15) -> Iterator[Row]:
    """Yield a row for each call and each d in ``sizes``, as soon as it is measured.

    A row has ``call``, ``d``, ``seconds`` (median of ``repeats``), ``spread`` (interquartile range over
    median), ``fraction``, ``gigabytes_per_second`` and ``copy_seconds``.  Raises ``ConfigError`` if CuPy or a
    device is missing.
    """
    device = Cuda(Gpu())
    for d in sizes:
        vectors = [_normal(device.xp, d, seed) for seed in (1, 2)]
        for calls in (_compress, _add, _plain, _torch):
            with kernels.using(device):  # anew for each, which frees what compressors cache on the device
                for call in calls(device, vectors):
                    yield _row(device.xp, d, vectors, repeats, *call)


def _row(xp: Any, d: int, x: list[Any], repeats: int, name: str, nbytes: float, call: Call) -> Row:
    target = xp.empty_like(x[0])
    copied = float(np.median(_time(xp, lambda i: xp.copyto(target, x[i]), repeats)))
    seconds = _time(xp, call, repeats)
    low, median, high = np.percentile(seconds, [25, 50, 75]).tolist()
    xp.get_default_memory_pool().free_all_blocks()
    return {
        "call": name,
        "d": d,
        "seconds": median,
        "spread": (high - low) / median,
        "fraction": copied / median,
        "gigabytes_per_second": nbytes / median / 1e9,
        "copy_seconds": copied,
    }


def _compress(K: Cuda, x: list[Any]) -> Iterator[Named]:
    """The calls of ``compress``, and of the selection in TopK; each as ``Named``."""
    d = x[0].size
    target = K.xp.empty_like(x[0])
    yield "copy", 8 * d, lambda i: K.xp.copyto(target, x[i])
    for name, C, read, _ in _compressors(d):
        yield f"{name}: compress", read + C.compress(x[0], next(_KEYS)).size, _compressing(C, x)
    yield "TopK 1%: indices", 8 * d + 8 * (d // 100), lambda i: K.top_k(x[i], d // 100)


def _add(K: Cuda, x: list[Any]) -> Iterator[Named]:
    """The calls of ``decompress_add``, each as ``Named``."""
    d = x[0].size
    outs = [K.xp.zeros_like(v) for v in x]
    yield "add_scaled", 12 * d, lambda i: K.add_scaled(outs[i], x[i], 0.5)
    for name, C, _, added in _compressors(d):
        key = next(_KEYS)
        message = C.compress(x[0], key)
        yield f"{name}: unpack + add", message.size + added, _adding(C, message, outs, key)


def _compressors(d: int) -> Iterator[tuple[str, Compressor, float, float]]:
    """Name, compressor, the bytes of x that compressing reads, the bytes of ``out`` that adding moves."""
    sent = 8 * (d // 100)
    yield "sign", Sign(), 4 * d, 8 * d
    yield "natural", Natural(), 4 * d, 8 * d
    for s, p in ((7, "inf"), (7, "2"), (127, "inf"), (2, "inf")):
        yield f"dithering s={s} p={p}", Dithering(s, p), 8 * d, 8 * d
    yield "ternary", Ternary(), 8 * d, 8 * d
    yield "natural dithering s=7 p=2", NaturalDithering(7), 8 * d, 8 * d
    yield "TopK 1%", TopK(d // 100), 8 * d, sent
    yield "TopK 10%", TopK(d // 10), 8 * d, 10 * sent
    yield "TiledTopK 1%", TiledTopK(0.01, rows=1), 4 * d, sent
    yield "hard threshold 1%", HardThreshold(_ONE_PERCENT), 4 * d, sent
    yield "RandK 1% uniform", RandK(d // 100), sent / 2, sent
    yield "PermK uniform, 100 workers", PermK(), sent / 2, sent
    yield "Bernoulli 1%", Bernoulli(0.01), sent / 2, sent
    yield "values bf16", Identity("bf16"), 4 * d, 8 * d
    # Last, because it caches 11 bytes a coordinate on the device.
    yield "varying steps beta=3000", VaryingSteps(3000.0), 16 * d, 16 * d


def _compressing(C: Compressor, x: list[Any]) -> Call:
    """``C.compress`` with a new key in each call, so that no draw comes from a cache."""
    return lambda i: C.compress(x[i], next(_KEYS))


def _adding(C: Compressor, message: Any, outs: list[Any], key: Key) -> Call:
    """``C.decompress_add`` with the draws' caches emptied before each call."""

    def call(i: int) -> None:
        clear_cached_draws()
        C.decompress_add(message, outs[i], key, 0.5)

    return call


def _plain(K: Cuda, x: list[Any]) -> Iterator[Named]:
    """Some of the compressors in CuPy's array functions and random numbers, written plainly."""
    xp, d = K.xp, x[0].size
    k = d // 100

    def sign(v: Any) -> Any:
        head = xp.abs(v).mean().astype(xp.float32).reshape(1).view(xp.uint8)
        return xp.concatenate([head, xp.packbits(v < 0, bitorder="little")])

    def natural(v: Any) -> Any:
        mantissa, exponent = xp.frexp(xp.abs(v))
        codes = exponent + 126 + (xp.random.random_sample(d, xp.float32) < 2 * mantissa - 1)
        return xp.concatenate([xp.packbits(v < 0, bitorder="little"), codes.astype(xp.uint8)])

    def dithering(v: Any) -> Any:
        norm = xp.abs(v).max()
        t = xp.abs(v) * (7 / norm)
        low = xp.floor(t)
        level = low + (xp.random.random_sample(d, xp.float32) < t - low)
        symbols = (xp.where(v < 0, -level, level) + 7).astype(xp.uint8)
        return xp.concatenate([norm.reshape(1).view(xp.uint8), symbols[0::2] | symbols[1::2] << 4])

    def top(v: Any) -> Any:
        return xp.sort(xp.argpartition(-xp.abs(v), k)[:k])

    yield "plain CuPy, sign", 4 * d + d / 8, lambda i: sign(x[i])
    yield "plain CuPy, natural", 4 * d + 9 * d / 8, lambda i: natural(x[i])
    yield "plain CuPy, dithering s=7 p=inf", 8.5 * d, lambda i: dithering(x[i])
    if d <= 10**8:  # argpartition sorts: it takes ten times the memory of x
        yield "plain CuPy, TopK 1%: indices", 8 * d + 8 * k, lambda i: top(x[i])


def _torch(K: Cuda, x: list[Any]) -> Iterator[Named]:
    """torch's selection of the largest entries, on the default stream, which CuPy and torch share."""
    if find_spec("torch") is None:
        return
    import torch

    d = x[0].size
    k = d // 100
    vectors = [torch.from_dlpack(v) for v in x]
    yield (
        "torch.topk of |x|, 1%, unsorted",
        8 * d + 8 * k,
        lambda i: torch.topk(vectors[i].abs(), k, sorted=False),
    )


def _normal(xp: Any, d: int, seed: int) -> Any:
    return xp.random.default_rng(seed).standard_normal(d, dtype=xp.float32)


def _time(xp: Any, call: Call, repeats: int) -> list[float]:
    """``repeats`` measurements of the seconds of a call.

    Each is the mean over a row of 2 to 20 calls, as many as take 2 ms.
    """
    start, stop = xp.cuda.Event(), xp.cuda.Event()

    def row(count: int) -> float:
        start.record()
        for i in range(count):
            call(i % 2)
        stop.record()
        stop.synchronize()
        return float(xp.cuda.get_elapsed_time(start, stop)) / 1e3 / count

    row(2)
    count = max(2, min(20, int(2e-3 / row(2))))
    return [row(count) for _ in range(repeats)]
