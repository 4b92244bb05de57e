"""Parse and print rates, times and byte counts; shorten lists and texts: 100mbit, 12.3 KB, "0, 1, .., 9"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

from mpicomp.base.errors import ConfigError

_RATES = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST = 1e18  # of a rate or a time: what is computed from them is finite
_LONG = 200  # characters of a text that an error shows


def parse_rate(text: str) -> float:
    """Bits per second, from a text such as 100mbit.  Raises ``ConfigError`` for any other text."""
    rate = _parse("rate", text, _RATES, "100mbit, 2.5gbit")
    if not 1 <= rate <= _MOST:
        raise ConfigError(f"rate {text[:_LONG]!r}; allowed: from 1 to {_MOST:g} bits a second.")
    return rate


def parse_time(text: str) -> float:
    """Seconds, from a text such as 10ms.  Raises ``ConfigError`` for any other text."""
    seconds = _parse("time", text, _TIMES, "50us, 10ms, 0s")
    if seconds > _MOST:
        raise ConfigError(f"time {text[:_LONG]!r}; allowed: at most {_MOST:g} seconds.")
    return seconds


def human_rate(rate: float) -> str:
    """A rate in bits per second as text: ``2.5 Gbit/s``."""
    return _in_units(rate, {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3})


def human_time(seconds: float) -> str:
    """A time in seconds as text: ``12.3 ms``."""
    return _in_units(seconds, {"s": 1.0, "ms": 1e-3, "us": 1e-6})


def _in_units(value: float, units: dict[str, float]) -> str:
    """Three digits of ``value`` in the first of ``units`` of which it is 1 or more, or else in the last."""
    *larger, least = units.items()
    name, unit = next((one for one in larger if value >= 0.9995 * one[1]), least)  # 0.9995 is rounded to 1
    return f"{value / unit:.3g} {name}"


def human_bytes(count: float) -> str:
    """A number of bytes as text: ``12.3 KB``; a KB is 1000 bytes."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _parse(kind: str, text: str, units: dict[str, float], examples: str) -> float:
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([a-z]+)", text.strip().lower())
    if found is None or found[2] not in units:
        raise ConfigError(
            f"{kind} {text!r}; allowed: a number with one of {', '.join(units)}, such as {examples}."
        )
    return float(found[1]) * units[found[2]]


def shortened(values: Iterable[object], shown: Callable[[Any], str] = repr) -> str:
    """The values with commas; of more than eight, only the first two and the last: 0, 1, .., 249."""
    words = [shown(value) for value in values]
    return ", ".join(words if len(words) <= 8 else [*words[:2], "..", words[-1]])


def one_line(value: object, most: int = 60) -> str:
    """The first ``most`` characters of ``repr(value)``, in one line."""
    return " ".join(repr(value).split())[:most]


def from_difference(*texts: str) -> list[str]:
    """``texts`` in one line, each cut to the characters around their first difference if one is long."""
    texts = tuple(" ".join(text.split()) for text in texts)
    if max(map(len, texts)) <= _LONG:
        return [*texts]
    same = sum(1 for _ in takewhile(lambda letters: len({*letters}) == 1, zip(*texts, strict=False)))
    start = max(0, same - _LONG // 2)
    return [
        ".. " * (start > 0) + text[start : start + _LONG] + " .." * (start + _LONG < len(text))
        for text in texts
    ]
