"""Whole messages of coordinates: positions, coded or known, and values."""

from __future__ import annotations

import numpy as np

from mpicomp.coding.bits import expect_length
from mpicomp.coding.indices import index_nbytes
from mpicomp.coding.values import WIDTH
from mpicomp.errors import MessageError
from mpicomp.kernels.cuda.launch import Array
from mpicomp.kernels.cuda.positions import Positions
from mpicomp.kernels.cuda.values import Values


class Coordinates(Positions, Values):
    """The messages of TopK, HardThreshold, RandK, PermK and Bernoulli."""

    def top(self, x: Array, k: int, values: str) -> Array:
        """The message of ``compressors.TopK``."""
        split = index_nbytes(x.size, k)
        message = self._empty(split + k * WIDTH[values], np.uint8)
        indices = self.top_k(x, k)
        self._encode_indices(indices, x.size, message[:split])
        self._encode_values(x, indices, values, message[split:])
        return message

    def add_top(self, message: Array, out: Array, k: int, values: str, scale: float) -> None:
        """out += scale * what ``top`` coded."""
        split = index_nbytes(out.size, k)
        expect_length(message, split + k * WIDTH[values], f"{k} of {out.size} coordinates")
        indices = self.decode_indices(message[:split], out.size, k)
        self.scatter_add(out, indices, self.decode_values(message[split:], k, values), scale)

    def threshold(self, x: Array, lam: float, values: str) -> Array:
        """The message of ``compressors.HardThreshold``."""
        return self.sparse(x, self.at_least(x, lam), values)

    def sparse(self, x: Array, indices: Array, values: str) -> Array:
        """``coding.sparse.encode_sparse`` of x at increasing indices."""
        k, head = indices.size, -(-int(x.size).bit_length() // 8)
        split = head + index_nbytes(x.size, k)
        message = self._empty(split + k * WIDTH[values], np.uint8)
        self._each(head, "indices", "put_count", k, head, message)
        self._encode_indices(indices, x.size, message[head:split])
        self._encode_values(x, indices, values, message[split:])
        return message

    def add_sparse(self, message: Array, out: Array, values: str, scale: float) -> None:
        """out += scale * what ``sparse`` coded.  Raises ``MessageError`` if it holds no such vector."""
        d, head = out.size, -(-int(out.size).bit_length() // 8)
        k = int.from_bytes(self.device.host(message[:head]).tobytes(), "little")
        if message.size < head or k > d:
            raise MessageError(
                f"a message of {message.size} bytes announces {k} entries of a vector in R^{d}."
            )
        split = head + index_nbytes(d, k)
        indices = self.decode_indices(message[head:split], d, k)
        self.scatter_add(out, indices, self.decode_values(message[split:], k, values), scale)

    def chosen(self, x: Array, indices: Array, values: str) -> Array:
        """x at indices that the receiver knows: the message of RandK, PermK and Bernoulli."""
        out = self._empty(indices.size * WIDTH[values], np.uint8)
        self._encode_values(x, indices, values, out)
        return out
