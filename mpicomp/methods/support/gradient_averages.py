"""Averages v_i of a worker's gradients over the rounds, and weights that fall so that no constant is needed.

s_i(x) is the gradient of f_i at x on the batch of round k, and v_i^0 = s_i(x^0):

"heavy-ball"  v_i^k = (1-η) v_i^{k-1} + η s_i(x^k)
"igt"         v_i^k = (1-η) v_i^{k-1} + η s_i(x^k + ((1-η)/η) (x^k - x^{k-1})): implicit gradient transport.
              Where gradients are linear in x, the old gradients move to x^k by it.
"mvr"         v_i^k = (1-η) (v_i^{k-1} + s_i(x^k) - s_i(x^{k-1})) + η s_i(x^k): momentum variance reduction,
              both gradients on one batch

η = 1 is v_i^k = s_i(x^k) for all three.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache
from math import sqrt

HEAVY_BALL, IGT, MVR = MOMENTA = ("heavy-ball", "igt", "mvr")

# The powers of 2/(k+2), as fractions: in η_k and in the length of the step of round k.
_POWERS = {IGT: ((4, 7), (5, 7)), MVR: ((2, 3), (2, 3))}


@lru_cache
def decreasing(momentum: str, k: int) -> tuple[float, float]:
    """η_k, and the factor of the step of round k, where both decrease; 1 and 1 for k = 0.

    "heavy-ball" (2/(k+2))^{1/2} and (2/(k+2))^{3/4}, "igt" to the powers 4/7 and 5/7, "mvr" 2/3 and 2/3.
    """
    if momentum == HEAVY_BALL:
        eta = sqrt(2 / (k + 2))
        return eta, eta * sqrt(eta)
    eta, step = (_power(k, *power) for power in _POWERS[momentum])
    return eta, step


def _power(k: int, above: int, below: int) -> float:
    """(2/(k+2))^{above/below}, in decimal arithmetic: its bits are the same on processors of all kinds."""
    exact = Context(prec=28, traps=[])
    return float(exact.power(exact.divide(2, Decimal(k + 2)), exact.divide(above, below)))
