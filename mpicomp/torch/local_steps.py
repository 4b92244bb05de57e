"""Local steps: average the change that the ranks' own steps made, at once or some steps later.

With ``fragments`` the parameters are cut into fragments, and each has an exchange and an Aggregator of its
own: a period of H steps then has an exchange every H / P steps, each of about 1 / P of the bytes.  With
``delay`` an exchange begins some steps before its end, and its messages travel during these steps.  It ends
at the same step on every rank, whatever the network did, so results do not depend on the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mpicomp.base.errors import ConfigError
from mpicomp.torch.alike import numbered
from mpicomp.torch.fragments import Fragment, Schedule


class LocalSteps:
    """The exchanges of the change that local steps made; ``outer`` steps along each.

    fragment p, when its exchange begins   Δ_i = s_i - θ_i^p
    delay steps later                      θ^p = Outer(θ^p, mean Δ_i);  s_i = θ^p - a e_i;
                                           θ_i^p = s_i + keep (θ_i^p - s_i)

    Source: Streaming DiLoCo, arXiv 2501.18512, for delay, keep (its α) and fragments.

    keep  what is kept of a rank's own values at the end of an exchange, from 0 to 1.  With error feedback a
          change that was not sent is in the memory already, and what is kept of it is sent twice.  "delay"
          keeps what the steps since the exchange began have changed, and nothing else: if these are the
          values θ_i' there, θ_i^p = s_i + θ_i^p - θ_i'

    a is ``ahead`` of the fragments, 0 in the papers, and e_i the memory of the rank's error feedback: a rank
    goes on with the share a of what it has not sent yet, and Δ_i has what came since, so nothing is sent
    twice.  With one worker, a = 1 and no decay θ_i^p is where the optimiser alone would be.  The idea is the
    step ahead of Xu, Huo and Huang, Step-ahead error feedback (AAAI 2021, arXiv 2008.05823), as recalled;
    there it is for the gradient of each step, with a = 1.
    """

    def __init__(
        self, fragments: Sequence[Fragment], schedule: Schedule, outer: Optimizer, keep: float | str
    ) -> None:
        self.fragments, self.schedule, self.outer, self.keep = fragments, schedule, outer, keep
        self.steps = 0
        self._open = 0  # how many blocks of ``common`` are open
        self.fresh = True  # no step was taken, and no state loaded
        self.exchanged = 0  # the step whose exchanges are done; below ``steps`` if an interrupt came between

    def exchange(self) -> bool:
        """Begin and end the exchanges that are due, unless they are done; collective if there are any.

        Returns whether fragment 0, and with it a period of H steps, has ended.  If it is interrupted, call it
        again: what was done is not done twice.
        """
        if self.exchanged == self.steps:
            return False
        ending = [self.fragments[p] for p in self.schedule.end(self.steps)]
        for f in (self.fragments[p] for p in self.schedule.begin(self.steps)):
            if not self.schedule.delay:
                self._outer_step(f, f.exchange)
            elif not f.aggregator.pending:
                f.begin()
        if self.schedule.delay:
            for f in ending:
                self._outer_step(f, f.aggregator.finish)
        self.exchanged = self.steps
        return self.fragments[0] in ending

    @property
    def ends_late(self) -> bool:
        """Whether ``exchange`` will end a period by the mean of an exchange that began some steps before."""
        due = self.exchanged != self.steps and 0 in self.schedule.end(self.steps)
        return bool(self.schedule.delay) and due and self.fragments[0].estimate is None

    def restart(self) -> None:
        """Take the present values as those after the last exchange; they are the same on all ranks."""
        for f in self.fragments:
            f.start = f.tensors.values()

    @contextmanager
    def common(self) -> Iterator[None]:
        """In the ``with`` block the parameters are ``start``, the same on all ranks; then this rank's own."""
        own = [f.tensors.values() for f in self.fragments]
        self._open += 1
        try:
            for f in self.fragments:
                f.tensors.set_values(f.start)
            yield
        finally:
            self._open -= 1
            for f, values in zip(self.fragments, own, strict=True):
                f.tensors.set_values(values)

    def check_own(self) -> None:
        """Raise ``ConfigError`` inside of ``common``, where the parameters are not this rank's own."""
        if self._open:
            raise ConfigError(
                "inside opt.common() the parameters are not those of the local steps, so no step is taken, "
                "and no training saved or loaded: do so outside of the block. In it, save the model alone, "
                "torch.save(model.state_dict(), ..)."
            )

    def _outer_step(self, fragment: Fragment, estimated: Callable[[], Any]) -> None:
        """Let ``outer`` step from the fragment's start along the mean of the ranks' changes.

        ``estimated`` returns the mean.  It is kept until the step is taken: if an error of the program's own
        ends the step on one rank, this rank takes it later, and the others need not send again.
        """
        tensors = fragment.tensors
        if fragment.estimate is None:
            fragment.estimate = estimated()
        own = tensors.values()
        tensors.set_values(fragment.start)
        # Afterwards p.grad is the local step's again, such as the sparse one that SparseAdam asks for.
        try:
            with _without_gradients([p for _, _, p in numbered(self.outer)]):
                tensors.set_gradients(fragment.estimate, tensors.frozen_where_zero(fragment.estimate))
                self.outer.step()
        except BaseException:
            tensors.set_values(own)
            raise
        fragment.start, fragment.estimate = tensors.values(), None
        if isinstance(self.keep, str):  # DELAY
            tensors.set_values(fragment.own_start() + (own - fragment.begun))
        elif self.keep:
            tensors.set_values(fragment.start + self.keep * (own - fragment.start))
        elif fragment.ahead:
            tensors.set_values(fragment.own_start())

    @property
    def start(self) -> torch.Tensor:
        """The parameters after each fragment's last exchange, the same on all ranks; shape (d,)."""
        return self._joined("start")

    def state(self) -> dict[str, Any]:
        """The number of local steps so far, and the fragments' ``start`` and ``begun``, by name.

        Call it after ``exchange``.
        """
        return {"local_steps": self.steps, "start": self.start, "begun": self._joined("begun")}

    def resume(self, local_steps: int, start: torch.Tensor, begun: torch.Tensor) -> None:
        """Go on from the values that ``state`` returned."""
        self.steps = self.exchanged = local_steps
        self.fresh = False
        sizes = [f.tensors.parts.size for f in self.fragments]
        for f, *saved in zip(self.fragments, start.split(sizes), begun.split(sizes), strict=True):
            f.start, f.begun = (f.tensors.vector(f.tensors.empty().copy_(part)) for part in saved)
            f.estimate = None

    def _joined(self, name: str) -> torch.Tensor:
        return torch.cat([f.tensors.tensor(getattr(f, name)) for f in self.fragments])


@contextmanager
def _without_gradients(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """In the ``with`` block the parameters have only the gradients set there: a step skips the others."""
    kept = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    try:
        yield
    finally:
        for p, gradient in zip(parameters, kept, strict=True):
            p.grad = gradient
