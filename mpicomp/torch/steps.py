"""The step of a ``Compressed``: by averaged gradients, or a local one and the exchanges that are due."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from mpicomp.base.errors import ConfigError
from mpicomp.torch.gradients import Closure, Gradients
from mpicomp.torch.local_warnings import warn_of_copies
from mpicomp.transports.calls import Operation


class Steps(Gradients):
    """The steps of ``inner``: by the mean gradient or, with ``local``, by a rank's own."""

    @property
    def steps(self) -> int:
        """The number of steps so far, also after ``mpicomp.torch.load``; those left out are counted."""
        total = self._whole.steps + self._whole.skipped if self._whole else 0
        if self.local is not None:
            return total + self.local.steps
        return total + self.aggregator.steps + self.aggregator.skipped

    @torch.compiler.disable  # compressing and sending is not torch's to trace
    def step(self, closure: Closure | None = None) -> Any:
        """Average the gradients, unless ``aggregate`` did, and take the inner optimiser's step; collective.

        closure  clears the gradients, computes the loss and its gradients, and returns the loss.  It is
                 called once, or at each point that the method asks for, with the parameters set to that
                 point.  With ``workers`` it takes a worker's number, and is called for each in ``hosted``

        Returns the closure's loss, or with ``workers`` the list of losses; None without a closure.
        """
        try:
            return self._step(closure)
        except BaseException:
            # GradScaler takes its scale away only after a step that ends well; the next would have both.
            for name in ("grad_scale", "found_inf"):
                self.__dict__.pop(name, None)
            raise

    def _step(self, closure: Closure | None) -> Any:
        if self.local is not None and hasattr(self, "grad_scale"):
            raise ConfigError("GradScaler and sync_every do not go together: give sync_every=1.")
        if self.local is not None:
            self.local.check_own()
        if self._late.came:
            self._forget()
        if self.local is not None and self._begun and self._ready is None:
            return self._local_step(closure)
        loss = None
        if self._ready is None:
            loss = self._evaluate(closure)
        elif closure is not None:
            raise ConfigError(
                "opt.aggregate() has averaged gradients already, which a closure would compute anew: "
                "opt.step() without one, or leave aggregate out."
            )
        elif getattr(self, "grad_scale", None) is not None:
            raise ConfigError(
                "opt.aggregate() took gradients that GradScaler had scaled: scaler.unscale_(opt) first."
            )
        ready = self._ready
        if ready:
            self._note_step()
        self._forget()
        changed = self._outside.changed  # since ``aggregate``
        self._outside.forget()  # an error in the inner step may have moved some ranks and not others
        if ready:
            self.step_inner()
        if not changed:
            self._outside.note()
        if self.local is not None:
            self.local.restart()
        return loss

    def _local_step(self, closure: Closure | None) -> Any:
        assert self.local is not None
        self.exchange()  # of the step before, if it was interrupted
        self._begin_local_steps()
        if closure is None:
            self._refuse_others()
            loss = self.step_inner()
        else:
            loss = self.step_inner(lambda: self._checked(closure))
        if self.local.steps == 0 and self.aggregator.transport.is_server:
            warn_of_copies(self.inner)
        self.local.steps += 1
        self.exchange()
        return loss

    def _begin_local_steps(self) -> None:
        """Start from a model that the program has loaded since ``Compressed`` was made; collective.

        Else the first exchange would send it as a change, compressed.
        """
        assert self.local is not None
        if not self.local.fresh:
            return
        if any(self.aggregator.tell_all(int(self._outside.changed), Operation.USED)):
            self._compare_again(self._tensors.parameters)
            self.local.restart()
        self.local.fresh = False

    def _checked(self, closure: Closure) -> Any:
        loss = closure()
        self._refuse_others()
        return loss

    def exchange(self) -> None:
        """With ``sync_every``: begin and end the exchanges that are due after the last step; collective.

        ``step`` calls it.  After an interrupt in ``step``, ``mpicomp.torch.save`` ends these exchanges.
        """
        if self.local is None:
            return
        self.local.check_own()
        if self.local.ends_late and self.buffers.shared:
            # The ranks agreed on this exchange when it began, some steps ago; one may have left since.
            self.aggregator.tell_all(0, Operation.USED)
        if self.local.exchange():
            if self.hosted:
                self.buffers.collect(self.hosted.start)
            with self.aggregator.together(told=True):
                self.buffers.step()

    def common(self) -> AbstractContextManager[None]:
        """In the ``with`` block the model has the parameters that all ranks have in common::

            with opt.common():
                torch.save(model.state_dict(), "model.pt")

        With ``sync_every`` these are the values after each fragment's last exchange; else the present ones.
        Buffers stay this rank's own.  At the end of the block the parameters are set back to what they were,
        so a step, and saving or loading the training, are refused in it.
        """
        return nullcontext() if self.local is None else self.local.common()
