"""Compare what has to be the same on all ranks: parameters, settings and momenta."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from mpicomp.loops.aggregator import Aggregator
from mpicomp.torch.alike import Fact, check_same, memory, settings
from mpicomp.torch.content import Content
from mpicomp.torch.local_steps import LocalSteps
from mpicomp.torch.tensors import Tensors
from mpicomp.torch.wrapping import Wrapping

_CHANGED = (
    "they were changed on some ranks alone, and not by opt.step(), or a step ended there in an error. Load, "
    "initialise and clamp alike on all ranks, and let no forward change them by its batch, as max_norm of "
    "an Embedding does."
)


class Outside:
    """Whether the program has changed parameters or an optimiser's memory outside of a step.

    A change in place raises a tensor's version, new values lie in other memory or are other tensors, and
    ``load_state_dict`` puts a new dict in the place of the optimiser's state.  So no value is read.  Not
    noticed: changes in place of ``p.data``, which has a version of its own.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], optimiser: Optimizer) -> None:
        self._parameters, self._optimiser = parameters, optimiser
        self._seen: Any = None
        self._state: Any = None

    def note(self) -> None:
        """Remember the present parameters and state as those that a step has left."""
        self._seen, self._state = self._places(), self._optimiser.state

    def forget(self) -> None:
        """Count everything as changed, until the next ``note``."""
        self._seen = None

    @property
    def changed(self) -> bool:
        """Whether something has changed since ``note``."""
        return self._state is not self._optimiser.state or self._seen != self._places()

    def _places(self) -> list[tuple[int, int]]:
        kept = [own.values() for own in self._optimiser.state.values() if isinstance(own, dict)]
        momenta = [m for values in kept for m in values if isinstance(m, Tensor)]
        places = [(p._version, p.data_ptr()) for p in self._parameters]
        return places + [(0 if m.is_inference() else m._version, id(m)) for m in momenta]


class Comparing(Wrapping):
    """A ``Wrapping`` whose ranks compare their parameters and optimisers.

    outer     the outer optimiser of local steps, or None
    local     the local steps, or None
    _outside  what the program changes between two steps
    """

    outer: Optimizer | None
    aggregator: Aggregator
    local: LocalSteps | None
    _tensors: Tensors
    _outside: Outside

    @property
    def _optimisers(self) -> dict[str, Optimizer]:
        """The optimisers, by their names in errors."""
        return {"the optimiser": self.inner} | ({} if self.outer is None else {"outer": self.outer})

    def check(self) -> None:
        """Raise ``ConfigError``, on all ranks, if parameters or optimisers differ between ranks; collective.

        They differ if the program changed them on some ranks only.  With ``sync_every`` the parameters after
        the last exchange are compared.  The check takes the time of a hash of parameters and momenta.
        """
        # Between two exchanges, what the ranks have in common.
        self._compare_again(self._tensors.parameters if self.local is None else [self.local.start])

    def _compare_again(self, parameters: Sequence[Tensor]) -> None:
        """Compare ``parameters``, and the optimisers but for momenta of local steps; collective."""
        between = self._optimisers if self.outer is None else {"outer": self.outer}  # in which inner's differ
        self._compare(_CHANGED, between, parameters)

    def _compare(self, remedy: str, alike: dict[str, Optimizer], parameters: Sequence[Tensor]) -> None:
        """Compare ``parameters``, the settings, and momenta of the optimisers in ``alike``; collective."""
        digest = sha256()
        for p in parameters:
            digest.update(Content.of(p).data)
        facts = [Fact("the parameters", digest.hexdigest(), remedy)]
        for name, one in self._optimisers.items():
            facts.append(Fact(f"{name}'s settings", settings(one), "give all ranks the same."))
        for name, one in alike.items():
            facts.append(Fact(f"{name}'s momenta", memory(one), "load its state on all ranks."))
        check_same(facts, self.aggregator.tell_all)
