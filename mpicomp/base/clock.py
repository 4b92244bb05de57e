"""Measure the time of each phase of a run; the time of an inner phase is not counted in the outer one."""

from __future__ import annotations

from collections import defaultdict
from time import perf_counter

PHASES = {
    "gradient": "inside f_i.grad",
    "compress": "the rest of a worker's half: differences, compression, decoding of its own messages",
    "wait": "blocked in the transport",
    "server": "the server's half: decoding the workers' messages, averaging, compressing what goes down",
    "decode": "decoding the broadcast and updating the replica",
}


class Clock:
    """Seconds by phase.  While an inner phase runs, the outer phase's clock stands still."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.running: list[str] = []  # the phases under way, the innermost last
        self.since = perf_counter()  # the innermost phase is charged up to then
        self._phases: dict[str, Phase] = {}

    def phase(self, name: str) -> Phase:
        """Charge the seconds spent in a ``with`` block, less those of inner phases, to ``name``."""
        if name not in self._phases:
            self._phases[name] = Phase(self, name)
        return self._phases[name]


class Phase:
    """A ``with`` block whose seconds are charged to ``name``; a round has many, so it is no generator."""

    __slots__ = ("_clock", "_name")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name = clock, name

    def __enter__(self) -> None:
        clock, now = self._clock, perf_counter()
        if clock.running:
            clock.seconds[clock.running[-1]] += now - clock.since
        clock.running.append(self._name)
        clock.since = now

    def __exit__(self, *_: object) -> None:
        clock, now = self._clock, perf_counter()
        clock.seconds[clock.running.pop()] += now - clock.since
        clock.since = now
