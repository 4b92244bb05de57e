"""Signs of the rotated vector, in stages: one bit a coordinate and stage, contractive for every vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes, expect_length
from mpicomp.base.errors import not_allowed
from mpicomp.compressors.base import Contractive
from mpicomp.compressors.support import rotations
from mpicomp.compressors.support.rotations import check_block
from mpicomp.keys import Key

_MOST = 16  # stages


@dataclass(frozen=True)
class RotatedSign(Contractive):
    """C(x) = sum of R_s' q_s over b stages: signs of the rotated vector, then of the remaining error.

        r_0 = x;   for s = 1 .. b:   y = R_s r_(s-1);   q_s = (|y|_1 / n) sign(y);   r_s = r_(s-1) - R_s' q_s

    R_s = H D_s / sqrt(n), in blocks of n entries, each with a mean of its own; sign(0) = +1.  H is the
    Walsh-Hadamard matrix.  D_s has independent random signs, which follow from the key and are not sent.
    n = ``block``; the last block is filled up with zeros to a power of two.  R_s' q_s is cut to d in each
    stage.

    alpha = 1 - 2^-b, for every x.  Proof, for a stage and a block: |r - R'q|^2 = |r|^2 - |y|_1^2 / n.  Each
    y_j is a sum of entries +-r_i / sqrt(n) with random signs, so E |y_j| >= |r| / sqrt(2n) (Szarek 1976), and
    E |y|_1^2 >= (E |y|_1)^2 >= n |r|^2 / 2.  Cutting lessens the error, stages are independent, and squared
    errors add up over blocks.  For b = 1 two equal entries attain it.  If the entries of y are nearly normal,
    as they are for most x, the error is (1 - 2/pi)^b |x|^2: 0.363, 0.132, 0.048 and 0.017 of |x|^2.

    The means have the range of single precision; alpha does not hold in blocks of subnormal ones.
    Wire: for each stage 4 bytes for each block, |y|_1 / n times 1 or sqrt(1/2), then n bits for each block.

    b      the stages, 1 to 16: bits for each coordinate
    block  the entries that are rotated together: 128, 256, 512, 1024, 2048 or 4096
    """

    paper: ClassVar[str] = "Vargaftik et al., DRIVE (NeurIPS 2021), for one stage; alpha: the docstring"

    b: int = 1
    block: int = 4096

    def __post_init__(self) -> None:
        if type(self.b) is not int or not 1 <= self.b <= _MOST:
            raise not_allowed("b", repr(self.b), f"an integer from 1 to {_MOST}, the stages")
        check_block(self.block)

    def compress(self, x: Array, key: Key) -> Bytes:
        messages = [rotations.message(x, 1, self.block, True, key)]
        if self.b > 1:
            rest = x.copy() if x.dtype == np.float64 else kernels.promoted(x)
            for stage in range(1, self.b):
                rotations.add(messages[-1], rest, 1, self.block, -1.0, key, stage - 1)
                messages.append(rotations.message(rest, 1, self.block, True, key, stage))
        return kernels.join(*messages)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        expect_length(buf, self.nbytes(out.size), self)
        if self.b == 1:
            rotations.add(buf, out, 1, self.block, scale, key)
            return
        value, each = np.zeros_like(out, dtype=np.float64), len(buf) // self.b
        for stage in range(self.b):
            rotations.add(buf[stage * each : (stage + 1) * each], value, 1, self.block, 1.0, key, stage)
        kernels.add_scaled(out, value, scale)

    def nbytes(self, d: int) -> int:
        return self.b * rotations.nbytes(d, 1, self.block)

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """For each stage 32 bits for each block, and 1 for each coordinate."""
        return self.b * rotations.charged(d, 1, self.block)

    def alpha(self, d: int, n: int) -> float:
        return 1 - 2.0**-self.b
