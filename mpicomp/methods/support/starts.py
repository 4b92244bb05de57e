"""Where the vectors begin that workers keep: EF21's and DASHA's estimates g_i, DIANA's shifts h_i.

A method's ``start`` says where, and round 0 sends it:

"zero"        0, for which nothing is sent
"gradient"    ∇f_i(x⁰) whole, once: 4 d bytes, and in float32, to which both ends round it
"compressed"  C_i(∇f_i(x⁰)), in a message like all others

Round 0 also takes the step along the mean of what it sent.  Where g_i is the estimate, that is the method.
With shifts, the method has workers send C_i(∇f_i(x⁰) - h_i) before that step.  From the gradient that is
C_i(0) = 0, but for the rounding, and left out here; from the compressed gradient it is left out too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from mpicomp.base.checks import check_choice
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Compressor, Identity
from mpicomp.keys import Key
from mpicomp.methods.parameters import Check

WHOLE = Identity()  # what gradients travel in that are sent once


@dataclass(frozen=True)
class StartCheck(Check):
    """One of the starts that are ``allowed``."""

    allowed: tuple[str, ...]

    def __call__(self, method: str, name: str, value: Any) -> None:
        if value == "zero" and value not in self.allowed:
            raise ConfigError(
                f"{name}='zero': {method} would stay at x0 for a round and then be what it is from "
                f"'compressed'; allowed: {', '.join(map(repr, self.allowed))}."
            )
        check_choice(name, value, self.allowed)


Start = Annotated[str, StartCheck(("zero", "gradient", "compressed"))]
# Of what steps are taken along: from 0 the first leads nowhere.
EstimateStart = Annotated[str, StartCheck(("gradient", "compressed"))]


def begins(start: str, key: Key) -> bool:
    """Whether the round of ``key`` is the one that sends the start."""
    return key.round == 0 and start != "zero"


def uplink_from(start: str, C: Compressor, key: Key) -> Compressor:
    """C, or what a start travels in that is sent whole."""
    return WHOLE if begins(start, key) and start == "gradient" else C


def rate_from(start: str, alpha: float, key: Key) -> float:
    """The rate α of a shift; 1 in the round that sends the start, so that the shift becomes what was sent."""
    return 1.0 if begins(start, key) else alpha
