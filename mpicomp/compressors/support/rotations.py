"""The common parts of rotated quantisers: blocks, streams of signs, and lengths of messages."""

from __future__ import annotations

from mpicomp import kernels
from mpicomp.base.arrays import Array, StreamName
from mpicomp.base.bits import Bytes, packed_nbytes
from mpicomp.base.errors import not_allowed
from mpicomp.kernels.definition.rotated import padded, rotations
from mpicomp.keys import Key

_BLOCKS = (128, 256, 512, 1024, 2048, 4096)  # a block of 128 signs is the least that Philox draws at once


def check_block(block: object) -> None:
    """Raise ``ConfigError`` unless there are kernels for blocks of that many entries."""
    if type(block) is not int or block not in _BLOCKS:
        raise not_allowed("block", repr(block), ", ".join(map(str, _BLOCKS)))


def message(x: Array, bits: int, block: int, least: bool, key: Key, stage: int = 0) -> Bytes:
    """The scales and levels of y = R x: see ``kernels.definition.rotated``."""
    return kernels.backend_for(x).rotated(x, bits, block, least, _signs(key, stage))


def add(buf: Bytes, out: Array, bits: int, block: int, scale: float, key: Key, stage: int = 0) -> None:
    """out += scale times the vector in a ``message``.  Raises ``MessageError`` unless ``buf`` is one."""
    kernels.backend_for(out).add_rotated(buf, out, bits, block, scale, _signs(key, stage))


def nbytes(d: int, bits: int, block: int) -> int:
    """The bytes of a ``message``: 4 for each block, and ``bits`` bits for each entry of a block."""
    return 4 * rotations(d, block) + packed_nbytes(padded(d, block), bits)


def charged(d: int, bits: int, block: int) -> int:
    """The bits that papers count: 32 for each scale, and ``bits`` for each entry of the vector."""
    return 32 * rotations(d, block) + bits * d


def _signs(key: Key, stage: int) -> StreamName:
    """The stream of the diagonal D of a stage."""
    return key.private(f"rotation {stage}").name
