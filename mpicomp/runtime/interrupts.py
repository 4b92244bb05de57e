"""Ctrl-C in a program whose ranks work together: all of them are interrupted at the same call.

``mpicomp launch`` passes Ctrl-C on to its ranks as SIGUSR1.  Ranks that are interrupted wherever they happen
to be have made different numbers of steps, and wait for each other; a handler cannot save with them.  So
while aggregators are open, a rank tells the others with its next call that it was asked to stop, and all
ranks are interrupted there, before anything has changed.
"""

from __future__ import annotations

import signal
from types import FrameType

_open = 0  # the number of embeddings with other ranks
_asked = False  # a SIGUSR1 has arrived here, and this rank has not been interrupted yet
_ahead = False  # another rank's SIGUSR1 has interrupted this rank, whose own has not arrived yet


def obey() -> None:
    """From here on SIGUSR1 is an interrupt: what SIGINT does in this program, KeyboardInterrupt at first."""
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
    """Whether this rank has been asked to stop since it last heeded it."""
    return _asked


def heed() -> None:
    """Do what SIGINT does in this program; where ranks work together, all of them call this."""
    global _asked, _ahead
    _ahead, _asked = not _asked, False
    signal.raise_signal(signal.SIGINT)


def hold() -> None:
    """From here on ranks work together once more: interrupts wait for their calls."""
    global _open
    _open += 1


def let_go() -> None:
    """The counterpart of ``hold``.  An interrupt that has waited for a call is heeded after the last."""
    global _open
    _open -= 1
    if not _open and _asked:
        heed()
