"""Name the ``pip install`` command if an optional library is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mpicomp.base.errors import ConfigError


class NotInstalled(ConfigError, ImportError):
    """A library that a part of this package needs is not installed; the message has the command for it."""


@contextmanager
def needed_by(user: str, extra: str) -> Iterator[None]:
    """In the ``with`` block, import the libraries of the package's extra ``extra``.

    Raises ``NotInstalled`` if a library is missing; its message says that ``user`` needs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        raise NotInstalled(
            f"{user} needs {library}, which is not installed: pip install 'mpicomp[{extra}]'."
        ) from None
