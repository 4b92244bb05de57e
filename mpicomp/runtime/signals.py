"""Signals that end a run: the first asks for an orderly end, the second ends the process at once.

Only a run has something to save.  Outside of one, SIGTERM and SIGHUP end the process as they do by default.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic, sleep
from types import FrameType

from mpicomp.transports import Transport

_TOGETHER = 0.2  # seconds: `timeout` signals its command, and then the process group that the command is in

_early: list[int] = []  # requests to save that came while there was no run


class Requests:
    """Tells separate requests to end from each other: signals within 0.2 s count as one request."""

    def __init__(self) -> None:
        self._last = -inf

    def is_new(self) -> bool:
        """Note that a signal has come.  True if the one before it came more than 0.2 s earlier."""
        before, self._last = self._last, monotonic()
        return self._last - before > _TOGETHER

    def outlast(self) -> None:
        """Sleep until a further signal would count as a new request."""
        sleep(max(self._last + _TOGETHER - monotonic(), 0.0))


def ending() -> list[signal.Signals]:
    """The signals that ask for an end: SIGINT (Ctrl-C), SIGTERM (batch systems), SIGHUP (terminal closed).

    SIGHUP is left out where `nohup` has this process ignore it.
    """
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def remember_signals() -> None:
    """From here on SIGUSR1, which mpirun forwards, is kept for the next run; it does not end the process."""
    signal.signal(signal.SIGUSR1, lambda number, frame: _early.append(number))


@contextmanager
def stop_on_signals(transport: Transport) -> Iterator[None]:
    """While inside, a signal to this rank ends the run on all ranks after a common round.

    A second request to end does what that signal does by default.  SIGUSR1 only ever asks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    requests, asked = Requests(), False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        transport.stop = True
        if number == signal.SIGUSR1 or not requests.is_new():
            return
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if asked:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked = True

    before = {s: signal.signal(s, ask) for s in (*ending(), signal.SIGUSR1)}
    transport.stop |= bool(_early)
    try:
        yield
    finally:
        requests.outlast()
        for s, handler in before.items():
            signal.signal(s, handler)
