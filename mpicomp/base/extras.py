"""Libraries that only a part of this package uses: an extra of ``pip install`` brings them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mpicomp.base.errors import ConfigError


class NotInstalled(ConfigError, ImportError):
    """A library is not installed that a part of this package needs; the message has the command."""


@contextmanager
def needed_by(user: str, extra: str) -> Iterator[None]:
    """Within, what ``user`` needs of the extra ``extra`` is imported.

    Raises ``NotInstalled`` for a library that is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        raise NotInstalled(
            f"{user} needs {library}, which is not installed: pip install 'mpicomp[{extra}]'."
        ) from None
