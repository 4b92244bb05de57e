"""Whether a run, or a comparison, continues what its folder holds."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Resume(Enum):
    """``Resume(value)`` is the member for ``value``, the public keyword ``resume`` of ``run``."""

    NO = False  # start; refuse a folder that holds a run
    YES = True  # continue; refuse a folder that holds none
    IF_BEGUN = None  # continue what the folder holds, or start

    @classmethod
    def _missing_(cls, value: Any) -> Resume:
        """Any other value counts as its truth value."""
        return cls.YES if value else cls.NO
