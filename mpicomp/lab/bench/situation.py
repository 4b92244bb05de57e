"""A situation in which one has to choose a method, and rows of tables with rounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of a table: its page below docs/, the heading or first cell of its case, its name, its rounds.

    With an empty name the rounds stand in a sentence of the page.
    """

    page: str
    case: str
    name: str
    rounds: int


@dataclass(frozen=True)
class Seen:
    """The rounds of a method and of the dense method beside it, to one target.

    where      the problem
    gradients  of a worker in all these rounds; None: one a round
    """

    where: str
    row: Row
    dense: Row
    gradients: int | None = None

    @property
    def all_gradients(self) -> int:
        """The gradients of a worker in all the rounds."""
        return self.row.rounds if self.gradients is None else self.gradients


@dataclass(frozen=True)
class Situation:
    """One row of the table in docs/which.md.

    name      the situation, in words
    line      the text of a method
    measured  figures of a table, with a link to it, in Markdown
    dense     whether the line is the uncompressed one
    batches   whether workers draw batches; else their gradients are full
    convex    whether f has to be convex, or must not be said to be; None: either
    up        whether it is for bytes up alone, or never for them alone; None: either
    alike     whether the workers' data have to be alike
    mu        whether the constant of strong convexity of every f_i has to be known
    as_many   whether there have to be at least as many workers as coordinates
    n         the least number of workers
    seen      rounds in tables; empty: as many as the dense method by the design of the experiment
    tried     the largest d and the largest number of workers that were tried, where ``advise`` may choose the
              line; its arguments do not tell the other situations
    """

    name: str
    line: str
    measured: str
    dense: bool = False
    batches: bool = False
    convex: bool | None = None
    up: bool | None = None
    alike: bool = False
    mu: bool = False
    as_many: bool = False
    n: int = 2
    seen: tuple[Seen, ...] = ()
    tried: tuple[int, int] = (0, 0)

    @property
    def advised(self) -> bool:
        """Whether ``advise`` may choose it."""
        return self.tried != (0, 0)

    @property
    def gradients(self) -> float:
        """The gradients of a worker in a round, the most of those seen; 1 where none were counted."""
        return max([one.all_gradients / one.row.rounds for one in self.seen], default=1.0)
