"""Run one action at a time in a thread beside the program.

Theory of operation.  The program may end while an action runs, for example by an error of its own.  Python
then waits for the thread.  If it did not, the thread would go on inside a library, such as torch's gloo, and
meet an interpreter that is being taken down, which ends the process by SIGABRT.  Only an action that may wait
for ever, for a rank that is gone, is left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


class Background:
    """A place for one action that runs beside the program; its error is kept for ``finish``.

    ends  whether each action ends, whatever other ranks do; the program's end then waits for it
    """

    def __init__(self, ends: bool) -> None:
        self._ends = ends
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def start(self, action: Callable[[], object]) -> None:
        """Start ``action`` in a thread, once the action before has ended."""
        self.wait()

        def run() -> None:
            try:
                action()
            except BaseException as error:  # raised by ``finish``, where the caller expects it
                self._error = error

        self._error = None
        self._thread = Thread(target=run, daemon=not self._ends, name="mpicomp exchange")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the action has ended, if one runs."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def forget(self) -> None:
        """Drop the error of the action before, whose state is replaced by a saved one."""
        self._error = None

    def finish(self) -> None:
        """Wait until the action has ended, and raise its error, if there is one."""
        self.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error
