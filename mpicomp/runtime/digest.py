"""Hash all iterates of a run, so that two runs can be compared bit for bit."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256

import numpy as np

from mpicomp.base.arrays import Array

_INLINE = 1 << 16  # bytes: below, handing the work to a thread costs more than hashing


class Digest:
    """The chain h_k = SHA-256(h_{k-1}, x^k), h_0 = SHA-256(x^0).  Unlike a running hash, h_k can be saved.

    Iterates above 64 KiB are hashed in a thread while the next gradients are computed: hashing them first
    would delay the round by more than all the server's other work.  Iterates are not copied.
    """

    def __init__(self, x0: Array) -> None:
        self._value = sha256(x0.tobytes()).digest()
        self._pending: Future[bytes] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def update(self, x: Array) -> None:
        """Append the iterate x, which must not be changed before ``value`` has been asked for."""
        previous = self.value
        if x.nbytes <= _INLINE:
            self._value = _link(previous, x)
            return
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._pending = self._thread.submit(_link, previous, x)

    @property
    def value(self) -> bytes:
        """The 32-byte hash of all iterates appended so far; waits for the thread."""
        if self._pending is not None:
            self._value, self._pending = self._pending.result(), None
        return self._value

    @value.setter
    def value(self, saved: bytes) -> None:
        self._value, self._pending = saved, None


def _link(previous: bytes, x: Array) -> bytes:
    h = sha256(previous)
    h.update(np.ascontiguousarray(x).data)
    return h.digest()
