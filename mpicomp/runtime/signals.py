"""Signals that end a run: the first lets the current round finish and saves, the second acts at once.

Outside of a run there is nothing to save: SIGTERM and SIGHUP end the process as they do by default.  The same
holds in one process before the first round of a run, which many workers make long.  (Of several ranks none
can leave alone: they end after the first round.)

An mpicomp command ends after its run.  A Python script goes on after a run, perhaps to the next run of a
sweep.  So in a script SIGTERM, SIGHUP and SIGUSR1 are raised again once the run is saved.  They then do what
they do outside of a run: they end the process, unless the script handles them.  After SIGINT (Ctrl-C) the
script goes on with the run so far.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic, sleep
from types import FrameType
from typing import Any

from mpicomp.base.errors import DivergedError, Interrupted
from mpicomp.transports import Transport

_TOGETHER = 0.2  # seconds: `timeout` signals its command, and then the process group that the command is in

_early: list[int] = []  # SIGUSR1 that a command received before its run began
_in_command = False


class Requests:
    """Count signals as requests to end: signals less than 0.2 s apart are one request."""

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
    """The signals that ask a run to end: SIGINT (Ctrl-C), SIGTERM (batch systems), SIGHUP (terminal closed).

    SIGHUP is left out if this process ignores it, as under `nohup`.
    """
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def remember_signals() -> None:
    """Note that this process is an mpicomp command, not a script: no signal is raised again after a run.

    From here on SIGUSR1, which mpirun forwards, does not end the process: it ends the next run.
    """
    global _in_command
    _in_command = True
    signal.signal(signal.SIGUSR1, lambda number, frame: _early.append(number))


class Asked:
    """The signals that asked ranks to end the run, or None.

    number  the one that this rank has received
    agreed  after ``agree``, one that some rank has received, the same on all of them
    begun   whether the first round has begun
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.agreed: int | None = None
        self.begun = False

    def begin(self) -> None:
        """Note that the first round begins."""
        self.begun = True

    def agree(self, transport: Transport) -> None:
        """Set ``agreed``: a signal that some rank has received, SIGINT only if all are SIGINT; collective."""
        told = transport.collect(self.number)
        known = transport.ask_server(lambda: [n for n in told or [] if isinstance(n, int)])
        self.agreed = min(known, key=lambda n: n == signal.SIGINT, default=None)


def _act_as_before(number: int, handler: Any) -> None:
    """Let a signal do what ``handler`` does; then the present handler is back.

    A shell makes what it runs in the background ignore SIGINT; one that was sent all the same interrupts.
    """
    present = signal.signal(number, signal.default_int_handler if handler == signal.SIG_IGN else handler)
    try:
        signal.raise_signal(number)
    finally:
        signal.signal(number, present)  # where a script's own handler returns, the run goes on


@contextmanager
def stop_on_signals(transport: Transport) -> Iterator[Asked]:
    """In the ``with`` block, a signal to this rank ends the run on all ranks after the same round.

    A second request to end takes that signal's default action at once; SIGUSR1 never does.  In a script, a
    signal other than SIGINT is raised again at the end of the block.  Where it is not, ``Interrupted`` takes
    the place of a ``DivergedError``.  In one process that has not ``begun``, a request does at once what it
    does outside of the block.
    """
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set handlers
        return
    requests, asked_to_end = Requests(), False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked_to_end
        transport.stop = True
        if not asked.begun and transport.ranks == 1 and number != signal.SIGUSR1:
            _act_as_before(number, before[number])
            return
        asked.number = asked.number or number
        if number == signal.SIGUSR1 or not requests.is_new():
            return
        if asked_to_end and number == signal.SIGINT:
            raise KeyboardInterrupt
        if asked_to_end:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked_to_end = True

    before: dict[int, Any] = {s: signal.getsignal(s) for s in (*ending(), signal.SIGUSR1)}
    for s in before:
        signal.signal(s, ask)
    transport.stop |= bool(_early)
    try:
        yield asked
    except DivergedError as error:  # raised on all ranks
        if asked.agreed is not None and not _is_raised_again(asked.agreed):
            raise Interrupted(error.so_far or []) from error  # else nobody would hear of the request
        raise
    finally:
        requests.outlast()
        for s, handler in before.items():
            signal.signal(s, handler)
        number = asked.agreed or asked.number
        if number is not None and _is_raised_again(number):
            _pass_on(signal.Signals(number), transport.is_server)
    if asked.number is not None and asked.agreed is None and not _is_raised_again(asked.number):
        _act_as_before(asked.number, before[asked.number])  # it came after the ranks' agreement that none had


def _is_raised_again(number: int) -> bool:
    """Whether the script hears of the signal itself after the run; else the run's end has to tell it."""
    return number != signal.SIGINT and not _in_command


def _pass_on(number: signal.Signals, speaks: bool) -> None:
    """Raise the signal again, after flushing the script's output; rank 0 (``speaks``) prints a line first."""
    if speaks and signal.getsignal(number) == signal.SIG_DFL:
        sys.stderr.write(
            f"mpicomp: {number.name} has ended the run, after a whole round, and ends the process now.\n"
        )
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a stream that is closed
            stream.flush()
    signal.raise_signal(number)
