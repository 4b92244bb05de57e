"""The kernel's count of the bytes that this host has sent through its network interfaces."""

from __future__ import annotations

from pathlib import Path

_TABLE = Path("/proc/self/net/dev")  # of the network namespace that this process lives in
_SENT = 8  # the column of bytes sent, after eight of what was received


def sent_bytes() -> int | None:
    """The bytes that all interfaces but the loopback have sent since they came up, headers included.

    Only the difference of two calls counts a run.  None if the kernel has no such table.
    """
    try:
        return parsed(_TABLE.read_text())
    except OSError:
        return None


def parsed(table: str) -> int:
    """The sum over the lines ``name: received .. sent ..`` below the two of the header."""
    lines = (line.partition(":") for line in table.splitlines()[2:])
    return sum(int(numbers.split()[_SENT]) for name, _, numbers in lines if name.strip() != "lo")
