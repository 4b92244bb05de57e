"""The sum of messages of which none is far longer than the others: norms are clipped at their median."""

from __future__ import annotations

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.parts import Parts
from mpicomp.compressors.base import Compressor, Sum
from mpicomp.compressors.blockwise import Blockwise
from mpicomp.keys import Key


class ClippedSum(Sum):
    """Adds scale · min{1, median_l |m_l| / |m_i|} · m_i for each worker i, separately in each part.

    The median of an even number of norms is the smaller of the middle two, as torch's is, and with it that of
    SparseLoCo's programs.

    The norms are those of the decoded messages, so no worker can claim another norm.  The server keeps the
    messages of the round until it knows all norms, and decodes each of them twice.

    C      the compressor of the messages
    parts  the parts of the vector that is sent; None: the vector is one part
    """

    def __init__(self, C: Compressor, out: Array, key: Key, scale: float, parts: Parts | None) -> None:
        super().__init__(C, out, key, scale)
        self._slices = [where for _, where in parts or Parts.single(out.size)]
        self._messages: list[tuple[int, Bytes]] = []
        self._norms: list[Array] = []  # of each message, in every part

    def take(self, i: int, message: Bytes) -> None:
        m = self._decoded(i, message)
        blocks = [m[where] for where in self._slices]
        self._norms.append(kernels.backend_for(m).encode_norms(blocks, "f8")[1])
        self._messages.append((i, message.copy()))

    def close(self) -> Array:
        norms = np.array([kernels.to_host(norm) for norm in self._norms])
        median = np.sort(norms, axis=0)[(len(norms) - 1) // 2]
        bounds = np.minimum(norms, median)
        factors = np.divide(bounds, norms, out=np.ones_like(norms), where=norms > 0)
        for (i, message), row in zip(self._messages, factors, strict=True):
            if (row == 1).all():
                super().take(i, message)
                continue
            m = self._decoded(i, message)
            for where, factor in zip(self._slices, row, strict=True):
                kernels.add_scaled(self.out[where], m[where], self._scale * float(factor))
        return self.out

    def _decoded(self, i: int, message: Bytes) -> Array:
        """The message of worker i as a vector."""
        m = np.zeros_like(self.out)
        self._C.decompress_add(message, m, self._key.of(i))
        return m


def parts_of(C: Compressor, parts: Parts | None) -> Parts | None:
    """The parts of the vectors that C compresses: those of its block if C has only one, else ``parts``."""
    if isinstance(C, Blockwise) and C.only is not None:
        return C.blocks.parts[C.only]
    return parts
