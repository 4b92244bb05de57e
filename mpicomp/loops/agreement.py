"""Begin each collective call of a loop: check that all ranks make the same call, and share errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mpicomp.base.errors import MpicompError, raise_if
from mpicomp.runtime import interrupts
from mpicomp.runtime.alike import as_text, refuse_unlike
from mpicomp.transports import Transport
from mpicomp.transports.calls import Call, Operation, refuse_different


def check_alike(transport: Transport, facts: dict[str, object], values: int) -> bool:
    """Return whether all ranks have the same ``values``; collective.

    Raises ``ConfigError`` on all ranks, naming the first difference, unless all have the same ``facts``.
    """
    told: Any = transport.collect(({name: as_text(fact) for name, fact in facts.items()}, values))

    def are_equal() -> bool:
        refuse_unlike([theirs for theirs, _ in told])
        return all(theirs == values for _, theirs in told)

    return transport.ask_server(are_equal)


def other_rank(numbers: Sequence[int]) -> int | None:
    """The first rank whose number is not that of rank 0."""
    return next((rank for rank, number in enumerate(numbers) if number != numbers[0]), None)


class Agreement:
    """The agreement of all ranks on each call of one Aggregator or Descent; collective.

    name    the loop's name in error messages, with {} in place of its number
    number  its number among the loops of these ranks, the same on all of them
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self.number = transport, len(transport.names)
        transport.names.append(name.format(self.number))
        self._left: MpicompError | None = None
        self._told = False  # the other ranks count on this one in the call that is under way
        if transport.ranks > 1:
            interrupts.hold()

    def begin(
        self,
        operation: Operation,
        action: Callable[[], int | None],
        refused: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Run ``action`` on every rank; if it fails on some, raise the lowest such rank's error on all.

        Returns the numbers that the actions returned, in rank order; a list of one if all are equal.
        All ranks run ``refused`` before an error is raised.  If a rank has been interrupted, all ranks do
        what SIGINT does.  Raises ``MpicompError`` on all ranks if a rank makes another call.
        """
        failed: MpicompError | None = None
        value: int | None = 0
        try:
            value = action()
        except MpicompError as error:
            failed = error
        calls = self._tell(operation, failed is not None, value or 0)
        if any(call.interrupted for call in calls):
            try:
                interrupts.heed()
            except BaseException:
                self._told = False  # all ranks end the call here
                refused()
                raise
        refuse_different(calls, self._transport.names)
        if any(call.failed for call in calls):
            refused()
            self._transport.raise_on_all(lambda: raise_if(failed))
        return [call.value for call in calls]

    def end(self) -> None:
        """Raise ``MpicompError`` on all ranks unless all of them end their work with the loop."""
        refuse_different(self._tell(Operation.CLOSE), self._transport.names)

    def let_go(self) -> None:
        """Let interrupts act on this rank alone again, as far as this loop goes; called once, at its end."""
        if self._transport.ranks > 1:
            interrupts.let_go()

    @contextmanager
    def together(self, step: str, told: bool) -> Iterator[None]:
        """If an error of the program's own, such as KeyboardInterrupt, ends the ``with`` block, ``leave``.

        An error before this rank has told the others of its call leaves nobody waiting.  With ``told`` they
        count on this rank from the block's start.
        """
        self._refuse_left()
        self._told = told
        try:
            yield
        except MpicompError:  # raised on all ranks
            raise
        except BaseException as error:
            if self._told:
                self.leave(step, error)
            raise

    def leave(self, step: str, error: BaseException) -> None:
        """Note that ``error``, one of the program's own, has ended ``step`` on this rank alone.

        If there are other ranks, they wait for this one in that step.  So no further call can be agreed on,
        and each raises ``MpicompError`` here.
        """
        if self._transport.ranks > 1 and self._left is None:
            self._left = MpicompError(
                f"rank {self._transport.rank} has left {step} half-way by an error of the program's own, "
                f"{type(error).__name__}, and the other ranks wait for it there. Do not catch this error "
                "around a call: it has to end the program, or to be caught in the function itself."
            )

    def _refuse_left(self) -> None:
        if self._left is not None:
            raise self._left

    def _tell(self, operation: Operation, failed: bool = False, value: int = 0) -> list[Call]:
        """The calls of all ranks, in rank order; a list of one if all are equal."""
        self._refuse_left()
        own = Call(operation, self.number, failed, interrupts.asked(), value)
        self._told = True
        told = self._transport.tell_all(own.number)
        return [own] if told.count(own.number) == len(told) else [Call.of(number) for number in told]
