"""Check that a method, such as one of your own, keeps what a run takes for granted of it."""

from __future__ import annotations

from copy import copy
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from mpicomp.base.arrays import Array
from mpicomp.base.bits import Bytes
from mpicomp.base.checks import as_integer, as_seed
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.base.units import one_line
from mpicomp.compressors.base import Compressor, Sum, Support
from mpicomp.keys import Key
from mpicomp.methods import Method
from mpicomp.problems import Problem, Quadratics
from mpicomp.runtime.run import run
from mpicomp.transports.local import Local


def check_method(
    method: Method,
    problem: Problem | None = None,
    workers: int = 4,
    rounds: int = 20,
    seed: int = 0,
) -> None:
    """Check what ``Method`` promises, in a few short runs in this process.

    * A message of a compressor that is a field of the method is decoded with the key with which it was
      compressed.  With another key a compressor that draws decodes to other coordinates, without an error.
    * All state is in the records: a second run has the same iterates, and so has one that is interrupted half
      way, and resumed after a run with another seed.

    Not checked: the formulas, the theory step, and compressors that are no fields, such as ``Identity("f4")``
    in a step.  A mistake in a branch that these rounds do not take is not found.

    problem  the problem to run on; None: quadratics in 24 variables
    workers  the number n of workers
    rounds   of each run, 2 or more
    seed     of the runs

    Raises ``ConfigError`` that names the first promise broken, and whatever a run raises.
    """
    if not isinstance(method, Method):
        raise ConfigError(f"method={one_line(method)}; allowed: an object of a class derived from Method.")
    problem = Quadratics(d=24, noise=0.5, lam=0.01) if problem is None else problem
    n, rounds, seed = as_integer("workers", workers), as_integer("rounds", rounds, least=2), as_seed(seed)
    runs = partial(run, problem=problem, workers=n, every=rounds)
    with TemporaryDirectory() as folder:
        first, half, name = Path(folder) / "run", rounds // 2, type(method).__name__
        whole = runs(method, rounds=rounds, seed=seed, transport=Local(n)).iterates_sha256
        again = runs(_watched(method), rounds=rounds, seed=seed, transport=Local(n)).iterates_sha256
        if again != whole:
            raise ConfigError(
                f"{name}: a second run of {rounds} rounds has other iterates. Keep all state in the records, "
                "and draw from the key alone."
            )
        runs(method, rounds=half, seed=seed, transport=Local(n), out=first)
        runs(method, rounds=half + 1, seed=seed + 1, transport=Local(n))  # leaves other state behind
        resumed = runs(method, rounds=rounds, seed=seed, transport=Local(n), out=first, resume=True)
        if resumed.iterates_sha256 != whole:
            raise ConfigError(
                f"{name}: a run that is resumed after {half} of {rounds} rounds has other iterates. Keep all "
                "state in the records: a run saves nothing else."
            )


def _watched(method: Method) -> Method:
    """The method with compressors that raise ``ConfigError`` where a message is decoded with another key."""
    watched = copy(method)
    for field in fields(method):
        if isinstance(C := getattr(method, field.name), Compressor):
            keys: dict[bytes, set[Key]] = {}
            object.__setattr__(
                watched, field.name, _watching(C, f"{type(method).__name__}.{field.name}", keys)
            )
    return watched


def _watching(C: Compressor, name: str, keys: dict[bytes, set[Key]]) -> Compressor:
    """``C``, of a subclass that keeps in ``keys`` the keys of each message, and compares them."""
    chooses = type(C).coordinates is not Compressor.coordinates
    bases = (_Choosing if chooses else _Watching, type(C))
    members = {"__module__": __name__, "_watched": type(C), "_named": name, "_keys_of": keys}
    return _with_class(C, type(type(C).__name__, bases, members))


def _with_class(C: Compressor, kind: type[Compressor]) -> Compressor:
    """An object of the class ``kind`` with the attributes of ``C``, in ``__dict__`` or in slots."""
    made = object.__new__(kind)
    slots: list[str] = [field.name for field in fields(C)] if is_dataclass(C) else []
    for name in {*vars(C), *slots}:
        object.__setattr__(made, name, getattr(C, name))
    return made


class _Watching(Compressor):
    """Before the class of a compressor: each method that is given a key notes or compares it."""

    _watched: ClassVar[type[Compressor]]
    _named: ClassVar[str]  # the method and its field
    _keys_of: ClassVar[dict[bytes, set[Key]]]

    def __reduce__(self) -> tuple[Any, ...]:
        return _watching, (_with_class(self, self._watched), self._named, self._keys_of)

    def bound(self, parts: Parts) -> Any:
        return _watching(_with_class(self, self._watched).bound(parts), self._named, self._keys_of)

    def compress(self, x: Array, key: Key) -> Bytes:
        return self._made(self._watched.compress(self, x, key), key)

    def compress_difference(self, x: Array, y: Array, key: Key) -> Bytes:
        return self._made(self._watched.compress_difference(self, x, y, key), key)

    def decompress_add(self, buf: Bytes, out: Array, key: Key, scale: float = 1.0) -> None:
        self._compare(buf, key)
        self._watched.decompress_add(self, buf, out, key, scale)

    def decompress(self, buf: Bytes, d: int, key: Key) -> Array:
        self._compare(buf, key)
        return self._watched.decompress(self, buf, d, key)

    def sum(self, out: Array, key: Key, scale: float = 1.0) -> Sum:
        return Sum(self, out, key, scale)

    def _made(self, message: Bytes, key: Key) -> Bytes:
        self._keys_of.setdefault(message.tobytes(), set()).add(key)
        return message

    def _compare(self, buf: Bytes, key: Key) -> None:
        """Raise ``ConfigError`` if this message was made, and never with this key."""
        if (known := self._keys_of.get(buf.tobytes())) and key not in known:
            made = min(known, key=lambda k: (k.round != key.round, k.worker != key.worker, k.message))
            raise ConfigError(
                f"{self._named}: a message is decoded with the key {key}, and was compressed with {made}. "
                "Give both the same key: a compressor that draws would decode it to other coordinates."
            )


class _Choosing(_Watching):
    """The same for a compressor that chooses coordinates: ``selects`` asks whether its class says which."""

    def coordinates(self, buf: Bytes, d: int, key: Key) -> Support:
        self._compare(buf, key)
        return self._watched.coordinates(self, buf, d, key)
