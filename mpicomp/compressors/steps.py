"""Random dithering with steps of different widths: the quantisers of smoothness-aware methods."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from mpicomp import kernels
from mpicomp.coding.bits import Bytes
from mpicomp.coding.levels import CODES, Levels, decode_levels, encode_levels, levels_nbytes
from mpicomp.coding.values import WIDTH
from mpicomp.compressors.base import Array, check_choice
from mpicomp.compressors.scale import check_scale_format, decode_scale, encode_scale
from mpicomp.compressors.weighted import Weighted, Weights, check_weights, weights_in
from mpicomp.errors import ConfigError
from mpicomp.kernels.reductions import norm
from mpicomp.keys import Key

MOST_LEVELS = 2**15 - 1


class Grid(NamedTuple):
    """What follows from the configuration and d.  ``starts``: where blocks begin; ``sizes``: of blocks.

    r is 1/h, real numbers; coordinate j has the levels -s_j .. s_j, s_j = ceil(r_j), which take ``nbytes`` in
    the fixed code.
    """

    starts: list[int]
    sizes: list[int]
    r: Array
    s: Levels
    nbytes: int


class Stepped(Weighted):
    """C(x)_j = N h_j sign(x_j) rho(|x_j| / (N h_j)), N the 2-norm of x on the block of j.

    rho rounds to one of the two integers around without bias.  With L the costs of errors, as a matrix,

        E |C(x) - x|^2_L <= max over blocks of min{|Diag(L) h|, sum_j L_jj h_j^2 / 4} |x|^2,

    a coordinate's variance being at most min{D |x_j|, D^2/4}, D = N h_j, and all of them independent.
    The budget beta bounds the expected number of non-zeros: it is |1/h| where there is one block, and the
    sum over blocks of sqrt(d_l)/h_l where there are several.

    Wire: the blocks' norms, rounded up in the format ``values``, then the levels, bounded by ceil(1/h_j), in
    ``code``: "fixed", the same number of bits in each message, or "sparse", which is shorter where beta is
    well below d, as few levels are not 0 then.
    Drawn as ``Dithering(s)`` is, which this is, bit for bit, where all steps are 1/s and there is one block.
    """

    beta: float
    values: str
    code: str

    def __post_init__(self) -> None:
        if isinstance(self.beta, bool) or not isinstance(self.beta, int | float):
            raise ConfigError(f"beta={self.beta!r}; allowed: a number.")
        if not 0 < self.beta <= MOST_LEVELS:
            raise ConfigError(f"beta={self.beta!r}; allowed: a number above 0 and at most {MOST_LEVELS}.")
        check_weights(self.weights)
        check_scale_format(self.values)
        check_choice("code", self.code, CODES)

    @abstractmethod
    def parts(self, d: int) -> int:
        """The number of blocks, contiguous runs of coordinates whose sizes differ by at most one."""

    @abstractmethod
    def resolution(self, w: Array, blocks: list[Array]) -> Array:
        """1/h of shape (d,), for weights ``w``, which ``blocks`` are views of."""

    def compress(self, x: Array, key: Key) -> Bytes:
        return kernels.beside(x, self._compress(kernels.host(x), key))

    def _compress(self, x: Array, key: Key) -> Bytes:
        """The message for a vector on the host."""
        grid = _grid(self, x.size)
        magnitude = np.abs(x.astype(np.float64))
        encoded = [encode_scale(norm(block, "2"), self.values) for block in np.split(x, grid.starts[1:])]
        N = np.repeat([scale or 1.0 for _, scale in encoded], grid.sizes)
        t = magnitude / N * grid.r
        low = np.floor(t)
        level = low + (key.private("dithering").words(x.size) < (t - low) * 2.0**32)
        levels = np.where(x < 0, -level, level).astype(np.int64)
        headers = [header for header, _ in encoded]
        return np.concatenate([*headers, encode_levels(levels, grid.s, self.code)])

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        grid, w, buf = _grid(self, out.size), WIDTH[self.values], kernels.host(buf)
        norms = [decode_scale(buf[w * b : w * (b + 1)], self.values) for b in range(len(grid.sizes))]
        levels = decode_levels(buf[w * len(grid.sizes) :], grid.s, self.code)
        step = np.divide(np.repeat(norms, grid.sizes), grid.r, out=np.zeros(out.size), where=grid.r > 0)
        out += kernels.put(levels.astype(np.float64) * (step * scale))

    def nbytes(self, d: int) -> int | None:
        grid = _grid(self, d)
        return WIDTH[self.values] * len(grid.sizes) + grid.nbytes if self.code == "fixed" else None

    def paper_bits(self, buf: Bytes, d: int) -> int:
        blocks = self.parts(d)  # from the length, since the widths depend on weights that a method may fit
        return 32 * blocks + 8 * (len(buf) - WIDTH[self.values] * blocks)

    def steps(self, d: int) -> Array:
        """h, of shape (d,); infinite where a coordinate is never sent."""
        r = _grid(self, d).r
        return np.divide(1.0, r, out=np.full(d, np.inf), where=r > 0)

    def variance(self, costs: Array) -> float:
        grid, h = _grid(self, costs.size), self.steps(costs.size)
        h[np.isinf(h)] = 0.0  # nothing is sent, and nothing is lost
        first = np.add.reduceat((costs * h) ** 2, grid.starts) ** 0.5
        second = np.add.reduceat(costs * h**2, grid.starts) / 4
        return float(np.minimum(first, second).max())


@dataclass(frozen=True)
class VaryingSteps(Stepped):
    """Varying-step quantisation Q_h of the budget beta = |1/h|: h_j = sqrt(sum_l w_l / w_j) / beta.

    These steps minimise |Diag(w) h| at that budget, to tr(L)/beta for w = diag(L); equal ones have
    sqrt(d) |diag(L)| / beta.  The other bound is d tr(L) / (4 beta^2) for both, so that nothing is gained
    by it where beta is above d/4.
    """

    paper: ClassVar[str] = (
        "Wang, Safaryan, Richtárik, Smoothness-aware quantization techniques (NeurIPS 2022), as recalled"
    )

    beta: float
    weights: Weights = None
    values: str = "f4"
    code: str = "fixed"

    def parts(self, d: int) -> int:
        return 1

    def resolution(self, w: Array, blocks: list[Array]) -> Array:
        return self.beta * np.sqrt(w / np.sum(w))


@dataclass(frozen=True)
class BlockSteps(Stepped):
    """Block quantisation: each block has its own norm and one step, sum_l sqrt(d_l)/h_l = beta.

    h_l = sum_k sqrt(d_k) |w_k| / (beta |w_l|), w_l being the weights of block l and d_l their number.
    These steps minimise max_l h_l |Diag(L_ll)| at that budget, for w = diag(L), to
    sum_k sqrt(d_k) |diag(L_kk)| / beta.
    """

    paper: ClassVar[str] = (
        "Wang, Safaryan, Richtárik, Smoothness-aware quantization techniques (NeurIPS 2022), as recalled"
    )

    beta: float
    blocks: int
    weights: Weights = None
    values: str = "f4"
    code: str = "fixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.blocks, bool) or not isinstance(self.blocks, int) or self.blocks < 1:
            raise ConfigError(f"blocks={self.blocks!r}; allowed: a number of blocks, an integer from 1 to d.")

    def parts(self, d: int) -> int:
        if self.blocks > d:
            raise ConfigError(f"blocks={self.blocks} exceeds the dimension d={d}; allowed: 1 to {d}.")
        return self.blocks

    def resolution(self, w: Array, blocks: list[Array]) -> Array:
        sizes = [block.size for block in blocks]
        lengths = np.array([norm(block, "2") for block in blocks])
        return np.repeat(self.beta * lengths / np.sum(np.sqrt(sizes) * lengths), sizes)


@lru_cache(maxsize=256)
def _grid(c: Stepped, d: int) -> Grid:
    """Kept because a round's message asks for it at both ends, and the next round's again."""
    w, parts = weights_in(c.weights, d), c.parts(d)
    short, longer = divmod(d, parts)
    sizes = [short + (b < longer) for b in range(parts)]
    starts = [sum(sizes[:b]) for b in range(parts)]
    r = c.resolution(w, np.split(w, starts[1:]))
    s = np.ceil(r).astype(np.int64)
    r.setflags(write=False)
    s.setflags(write=False)
    return Grid(starts, sizes, r, s, levels_nbytes(s))
