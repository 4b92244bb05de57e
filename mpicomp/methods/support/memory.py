"""The common part of EFSGD and DoubleSqueeze: a memory that may decay, and the server's means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from mpicomp.base.arrays import Array
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors.base import Absolute, Contractive, Sum
from mpicomp.keys import Key
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.clipping import ClippedSum, parts_of
from mpicomp.methods.support.senders import SenderMean

AVERAGES = ("mean", "senders")


class MemoryMethod(AveragingMethod):
    """A method whose workers send m_i = C(p_i), p_i = β e_i + s_i, and keep e_i = p_i - m_i.

    A subclass has the fields C, decay, average, clip_norm and parts; its ``Worker`` has the field e.
    """

    C: Contractive | Absolute
    decay: float
    average: str
    clip_norm: bool
    parts: Parts | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "senders" and not self.C.selects:
            raise ConfigError(
                f"average='senders' with C={self.C}: its messages do not say which coordinates were sent. "
                "Take a C that chooses coordinates, such as TopK(k=0.01), or average='mean'."
            )

    def bound(self, parts: Parts) -> Self:
        method = super().bound(parts)
        return replace(method, parts=parts) if self.clip_norm else method  # type: ignore[call-arg]

    @property
    def sums(self) -> bool:
        return self.average == "mean" and not self.clip_norm

    def uplink(self, key: Key) -> Contractive | Absolute:
        return self.C

    def push(self, w: Any, s: Array, key: Key) -> Message:
        """Send s with the memory ``w.e``, and keep there the part that C drops."""
        if self.decay != 1:
            w.e *= self.decay
        w.e += s  # p_i = β e_i + s_i
        m = self.C.compress(w.e, key)  # m_i = C(p_i)
        self.C.decompress_add(m, w.e, key, -1.0)  # e_i = p_i - m_i
        return Message(m)

    def residual(self, w: Any) -> Array:
        return w.e

    def total(self, out: Array, key: Key) -> Sum:
        C, weight = self.uplink(key), self.weight(key) if self.average == "mean" else 1.0
        if self.clip_norm:
            total: Sum = ClippedSum(C, out, key, weight, parts_of(C, self.parts))
        else:
            total = C.sum(out, key, weight)
        return total if self.average == "mean" else SenderMean(C, total, key)

    def require_plain(self) -> None:
        """Raise ``ConfigError`` unless theory covers the options: no decay, and the mean of the messages."""
        reasons = {
            f"decay={self.decay}": self.decay != 1 and "a memory that decays loses what it should send later",
            "average='senders'": self.average != "mean" and "what all take is not the mean of the messages",
            "clip_norm=True": self.clip_norm and "what was clipped is in no memory",
        }
        for option, reason in reasons.items():
            if reason:
                raise ConfigError(
                    f"{type(self).__name__} has no theory step size with {option}: {reason}. Give gamma as a "
                    "number."
                )
