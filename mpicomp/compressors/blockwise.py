"""Blockwise: a compressor that acts on each block of a vector alone, so that ranks can share the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.blocks import BlockMessages, Blocks
from mpicomp.base.errors import ConfigError
from mpicomp.compressors.base import Absolute, Compressor, Contractive, Sum, Support, Unbiased
from mpicomp.keys import Key


@dataclass(frozen=True)
class Blockwise(Compressor):
    """C applied to each block of x; the message is ``BlockMessages``, one message for each block.

    Block b draws under the key that is named after b, so blocks draw independently of each other.

    only  None, or the number of a block: then vectors and messages are those of this block.  The constants
          are still those of the whole vector, so that a method computes the same parameters from them on
          every rank

    It is unbiased, contractive or absolute as C is, with the constants of ``Layered``: squared norms add up
    over the blocks.  A vector of another length than d, such as the factors of a matrix, is cut evenly.  C
    acts on its shares without being bound to parts.
    """

    C: Compressor
    blocks: Blocks
    only: int | None = None

    # A method tells kinds by isinstance.
    def __new__(cls, C: Compressor, blocks: Blocks, only: int | None = None) -> Blockwise:
        for blockwise, *kinds in _CLASSES:
            if all(isinstance(C, kind) for kind in kinds):
                return object.__new__(blockwise)
        raise AssertionError(C)

    def __post_init__(self) -> None:
        bound = []
        for b, parts in enumerate(self.blocks.parts):
            try:
                C = self.C.bound(parts)
                C.nbytes(parts.size)  # refuses a k above it
                bound.append(C)
            except ConfigError as error:
                raise ConfigError(f"block {b} of {len(self.blocks)}: {error}") from None
        object.__setattr__(self, "_bound", bound)

    def __repr__(self) -> str:
        return f"{self.C!r} in {len(self.blocks)} blocks"

    def of_block(self, b: int) -> Blockwise:
        """This compressor for vectors and messages of block b alone."""
        coder = object.__new__(type(self))
        coder.__dict__.update(self.__dict__, only=b)  # what is bound is not bound again
        return coder

    def around(self, C: Compressor) -> Blockwise:
        """The compressor C applied to the same blocks."""
        return replace(self, C=C)

    def compress(self, x: Array, key: Key) -> Any:
        if self.only is not None:
            return self._coder(self.only, x.size).compress(x, _named(key, self.only))
        return BlockMessages(
            tuple(C.compress(x[where], _named(key, b)) for b, where, C in self._blocks(x.size))
        )

    def compress_difference(self, x: Array, y: Array, key: Key) -> Any:
        if self.only is not None:
            return self._coder(self.only, x.size).compress_difference(x, y, _named(key, self.only))
        return BlockMessages(
            tuple(
                C.compress_difference(x[where], y[where], _named(key, b))
                for b, where, C in self._blocks(x.size)
            )
        )

    def decompress_add(self, buf: Any, out: Array, key: Key, scale: float = 1.0) -> None:
        if self.only is not None:
            self._coder(self.only, out.size).decompress_add(buf, out, _named(key, self.only), scale)
            return
        for b, where, C in self._blocks(out.size):
            C.decompress_add(buf.of_blocks[b], out[where], _named(key, b), scale)

    def sum(self, out: Array, key: Key, scale: float = 1.0) -> Sum:
        if self.only is None:
            return super().sum(out, key, scale)
        return self._coder(self.only, out.size).sum(out, _named(key, self.only), scale)

    @property
    def selects(self) -> bool:
        return self.C.selects

    def coordinates(self, buf: Any, d: int, key: Key) -> Support:
        """The coordinates of the message ``buf`` of one block; call it on a compressor ``of_block``."""
        assert self.only is not None
        return self._coder(self.only, d).coordinates(buf, d, _named(key, self.only))

    def decompress(self, buf: Any, d: int, key: Key) -> Array:
        out = np.zeros_like(buf.of_blocks[0] if self.only is None else buf, dtype=np.float64, shape=d)
        self.decompress_add(buf, out, key)
        return out

    def nbytes(self, d: int) -> int | None:
        sizes = [C.nbytes(size) for C, size in self._sizes()]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def mean_nbytes(self, d: int, n: int) -> float:
        """The sum over the blocks."""
        return sum(C.mean_nbytes(size, n) for C, size in self._sizes())

    def paper_bits(self, buf: Any, d: int, key: Key) -> int:
        """The sum of the blocks' counts; of a compressor ``of_block`` that of the block's d entries."""
        if self.only is not None:
            return self._coder(self.only, d).paper_bits(buf, d, _named(key, self.only))
        return sum(
            C.paper_bits(buf.of_blocks[b], where.stop - where.start, _named(key, b))
            for b, where, C in self._blocks(d)
        )

    def _blocks(self, m: int) -> Iterator[tuple[int, slice, Compressor]]:
        """Number, slice and compressor of each block of a vector of m entries."""
        for b, where in enumerate(self.blocks.slices(m)):
            yield b, where, self._coder(b, where.stop - where.start)

    def _coder(self, b: int, size: int) -> Compressor:
        """The compressor of ``size`` entries that belong to block b."""
        bound: Compressor = self._bound[b]  # type: ignore[attr-defined]
        return bound if size == self.blocks.parts[b].size else self.C

    def _sizes(self) -> list[tuple[Any, int]]:
        """The compressor and the number of entries of each block."""
        return [(self._bound[b], parts.size) for b, parts in enumerate(self.blocks.parts)]  # type: ignore[attr-defined]


class _Unbiased(Blockwise, Unbiased):
    def omega(self, d: int, n: int) -> float:
        return max(C.omega(size, n) for C, size in self._sizes())

    def ab(self, d: int, n: int) -> tuple[float, float]:
        pairs = [C.ab(size, n) for C, size in self._sizes()]
        return max(a for a, _ in pairs), min(b for _, b in pairs)


class _Contractive(Blockwise, Contractive):
    def alpha(self, d: int, n: int) -> float:
        return min(C.alpha(size, n) for C, size in self._sizes())


class _UnbiasedAndContractive(_Unbiased, _Contractive):
    """Unbiased and contractive, as Identity and Lossless are."""


class _Absolute(Blockwise, Absolute):
    def delta(self, d: int) -> float:
        return sum(C.delta(size) for C, size in self._sizes())


class _OfNoKind(Blockwise):
    """Blocks of a compressor that is neither unbiased, contractive nor absolute."""


_CLASSES: list[tuple[Any, ...]] = [
    (_UnbiasedAndContractive, Unbiased, Contractive),
    (_Unbiased, Unbiased),
    (_Contractive, Contractive),
    (_Absolute, Absolute),
    (_OfNoKind,),
]


def _named(key: Key, b: int) -> Key:
    return key.named(f"block {b}")
