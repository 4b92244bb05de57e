"""The formats in which real numbers travel: IEEE double, single and half precision, and bfloat16."""

from __future__ import annotations

from mpicomp.base.errors import check_known

WIDTH = {"f8": 8, "f4": 4, "f2": 2, "bf16": 2}  # bytes a value
ROUNDING = {"f8": 2.0**-53, "f4": 2.0**-24, "f2": 2.0**-11, "bf16": 2.0**-8}  # of a normal number, relative
EXPONENT_BITS = {"f4": 8, "f8": 11}


def check_format(values: str) -> None:
    """Raise ``ConfigError`` unless ``values`` names a format."""
    check_known("value format", values, WIDTH)


def exponent_bias(values: str) -> int:
    """The exponent bias of the formats f4 and f8: 127 and 1023."""
    return 2 ** (EXPONENT_BITS[values] - 1) - 1
