"""Random dithering with steps of different widths: the quantisers for smoothness-aware methods."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array, Reals
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import check_choice, integer, number
from mpicomp.base.errors import ConfigError
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.count import count_nbytes, decode_count
from mpicomp.codecs.levels import (
    CODES,
    MOST,
    Bounds,
    bounds_of,
    decode_fixed,
    decode_sparse,
    encode_fixed,
    encode_sparse,
)
from mpicomp.compressors.support.scale import check_scale_format, decode_norms
from mpicomp.compressors.support.sparsifier import scatter_add
from mpicomp.compressors.support.variances import of_blocks
from mpicomp.compressors.support.weighted import Weighted, Weights, check_number, checked_weights, weights_in
from mpicomp.kernels import join
from mpicomp.kernels.definition.reductions import norm, tree_sum
from mpicomp.kernels.definition.steps import block_ends, step_values
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.keys import Key

_ROUNDING = 2.0**-48  # a resolution this close to an integer, relatively, counts as the integer
_check_beta = number(f"a number above 0 and at most {MOST}", lambda v: 0 < v <= MOST)
_check_blocks = integer("a number of blocks, an integer from 1 to d", lambda v: v >= 1)


class Grid(NamedTuple):
    """The quantiser's grid in dimension d, on the run's device.

    r       resolutions r_j = 1/h_j, shape (d,); h_j is the step of coordinate j in units of the norm
    bounds  of the levels, which coordinate j has up to ceil(r_j): the symbols' range, bits and total bytes
    """

    r: Reals
    bounds: Bounds


class Stepped(Weighted):
    """C(x)_j = N h_j sign(x_j) rho(|x_j| / (N h_j)), N the 2-norm of x on the block of j.

    rho rounds to one of the two nearest integers without bias.  Its probabilities are multiples of 2^-32, so
    the mean is off by up to 2^-32 N h_j.  If L is a matrix that weighs the errors,

        E |C(x) - x|^2_L <= max over blocks of min_{m >= 0} (m + sum_j L_jj^2 h_j^2 / (4 (L_jj + m))) |x|^2,

    which is tight if |h| >= 2.  It is at most min{|Diag(L) h|, sum_j L_jj h_j^2 / 4}; the subclasses choose h
    to minimise the first of these.  With L = I, omega is the max over blocks of |h| - 1 if |h| >= 2, else of
    |h|^2 / 4, which is only a bound.  Proofs: ``support.variances``.
    The budget beta bounds the expected number of non-zeros: it is |1/h| if there is one block, and the sum
    over blocks of sqrt(d_l)/h_l if there are several.

    Wire: the blocks' norms, rounded up in the format ``values``, then the levels, bounded by ceil(1/h_j).
    With ``code`` "fixed" all messages have equally many bits; "sparse" codes the non-zero levels only, and is
    shorter if beta is well below d.  With one block and all steps 1/s, C(x) equals that of
    ``Dithering(s)`` bit for bit.

    beta    the budget, above 0 and at most 32767
    values  the format of the norms: "f4" or "f8"
    code    "fixed" or "sparse": how the levels are coded
    """

    beta: float
    values: str
    code: str

    def __post_init__(self) -> None:
        _check_beta("beta", self.beta)
        object.__setattr__(self, "weights", checked_weights(self.weights))
        check_scale_format(self.values)
        check_choice("code", self.code, CODES)

    @abstractmethod
    def block_count(self, d: int) -> int:
        """The number of blocks, contiguous runs of coordinates whose sizes differ by at most one."""

    @abstractmethod
    def resolution(self, w: Reals, blocks: list[Reals]) -> Reals:
        """The resolutions 1/h_j, shape (d,), where h_j is the step of coordinate j in units of the norm.

        w       the weights of the coordinates, shape (d,)
        blocks  the same weights, one view of ``w`` for each block
        """

    def compress(self, x: Array, key: Key) -> Bytes:
        grid, parts = _grid_in_use(self, x.size), self.block_count(x.size)
        on, blocks = kernels.backend_for(x), np.split(x, block_ends(x.size, parts)[:-1].tolist())
        head, norms = on.encode_norms(blocks, self.values)
        symbols = on.step_symbols(x, norms, grid.r, key.private("dithering").name)
        fixed = self.code == "fixed"
        levels = encode_fixed(symbols, grid.bounds) if fixed else encode_sparse(symbols, grid.bounds)
        return join(head, levels)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        grid, parts = _grid_in_use(self, out.size), self.block_count(out.size)
        split = WIDTH[self.values] * parts
        norms = decode_norms(buf[:split], parts, self.values)
        if self.code == "fixed":
            symbols = decode_fixed(buf[split:], grid.bounds)
            kernels.backend_for(out).add_steps(symbols, out, norms, grid.r, scale)
        else:
            kept, symbols = decode_sparse(buf[split:], grid.bounds)
            block = np.searchsorted(kernels.to_device(block_ends(out.size, parts)), kept, side="right")
            scatter_add(out, (kept,), step_values(symbols, norms[block], grid.r[kept], scale), 1.0)

    def nbytes(self, d: int) -> int | None:
        check_number(self.weights, d)
        head = WIDTH[self.values] * self.block_count(d)
        return head + _grid(self, d).bounds.nbytes if self.code == "fixed" else None

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each norm; and the bits of the levels (sparse: the non-zero ones), in whole bytes."""
        blocks = self.block_count(d)
        levels = buf[WIDTH[self.values] * blocks :]
        nbytes = len(levels)  # from the message: widths depend on weights, which a method may fit later
        if self.code == "sparse":
            nbytes -= count_nbytes(d) + index_nbytes(d, decode_count(levels, d))
        return 32 * blocks + 8 * nbytes

    def steps(self, d: int) -> Array:
        """The steps h_j in units of the norm, shape (d,); infinite for coordinates that are never sent."""
        r = _grid(self, d).r
        return np.divide(1.0, r, out=np.full(d, np.inf), where=r > 0)

    def variance(self, costs: Array) -> float:
        return float(of_blocks(costs, *self._steps_sent(costs.size)).max())

    def omega(self, d: int, n: int) -> float:
        h, starts = self._steps_sent(d)
        longest = float(np.add.reduceat(h**2, starts).max()) ** 0.5
        return longest - 1 if longest >= 2 else longest**2 / 4

    def _steps_sent(self, d: int) -> tuple[Array, list[int]]:
        """h, with 0 for coordinates that are never sent, which lose nothing; and where the blocks begin."""
        h = self.steps(d)
        h[np.isinf(h)] = 0.0
        return h, [0, *block_ends(d, self.block_count(d))[:-1].tolist()]


@dataclass(frozen=True)
class VaryingSteps(Stepped):
    """Varying-step quantisation Q_h of the budget beta = |1/h|: h_j = sqrt(sum_l w_l / w_j) / beta.

    For w = diag(L), these steps minimise the bound |Diag(w) h| at that budget: it becomes tr(L)/beta.  Equal
    steps have sqrt(d) |diag(L)| / beta.  The other bound, sum_j L_jj h_j^2 / 4, is d tr(L) / (4 beta^2) for
    both.  So varying steps gain nothing where the other bound is the smaller one, that is for |h| <= 2; with
    equal steps this means beta >= d/2.
    """

    paper: ClassVar[str] = (
        "Wang, Safaryan, Richtárik, Smoothness-aware quantization techniques (NeurIPS 2022), as recalled"
    )

    beta: float
    weights: Weights = None
    values: str = "f4"
    code: str = "fixed"

    def block_count(self, d: int) -> int:
        return 1

    def resolution(self, w: Reals, blocks: list[Reals]) -> Reals:
        return self.beta * np.sqrt(w / tree_sum(w))


@dataclass(frozen=True)
class BlockSteps(Stepped):
    """Block quantisation: block l has its own norm and one step h_l, with sum_l sqrt(d_l)/h_l = beta.

    h_l = sum_k sqrt(d_k) |w_k| / (beta |w_l|), where w_l are the weights of block l and d_l is their number.
    For w = diag(L), these steps minimise max_l h_l |Diag(L_ll)| at that budget: it becomes
    sum_k sqrt(d_k) |diag(L_kk)| / beta.  Use few blocks: a norm takes microseconds even if its block is
    small.

    blocks  the number of blocks, from 1 to d
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
        _check_blocks("blocks", self.blocks)

    def block_count(self, d: int) -> int:
        if self.blocks > d:
            raise ConfigError(f"blocks={self.blocks} exceeds the dimension d={d}; allowed: 1 to {d}.")
        return self.blocks

    def resolution(self, w: Reals, blocks: list[Reals]) -> Reals:
        sizes = [block.size for block in blocks]
        lengths = np.array([norm(block, "2") for block in blocks])
        return np.repeat(self.beta * lengths / tree_sum(np.sqrt(sizes) * lengths), sizes)


@lru_cache(maxsize=256)
def _grid(c: Stepped, d: int) -> Grid:
    """The grid in host memory; cached because sender and receiver need it in each round."""
    w = weights_in(c.weights, d)
    r = c.resolution(w, np.split(w, block_ends(d, c.block_count(d))[:-1]))
    # A value just above an integer, by rounding error, would cost a level that never occurs.
    whole = np.rint(r)
    r = np.where(np.abs(r - whole) <= _ROUNDING * r, whole, r)
    r.setflags(write=False)
    return Grid(r, bounds_of(np.ceil(r)))


@kernels.cached_on_device
def _grid_in_use(c: Stepped, d: int) -> Grid:
    """The grid on the run's device."""
    r, (most, widths, nbytes) = _grid(c, d)
    return Grid(kernels.to_device(r), Bounds(kernels.to_device(most), kernels.to_device(widths), nbytes))
