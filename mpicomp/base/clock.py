"""Measure the time of each phase of a run; the time of an inner phase is not counted in the outer one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

PHASES = {
    "gradient": "inside f_i.grad",
    "compress": "the rest of a worker's half: differences, compression, its own decoding",
    "wait": "blocked in the transport",
    "server": "the server's half: decoding the workers' messages, averaging, compressing the broadcast",
    "decode": "decoding the broadcast and updating the replica",
}


class Clock:
    """Seconds by phase.  While an inner phase runs, the outer phase's clock stands still."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the seconds spent in this block, less those of inner phases, to ``name``."""
        self._charge()
        self._running.append(name)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def _charge(self) -> None:
        now = perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now
