"""The lossless compressor, by default that of the server's broadcasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import check_choice, check_switch
from mpicomp.base.errors import MessageError
from mpicomp.base.formats import WIDTH
from mpicomp.codecs.count import decode_count
from mpicomp.codecs.sparse import add_sparse, encode_sparse, sparse_nbytes
from mpicomp.codecs.values import add_values, encode_values
from mpicomp.compressors.base import Compressor, Contractive, Unbiased
from mpicomp.compressors.support.sparsifier import gather
from mpicomp.kernels import join
from mpicomp.keys import Key

_WIRE = ("f8", "f4", "f2", "bf16")  # a message's first byte: 2 i sparse, 2 i + 1 dense, format number i


@dataclass(frozen=True, repr=False)
class Lossless(Unbiased, Contractive):
    """C(x) = x exactly: omega = 0, alpha = 1.  Messages are short if x has few non-zeros; -0.0 counts as 0.

    values   "exact": the entries are sent as float32 if that is exact for all of them, else as float64.  With
             "f8", "f4", "f2" or "bf16" they are rounded to that format, as the one loss; then all ranks, the
             server included, go on with the rounded vector
    forward  True: in each round in which the workers' messages are together shorter than their mean, the
             server sends the messages, and every rank computes the mean.  Only for the ``down`` of a method
             that broadcasts this mean, such as EF21; other methods refuse it

    Wire: one byte for the layout, then either the sparse form (count, index code, values) or all d
    values, whichever is smaller.
    """

    paper: ClassVar[str] = "none: a lossless code"

    values: str = "exact"
    forward: bool = False

    def __post_init__(self) -> None:
        check_choice("values", self.values, ("exact", *_WIRE))
        check_switch("forward", self.forward)

    def __repr__(self) -> str:
        return f"Lossless(values={self.values!r}{', forward=True' if self.forward else ''})"

    def compress(self, x: Array, key: Key) -> Bytes:
        on, kept, entries = kernels.backend_for(x), None, x
        count = on.count_nonzero(x)
        if not _dense_is_shorter(x.size, count, "f8"):  # where it is, it is in narrower formats too
            kept = on.nonzero(x)
            entries = gather(x, (kept,))
        values = self.values if self.values != "exact" else _narrowest(entries)
        if kept is None or _dense_is_shorter(x.size, count, values):
            return join(_head(values, dense=True), encode_values(x, values))
        return encode_sparse(kept, entries, x.size, values, _head(values, dense=False))

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        values, dense = _layout(buf)
        if dense:
            add_values(buf[1:], out, values, scale)
        else:
            add_sparse(buf[1:], out, values, scale)

    def nbytes(self, d: int) -> None:
        return None

    def most_nbytes(self, d: int) -> int:
        """The bytes that no message of a vector in R^d exceeds."""
        return 1 + d * WIDTH["f8" if self.values == "exact" else self.values]

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """32 bits for each non-zero entry, or for every entry in the dense layout."""
        _, dense = _layout(buf)
        return 32 * (d if dense else decode_count(buf[1:], d))

    def omega(self, d: int, n: int) -> float:
        return 0.0

    def alpha(self, d: int, n: int) -> float:
        return 1.0


def forwards(C: object) -> bool:
    """Whether C is ``Lossless(forward=True)``, or a compressor that has one in a field."""
    if isinstance(C, Lossless):
        return C.forward
    if isinstance(C, tuple):  # the rules of ``Layered``
        return any(map(forwards, C))
    names = getattr(C, "__dataclass_fields__", ()) if isinstance(C, Compressor) else ()
    return any(forwards(getattr(C, name, None)) for name in names)  # a field of one's own may not be set


def _layout(buf: Bytes) -> tuple[str, bool]:
    """The format of a message's values, and whether its layout is dense.  Raises ``MessageError``."""
    if len(buf) == 0:
        raise MessageError("Lossless: message truncated, 0 bytes, without a layout.")
    if (layout := int(buf[0])) >= 2 * len(_WIRE):
        raise MessageError(f"a message of the layout {layout}; Lossless has 0 to {2 * len(_WIRE) - 1}.")
    return _WIRE[layout // 2], bool(layout % 2)


def _head(values: str, dense: bool) -> Bytes:
    """The first byte of a message: the format of its values, and whether its layout is dense."""
    return np.array([2 * _WIRE.index(values) + dense], dtype=np.uint8)


def _dense_is_shorter(d: int, count: int, values: str) -> bool:
    return d * WIDTH[values] <= sparse_nbytes(d, count, values)


def _narrowest(x: Array) -> str:
    return "f4" if kernels.backend_for(x).are_singles(x) else "f8"
