"""A communication hook for torch's DistributedDataParallel (DDP).

DDP reads the annotations of ``hook`` as classes.  So this file does not import ``annotations``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from mpicomp.base.checks import check_switch
from mpicomp.base.errors import ConfigError, MpicompError, raise_if
from mpicomp.base.files import as_path
from mpicomp.base.units import one_line
from mpicomp.loops.aggregator import Aggregator, as_estimating
from mpicomp.loops.stepping import check_options
from mpicomp.methods.base import Method
from mpicomp.torch.alike import refuse_alone
from mpicomp.torch.ddp import group_of
from mpicomp.torch.opening import with_group
from mpicomp.torch.overlap import Leaving
from mpicomp.torch.tensors import Tensors
from mpicomp.torch.unused import in_backward, reached, unused_by_all
from mpicomp.transports.openers import default_communicator

_OF_COMPRESSED = ("module", "sync_every", "outer", "delay", "keep", "ahead", "fragments", "start_after")
_ALL_USED, _SOME_UNUSED, _OTHER = 0, 1, 2  # sent to the other ranks: all parameters used; some not; others


class _Bucket(NamedTuple):
    """One of DDP's buckets of gradients, and the future that DDP waits for."""

    parameters: list[Tensor]
    gradients: list[Tensor]  # views of the buffer
    buffer: Tensor
    done: Future[Tensor]


class Hook:
    """The state of ``hook``: average the gradients of all parameters by a compressed method::

        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(mpicomp.torch.Hook(method), mpicomp.torch.hook)

    method   a method for ``Aggregator``, or its text
    overlap  compress and send each block of the gradient as soon as it is in the buckets that DDP has given.
             It needs server="sharded".  Results are the same as without.  It does not go with DDP's
             find_unused_parameters and static_graph, which leave parameters out
    group    the process group whose ranks take part, in place of ``comm``; None: all ranks that mpirun has
             started, or, without an MPI launcher, those of DDP's group
    options  the options of ``Aggregator``.  Three are refused: workers, as each rank is one worker;
             server="dedicated", as rank 0 has a gradient too; and on_nonfinite="skip", as torch's optimiser
             steps whatever the hook returns, and its momentum moves the parameters even if the gradient is 0

    DDP gives the hook its gradients in buckets, and makes new buckets after the first step.  The method's
    state belongs to parameters, not to buckets, so nothing is lost.  Messages are sent when the last bucket
    has come; with ``overlap``, from the second step on, before.

    With find_unused_parameters=True, a parameter that no rank uses in a step has the gradient 0 in messages,
    and the method's state for it is kept until its next gradient.

    A hook belongs to the parameters of its first backward.  It raises ``ConfigError`` for other parameters,
    for sparse gradients and for the three options.  An error of a step, such as ``DivergedError``, is raised
    on all ranks at the end of ``backward``.  The gradients are then zeros, and training may go on.
    """

    def __init__(
        self, method: Method | str, *, overlap: bool = False, group: Any = None, **options: Any
    ) -> None:
        check_switch("overlap", overlap)
        for name in options:
            if name in _OF_COMPRESSED:
                raise ConfigError(
                    f"{name} in a hook of DDP, which averages gradients in every step: leave it out, or take "
                    "mpicomp.torch.Compressed in place of DDP."
                )
        check_options(options, Hook.__init__)
        options = with_group(options, group)
        if options.get("workers") is not None:
            raise ConfigError(
                f"workers={options['workers']!r} in a hook of DDP, where each rank is a worker. Leave "
                "workers out, or take mpicomp.torch.Compressed in place of DDP."
            )
        if options.get("server") == "dedicated":
            raise ConfigError(
                "server='dedicated' in a hook of DDP, where rank 0 has a gradient too; allowed: 'shared', "
                "'sharded', 'allreduce'. mpicomp.torch.Compressed in place of DDP takes it."
            )
        if options.get("on_nonfinite") == "skip":
            raise ConfigError(
                "on_nonfinite='skip' in a hook of DDP; allowed: 'raise', as a hook cannot keep the optimiser "
                "from its step. mpicomp.torch.Compressed in place of DDP leaves the step out on all ranks."
            )
        self._method, self._options, self._overlap = as_estimating(method), options, overlap
        if self._method.needs_function:
            raise ConfigError(
                f"{type(self._method).__name__} compares gradients at two points, and a hook of DDP has "
                "those of one; allowed: methods of one gradient, such as EFSGD. mpicomp.torch.Compressed in "
                "place of DDP takes it, by opt.step(closure)."
            )
        self._leaving: Leaving | None = None
        self._buckets: list[_Bucket] = []
        self._aggregator: Aggregator | None = None
        self._tensors: Tensors | None = None
        self._to_load: Path | None = None
        self._group: dist.ProcessGroup | None = None  # DDP's

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raise ``ConfigError``: a copy of a DDP has no hook, but torch's own dense mean."""
        raise ConfigError(
            "a Hook, or a DDP that has one, cannot be copied or pickled, as it is joined to the other ranks: "
            "copy ddp.module, and register a new Hook. Its save and load keep what the method remembers."
        )

    @property
    def aggregator(self) -> Aggregator:
        """The ``Aggregator``, which has the ``ledger``.  Raises ``ConfigError`` before the first backward."""
        if self._aggregator is None:
            raise ConfigError("the hook knows the parameters from its first backward on: train a step first.")
        return self._aggregator

    @property
    def parameters(self) -> list[Any]:
        """The parameters, in the order of DDP's buckets in the first backward, the last first; [] before it.

        This is the order of the model, as DDP begins with its last layers.
        """
        return [] if self._tensors is None else self._tensors.parameters

    def save(self, folder: str | Path) -> None:
        """Save the method's state on all ranks to ``folder``, between two steps; collective."""
        self.aggregator.save(folder)

    def load(self, folder: str | Path) -> None:
        """Load, in the next step, the state that ``save`` wrote, on the same number of ranks; collective.

        DDP must have the same options as when it was saved, because parameters are named by the order of its
        buckets in the first step.  ``folder`` is read in the next ``backward``, when the parameters are
        known.  That ``backward`` raises ``RecordError``, on all ranks, if the state is damaged, or belongs to
        another method, seed, model or number of ranks.
        """
        self._to_load = as_path("folder", folder)

    def take(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """Take one bucket of this step; return a future of its mean."""
        if self._group is None:
            self._group = group_of(self, self._overlap)
        if bucket.index() != len(self._buckets):
            raise ConfigError(
                f"the hook is given bucket {bucket.index()} of a backward, and bucket {len(self._buckets)} "
                "comes next: give each DDP a Hook of its own, and a new one after a backward that has failed."
            )
        done: Future[Tensor] = Future()
        self._buckets.append(_Bucket(bucket.parameters(), bucket.gradients(), bucket.buffer(), done))
        if self._leaving is not None and self._to_load is None:  # a state is loaded at the last bucket
            self._let_leave(self._buckets[-1], self._leaving)
        if bucket.is_last():
            buckets, self._buckets = self._buckets, []
            try:
                self._aggregate(buckets)
            except MpicompError as error:
                for one in buckets:
                    one.buffer.zero_()
                _raise_after_ddp(error)
            for one in buckets:
                one.done.set_result(one.buffer)
        return done

    def _aggregate(self, buckets: list[_Bucket]) -> None:
        """Put the estimate of the mean gradient into ``buckets``."""
        for one in buckets:
            if one.buffer.layout != torch.strided:
                shape = tuple(one.parameters[0].shape)
                raise ConfigError(
                    f"the gradient of the parameter of shape {shape} is sparse; allowed: dense ones, as of "
                    "an nn.Embedding with sparse=False."
                )
        in_order = reversed(buckets)
        pairs = (pair for one in in_order for pair in zip(one.parameters, one.gradients, strict=True))
        gradients: dict[Any, Tensor] = dict(pairs)
        if self._aggregator is None:
            self._join(gradients)
        if self._leaving is None:
            self._average(gradients)
        else:
            self._average_what_left(gradients, self._leaving)

    def _join(self, gradients: Mapping[Any, Tensor]) -> None:
        """Make the Aggregator of these parameters."""
        tensors = Tensors({str(i): p for i, p in enumerate(gradients)})
        tensors.settings = {"overlap": self._overlap}
        assert self._group is not None
        options = self._options
        if options.get("comm") is None and default_communicator() is not None:  # torch's
            options = options | {"comm": self._group}
        aggregator = Aggregator(self._method, tensors, **options)
        refuse_alone(aggregator.transport, options.get("comm"))
        if (processes := self._group.size()) != (ranks := aggregator.transport.ranks):
            raise ConfigError(
                f"DDP's process group has {processes} processes, and the hook {ranks} ranks: give the "
                "Hook group=, that process group, or comm=, mpi4py's communicator of its ranks."
            )
        self._tensors, self._aggregator = tensors, aggregator

    def _average(self, gradients: Mapping[Any, Tensor]) -> None:
        """Replace the gradients by the estimate of their mean, of all parameters that some rank has used."""
        assert self._tensors is not None
        aggregator, parameters = self.aggregator, self.parameters
        unreached = [j for j, p in enumerate(parameters) if not reached(p)]
        waiting = self._waiting(gradients, unreached)
        self._load()
        own = self._tensors.gradient([gradients[p] for p in parameters])
        with aggregator.holding([self._tensors.slices[j] for j in waiting]):
            estimate = self._tensors.views(aggregator(own))
        if self._overlap:  # from the next step on
            self._leaving = Leaving(self._tensors, aggregator)
        for j, (p, g) in enumerate(zip(parameters, estimate, strict=True)):
            if j not in waiting:
                gradients[p].copy_(g)
        for j in {*unreached} - {*waiting}:
            if (left := parameters[j].grad) is not None:  # by an earlier backward; DDP may not replace it
                left.copy_(estimate[j])

    def _average_what_left(self, gradients: Mapping[Any, Tensor], leaving: Leaving) -> None:
        """Replace the gradients, some of which have left already, by the estimate of their mean."""
        assert self._tensors is not None
        self._waiting(gradients, [])
        self._load()
        for j, p in enumerate(self.parameters):
            if j not in leaving.here:
                leaving.take(j, gradients[p])
        estimate = self._tensors.views(self.aggregator(leaving.whole()))
        for p, g in zip(self.parameters, estimate, strict=True):
            gradients[p].copy_(g)

    def _let_leave(self, one: _Bucket, leaving: Leaving) -> None:
        """Take the gradients of a bucket, and send the blocks that are complete by them.

        Other parameters than those of the first backward are left out; they are refused at the last bucket.
        """
        numbers = {p: j for j, p in enumerate(self.parameters)}
        for p, g in zip(one.parameters, one.gradients, strict=True):
            if p in numbers:
                leaving.take(numbers[p], g)

    def _load(self) -> None:
        """Load the state that ``load`` has named, if any; collective."""
        if self._to_load is not None:
            self.aggregator.load(self._to_load)
            self._to_load = None

    def _waiting(self, gradients: Mapping[Any, Tensor], unreached: Sequence[int]) -> list[int]:
        """The numbers of the parameters that no rank has used in this step; collective.

        Their gradients are all 0, and DDP does not change their p.grad.  Raises ``ConfigError`` on all ranks
        if DDP gives a rank other parameters than in its first step.
        """
        parameters, aggregator = self.parameters, self.aggregator
        same = gradients.keys() == set(parameters)
        unused = [j for j in unreached if not gradients[parameters[j]].any()] if same else []
        told = aggregator.tell_all((_SOME_UNUSED if unused else _ALL_USED) if same else _OTHER)
        if _OTHER in told:
            if self._leaving is not None:
                aggregator.drop()
            raise ConfigError(
                f"the hook has the {len(parameters)} parameters of its first backward, and on rank "
                f"{told.index(_OTHER)} DDP gives it others: take one Hook for each DDP, and a new one "
                "for a new model or where parameters were frozen, unfrozen, replaced or added."
            )
        return [] if _ALL_USED in told else unused_by_all(unused, aggregator.transport)


def _raise_after_ddp(error: MpicompError) -> None:
    """Raise ``error`` at the end of this backward, once DDP has finished its step and can start another."""
    if not in_backward():
        raise error
    engine = torch.autograd.Variable._execution_engine
    # DDP queues the end of its step once the hook has returned, so between these two.
    engine.queue_callback(lambda: engine.queue_callback(partial(raise_if, error)))


def hook(state: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The communication hook for ``register_comm_hook``: the compressed mean of the gradients in ``bucket``.

    Raises ``ConfigError`` if ``state`` is not a ``Hook``, and under torch.compile with
    optimize_ddp="python_reducer", which has no buckets.
    """
    if not isinstance(state, Hook):
        raise ConfigError(
            f"the state of the hook is {one_line(state)}; allowed: a Hook, as in "
            "ddp.register_comm_hook(mpicomp.torch.Hook(method), mpicomp.torch.hook)."
        )
    if not isinstance(bucket, dist.GradBucket):
        raise ConfigError(
            "torch.compile with optimize_ddp='python_reducer' gives the hook single gradients; allowed: "
            "'ddp_optimizer', torch's default, which gives buckets."
        )
    return state.take(bucket)
