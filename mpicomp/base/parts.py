"""The parts of a vector: the names and shapes of the arrays whose entries it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from operator import index

from mpicomp.base.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """One array, such as the weights of a layer.

    name   not empty, and unique among the parts of a vector
    shape  the lengths of the axes, each at least 1; () for a single number
    """

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a name or a shape that is not allowed."""
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"a part is named {self.name!r}; allowed: a text that is not empty.")
        lengths = self.shape if isinstance(self.shape, tuple) else (None,)
        if not all(isinstance(m, int) and not isinstance(m, bool) and m >= 1 for m in lengths):
            raise ConfigError(
                f"part {self.name!r} has the shape {self.shape!r}; allowed: a tuple of positive integers, "
                "such as (32, 784), or () for a single number."
            )

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"

    @cached_property
    def size(self) -> int:
        """The number of entries; 1 for the shape ()."""
        return prod(self.shape)

    @property
    def is_matrix(self) -> bool:
        """Whether it has two axes or more: it is then a matrix too, its first axis by all others."""
        return len(self.shape) >= 2


@dataclass(frozen=True)
class Parts:
    """The parts of a vector in R^d, in their order, each stored in C order; d is ``size``.

    whole  None, or, if this vector is a block of a longer vector, the parts of the longer vector.  Each part
           here is then a part of ``whole``, or some rows of it under the same name
    """

    parts: tuple[Part, ...]
    whole: Parts | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` unless there is a part, and no two have the same name."""
        if not isinstance(self.parts, tuple) or not all(isinstance(p, Part) for p in self.parts):
            raise ConfigError(f"parts={self.parts!r}; allowed: a tuple of Part(name, shape).")
        names = Counter(part.name for part in self.parts)
        if not names:
            raise ConfigError("a vector without parts; allowed: one part at least.")
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise ConfigError(f"two parts are named {twice[0]!r}; give each part a name of its own.")

    @classmethod
    def single(cls, d: int) -> Parts:
        """A vector in R^d with a single part, named "x", of the shape (d,)."""
        return cls((Part("x", (index(d),)),))  # of numpy's integers too

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[tuple[Part, slice]]:
        """Each part, and the slice of the vector that holds it."""
        start = 0
        for part in self.parts:
            yield part, slice(start, start + part.size)
            start += part.size

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))

    @cached_property
    def size(self) -> int:
        """The number of entries of all parts, d."""
        return sum(part.size for part in self.parts)


def check_parts(who: str, parts: Parts | None, d: int, remedy: str = "Call") -> None:
    """Raise ``ConfigError`` unless ``parts``, which ``who`` needs, are those of a vector in R^d."""
    if parts is None or parts.size != d:
        known = "no parts" if parts is None else f"parts of {parts.size} entries"
        raise ConfigError(
            f"{who} knows {known} of the dimension d={d}. {remedy} bound(parts) first, as a run does with "
            "the parts of its problem."
        )
