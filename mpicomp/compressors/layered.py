"""Layered: a compressor for each part of the vector, chosen by the part's name, axes or size."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.base.parts import Part, Parts
from mpicomp.codecs.varint import read_varint, varint
from mpicomp.compressors.base import Absolute, Compressor, Contractive, Coordinates, Support, Unbiased
from mpicomp.kernels import join
from mpicomp.keys import Key

Rules = Mapping[str, Compressor] | tuple[tuple[str, Compressor], ...]

_CONDITION = re.compile(r"(ndim|size) *(<=|<|==|>=|>) *(\d+)")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


class Member(NamedTuple):
    """A part, and the compressor that the rules give it.

    where  the slice of the vector that holds the part
    nbytes the size of its message; None if it depends on the data or the draw
    """

    name: str
    where: slice
    size: int
    C: Compressor
    nbytes: int | None


@dataclass(frozen=True, repr=False)
class Layered(Compressor):
    """Each array p in the vector has a compressor C_p of its own, by rules: C(x) has the parts C_p(x_p).

    Example: Layered({"*.weight": TopK(k=0.01), "size<1000": Lossless()}, default=TopK(k=0.1))

    rules    pairs of a pattern and a compressor, as a dict or a tuple; the first pattern that matches a part
             decides.  A pattern is a name in which ``*``, ``?`` and ``[..]`` stand for other characters, as
             in file names; or a condition on the number of axes, ``ndim<2``, or of entries, ``size<1000``,
             with <, <=, ==, >= or >
    default  the compressor of the parts that no pattern matches
    parts    the parts of the vector.  Leave them out: a run sets them from its problem, and elsewhere
             ``bound(parts)`` does.  == compares them; ``repr`` does not show them

    Draws: each part has random numbers of its own, so parts draw independently of each other.

    The compressors of the rules are of one kind, and C is of the same kind.  Proof: squared norms add up over
    the parts.  If all C_p are unbiased, C is, with omega = max omega_p; and with A = max A_p, B = min B_p,

        E |mean C_i(a_i) - mean a_i|^2 <= sum_p (A_p mean |a_ip|^2 - B_p |mean a_ip|^2)
                                       <= A mean |a_i|^2 - B |mean a_i|^2.

    If all are contractive, alpha = min alpha_p; if all are absolute, delta = sum_p delta_p.

    Wire: the parts' messages, in the order of the parts.  A message whose size follows from the size of its
    part is sent as it is.  Any other is preceded by its length (LEB128), unless it is the last.  Where
    ``decompress_add`` refuses the message of a part, it has added those of the parts before.

    Raises ``ConfigError`` if the compressors are of no common kind.  ``bound`` raises it if a pattern matches
    no part, a part has no compressor, or two names may share draws.  Its use raises it if it is not bound,
    or is bound to parts whose total number of entries is not d.
    """

    paper: ClassVar[str] = "none: the compressors of the parts"

    rules: Rules
    default: Compressor | None = None
    parts: Parts | None = field(default=None, repr=False)

    # A method tells kinds by isinstance.  So ``Layered(..)`` gives an object of that class below which is of
    # the kinds that all its compressors have.
    def __new__(cls, rules: Rules, default: Compressor | None = None, parts: Parts | None = None) -> Layered:
        members = [*_checked(rules).values(), *([] if default is None else [default])]
        for layered, *kinds in _CLASSES:
            if members and all(isinstance(C, kind) for C in members for kind in kinds):
                return object.__new__(layered)
        named = ", ".join(f"{C} is {_kinds_text(C)}" for C in dict.fromkeys(members))
        raise ConfigError(
            f"Layered: {named or 'it has neither rules nor a default'}; allowed: compressors that are all "
            "unbiased, all contractive or all absolute. Shrunk(Q) is contractive for an unbiased Q."
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(_checked(self.rules).items()))
        members = None if self.parts is None else tuple(_members(self, self.parts))
        object.__setattr__(self, "_members", members)

    def __reduce__(self) -> tuple[Any, ...]:
        return Layered, (self.rules, self.default, self.parts)

    def __repr__(self) -> str:
        default = "" if self.default is None else f", default={self.default!r}"
        return f"Layered({dict(self.rules)!r}{default})"

    def bound(self, parts: Parts) -> Self:
        return replace(self, parts=parts)

    def members(self, d: int) -> tuple[Member, ...]:
        """The parts of a vector in R^d and their compressors.

        Raises ``ConfigError`` if it is not bound, or is bound to parts with another number of entries than d.
        """
        if self.parts is None:
            raise ConfigError(
                f"{self} does not know the parts of the dimension d={d}. A run takes them from its problem; "
                "elsewhere use Layered(..).bound(parts)."
            )
        if self.parts.size != d:
            raise ConfigError(
                f"{self} is bound to parts of {self.parts.size} entries, not of the dimension d={d}; bind it "
                f"to the parts of this vector. Its parts: {self.parts}."
            )
        found: tuple[Member, ...] = self._members  # type: ignore[attr-defined]
        return found

    def compress(self, x: Array, key: Key) -> Bytes:
        members = self.members(x.size)
        return _joined([(m, m.C.compress(x[m.where], key.named(m.name))) for m in members])

    def compress_difference(self, x: Array, y: Array, key: Key) -> Bytes:
        members = self.members(x.size)
        return _joined(
            [(m, m.C.compress_difference(x[m.where], y[m.where], key.named(m.name))) for m in members]
        )

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        for m, message in self._split(buf, out.size):
            m.C.decompress_add(message, out[m.where], key.named(m.name), scale)

    @property
    def selects(self) -> bool:
        members = [*dict(self.rules).values(), *([] if self.default is None else [self.default])]
        return all(C.selects for C in members)

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        return tuple(
            _moved(where, m.where.start)
            for m, message in self._split(buf, d)
            for where in m.C.coordinates(message, m.size, key.named(m.name))
        )

    def _split(self, buf: Bytes, d: int) -> Iterator[tuple[Member, Bytes]]:
        """Each member, and its message in ``buf``.  Raises ``MessageError`` if ``buf`` is too short.

        The last message is what remains, and its compressor refuses a wrong length.
        """
        *others, last = self.members(d)
        start = 0
        for m in others:
            length, start = (m.nbytes, start) if m.nbytes is not None else read_varint(buf, start)
            if start + length > len(buf):
                raise MessageError(
                    f"{self}: message truncated in part {m.name!r}, {len(buf)} bytes where "
                    f"{start + length} are expected."
                )
            yield m, buf[start : start + length]
            start += length
        yield last, buf[start:]

    def nbytes(self, d: int) -> int | None:
        sizes = [m.nbytes for m in self.members(d)]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def mean_nbytes(self, d: int, n: int) -> float:
        """The sum over the parts of the expected sizes, and the bytes of the lengths that precede messages.

        A length is counted with the bytes that the length of a message of expected size takes.
        """
        *others, last = self.members(d)
        total = last.C.mean_nbytes(last.size, n)
        for m in others:
            mean = m.C.mean_nbytes(m.size, n)
            total += mean + (0 if m.nbytes is not None else len(varint(round(mean))))
        return total

    def paper_bits(self, buf: Bytes, d: int, key: Key) -> int:
        """The sum of the parts' counts."""
        return sum(m.C.paper_bits(message, m.size, key.named(m.name)) for m, message in self._split(buf, d))


class _Unbiased(Layered, Unbiased):
    def omega(self, d: int, n: int) -> float:
        return max(C.omega(m.size, n) for m in self.members(d) if isinstance(C := m.C, Unbiased))

    def ab(self, d: int, n: int) -> tuple[float, float]:
        pairs = [C.ab(m.size, n) for m in self.members(d) if isinstance(C := m.C, Unbiased)]
        return max(a for a, _ in pairs), min(b for _, b in pairs)


class _Contractive(Layered, Contractive):
    def alpha(self, d: int, n: int) -> float:
        return min(C.alpha(m.size, n) for m in self.members(d) if isinstance(C := m.C, Contractive))


class _UnbiasedAndContractive(_Unbiased, _Contractive):
    """Unbiased and contractive, as Identity and Lossless are."""


class _Absolute(Layered, Absolute):
    def delta(self, d: int) -> float:
        return sum(C.delta(m.size) for m in self.members(d) if isinstance(C := m.C, Absolute))


_CLASSES: list[tuple[Any, ...]] = [
    (_UnbiasedAndContractive, Unbiased, Contractive),
    (_Unbiased, Unbiased),
    (_Contractive, Contractive),
    (_Absolute, Absolute),
]


def _kinds_text(C: Compressor) -> str:
    kinds = [kind.__name__.lower() for kind in (Unbiased, Contractive, Absolute) if isinstance(C, kind)]
    return " and ".join(kinds) or "of no kind"


def _checked(rules: Rules) -> dict[str, Compressor]:
    """The rules as a dict.  Raises ``ConfigError`` unless they are pairs of a text and a compressor."""
    pairs = rules.items() if isinstance(rules, Mapping) else rules
    try:
        found = dict(pairs)
    except (TypeError, ValueError):
        found = {"": None}  # type: ignore[dict-item]
    for pattern, C in found.items():
        if not isinstance(pattern, str) or not isinstance(C, Compressor):
            raise ConfigError(
                f"rules={rules!r}; allowed: a dict from patterns to compressors, such as "
                "{'*.bias': Identity(), 'ndim>=2': TopK(0.05)}."
            )
    return found


def _members(c: Layered, parts: Parts) -> Iterator[Member]:
    """The parts and the compressors that the rules of ``c`` give them, bound to their parts."""
    rules, whole = dict(c.rules), parts.whole or parts
    for pattern in rules:
        if not any(_matches(pattern, part) for part in whole.parts):
            raise ConfigError(f"Layered: {pattern!r} matches no part; the parts are {whole}.")
    names = {part.name for part in whole.parts}
    for name in sorted(names):
        if f"{name}/quantized" in names:  # the key of what ``Quantized`` has left of part ``name``
            raise ConfigError(
                f"Layered: the parts {name!r} and '{name}/quantized' may have the same draws; rename one."
            )
    for part, where in parts:
        C = next((C for pattern, C in rules.items() if _matches(pattern, part)), c.default)
        if C is None:
            raise ConfigError(
                f"Layered: no pattern matches the part {part}, and there is no default; add a pattern, or "
                "default=COMPRESSOR."
            )
        try:
            C = C.bound(Parts((part,)))
            nbytes = C.nbytes(part.size)
        except ConfigError as error:
            raise ConfigError(f"Layered: part {part}: {error}") from None
        yield Member(part.name, where, part.size, C, nbytes)


def _matches(pattern: str, part: Part) -> bool:
    if condition := _CONDITION.fullmatch(pattern):
        quantity, comparison, count = condition.groups()
        return _COMPARE[comparison](len(part.shape) if quantity == "ndim" else part.size, int(count))
    return fnmatchcase(part.name, pattern)


def _moved(where: Coordinates, start: int) -> Coordinates:
    """The coordinates of a vector whose coordinates in a part that begins at ``start`` are ``where``."""
    return slice(start + where.start, start + where.stop) if isinstance(where, slice) else where + start


def _joined(messages: list[tuple[Member, Bytes]]) -> Bytes:
    """The message for all parts, with the lengths that are not known beforehand, but for the last."""
    *others, (_, last) = messages
    pieces: list[Bytes] = []
    for m, message in others:
        if m.nbytes is None:
            pieces.append(np.frombuffer(varint(len(message)), dtype=np.uint8))
        pieces.append(message)
    return join(*pieces, last) if pieces else last
