"""Run a method one step at a time on gradients that the caller supplies: base of Aggregator and Descent."""

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial, wraps
from inspect import signature
from typing import Any, ClassVar, Concatenate, NoReturn, ParamSpec, Self, TypeVar

import numpy as np

from mpicomp import kernels
from mpicomp.averaging.ledger import Ledger
from mpicomp.base.arrays import Array
from mpicomp.base.blocks import Blocks
from mpicomp.base.checks import as_seed, as_workers, check_choice
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError, unknown
from mpicomp.base.given_arrays import in_full
from mpicomp.base.program import level_of_program
from mpicomp.base.units import one_line, shortened
from mpicomp.keys import Key
from mpicomp.loops.agreement import Agreement, check_alike
from mpicomp.loops.background import Background
from mpicomp.loops.early import Early
from mpicomp.loops.given import Given
from mpicomp.loops.holding import Holding
from mpicomp.loops.packing import Packing
from mpicomp.loops.start import Start
from mpicomp.methods.base import Method
from mpicomp.problems.objective import Objective
from mpicomp.runtime.alike import refuse_other_call
from mpicomp.runtime.audit import Audit, Verified
from mpicomp.runtime.devices import open_device
from mpicomp.runtime.placement import Placement
from mpicomp.runtime.preparation import load_kernels
from mpicomp.runtime.rounds import Rounds
from mpicomp.transports import ranks_of
from mpicomp.transports.calls import Operation

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound="Stepping")

ON_NONFINITE = ("raise", "skip")
NONE, SENT, SKIPPED = 0, 1, 2  # what is pending: no step; a step whose messages are sent; one left out


def operation(method: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Decorator: run a method on the object's device.

    Raises ``MpicompError`` if the object is closed, and ``ConfigError`` if a step of it is under way.
    """

    @wraps(method)
    def performed(self: E, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._closed:
            raise MpicompError(f"this {type(self).__name__} is closed: make a new one.")
        self._background.wait()  # it may be sending a step of this object
        if self._in_step:
            raise ConfigError(
                f"a step of this {type(self).__name__} is under way, and a gradient function, or another "
                "thread, has called it: call it between steps."
            )
        with self.together(), kernels.using(self.device):
            return method(self, *args, **kwargs)

    return performed


class Stepping:
    """Run a method one step at a time on gradients that the caller supplies.

    like           arrays with the shapes and types of the gradients: one array, or a dict, list or tuple of
                   arrays (see ``packing.Packing``)
    workers        the number of workers n, on any number of ranks; None: each rank is one worker
    seed           the seed of all random draws
    comm           mpi4py's communicator of the ranks, or a process group of torch.distributed; None: all
                   ranks of the job, or this process alone.  Where torch.distributed is initialised and no MPI
                   launcher started the processes, all ranks are those of its default group
    server         how messages are averaged; ``server`` and ``blocks`` mean the same as in ``run``
    device         "cpu"; or "cuda": vectors and compression are on a GPU.  With several GPUs, the ranks of a
                   host are assigned to them in turn.  Arrays on that GPU are not copied to the host
    cuda_aware     with "cuda", whether to pass GPU buffers to MPI; as in ``run``
    stall_timeout  seconds of waiting after which the job names the silent rank and ends; None: never
    verify_bytes   also count the bytes that MPI is handed, for ``verify``
    on_nonfinite   if a gradient is not finite: "raise" raises ``DivergedError`` on all ranks; "skip" leaves
                   the step out on all ranks and keeps the method's state

    The constructor and most methods are collective: all ranks call them.  Attributes, ``state``, ``holding``
    and ``bring`` are not.  All ranks must give the same method and options: else ``ConfigError`` is raised on
    every rank.  ``cuda_aware`` may differ, and so may the seconds of ``stall_timeout``, which all ranks give
    or none.
    """

    _like: ClassVar[str] = "like"  # the name of this argument in messages

    def __init__(
        self,
        method: Method,
        like: Any,
        *,
        workers: int | None = None,
        seed: int = 0,
        comm: Any = None,
        server: str = Placement.server,
        blocks: int | None = Placement.blocks,
        device: str = Placement.device,
        cuda_aware: str = Placement.cuda_aware,
        stall_timeout: float | None = None,
        verify_bytes: bool = False,
        on_nonfinite: str = "raise",
    ) -> None:
        check_choice("on_nonfinite", on_nonfinite, ON_NONFINITE)
        seed = as_seed(seed)
        comm, ranks = ranks_of(comm)
        own = workers is None
        placement = Placement(server, blocks, device, cuda_aware, stall_timeout, verify_bytes)
        n = max(1, ranks - placement.dedicated) if own else as_workers(workers)
        self.transport = t = placement.connect(n, comm)
        try:
            refuse_other_call(t, type(self).__name__)
            self.device = t.raise_on_all(lambda: open_device(device))
            self._packing = packing = t.raise_on_all(lambda: Packing.of(like, self.device, self._like))
            facts: dict[str, object] = {**packing.settings, "method": in_full(method)}
            facts |= {packing.name or self._like: packing.description}
            facts |= {"workers": "one each" if own else n, "seed": seed}
            facts |= {"on_nonfinite": on_nonfinite, "server": server, "blocks": blocks, "device": device}
            alike = check_alike(t, facts, self._hash(like))
            self._watch = Start(None if alike else like, packing, t.is_server)
            cut = placement.block_count(n)
            self._blocks = None if cut == 1 else Blocks.cut(packing.parts, cut)
            with kernels.using(self.device):
                resolved = t.raise_on_all(lambda: self._resolve(method, packing, n))
                self._given = {i: Given(i, packing, t.clock) for i in t.hosted}
                start = self._start(like)
                rounds = partial(Rounds, resolved, start, self._given, t, self._update, server, self._blocks)
                self._play = t.raise_on_all(rounds)
                load_kernels(t, kernels.MANY, packing.parts.size)
            self._verify_bytes = placement.verify_bytes
            self._begin_audit()
        except MpicompError:  # the same on all ranks
            t.close()
            raise
        name = f"{type(self).__name__} {{}} ({type(method).__name__}, d = {packing.parts.size})"
        self._agreement = Agreement(t, name)
        self.seed, self.steps, self.skipped, self.pending = seed, 0, 0, NONE
        self._early: Early | None = None
        self._holding = Holding()
        self._background = Background(t.waits_end)
        self.rounds, self.one_each, self._on_nonfinite = 0, own, on_nonfinite
        self._resources = ExitStack()  # released by ``close``, the last one first
        self._resources.callback(t.close)
        self._resources.callback(self._agreement.let_go)
        self._closed = self._in_step = self._warned = False
        if t.ranks > 1:  # where other ranks may wait; one process frees what nobody uses any more
            atexit.register(self._close_at_exit)

    def _begin_audit(self) -> None:
        """Compare the ledger with MPI's count from here on, if that was asked for."""
        play, t = self._play, self.transport
        self._audit = Audit(t, play.ledger, play.averaging.booked) if self._verify_bytes else None

    def _resolve(self, method: Method, packing: Packing, n: int) -> Method:
        """The method for the packing's arrays, with its parameters as numbers.

        Raises ``ConfigError`` if a parameter is "theory", or not allowed.
        """
        bound = method.bound(packing.parts)
        return bound.resolve(lambda: _no_constants(method), packing.parts.size, n, self._blocks)

    def _start(self, like: Any) -> Array:
        """Where the method's iterate starts, shape (d,), the same on all ranks; collective."""
        return kernels.to_device(np.zeros(self._packing.parts.size, self._packing.dtype))

    def _update(self, method: Method, replica: Any, broadcast: Any, key: Key) -> None:
        """Update the replica by a broadcast, on every rank."""
        method.replica_step(replica, broadcast, key)

    def _hash(self, like: Any) -> int:
        """A hash of the values of ``like``, which the ranks compare; 0 if the values do not matter."""
        return 0

    @property
    def method(self) -> Method:
        """The method, with its parameters as numbers."""
        return self._play.method

    @property
    def workers(self) -> int:
        """The number of workers n."""
        return self.transport.n

    @property
    def hosted(self) -> range:
        """The workers whose gradients this rank brings."""
        return self.transport.hosted

    @property
    def ledger(self) -> Ledger:
        """The bytes so far: of all workers on rank 0; on another rank, the uplink of its own workers only.

        With server="sharded" rank 0's ledger is complete only after ``settle``, ``save`` or ``verify``.
        """
        self._background.wait()
        return self._play.ledger

    @property
    def seconds(self) -> dict[str, float]:
        """This rank's seconds by phase: gradient, compress, wait, server, decode."""
        return dict(self.transport.clock.seconds)

    def residual(self, worker: int) -> Array | None:
        """The dropped part of the last vector of the hosted ``worker``, shape (d,); do not change it.

        None if the method does not keep it, or not in every round; see ``Method.residual``.
        Raises ``ConfigError`` for a worker that this rank does not host.
        """
        self._background.wait()
        if not hasattr(worker, "__index__") or worker not in self.hosted:
            hosted = f"one of {shortened(self.hosted)}, which this rank hosts" if self.hosted else "none here"
            raise ConfigError(f"worker={one_line(worker)}; allowed: {hosted}.")
        return self.method.residual(self._play.workers[worker])

    @operation
    def _step(self, gradient: Any, at: Any = None) -> bool:
        """Play the rounds of one step; return False if it was skipped.  Raises errors on all ranks."""
        self._in_step = True
        try:
            if taken := self._begin_step(gradient, at):
                self._play_step()
            return taken
        finally:
            self._in_step = False

    def _begin_step(self, gradient: Any, at: Any = None) -> bool:
        """Take this rank's gradients for a step; return False if the ranks skip it."""
        self.transport.activity = f"step {self.steps}"
        if self.one_each and not self.hosted and gradient is not None:
            self.warn_of_left_out()
        if self._holding:
            self._holding.compare(self._agreement)
        try:
            told = self._agreement.begin(Operation.CALL, lambda: self._take(gradient, at), self._drop_early)
        except DivergedError:
            if self._on_nonfinite == "raise":
                raise
            self.skipped += 1
            return False
        try:
            self._watch.check(told)
        except ConfigError:
            self._drop_early()
            raise
        return True

    def warn_of_left_out(self) -> None:
        """Warn once that this rank, a dedicated server, was given a gradient: it is not part of the mean."""
        if not self._warned:
            warnings.warn(
                "with server='dedicated' rank 0 hosts no worker, and the gradient that it was given is left "
                "out of the mean. Share out the data among the other ranks, and compute none on rank 0.",
                stacklevel=level_of_program(),
            )
        self._warned = True

    def _play_step(self) -> None:
        """Play the rounds of the step that has begun."""
        rounds = self._play
        try:
            while True:
                key = self._key()
                rounds.play(key, f"step {self.steps}")
                self.rounds += 1
                if rounds.running.ends_step(rounds.replica, key):
                    break
            self.steps += 1
        except BaseException as error:  # some workers have moved, and others have not
            rounds.books.fail(self._half_way(error))
            if not isinstance(error, MpicompError):  # those are raised on all ranks
                self._agreement.leave(f"step {self.steps}", error)
            raise

    def together(self, told: bool = False) -> AbstractContextManager[None]:
        """In the ``with`` block the ranks work together, from the first call on or, if ``told``, at once.

        If an error of the program's own ends it, other ranks may wait there: later calls here are refused.
        """
        return self._agreement.together(f"a call at step {self.steps}", told)

    def _half_way(self, error: BaseException) -> MpicompError:
        """The error that every later step raises after ``error`` has ended a step part-way."""
        cause = (str(error) or type(error).__name__).rstrip(".")
        return MpicompError(
            f"step {self.steps} has ended half-way, so the memories of workers and server do not agree any "
            f"more ({cause}). Load a saved state, or make a new {type(self).__name__}."
        )

    @property
    def sound(self) -> bool:
        """False after a step failed part-way; load a saved state to continue."""
        return self._play.books.sound

    def refuse_steps(self, reason: MpicompError) -> None:
        """Let every step and save from now on raise ``reason``, until a state is loaded; on all ranks."""
        self._play.books.fail(reason)

    def _key(self) -> Key:
        """The key of the next round."""
        return Key(self.seed, self.rounds, None, self.transport.n)

    def _drop_early(self) -> None:
        if self._early is not None:  # on all ranks, for some may have brought blocks
            if not self._early.begun:
                self._early.begin(self._key())
            self._early.drop()

    def _take(self, gradient: Any, at: Any) -> int:
        """Check and store this rank's gradients for the next step, before any state changes.

        Returns the number of ``Start.value``, by which ranks compare x.  Raises ``ConfigError`` or
        ``DivergedError``.
        """
        self._play.books.check()
        if self._early is not None:
            self._early.check_all()
        given = self._by_worker(gradient)
        functions = [callable(what) or isinstance(what, Objective) for what in given.values()]
        self._place(at, any(functions))
        also = self.method.needs_also
        if also and not all(isinstance(what, Objective) for what in given.values()):
            raise ConfigError(
                f"{type(self.method).__name__} asks for {also} as well as gradients: give an "
                "mpicomp.Objective that has them."
            )
        if self.method.needs_function and not all(functions):
            raise ConfigError(
                f"{type(self.method).__name__} asks for gradients of one f_i at several points: give a "
                "function of x, which returns the gradient there on the same samples, and not an array."
            )
        point = self._point()
        for i, what in given.items():
            self._given[i].give(what, point)
            whole = self._given[i].gradient
            if self._early is not None and whole is not None:
                self._early.check_whole(whole)
        x = None if at is None else self._play.replica.x
        return self._watch.value((f.gradient for f in self._given.values()), x)

    def _by_worker(self, gradient: Any) -> dict[int, Any]:
        """Each hosted worker's gradient.  Raises ``ConfigError`` unless ``gradient`` has one for each."""
        if self.one_each:
            return {i: gradient for i in self.hosted}
        if isinstance(gradient, Mapping) and set(gradient) == set(self.hosted):
            return dict(gradient)
        if self._packing.missing:
            raise ConfigError(self._packing.missing)
        keyed = isinstance(gradient, Mapping)
        shown = f"the keys {shortened(gradient) or '(none)'}" if keyed else type(gradient).__name__
        raise ConfigError(
            f"with workers={self.workers}, a rank brings a dict of the gradients of the workers that it "
            f"hosts, here {shortened(self.hosted) or 'none'}; it was given {shown}: "
            "{i: gradient(x, i) for i in agg.hosted}."
        )

    def _place(self, at: Any, functions: bool) -> None:
        """Set the method's iterate to ``at``, in a subclass whose caller chooses the points."""

    def _point(self) -> Array:
        """The point at which the next step needs its first gradient, shape (d,)."""
        return self._play.running.point(self._play.replica, self._key())

    @operation
    def settle(self) -> None:
        """Add the other ranks' byte counts to rank 0's ledger (needed with server="sharded"); collective."""
        self._agreement.begin(Operation.SETTLE, self._play.books.check)
        self._play.settle()

    @operation
    def verify(self) -> Verified | None:
        """Compare the ledger with the bytes counted in MPI since the start, ``load`` or ``restore``.

        Returns the count, or None in one process; collective.  Raises ``CountError`` if the two differ, and
        ``ConfigError`` without ``verify_bytes``.
        """
        if self._audit is None:
            raise ConfigError(
                "bytes are counted by MPI too if that is asked for at the start: verify_bytes=True."
            )
        self.settle()
        return self._audit.check()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raise ``ConfigError``: a copy would share the connection to the other ranks, and go on alone."""
        name = type(self).__name__
        raise ConfigError(
            f"{name}: it cannot be copied or pickled, as it is joined to the other ranks. Make a new one; "
            "what its state() or save(folder) has kept goes on in it."
        )

    def close(self) -> None:
        """Release the resources; collective.  With several ranks it is called at the program's end anyway.

        Raises ``MpicompError`` on all ranks if a rank makes another call meanwhile.  It is then still open:
        the others wait at their end for this rank's.
        """
        self._background.wait()
        if self._closed:
            return
        ends = True
        try:
            self._agreement.end()
        except MpicompError:
            ends = False
            raise
        finally:
            if ends:
                atexit.unregister(self._close_at_exit)
                self._closed = True
                self._resources.close()

    def at_close(self, action: Callable[[], None]) -> None:
        """Call ``action`` when this is closed."""
        self._resources.callback(action)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()

    def _close_at_exit(self) -> None:
        if self.transport.is_over:  # such as finalized by the program itself, by all ranks together
            return
        try:
            self.close()
        except KeyboardInterrupt:  # the program is at its end
            pass
        except MpicompError:  # other ranks wait for this one: the job ends as with any error
            sys.excepthook(*sys.exc_info())


def _no_constants(method: Method) -> NoReturn:
    """Raise ``ConfigError`` that names the parameters of ``method`` that are "theory"."""
    raise ConfigError(
        f'{type(method).__name__}: "theory", for {" and ".join(method.by_theory)}, follows from the '
        "constants of a problem, and here there is none: give a number."
    )


def check_options(given: Iterable[str], of: Callable[..., Any] = Stepping.__init__) -> None:
    """Raise ``ConfigError`` for an option that is none of the keywords of ``of`` and ``Stepping``."""
    taken = {**signature(of).parameters, **signature(Stepping.__init__).parameters}
    allowed = [name for name, one in taken.items() if one.kind is one.KEYWORD_ONLY]
    for name in given:
        if name not in allowed:
            raise unknown("option", name, allowed)
