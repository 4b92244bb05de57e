"""Ctrl-C in a job of several ranks: interrupt all of them at the same call of an Aggregator or Descent.

``mpicomp launch`` passes Ctrl-C on to its ranks as SIGUSR1.  If each rank were interrupted at once, ranks
would have made different numbers of steps and wait for each other, and a handler could not save.  So
while an Aggregator or Descent of several ranks is open, a rank that was asked to stop tells the others with
its next call.  All ranks are interrupted there, before any state has changed.
"""

from __future__ import annotations

import signal
from types import FrameType

_open = 0  # the number of open Aggregators and Descents with several ranks
_asked = False  # a SIGUSR1 has arrived here, and this rank has not been interrupted yet
_ahead = False  # another rank's SIGUSR1 has interrupted this rank, whose own has not arrived yet


def obey() -> None:
    """From here on SIGUSR1 does what SIGINT does in this program, by default KeyboardInterrupt."""
    if not callable(signal.getsignal(signal.SIGINT)):  # a shell ignores it for what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, _ask)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked, _ahead
    if _ahead:
        _ahead = False
        return
    _asked = True
    if not _open:
        heed()


def asked() -> bool:
    """Whether this rank has received a SIGUSR1 that has not interrupted it yet."""
    return _asked


def heed() -> None:
    """Interrupt this rank now: do what SIGINT does.  While ranks work together, all of them call this."""
    global _asked, _ahead
    _ahead, _asked = not _asked, False
    signal.raise_signal(signal.SIGINT)


def hold() -> None:
    """Count one more open Aggregator or Descent of several ranks.

    While any is open, a SIGUSR1 does not interrupt this rank at once.  It waits for the next call of one of
    them, or until the last one is closed.
    """
    global _open
    _open += 1


def let_go() -> None:
    """Note one less open Aggregator or Descent.  After the last one, raise an interrupt that has waited."""
    global _open
    _open -= 1
    if not _open and _asked:
        heed()
