"""Check that all ranks train the same x, in the first two calls of an Aggregator.

An Aggregator is given gradients and not x.  If ranks made x by different random seeds, each would train a
model of its own, on the mean of gradients at different points.  If ``at`` is given, the ranks compare it in
the first call.  Else ``like`` may be x.  But it may also be a rank's own gradient, or uninitialised memory,
and these may differ between ranks.  ``like`` is taken for x if the loop changes it from one call to the next
and does not give it as the gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from mpicomp import kernels
from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.program import level_of_program
from mpicomp.loops.agreement import other_rank
from mpicomp.loops.packing import Packing

_REMEDY = "x = agg.start(x), before the first call, gives rank 0's to all ranks."
_SHAPES = "If like only shows shapes, give zeros: like=np.zeros_like(..)."

# Flags in the lowest bits of a rank's number: ``like`` is the gradient; it is unchanged; ``at`` is given.
_GRADIENT, _UNCHANGED, _AT = 1, 2, 4
_FLAGS = 7


def digest(vector: Array) -> int:
    """The CRC-32 of the entries of ``vector``."""
    return crc32(np.ascontiguousarray(kernels.to_host(vector)).data.cast("B"))


class Start:
    """The check of x in the first two calls, by a number that each rank sends the others as a call begins.

    Where nothing is to be checked the number is ``Packing.number``, which has to be equal on all ranks too.

    like    the arrays that the Aggregator was made with, if their values differ between ranks; else None
    warns   whether this rank prints the warning
    """

    def __init__(self, like: Any, packing: Packing, warns: bool) -> None:
        self._like, self._packing, self._warns = like, packing, warns
        self._calls = 0
        self._before = 0  # the digest of ``like`` in the call before

    def value(self, gradients: Iterable[Array | None], at: Array | None) -> int:
        """This rank's number for a call with ``gradients`` and the point ``at``: a hash of x, and flags."""
        if at is not None and self._calls == 0:
            return digest(at) & ~_FLAGS | _AT
        if self._like is None:
            return self._packing.number() & ~_FLAGS
        try:
            now = digest(self._packing.pack(self._like))
        except ConfigError:  # the program has put other arrays there
            return _UNCHANGED
        brought = any(g is not None and now == digest(g) for g in gradients)
        unchanged, self._before = now == self._before, now
        return now & ~_FLAGS | brought * _GRADIENT | unchanged * _UNCHANGED

    def check(self, told: Sequence[int]) -> None:
        """Compare the numbers that ``value`` gave on each rank; ``told`` has them in rank order.

        Raises ``ConfigError`` if the ranks train different x.  If ``like`` differs between ranks and may
        yet be something else than x, one rank warns instead.
        """
        self._calls += 1
        given = [bool(number & _AT) for number in told]
        if any(given):
            if not all(given):
                with_at, without = given.index(True), given.index(False)
                raise ConfigError(
                    f"at is given on rank {with_at} and not on rank {without}: all ranks give the same x."
                )
            if (other := other_rank(told)) is not None:
                raise ConfigError(
                    f"at on rank {other} is not at on rank 0: all ranks give the same x. {_REMEDY}"
                )
            self.settle()
        elif self._packing.alike and (other := other_rank(told)) is not None:
            raise ConfigError(f"on rank {other} {self._packing.alike}")
        if self._like is None:
            return
        other = other_rank([number & ~_FLAGS for number in told])
        if other is None or all(number & _GRADIENT for number in told):
            self.settle()
        elif self._calls == 2:
            self.settle()
            if not any(number & _UNCHANGED for number in told):
                raise ConfigError(
                    f"the loop changes like between calls, and like on rank {other} is not like on rank 0: "
                    f"the ranks train different x. {_REMEDY} {_SHAPES}"
                )
            if self._warns:
                warnings.warn(
                    f"like differs between ranks. If it is x: {_REMEDY} {_SHAPES}",
                    stacklevel=level_of_program(),
                )

    def settle(self) -> None:
        """End the check of ``like``: all ranks have the same x, or ``like`` is not x."""
        self._like = None
