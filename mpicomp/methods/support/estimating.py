"""Methods that step along an estimate of the mean gradient: x^{k+1} = x^k - γ g^k."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from mpicomp.kernels import add_scaled
from mpicomp.keys import Key
from mpicomp.methods.base import Method


class EstimatingMethod(Method):
    """An estimate g^k of the mean gradient, which is what travels, and a step along it.

    ``Replica`` has x and g.  Any other step rule may follow the estimate, as it does for ``Aggregator``.
    """

    @abstractmethod
    def estimate(self, r: Any, broadcast: Any, key: Key) -> None:
        """Update ``r.g`` to g^k from the broadcast, as every rank does; this does not change ``r.x``."""

    def replica_step(self, r: Any, broadcast: Any, key: Key) -> None:
        self.estimate(r, broadcast, key)
        if self.ends_step(r, key):
            add_scaled(r.x, r.g, -self.step)  # x^{k+1} = x^k - γ g^k
