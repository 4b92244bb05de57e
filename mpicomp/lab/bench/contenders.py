"""The methods to time on links: those of a suite, and those that compress also without compression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from mpicomp.averaging.allreduce import sums
from mpicomp.compressors import Compressor, Identity, Lossless
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.lab.experiment.tuning import tune
from mpicomp.methods import Method
from mpicomp.runtime.result import Run
from mpicomp.runtime.run import run

Say = Callable[[str], None]  # shows a progress message
BY_ALLREDUCE = ", Allreduce"  # behind the label


@dataclass(frozen=True)
class Contender:
    """A method to time.

    plain   the label of its uncompressed version, None if it does not compress
    server  one of ``runtime.placement.SERVERS``
    added   True for an uncompressed version of a method of the suite that is not in the suite itself
    """

    label: str
    method: Method
    plain: str | None
    server: str
    added: bool = False


def uncompressed(method: Method) -> Method | None:
    """``method`` with dense float32 messages; None if no field of it compresses."""
    held = {f.name: getattr(method, f.name) for f in fields(method)}
    lossless = Identity | Lossless
    lossy = {k: v for k, v in held.items() if isinstance(v, Compressor) and not isinstance(v, lossless)}
    if not lossy:
        return None
    plain: dict[str, Any] = dict.fromkeys(lossy, Identity())
    plain |= {name: Lossless("f4") for name, value in held.items() if isinstance(value, Lossless)}
    return replace(method, **plain)


def contenders(suite: Suite, say: Say, server: str = "sharded") -> list[Contender]:
    """The suite's methods, and for each one that compresses the same method with dense float32 messages.

    Each is averaged as ``server`` says.  Methods that the suite asks to tune are tuned in this process, and
    averaged so too: TopK acts on each block, for which the best step may be another one.  A method without
    compression is also timed with MPI_Allreduce, if that can sum its messages.
    """
    methods = {entry.label: _tuned(suite, entry, say, server) for entry in suite.entries}
    added: list[Contender] = []
    for label, method in list(methods.items()):
        plain = uncompressed(method)
        if plain is None:
            added += _dense(label, method, server)
            continue
        known = next((name for name, other in methods.items() if other == plain), None)
        if known is None:
            known = f"{label}, uncompressed"
            methods[known] = plain
            added += (replace(c, added=True) for c in _dense(known, plain, server))
        added.append(Contender(label, method, known, server))
    return added


def _dense(label: str, method: Method, server: str) -> Iterator[Contender]:
    """A method that does not compress, by the server and by MPI_Allreduce, if that can sum its messages."""
    yield Contender(label, method, None, server)
    if sums(method):
        yield Contender(f"{label}{BY_ALLREDUCE}", method, None, "allreduce")


def _tuned(suite: Suite, entry: Entry, say: Say, server: str) -> Method:
    if entry.tune is None:
        return entry.method

    def attempt(method: Method, seed: int, max_bytes: int | None) -> Run:
        say(f"tuning {entry.label}: step {method.step}")
        options = suite.options() | {"max_bytes": max_bytes, "server": server}
        done = run(method, suite.problem, seed=seed, **options)
        if done.status == "interrupted":
            raise KeyboardInterrupt
        return done

    tuning = tune(entry.method, entry.tune, suite.seeds_to_tune, attempt, suite.limits)
    return entry.method.with_step(tuning.best.gamma)
