"""The dense message: all coordinates, each in the same wire format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.formats import WIDTH, check_format
from mpicomp.codecs.values import add_values, encode_values
from mpicomp.compressors.base import Contractive, Support, Unbiased
from mpicomp.keys import Key


@dataclass(frozen=True)
class Identity(Unbiased, Contractive):
    """C(x) = x, rounded to ``values``: omega = 0, alpha = 1."""

    paper: ClassVar[str] = "none: the uncompressed message"

    values: str = "f4"

    def __post_init__(self) -> None:
        check_format(self.values)

    def compress(self, x: Array, key: Key) -> Bytes:
        return encode_values(x, self.values)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        add_values(buf, out, self.values, scale)

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return (slice(0, d),)

    def nbytes(self, d: int) -> int:
        return d * WIDTH[self.values]

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each coordinate."""
        return 32 * d

    def omega(self, d: int, n: int) -> float:
        return 0.0

    def alpha(self, d: int, n: int) -> float:
        return 1.0
