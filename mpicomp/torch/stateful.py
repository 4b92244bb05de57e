"""The state of a ``Compressed`` as a dict, saved and loaded rank by rank."""

from __future__ import annotations

from typing import Any, NoReturn

from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.torch.state import NO_LOCAL_STEPS, aggregators_in, as_tensor, check_kind, check_local, load_into
from mpicomp.torch.steps import Steps


class Stateful(Steps):
    """``Steps`` whose state can be saved and loaded."""

    @property
    def sync_every(self) -> int:
        """H, the local steps from one exchange to the next; 1 without local steps."""
        return 1 if self.local is None else self.local.schedule.every

    @sync_every.setter
    def sync_every(self, steps: int) -> NoReturn:
        raise ConfigError(
            f"sync_every was {self.sync_every} when Compressed was made, and stays it, as all ranks exchange "
            "after as many steps. For another one make Compressed anew."
        )

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as a dict, with torch's tensors in the place of arrays.

        inner        the state of the inner optimiser
        outer        the state of the outer optimiser; None without one
        aggregators  the state of the ``Aggregator`` of each fragment, the workers' residuals among it
        local_steps  the number of local steps so far
        start        the parameters after each fragment's last exchange; None if ``sync_every`` is 1
        begun        the parameters as each fragment's last exchange began; None if ``sync_every`` is 1

        It is not collective, unless an interrupt has left an exchange to be done.  Raises ``ConfigError``
        between ``aggregate`` and ``step``.
        """
        self.exchange()
        self.check_stepped()
        return {
            "inner": self.inner.state_dict(),
            "outer": None if self.outer is None else self.outer.state_dict(),
            "aggregators": [
                {name: as_tensor(value) for name, value in one.state().items()} for one in self.aggregators
            ],
            **(NO_LOCAL_STEPS if self.local is None else self.local.state()),
        }

    def check_stepped(self) -> None:
        """Raise ``ConfigError`` between ``aggregate`` and ``step``: the state would lack that step."""
        if self._ready:
            raise ConfigError(
                "opt.aggregate() has averaged gradients that no step has used yet, and the saved state would "
                "lack them: save after opt.step(), or call opt.zero_grad() to leave that step out."
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the ``state_dict()`` of the same rank, on the same number of ranks; collective.

        Raises ``ConfigError`` for the state of another optimiser, such as the inner one's own: on all ranks,
        and nothing changes.
        """
        if self.local is not None:
            self.local.check_own()
        own = aggregators_in(state_dict, len(self.aggregators))
        optimisers = {"inner": self.inner} | ({} if self.outer is None else {"outer": self.outer})
        before = {name: one.state_dict() for name, one in optimisers.items()}

        def take() -> None:
            check_kind(state_dict, self.inner)
            first = own[0]
            if not isinstance(first, dict) or str(first.get("config.sync_every")) != str(self.sync_every):
                return  # which ``restore`` refuses by name
            check_local(state_dict, self._tensors, self.sync_every > 1)
            for name, one in optimisers.items():
                load_into(name, one, state_dict[name])

        try:
            others = [*zip(self.aggregators[1:], own[1:], strict=True)]
            self.aggregator.restore(own[0], check=take, others=others)
        except MpicompError:
            for name, one in optimisers.items():
                one.load_state_dict(before[name])
            raise
        if self.local is not None:
            self.local.resume(*(state_dict[name] for name in NO_LOCAL_STEPS))
        self._go_on()

    def __reduce__(self) -> NoReturn:
        """Raise ``ConfigError``: torch's copy would wrap the ``step`` of this class, and break all others."""
        raise ConfigError(
            "a Compressed cannot be copied or pickled, as all ranks hold parts of its state. Make Compressed "
            "anew; what opt.state_dict() or mpicomp.torch.save(folder, opt, model) has saved goes on in it."
        )
