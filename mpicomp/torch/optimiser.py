"""``Compressed``: a torch optimiser that steps with the compressed mean gradient of all workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import Optimizer

from mpicomp.averaging.ledger import Ledger
from mpicomp.base.checks import as_integer, check_switch
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError
from mpicomp.base.units import one_line, shortened
from mpicomp.compressors import Identity
from mpicomp.compressors.base import Array
from mpicomp.loops.aggregator import Aggregator
from mpicomp.methods import DCGD
from mpicomp.methods.base import Method
from mpicomp.text.config import as_method
from mpicomp.torch.alike import Fact, check_same, memory, numbered, refuse_alone, settings
from mpicomp.torch.buffers import Buffers, share, warn_of_buffers
from mpicomp.torch.clipping import ClippingWatch
from mpicomp.torch.content import Content
from mpicomp.torch.fragments import Fragment, Schedule, cut, in_fragment, seed_of
from mpicomp.torch.local_steps import LocalSteps, as_keep, check_local_steps, warn_of_length, warn_of_momentum
from mpicomp.torch.opening import with_group
from mpicomp.torch.overlap import Overlap
from mpicomp.torch.state import NO_LOCAL_STEPS, aggregators_in, as_tensor, check_kind, check_local, load_into
from mpicomp.torch.tensors import Tensors

Closure = Callable[..., Any]


class Compressed(Optimizer):
    """A torch optimiser that steps with the compressed mean gradient of all workers in place of its own::

        opt = Compressed(torch.optim.AdamW(model.parameters(), lr=1e-3), method, module=model)
        loss(model, batch).backward()  # this rank's batch
        opt.step()

    It is an ``Optimizer``, so learning-rate schedules, parameter groups and ``GradScaler`` work with it.
    optimiser   a torch optimiser whose step needs no closure.  Do not add parameters to it, or unfreeze any,
                afterwards
    method      a method for ``Aggregator``, or its text
    module      the model.  At the start its parameters and buffers, and all parameters of ``optimiser``, are
                set to rank 0's.  In each step its buffers, such as BatchNorm's running means, are set to
                worker 0's, as in torch's DDP.  None: parameters that differ between ranks raise
                ``ConfigError``, and buffers cause a warning
    workers     the number of workers; None: each rank is one.  If it is given, call for each worker i in
                ``hosted``: ``zero_grad``, backward of the loss of worker i, ``collect(i)``.  Then ``step``
    sync_every  H: the optimiser takes H local steps, and then the change of the parameters is averaged.  The
                parameters go back to where they were, and ``outer`` steps along the change (as in DiLoCo)
    outer       a torch optimiser of the same parameters.  Parameters that it lacks stay as they are.  None:
                SGD with lr=1
    delay       with ``sync_every``: the number of local steps from the start of an exchange to its end.  Its
                messages travel while these steps are computed; see ``mpicomp.torch.local_steps``
    keep        with ``sync_every``: the share, from 0 to 1, of a rank's own values that stays at the end of
                an exchange; or "delay": keep only what the steps during the exchange have changed
    fragments   with ``sync_every``: cut the parameters into so many fragments, which are exchanged in turn,
                each every H steps.  Each has an Aggregator of its own
    start_after the number of first steps that average whole gradients, as DDP does; then ``method`` begins
    overlap     compress and send each block of the gradient as soon as backward has it.  It needs
                server="sharded", one worker on each rank, and one backward for each step.  Results are the
                same as without.  Do not change gradients between backward and ``aggregate``
    group       the process group of torch.distributed whose ranks take part, in place of ``comm``; None: all
                ranks that mpirun has started, or, without an MPI launcher, those of the default group
    options     the other options of ``Aggregator``: seed, comm, server, blocks, device, cuda_aware,
                stall_timeout, verify_bytes and on_nonfinite

    With device="cuda" parameters on a GPU stay there; without it, their gradients are copied to the host and
    the estimate is copied back.
    Parameters that need no gradient are left out.  float16 and bfloat16 gradients are averaged in float32.
    The constructor, ``step`` and ``aggregate`` are collective: all ranks call them together.
    """

    _step_supports_amp_scaling = True  # GradScaler calls step on every rank, and sets grad_scale

    def __init__(
        self,
        optimiser: Optimizer,
        method: Method | str,
        *,
        module: nn.Module | None = None,
        workers: int | None = None,
        sync_every: int = 1,
        outer: Optimizer | None = None,
        delay: int = 0,
        keep: float | str = 0.0,
        fragments: int = 1,
        start_after: int = 0,
        overlap: bool = False,
        group: Any = None,
        **options: Any,
    ) -> None:
        kinds = (
            ("optimiser", optimiser, Optimizer),
            ("module", module, nn.Module),
            ("outer", outer, Optimizer),
        )
        for name, given, kind in kinds:
            if not isinstance(given, kind) and (given is not None or name == "optimiser"):
                raise ConfigError(f"{name} is {one_line(given)}; allowed: a torch {kind.__name__}.")
        check_switch("overlap", overlap)
        method, options = as_method(method), with_group(options | {"group": group})
        self.sync_every = sync_every = as_integer("sync_every", sync_every)
        schedule, keep = Schedule(sync_every, delay, fragments), as_keep(keep)
        if sync_every > 1:
            check_local_steps(method, workers, overlap, options)
        elif outer is not None or keep != 0:
            raise ConfigError("outer and keep are for local steps: give sync_every too.")
        self.start_after = as_integer("start_after", start_after, least=0)
        without_closure = [outer, optimiser if sync_every == 1 or start_after else None]
        if any(isinstance(one, torch.optim.LBFGS) for one in without_closure):
            raise ConfigError("LBFGS calls a closure in its step; allowed: optimisers such as SGD and AdamW.")
        if start_after and (overlap or method.needs_function):
            why = "overlap" if overlap else f"{type(method).__name__}, which compares gradients at two points"
            raise ConfigError(f"start_after does not go with {why}: leave it out.")
        self.inner = optimiser
        self._tensors = Tensors(_trained(optimiser, module))
        self._known = {id(p) for p in self._tensors.parameters}
        if outer is not None and not self._known <= {id(p) for _, _, p in numbered(outer)}:
            raise ConfigError("outer lacks some of the optimiser's parameters: give it the same ones.")
        pieces = [self._tensors]
        if fragments > 1:
            pieces = [
                Tensors(one, self._tensors.parts) for one in cut(_trained(optimiser, module), fragments)
            ]
        local: dict[str, object] = {"sync_every": sync_every, "delay": delay, "keep": keep}
        local |= {"fragments": fragments, "start_after": self.start_after}
        # Ranks with others would make other calls.
        pieces[0].settings = local | {"overlap": overlap, "module": None if module is None else "given"}
        with in_fragment(0, fragments):
            self.aggregator = Aggregator(method, pieces[0], workers=workers, **options)
        self.aggregator.add_to_config(**local)
        self.aggregators = [self.aggregator]
        for p, tensors in enumerate(pieces[1:], 1):
            own = options | seed_of(p, options)
            with in_fragment(p, fragments):
                self.aggregators.append(Aggregator(method, tensors, workers=workers, **own))
        self._whole: Aggregator | None = None  # of the first steps
        if start_after:
            self._whole = Aggregator(DCGD(Identity()), self._tensors, workers=workers, **options)
            self.aggregators.append(self._whole)
        t = self.aggregator.transport
        refuse_alone(t, options.get("comm"))
        if module is None:
            warn_of_buffers(self._tensors.parameters, t)
        else:
            share(_named(optimiser, module), t)
        self.buffers = Buffers(module, t, options.get("server") == "dedicated")
        self.outer = outer
        self.local: LocalSteps | None = None
        if sync_every > 1:
            self.outer = outer or torch.optim.SGD(self._tensors.parameters, lr=1.0)
            if t.is_server:
                warn_of_momentum(method, self.outer)
                if outer is None:
                    warn_of_length(method)
            exchanged = [Fragment(*pair) for pair in zip(pieces, self.aggregators, strict=False)]
            self.local = LocalSteps(exchanged, schedule, self.outer, keep)
        self._brought: dict[int, Array] = {}  # gradients by worker
        self._ready: bool | None = None  # whether there is an estimate that ``step`` has not used yet
        self._overlap = Overlap(self._tensors, self.aggregator) if overlap else None
        self._clipping = ClippingWatch(self._tensors.parameters, t)
        start = "give module=model, which shares rank 0's, or seed torch alike on all ranks."
        self._compare(start, self._optimisers)

    # Unused: without torch a type checker does not know the base class.
    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override, unused-ignore]
        """The parameter groups of the inner optimiser."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override, unused-ignore]
        """The state of the inner optimiser."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override, unused-ignore]
        """The default settings of the inner optimiser."""
        return self.inner.defaults

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Call ``hook`` before each step of the inner optimiser, with that optimiser as its argument."""
        return self.inner.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> Any:
        """Call ``hook`` after each step of the inner optimiser, with that optimiser as its argument."""
        return self.inner.register_step_post_hook(hook)

    def common(self) -> AbstractContextManager[None]:
        """In the ``with`` block the model has the parameters that all ranks have in common::

            with opt.common():
                torch.save(model.state_dict(), "model.pt")

        With ``sync_every`` these are the values after each fragment's last exchange; else the present ones.
        Buffers stay this rank's own.  At the end of the block the parameters are set back to what they were,
        so do not step in it.
        """
        return nullcontext() if self.local is None else self.local.common()

    def check(self) -> None:
        """Raise ``ConfigError``, on all ranks, if parameters or optimisers differ between ranks; collective.

        They differ if the program changed them on some ranks only.  With ``sync_every`` the parameters after
        the last exchange are compared.  The check takes the time of a hash of parameters and momenta.
        """
        self.aggregator.tell_all(0)  # all ranks check, and no exchange is under way on this transport
        changed = "they were changed on some ranks alone, and not by opt.step()."
        between = self._optimisers if self.outer is None else {"outer": self.outer}  # in which inner's differ
        self._compare(changed, between)

    @property
    def _optimisers(self) -> dict[str, Optimizer]:
        """The optimisers, by their names in errors."""
        return {"the optimiser": self.inner} | ({} if self.outer is None else {"outer": self.outer})

    def _compare(self, remedy: str, alike: dict[str, Optimizer]) -> None:
        """Compare the ranks' parameters, settings, and momenta of the optimisers in ``alike``; collective."""
        # Between two exchanges, what the ranks have in common.
        parameters = self._tensors.parameters if self.local is None else [self.local.start]
        digest = sha256()
        for p in parameters:
            digest.update(Content.of(p).data)
        facts = [Fact("the parameters", digest.hexdigest(), remedy)]
        for name, one in self._optimisers.items():
            facts.append(Fact(f"{name}'s settings", settings(one), "give all ranks the same."))
        for name, one in alike.items():
            facts.append(Fact(f"{name}'s momenta", memory(one), "load its state on all ranks."))
        check_same(facts, self.aggregator.transport)

    @property
    def _begun(self) -> bool:
        """Whether the first steps, which average whole gradients, are over."""
        whole = self._whole
        return whole is None or whole.steps + whole.skipped >= self.start_after

    @property
    def hosted(self) -> range:
        """The workers whose gradients this rank computes."""
        return self.aggregator.hosted

    @property
    def ledger(self) -> Ledger:
        """The bytes of the gradients so far; bytes of buffers are in ``buffers.nbytes``.

        With server="sharded" rank 0's has those of all ranks only after ``settle()`` of each of
        ``aggregators``, or after ``mpicomp.torch.save``.
        """
        return Ledger.sum([one.ledger for one in self.aggregators])

    @property
    def seconds(self) -> dict[str, float]:
        """This rank's seconds by phase; see ``Aggregator``."""
        total: Counter[str] = Counter()
        for one in self.aggregators:
            total.update(one.seconds)
        return dict(total)

    def __reduce__(self) -> NoReturn:
        """Raise ``ConfigError``: torch's copy would wrap the ``step`` of this class, and break all others."""
        raise ConfigError(
            "a Compressed cannot be copied or pickled, as all ranks hold parts of its state. Make Compressed "
            "anew; what opt.state_dict() or mpicomp.torch.save(folder, opt, model) has saved goes on in it."
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise ``ConfigError``: the parameters in the compressed vector are fixed at the start."""
        raise ConfigError("give all parameter groups to the optimiser before Compressed is made.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._ready = None  # an estimate that was not stepped with is gone too
        self._clipping.forget()
        self.inner.zero_grad(set_to_none)

    def collect(self, worker: int) -> None:
        """Take the present gradients, p.grad, as those of ``worker``.

        Raises ``ConfigError`` if this rank does not host it, or for a gradient that would not be averaged.
        """
        if worker not in self.hosted:
            raise ConfigError(f"worker {worker} is not hosted here; allowed: {shortened(self.hosted)}.")
        self._refuse_others()
        if self._overlap is None:
            self._brought[worker] = self._own_gradient()
        elif hasattr(self, "grad_scale"):
            raise ConfigError("GradScaler scales gradients that have left already: leave overlap out.")
        else:
            self._brought[worker] = self._overlap.whole()
        self.buffers.collect(worker)

    def aggregate(self) -> bool:
        """Replace the gradients by the estimate of their mean over all workers, for ``step`` to use.

        Call it to change the mean before the step, for example to clip it; else ``step`` does it.  Returns
        False if the step is left out.  Collective.

        Raises ``ConfigError`` with ``sync_every`` above 1, and for a method that needs gradients at points of
        its own choice: such a method takes ``step(closure)``.
        """
        if self.local is not None and self._begun:
            raise ConfigError("with sync_every, step aggregates the change of the parameters: no aggregate.")
        if self.aggregator.method.needs_function:
            name = type(self.aggregator.method).__name__
            raise ConfigError(f"{name} compares gradients at two points: opt.step(closure).")
        if self.aggregator.one_each and self.hosted:
            self.collect(self.hosted.start)
        return self._aggregate(dict(self._brought), None)

    def step(self, closure: Closure | None = None) -> Any:
        """Average the gradients, unless ``aggregate`` did, and take the inner optimiser's step; collective.

        closure  clears the gradients, computes the loss and its gradients, and returns the loss.  It is
                 called once, or at each point that the method asks for, with the parameters set to that
                 point.  With ``workers`` it takes a worker's number, and is called for each in ``hosted``

        Returns the closure's loss, or with ``workers`` the list of losses; None without a closure.
        """
        if self.local is not None and hasattr(self, "grad_scale"):
            raise ConfigError("GradScaler and sync_every do not go together: give sync_every=1.")
        loss = None
        if self.local is not None and self._begun and self._ready is None:
            loss = self._local_step(closure)
        else:
            if self._ready is None:
                loss = self._evaluate(closure)
            elif getattr(self, "grad_scale", None) is not None:
                raise ConfigError(
                    "opt.aggregate() took gradients that GradScaler had scaled: scaler.unscale_(opt) first."
                )
            if self._ready:
                self.inner.step()
            self._ready = None
            if self.local is not None:
                self.local.restart()
        return loss

    def _evaluate(self, closure: Closure | None) -> Any:
        """Average the gradients that ``closure`` computes or, without one, the present ones."""
        if closure is None:
            self.aggregate()
            return None
        losses: dict[int, Any] = {}  # of the workers here, at the point of this step

        def evaluate(i: int) -> None:
            with torch.enable_grad():
                loss = closure() if self.aggregator.one_each else closure(i)
            losses.setdefault(i, loss)

        if self.aggregator.method.needs_function:
            self._aggregate_functions(evaluate, losses)
        else:
            for i in self.hosted:
                evaluate(i)
                if not self.aggregator.one_each:
                    self.collect(i)
            self.aggregate()
        return next(iter(losses.values()), None) if self.aggregator.one_each else list(losses.values())

    def _aggregate_functions(self, evaluate: Callable[[int], None], losses: dict[int, Any]) -> None:
        """Let the method ask for gradients at points of its choice; ``evaluate`` makes those of a worker."""
        here = self._tensors.values()

        def gradient(i: int, point: Array) -> Array:
            self._tensors.set_values(point)
            first = i not in losses
            evaluate(i)
            self._refuse_others()
            found = self._own_gradient()
            if first:
                self.buffers.collect(i)
            return found

        try:
            self._aggregate({i: partial(gradient, i) for i in self.hosted}, here)
        finally:
            self._tensors.set_values(here)
        self.buffers.restore()

    def _aggregate(self, gradient: Any, at: Array | None) -> bool:
        aggregator = self.aggregator if self._begun or self._whole is None else self._whole
        try:
            if self.aggregator.one_each:
                gradient = next(iter(gradient.values()), None)  # none on a rank that is the server only
            estimate = aggregator(gradient, at)
        except DivergedError:
            # GradScaler takes what is not finite for a scale too large; a step that ended half-way is lost.
            if not (hasattr(self, "grad_scale") and aggregator.sound):
                raise
            estimate = None
            aggregator.skipped += 1
        self._brought.clear()
        self.buffers.step()
        if estimate is not None:
            self._tensors.set_gradients(estimate)
        self._ready = estimate is not None
        return self._ready

    def _local_step(self, closure: Closure | None) -> Any:
        self.exchange()  # of the step before, if it was interrupted
        if closure is None:
            self._refuse_others()
            loss = self.inner.step()
        else:
            loss = self.inner.step(lambda: self._checked(closure))
        assert self.local is not None
        self.local.steps += 1
        self.exchange()
        return loss

    def exchange(self) -> None:
        """With ``sync_every``: begin and end the exchanges that are due after the last step; collective.

        ``step`` calls it.  After an interrupt in ``step``, ``mpicomp.torch.save`` ends these exchanges.
        """
        if self.local is not None and self.local.exchange():
            if self.hosted:
                self.buffers.collect(self.hosted.start)
            self.buffers.step()

    def _checked(self, closure: Closure) -> Any:
        loss = closure()
        self._refuse_others()
        return loss

    def _refuse_others(self) -> None:
        """Raise ``ConfigError`` for a gradient that is not averaged: ranks would get other parameters."""
        for i, j, p in numbered(self.inner):
            if p.grad is None or id(p) in self._known:
                continue
            if p.requires_grad:
                raise ConfigError(
                    f"parameter {j} of group {i} has a gradient; when Compressed was made, it was not in the "
                    "optimiser or needed none. Make Compressed anew after such a change."
                )
            p.grad = None  # of before it was frozen

    def _own_gradient(self) -> Array:
        """The present gradient as a vector, shape (d,), divided by the scale of a GradScaler."""
        self._clipping.look()
        gradient = self._tensors.gradient()
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            gradient *= 1.0 / float(scale)
        return gradient

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as a dict, with torch's tensors in the place of arrays.

        inner        the state of the inner optimiser
        outer        the state of the outer optimiser; None without one
        aggregators  the state of the ``Aggregator`` of each fragment, the workers' residuals among it
        local_steps  the number of local steps so far
        start        the parameters after each fragment's last exchange; None if ``sync_every`` is 1
        begun        the parameters as each fragment's last exchange began; None if ``sync_every`` is 1

        It is not collective, unless an interrupt has left an exchange to be done.
        """
        self.exchange()
        return {
            "inner": self.inner.state_dict(),
            "outer": None if self.outer is None else self.outer.state_dict(),
            "aggregators": [
                {name: as_tensor(value) for name, value in one.state().items()} for one in self.aggregators
            ],
            **(NO_LOCAL_STEPS if self.local is None else self.local.state()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the ``state_dict()`` of the same rank, on the same number of ranks; collective.

        Raises ``ConfigError`` for the state of another optimiser, such as the inner one's own: on all ranks,
        and nothing changes.
        """
        own = aggregators_in(state_dict, len(self.aggregators))
        optimisers = {"inner": self.inner} | ({} if self.outer is None else {"outer": self.outer})
        before = {name: one.state_dict() for name, one in optimisers.items()}

        def take() -> None:
            check_kind(state_dict, self.inner)
            first = own[0]
            if not isinstance(first, dict) or first.get("config.sync_every") != str(self.sync_every):
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
        self.buffers.restart()

    def __repr__(self) -> str:
        return f"Compressed({self.inner!r}, {self.aggregator.method!r})"


def _trained(optimiser: Optimizer, module: nn.Module | None) -> dict[str, nn.Parameter]:
    """The optimiser's parameters that need gradients, by name in ``module``, or by group and number.

    Raises ``ConfigError`` if there are none.
    """
    named = _named(optimiser, module)
    names = {p: name for name, p in named.items()}
    found = {names[p]: p for _, _, p in numbered(optimiser) if p.requires_grad}
    if not found:
        raise ConfigError("no parameter of the optimiser needs a gradient.")
    return found


def _named(optimiser: Optimizer, module: nn.Module | None) -> dict[str, nn.Parameter]:
    """All parameters of ``module`` by their names, and the optimiser's others by group and number."""
    named = {} if module is None else dict(module.named_parameters())
    known = set(named.values())
    return named | {f"group{i}.{j}": p for i, j, p in numbered(optimiser) if p not in known}
