"""The error for a rate, such as α, that the theorem of the step size does not allow."""

from __future__ import annotations

from mpicomp.base.checks import theory_factor
from mpicomp.base.errors import ConfigError
from mpicomp.methods.base import Method


def require_rate(method: Method, name: str, most: float, bound: str, exact: bool = False) -> None:
    """Raise ``ConfigError`` unless the rate that ``method`` has in its field ``name`` is at most ``most``.

    With ``exact`` the rate has to equal ``most``.  Both comparisons allow for rounding.  For another rate the
    theorem of the step size does not hold, and shifts need not converge.  The error shows ``bound``, the
    formula of ``most``.
    """
    rate = getattr(method, name)
    if isinstance(rate, str):
        rate = theory_factor(name, rate) * most
    if rate > most * (1 + 1e-9) or (exact and rate < most * (1 - 1e-9)):
        raise ConfigError(
            f"{name}={rate:.10g}: {type(method).__name__} has a theory step size for {name} "
            f"{'=' if exact else '<='} {bound} = {most:.10g} alone. Leave {name} out, or give "
            f"{method.step_name} as a number."
        )
