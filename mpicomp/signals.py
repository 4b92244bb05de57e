"""Ctrl-C and its relatives: a first signal asks for an orderly end, a second one insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mpicomp.transports import Transport

# A terminal's Ctrl-C, a batch system's or mpirun's request to end, and mpirun's to forward.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


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

    before = {s: signal.signal(s, ask) for s in _SIGNALS}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
