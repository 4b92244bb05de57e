"""The errors that a user can cause, and the wording they share.

Every message says what was given, what is allowed, and the nearest remedy.  The command line prints these
errors without a traceback.  Any other exception is a defect of this library and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf
from typing import Any


class MpicompError(Exception):
    """An error that the user can put right: an argument, a file, a folder, a step size."""


class ConfigError(MpicompError):
    """A name, parameter or combination that is not allowed.

    unlike   whether ranks have given different ones
    allowed  the values that are allowed, in words, if they can be named for any object of the class
    """

    def __init__(self, *args: object, unlike: bool = False, allowed: str = "") -> None:
        super().__init__(*args)
        self.unlike, self.allowed = unlike, allowed


class DataError(MpicompError):
    """A data set that is missing, malformed or unfit for the problem."""


class MessageError(MpicompError):
    """Bytes that cannot be the message that was expected: truncated, too long or out of range.

    worker  the sender of the bad message, or None: then it is the sender of the message taken last
    """

    def __init__(self, *args: object, worker: int | None = None) -> None:
        super().__init__(*args)
        self.worker = worker


class DivergedError(MpicompError):
    """The iterates of a run, or the numbers to be sent, are not finite or grow without bound.

    so_far  the list of the rows of ``run``; None of other calls
    """

    so_far: Any = None


class CountError(MpicompError):
    """The bytes counted in the ledger and the bytes handed to MPI differ."""


class RecordError(MpicompError):
    """A run folder or checkpoint that cannot be written, or must not be overwritten or resumed."""


class Interrupted(KeyboardInterrupt):
    """A ``KeyboardInterrupt`` with the partial result of the interrupted call in ``so_far``.

    of ``run``      the list of rows.  Only a second interrupt raises it: the first one ends the run in order
    of ``compare``  the ``Comparison`` of the runs that had ended
    of ``tune``     the ``Tuning`` with the step sizes that had been tried
    """

    def __init__(self, so_far: Any) -> None:
        super().__init__()
        self.so_far = so_far

    def __str__(self) -> str:
        kept = f"{len(self.so_far)} rows" if isinstance(self.so_far, list) else repr(self.so_far)
        return f"so_far of this exception keeps {kept}"


@contextmanager
def keeping(so_far: Callable[[], Any]) -> Iterator[None]:
    """Within the block, a ``KeyboardInterrupt`` becomes an ``Interrupted`` that keeps ``so_far()``."""
    try:
        yield
    except Interrupted as error:  # of a call within this one
        error.so_far = so_far()
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(so_far()) from error


def raise_if(error: MpicompError | None) -> None:
    """Raise ``error`` if there is one; for calls that take a function."""
    if error is not None:
        raise error


def not_finite() -> DivergedError:
    """The error of an encoder whose vector holds an infinity or a NaN."""
    return DivergedError("a vector to be compressed is not finite: it holds an infinity or no number (NaN).")


def norm_beyond(norm: float, values: str) -> DivergedError:
    """The error of an encoder whose vector's norm is not finite in the format ``values``."""
    if norm < inf:
        return DivergedError(
            f"a norm of {norm:.3g} does not fit the wire format {values!r} (allowed: f4, f8)."
        )
    return DivergedError(
        f"a norm of {norm} for the wire format {values!r}: the vector holds an infinity or no number (NaN), "
        "or its norm is beyond double precision."
    )


def check_known(kind: str, name: object, allowed: Collection[str]) -> None:
    """Raise the error of ``unknown`` unless ``name`` is one of ``allowed``."""
    if not isinstance(name, str) or name not in allowed:
        raise unknown(kind, name, allowed)


def unknown(kind: str, name: object, allowed: Iterable[str]) -> ConfigError:
    """The error for an unknown ``name`` of the given kind: suggests the nearest name, lists the allowed."""
    allowed = list(allowed)
    near = get_close_matches(str(name).lower(), [a.lower() for a in allowed], n=1, cutoff=0.5)
    hint = next((f" Did you mean {a!r}?" for a in allowed if near and a.lower() == near[0]), "")
    names = ", ".join(allowed) or "none"
    return ConfigError(f"unknown {kind} {name!r}.{hint} Allowed: {names}.", allowed=names)


def not_allowed(name: str, value: str, allowed: str) -> ConfigError:
    """The error for a parameter ``name`` whose ``value``, as text, is none of those ``allowed``."""
    return ConfigError(f"{name}={value}; allowed: {allowed}.", allowed=allowed)
