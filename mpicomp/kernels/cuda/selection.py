"""Selecting coordinates: marks, one bit each, and the positions of marks."""

from __future__ import annotations

import numpy as np

from mpicomp.kernels.cuda.launch import BLOCK, NULL, THREADS, Array, Launching, flat, suffix
from mpicomp.kernels.definition.philox import StreamName
from mpicomp.kernels.definition.selection import least_bits

_TILE = 1024  # words of marks a block


class Selection(Launching):
    """Positions, increasing: of the largest, of those above a threshold, of coins."""

    def top_k(self, x: Array, k: int) -> Array:
        """The indices of the k largest magnitudes, increasing; ties go to the lowest index."""
        d, name = x.size, suffix(x)
        if k == d:
            return self.xp.arange(d)
        words = words_of(d)
        state = self.xp.zeros(3 + 4096, dtype=np.uint64)
        s, histogram = state[:3], state[3:]
        above, inside = self._empty(words, np.uint32), self._empty(words, np.uint32)
        grid = min(-(-d // BLOCK), 4 * self.device.multiprocessors)
        self.device.launch("selection", f"first_digit_{name}", grid, THREADS, x, d, k, s, histogram)
        self.device.launch("selection", f"mark_{name}", grid, THREADS, x, d, above, inside, s, histogram)
        shift = 8 * x.itemsize - 1 - 22
        for bits in (9,) if x.itemsize == 4 else (11, 10, 10, 10):
            shift -= bits
            grid = min(-(-words // THREADS), 4 * self.device.multiprocessors)
            name_ = f"refine_{name}"
            self.device.launch("selection", name_, grid, THREADS, x, inside, words, shift, bits, s, histogram)
        tiles = -(-words // _TILE)
        counts, ties = self._empty(tiles + 1, np.uint64), self._empty(tiles + 1, np.uint64)
        self.device.launch(
            "selection", f"settle_{name}", tiles, THREADS, x, above, inside, words, s, counts, ties
        )
        out = self._empty(k, np.int64)
        self.device.launch(
            "selection", "collect", tiles, THREADS, above, inside, words, s, counts, ties, k, out
        )
        return out

    def at_least(self, x: Array, lam: float) -> Array:
        """The indices where |x_j| >= lam and x_j != 0, increasing."""
        return self._marked(x, least_bits(lam, x.dtype))

    def nonzero(self, x: Array) -> Array:
        """The indices where x_j is not 0, increasing."""
        return self._marked(x, 1)

    def heads(self, stream: StreamName, d: int, p: float | Array) -> Array:
        """The indices whose words are below p 2^32, increasing; p is a number or, float64, one for each."""
        marks = self._empty(words_of(d), np.uint32)
        each, all_ = (NULL, p) if isinstance(p, float) else (p, 0.0)
        self._dense(d, "selection", "mark_heads", d, each, all_, *flat(stream), marks)
        return self._positions(marks, None)

    def _marked(self, x: Array, least: int) -> Array:
        marks = self._empty(words_of(x.size), np.uint32)
        self._dense(x.size, "selection", f"at_least_{suffix(x)}", x, x.size, least, marks)
        return self._positions(marks, None)

    def _positions(self, marks: Array, expected: int | None) -> Array:
        """Where marks are; if their number is not the expected one, what comes back has another size."""
        tiles = -(-marks.size // _TILE)
        counts = self._empty(tiles + 1, np.uint64)
        arrived = self.xp.zeros(1, dtype=np.uint32)
        self.device.launch(
            "selection", "tally", tiles, THREADS, marks, marks.size, arrived, counts, self.device.pointer
        )
        *_, found = self._noted()
        out = self._empty(found if expected is None or found != expected else expected, np.int64)
        self.device.launch(
            "selection",
            "collect",
            tiles,
            THREADS,
            marks,
            NULL,
            marks.size,
            NULL,
            counts,
            NULL,
            found,
            out,
        )
        return out


def words_of(bits: int) -> int:
    """Words of marks for that many coordinates."""
    return 32 * -(-bits // 1024)
