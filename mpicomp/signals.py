"""Ctrl-C and its relatives: a first signal asks for an orderly end, a second one insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mpicomp.transports import Transport

# A terminal's Ctrl-C, a batch system's or mpirun's request to end, and mpirun's to forward.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_early: list[int] = []  # signals that came while there was no run to end


def remember_signals() -> None:
    """From here on a signal is kept for the next run, which ends at once, instead of killing the process."""

    def remember(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        _early.append(number)

    for number in SIGNALS:
        signal.signal(number, remember)


@contextmanager
def stop_on_signals(transport: Transport) -> Iterator[None]:
    """While inside, a signal to this rank ends the run on all ranks after a common round."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if transport.stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        transport.stop = True

    before = {s: signal.signal(s, ask) for s in SIGNALS}
    transport.stop |= bool(_early)
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
