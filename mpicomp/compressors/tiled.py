"""TiledTopK: the k largest entries of each tile of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array, Indices
from mpicomp.base.bits import Bytes, pack, packed_nbytes, unpack
from mpicomp.base.checks import check_count, check_positive_integer, resolve_count
from mpicomp.base.errors import MessageError
from mpicomp.codecs.indices import decode_indices, encode_indices
from mpicomp.compressors.base import Support, Unbiased
from mpicomp.compressors.identity import Identity
from mpicomp.compressors.quantized import check_quantizer, inflation
from mpicomp.compressors.sign import Sign
from mpicomp.compressors.support.matrices import MatrixCompressor, columns_of
from mpicomp.compressors.support.sparsifier import gather, scatter_add
from mpicomp.compressors.two_means import TwoMeans
from mpicomp.kernels import join
from mpicomp.kernels.index_layouts import index_nbytes
from mpicomp.kernels.tiles import Tiles, tiles_of
from mpicomp.keys import Key

Groups = list[tuple[Tiles, int]]  # the tiles of each shape, and how many entries of each tile are sent


@dataclass(frozen=True)
class TiledTopK(MatrixCompressor):
    """C(x) = Q(x on the k largest entries of each tile) / (1 + omega_Q), for x read as a matrix.

    A side of m entries is cut into ceil(m/tile) pieces of nearly equal length, and a single row or column
    into pieces of tile² entries.  Tiles of no more than k entries are sent whole.  Q codes the K values of
    all tiles together, so omega_Q is taken in dimension K.
    alpha = s / (1 + omega_Q), or s alpha_Q for a contractive Q, where s is the least share of a tile that is
    sent, k/tile² in a tile of full size: |x|² - |x_K|² is at most (1 - s) |x|², as in each tile.

    Every tile sends values of its own, so no layer and no corner of one is left out, and the largest are
    found tile by tile.  TopK with the same number of entries in all has the smaller error.

    Wire: the positions, then Q's message of the K values, tile after tile.  Positions are the shorter, by d
    and k, of two codes: in each tile k symbols of ceil(log2 size) bits; or the index code of (d, K) for the
    matrix in which each tile's entries follow one another.

    k     the entries of a tile that are sent: a count, or a fraction of the tile below 1
    Q     the quantiser of the values: Identity(), or "f8" and others in its ``values``; Natural(),
          Dithering(s=7); Sign(), one bit for each, or TwoMeans(), 1.72 bits
    tile  the side of a tile.  The authors' program cuts a side, and a vector, into pieces of its largest
          divisor up to 64: the same tiles of a matrix if ceil(m/64) divides m for both sides
    """

    paper: ClassVar[str] = (
        "SparseLoCo, arXiv 2508.15706, for its chunks; its program cuts some sides otherwise, and the codes "
        "are others"
    )

    k: int | float
    Q: Unbiased | Sign | TwoMeans = Identity()
    tile: int = 64
    rows: int | None = None

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_positive_integer("tile", self.tile)
        super().__post_init__()
        if not isinstance(self.Q, Sign | TwoMeans):
            check_quantizer(self.Q, ", or Sign() or TwoMeans()")

    def compress(self, x: Array, key: Key) -> Bytes:
        groups, backend = self._groups(x.size), kernels.backend_for(x)
        ordered = [backend.top_k_of_tiles(x, tiles, k) for tiles, k in groups]
        values = gather(x, (_indices(groups, ordered),))
        code = self._encoded(groups, ordered, x.size)
        return join(code, self.Q.compress(values, key.named("quantized")))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        kept, split = self.coordinates(buf, out.size, key), self._code(out.size)[1]
        K = self._kept(out.size)
        values = self.Q.decompress(buf[split:], K, key.named("quantized"))
        scatter_add(out, kept, values, scale / inflation(self.Q, K, key.n))

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        groups, (fixed, split) = self._groups(d), self._code(d)
        ordered = _of_symbols(buf[:split], groups) if fixed else _of_index_code(buf[:split], groups, d)
        return (_indices(groups, ordered),)

    def _encoded(self, groups: Groups, ordered: list[Indices], d: int) -> Bytes:
        if self._code(d)[0]:  # few entries: the host packs them
            in_tiles = [o % tiles.size for o, (tiles, _) in zip(ordered, groups, strict=True)]
            symbols = [kernels.to_host(p).astype(np.uint64) for p in in_tiles]
            return join(*(pack(s, _width(tiles)) for s, (tiles, _) in zip(symbols, groups, strict=True)))
        starts = _starts(groups)
        return encode_indices(np.concatenate([s + o for s, o in zip(starts, ordered, strict=True)]), d)

    def _groups(self, d: int) -> Groups:
        """The tiles of each shape, and how many entries of each tile are sent.

        Raises ``ConfigError`` if the number of rows is neither given nor bound, or does not divide d.
        """
        rows = self.rows_of(d)
        found = tiles_of(rows, columns_of(d, rows), self.tile)
        return [
            (t, min(self.k, t.size) if isinstance(self.k, int) else resolve_count(self.k, t.size))
            for t in found
        ]

    def _kept(self, d: int) -> int:
        """K, the number of entries that are sent."""
        return sum(tiles.count * k for tiles, k in self._groups(d))

    def _code(self, d: int) -> tuple[bool, int]:
        """(whether positions are coded as symbols and not by the index code, the bytes that they take)."""
        symbols = sum(packed_nbytes(tiles.count * k, _width(tiles)) for tiles, k in self._groups(d))
        indices = index_nbytes(d, self._kept(d))
        return symbols < indices, min(symbols, indices)

    def nbytes(self, d: int) -> int | None:
        coded = self.Q.nbytes(self._kept(d))
        return None if coded is None else self._code(d)[1] + coded

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """Q's count for K values."""
        return self.Q.paper_bits(buf[self._code(d)[1] :], self._kept(d), key.named("quantized"))

    def alpha(self, d: int, n: int) -> float:
        share, K = min(k / tiles.size for tiles, k in self._groups(d)), self._kept(d)
        return share * (
            self.Q.alpha(K, n) if isinstance(self.Q, Sign | TwoMeans) else 1 / inflation(self.Q, K, n)
        )


def _width(tiles: Tiles) -> int:
    """The bits of a position in a tile."""
    return (tiles.size - 1).bit_length()


def _starts(groups: Groups) -> list[int]:
    """Where the tiles of each shape begin in the vector of all tiles."""
    return [0, *accumulate(tiles.count * tiles.size for tiles, _ in groups[:-1])]


def _indices(groups: Groups, ordered: list[Indices]) -> Indices:
    """Convert the indices ``ordered`` into the tiles of each shape to indices into x."""
    return np.concatenate([tiles.indices(o) for o, (tiles, _) in zip(ordered, groups, strict=True)])


def _of_symbols(code: Bytes, groups: Groups) -> list[Indices]:
    """Decode symbols to indices into the tiles of each shape.

    Raises ``MessageError`` unless the symbols of each tile are an increasing set.
    """
    start, found, on_host = 0, [], kernels.to_host(code)
    for tiles, k in groups:
        stop = start + packed_nbytes(tiles.count * k, _width(tiles))
        symbols = unpack(on_host[start:stop], tiles.count * k, _width(tiles)).astype(np.int64)
        p = symbols.reshape(tiles.count, k)
        if (np.diff(p, axis=1) <= 0).any() or p[:, -1].max() >= tiles.size:
            raise MessageError(
                f"positions in tiles of {tiles.size} entries that are no increasing sets of {k}."
            )
        ordered = (p + tiles.size * np.arange(tiles.count)[:, None]).ravel()
        found.append(kernels.to_same_place(code, ordered))
        start = stop
    return found


def _of_index_code(code: Bytes, groups: Groups, d: int) -> list[Indices]:
    """Decode an index code to indices into the tiles of each shape.

    Raises ``MessageError`` unless each tile has its k indices.
    """
    every = decode_indices(code, d, sum(tiles.count * k for tiles, k in groups))
    first, found = 0, []
    for start, (tiles, k) in zip(_starts(groups), groups, strict=True):
        stop = first + tiles.count * k
        ordered = every[first:stop] - start
        tile = (ordered // tiles.size).reshape(tiles.count, k)
        alone, in_turn = tile[:, 0] == tile[:, -1], tile[1:, 0] == tile[:-1, 0] + 1
        if tile[0, 0] != 0 or not alone.all() or not in_turn.all():
            raise MessageError(f"positions that are not {k} in each of the tiles of {tiles.size} entries.")
        found.append(ordered)
        first = stop
    return found
