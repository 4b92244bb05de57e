"""How the ranks begin what they do together: all make the same call, and all go on with it or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.runtime import interrupts
from mpicomp.transports import Transport
from mpicomp.transports.calls import Call, Operation, refuse_different


def check_alike(transport: Transport, facts: dict[str, object], values: int) -> bool:
    """Whether all ranks have the same ``values``; collective.

    Raises ``ConfigError`` on all ranks unless each has the same ``facts``.
    """
    said: Any = transport.collect((facts, values))

    def compare() -> bool:
        for rank, (theirs, _) in enumerate(said):
            for name, fact in facts.items():
                if theirs[name] != fact:
                    raise ConfigError(
                        f"rank {rank} has {name} = {theirs[name]}, and rank 0 has {fact}: all ranks give the "
                        "same."
                    )
        return all(theirs == values for _, theirs in said)

    return transport.ask_server(compare)


class Agreement:
    """What begins each call of one loop; collective.

    name  of the loop in messages, with {} for its number
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self._number = transport, len(transport.names)
        transport.names.append(name.format(self._number))
        if transport.ranks > 1:
            interrupts.hold()

    def begin(
        self,
        operation: Operation,
        action: Callable[[], int | None],
        refused: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Run ``action`` here; raise the lowest rank's error on all ranks, or nowhere.

        Returns the numbers that the ranks' actions have returned, in rank order, or one where they are alike.
        Before an error is raised all ranks run ``refused``.  If one of them has been interrupted, all do what
        SIGINT does.  Raises ``MpicompError`` on all ranks if one of them makes another call.
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
                refused()
                raise
        refuse_different(calls, self._transport.names)
        if any(call.failed for call in calls):
            refused()
            self._transport.raise_on_all(lambda: _raise(failed))
        return [call.value for call in calls]

    def end(self) -> None:
        """Raise ``MpicompError`` on all ranks unless all of them end their work with the loop."""
        try:
            refuse_different(self._tell(Operation.CLOSE), self._transport.names)
        finally:
            if self._transport.ranks > 1:
                interrupts.let_go()

    def _tell(self, operation: Operation, failed: bool = False, value: int = 0) -> list[Call]:
        """The calls of all ranks, in rank order, or one where they are alike."""
        own = Call(operation, self._number, failed, interrupts.asked(), value)
        told = self._transport.tell_all(own.number)
        return [own] if told.count(own.number) == len(told) else [Call.of(number) for number in told]


def _raise(error: MpicompError | None) -> None:
    if error is not None:
        raise error
