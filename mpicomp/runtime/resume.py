"""The keyword ``resume``: whether a run or a comparison continues the one in its folder."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Resume(Enum):
    """``Resume(value)`` is the member for ``value``, the public keyword ``resume`` of ``run``."""

    NO = False  # start; refuse a folder that holds a run
    YES = True  # continue; refuse a folder that holds no run
    IF_BEGUN = None  # continue if the folder has a checkpoint, else start

    @classmethod
    def _missing_(cls, value: Any) -> Resume:
        """Any other value counts as its truth value."""
        return cls.YES if value else cls.NO
