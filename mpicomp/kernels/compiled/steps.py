"""Levels in steps of many widths, compiled: words and levels of 1024 coordinates at a time."""

from __future__ import annotations

import numpy as np

from mpicomp.base.arrays import Array, Reals, StreamName, Symbols
from mpicomp.kernels.compiled.jit import (
    FLOATS,
    STREAM,
    float64,
    int64,
    kernel,
    read,
    uint16,
    void,
    write,
)
from mpicomp.kernels.compiled.packing import CHUNK
from mpicomp.kernels.compiled.philox import fill, name
from mpicomp.kernels.definition.rounding import lift
from mpicomp.kernels.definition.steps import block_ends
from mpicomp.kernels.threads import sliced

_MOST, _HALF = np.uint64(2**32 - 1), np.uint64(32)


def step_symbols(x: Array, norms: Reals, r: Reals, stream: StreamName) -> Symbols:
    """The symbols of r x / N, rounded without bias; N >= |x_j| in each block, r below 2^15."""
    lifts = np.ldexp(1.0, [lift(N) for N in norms.tolist()])
    gains = np.divide(2.0**32, norms * lifts, out=np.zeros(norms.size), where=norms > 0)
    ends, out, key = block_ends(x.size, norms.size), np.empty(x.size, dtype=np.uint16), name(stream)
    sliced(lambda a, b: _symbols(x[a:b], r[a:b], lifts, gains, ends, a, key, out[a:b]), x.size)
    return out


def add_steps(symbols: Symbols, out: Array, norms: Reals, r: Reals, scale: float) -> None:
    """out += scale N/r times the levels; a level of 0 adds 0, whatever N/r is."""
    ends = block_ends(out.size, norms.size)
    sliced(lambda a, b: _add(symbols[a:b], out[a:b], r[a:b], norms, ends, a, scale), out.size)


@kernel(
    *(
        void(read(x), read(float64), read(float64), read(float64), read(int64), int64, STREAM, write(uint16))
        for x in FLOATS
    )
)
def _symbols(x, r, lifts, gains, ends, first, stream, out):
    """The symbols of the coordinates from number ``first`` on."""
    draws, block = np.empty(CHUNK, dtype=np.uint32), 0
    for start in range(0, x.size, CHUNK):
        fill(stream, (first + start) // 4, draws)
        a, stop = start, min(start + CHUNK, x.size)
        while a < stop:
            while ends[block] <= first + a:
                block += 1
            b = min(ends[block] - first, stop)
            lift, gain = lifts[block], gains[block]
            piece, steps, words, symbols = x[a:b], r[a:b], draws[a - start : b - start], out[a:b]
            for j in range(piece.size):
                s = np.uint64(np.ceil(steps[j]))
                t = np.uint64(np.ceil(abs(np.float64(piece[j])) * lift * (steps[j] * gain)))
                level = min((t + (_MOST - np.uint64(words[j]))) >> _HALF, s)
                symbols[j] = s - level if piece[j] < 0 else s + level
            a = b


@kernel(
    *(void(read(uint16), write(x), read(float64), read(float64), read(int64), int64, float64) for x in FLOATS)
)
def _add(symbols, out, r, norms, ends, first, scale):
    """Add to the coordinates from number ``first`` on."""
    a, block = 0, 0
    while a < out.size:
        while ends[block] <= first + a:
            block += 1
        b = min(ends[block] - first, out.size)
        N, piece, steps, levels = norms[block], out[a:b], r[a:b], symbols[a:b]
        for j in range(piece.size):
            level = np.float64(levels[j]) - np.ceil(steps[j])
            piece[j] += level * (N / steps[j] * scale) if level != 0.0 else 0.0
        a = b
