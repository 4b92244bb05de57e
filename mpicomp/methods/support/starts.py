"""Starts of the vectors that workers keep: the estimates g_i of EF21 and DASHA, the shifts h_i of DIANA.

A method's parameter ``start`` chooses one of three, and round 0 sends it:

"zero"        0, for which nothing is sent
"gradient"    ∇f_i(x⁰) whole, once: 4 d bytes in float32; worker and server keep the rounded vector
"compressed"  C_i(∇f_i(x⁰)), in an ordinary message

Round 0 also takes a step along the mean of the vectors that it sent.  For the estimates g_i this is the
method itself.  For the shifts h_i, the method would first send C_i(∇f_i(x⁰) - h_i).  This message is left
out.  With "gradient" it would be C_i(0) = 0 up to rounding; with "compressed" it would be a second message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from mpicomp.base.checks import check_choice
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Compressor, Identity
from mpicomp.compressors.blockwise import Blockwise
from mpicomp.keys import Key
from mpicomp.methods.parameters import Check

WHOLE = Identity()  # the compressor of gradients that are sent whole


@dataclass(frozen=True)
class StartCheck(Check):
    """Checks that a field holds one of the starts that are ``allowed``."""

    allowed: tuple[str, ...]

    def __call__(self, method: str, name: str, value: Any) -> None:
        if isinstance(value, str) and value == "zero" and value not in self.allowed:
            raise ConfigError(
                f"{name}='zero': {method} would stay at x0 for a round and then be what it is from "
                f"'compressed'; allowed: {', '.join(map(repr, self.allowed))}."
            )
        check_choice(name, value, self.allowed)


Start = Annotated[str, StartCheck(("zero", "gradient", "compressed"))]
# For estimates along which the method steps: from 0 the first step leads nowhere.
EstimateStart = Annotated[str, StartCheck(("gradient", "compressed"))]


def begins(start: str, key: Key) -> bool:
    """Whether workers send their start in the round of ``key``: in round 0, unless the start is "zero"."""
    return key.round == 0 and start != "zero"


def uplink_from(start: str, C: Compressor, key: Key) -> Compressor:
    """The workers' compressor in the round of ``key``: ``WHOLE`` if it sends whole gradients, else C.

    If C acts on blocks, ``WHOLE`` is put in the same blocks.
    """
    if not begins(start, key) or start != "gradient":
        return C
    return C.around(WHOLE) if isinstance(C, Blockwise) else WHOLE


def rate_from(start: str, alpha: float, key: Key) -> float:
    """The rate of the shifts in the round of ``key``: 1 if it sends the start, else alpha.

    With rate 1 a shift, which is 0 before, becomes the start that was sent.
    """
    return 1.0 if begins(start, key) else alpha
