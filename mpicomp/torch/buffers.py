"""Keep a model's buffers, such as BatchNorm's running means, equal on all ranks."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from mpicomp.base.errors import ConfigError
from mpicomp.torch.content import Content, contents, kind
from mpicomp.transports import Transport

_RESET: WeakSet[Buffers] = WeakSet()  # those that have reset what worker 0 changed, since their last step


@torch.no_grad()
def share(tensors: Mapping[str, Tensor], transport: Transport) -> None:
    """Set the parameters ``tensors`` on all ranks to rank 0's values; collective.

    Raises ``ConfigError`` on all ranks if a name, type or shape differs.
    """
    first = _of_rank_0("parameter", tensors, transport)
    for name, tensor in tensors.items():
        content = first[name]
        assert content is not None
        if (now := content.put(tensor)) is not tensor:
            tensor.data = now


class Buffers:
    """The buffers of ``module``, equal on all workers at the start of each step.

    After a step, worker 0's buffers are copied to all ranks, as torch's DDP does with rank 0's.  So they do
    not depend on the number of ranks.  A buffer is sent with its name, type and shape, so a step may also add
    a buffer or change its shape.  Buffers that a step did not change, such as a mask, are not sent.

    nbytes  bytes of buffers sent so far, once for each receiving rank; they are not in the ledger

    Raises ``ConfigError`` on all ranks if the buffers differ in name, type or shape at the start.
    """

    def __init__(self, module: nn.Module | None, transport: Transport, dedicated: bool) -> None:
        self._module, self._transport, self._dedicated = module, transport, dedicated
        self.nbytes = 0
        self._first: dict[str, Content | bytes | None] = {}  # those that worker 0 has changed in this step
        self._begun: dict[str, Content | None] | None = None  # from which each worker here begins, if noted
        self._start = _of_rank_0("buffer", self._tensors(), transport)
        self.restore()

    @property
    def shared(self) -> bool:
        """Whether ``step`` sends anything to the other ranks."""
        return self._module is not None

    def begin(self, always: bool = False) -> None:
        """Note the present buffers, of which the program may have set some, as those of the step's start.

        Only if this rank hosts several workers, each of which begins there, or ``always``.
        """
        if always or len(self._transport.hosted) > 1:
            self._begun = self._contents()

    def rewind(self) -> None:
        """Reset the buffers to their values at the step's start."""
        self._put(self._at_start())

    def _at_start(self) -> dict[str, Content | None]:
        """The buffers at the step's start: those that ``begin`` has noted, else those of the step before."""
        return self._start if self._begun is None else self._begun

    def collect(self, worker: int) -> None:
        """Note the buffers that ``worker`` has changed, if it is worker 0, for ``step`` to send.

        If this rank hosts several workers, the buffers are reset to their values at the step's start.
        Raises ``ConfigError`` if another ``Compressed`` has reset such changes already.
        """
        self._refuse_reset()
        if worker == 0:
            now, start = self._contents(), self._start
            self._first = {name: None for name in start.keys() - now.keys()}
            for name, content in now.items():
                before = start.get(name)
                if name not in start or content != before:
                    self._first[name] = content and content.changes(before)
            if len(self._transport.hosted) > 1 and now != self._at_start():
                _RESET.add(self)
        if len(self._transport.hosted) > 1:
            self.rewind()

    def _refuse_reset(self) -> None:
        """Raise ``ConfigError`` if other ``Buffers`` have reset some of these, so that changes are lost."""
        own = {id(module) for _, module, _ in self._slots()}
        for other in _RESET:
            if other is not self and any(id(module) in own for _, module, _ in other._slots()):
                raise ConfigError(
                    "another Compressed has collected from this module, and has reset its buffers, such as "
                    "BatchNorm's running means, for the next worker: give module=model to the first of the "
                    "two alone."
                )

    def step(self) -> None:
        """Copy worker 0's buffers to all ranks; collective."""
        t, self._begun = self._transport, None
        _RESET.discard(self)
        if not self.shared:
            return
        if self._dedicated:  # worker 0 is on rank 1
            told: Any = t.collect(self._first)
            self._first = told[1] if t.is_server else self._first
        changed: Any = t.ask_server(lambda: self._first)
        sent: dict[int, int] = {}  # bytes of each tensor, which several modules may have
        for name, content in changed.items():
            before = self._start.get(name)
            if isinstance(content, bytes) and before is not None:
                content = replace(before, data=content)
            self._start[name] = content
            if content is not None:
                sent[id(content.data)] = len(content.data)
        if t.hosted != range(1):  # worker 0 alone has them already
            self.restore()
        self.nbytes += sum(sent.values()) * (t.ranks - 1)

    def restore(self) -> None:
        """Reset the buffers to what the last step has left, or the start."""
        self._put(self._start)

    @torch.no_grad()
    def _put(self, saved: Mapping[str, Content | None]) -> None:
        """Set the buffers to ``saved``, and unregister others."""
        slots = {name: (module, leaf, module._buffers[leaf]) for name, module, leaf in self._slots()}
        put: dict[int, Tensor] = {}  # by the tensor that was there, which several modules may have
        for name, (module, leaf, there) in slots.items():
            content = saved.get(name)
            if name not in saved:
                del module._buffers[leaf]  # registered in this step
            elif content is None:
                module._buffers[leaf] = None
            elif there is None:
                module._buffers[leaf] = content.tensor(self._device())
            else:
                if id(there) not in put:
                    put[id(there)] = content.put(there)
                if put[id(there)] is not there:
                    module._buffers[leaf] = put[id(there)]
        for name, content in saved.items():
            if content is not None and name not in slots:
                self._register(name, content)

    def restart(self) -> None:
        """Take the present buffers as those of the step's start."""
        self._start, self._begun = self._contents(), None

    def _register(self, name: str, content: Content) -> None:
        """Register a buffer that worker 0 has registered in this step."""
        assert self._module is not None
        path, _, leaf = name.rpartition(".")
        try:
            module = self._module.get_submodule(path)
            persistent = leaf not in module._non_persistent_buffers_set  # if ``restore`` has taken it away
            module.register_buffer(leaf, content.tensor(self._device()), persistent)
        except (AttributeError, KeyError):
            raise ConfigError(
                f"worker 0's model has a new buffer {name!r}, which rank {self._transport.rank} cannot "
                "register: register it when the model is made, with None if it is set later."
            ) from None

    def _contents(self) -> dict[str, Content | None]:
        return contents(self._tensors())

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: module._buffers[leaf] for name, module, leaf in self._slots()}

    def _slots(self) -> Iterator[tuple[str, nn.Module, str]]:
        """(name, module, name in the module) for each buffer, including those that are None."""
        for path, module in () if self._module is None else self._module.named_modules():
            for leaf in module._buffers:
                yield f"{path}.{leaf}" if path else leaf, module, leaf

    def _device(self) -> torch.device:
        """The device for a new buffer: that of the model's first parameter."""
        assert self._module is not None
        return next((p.device for p in self._module.parameters()), torch.device("cpu"))


def _of_rank_0(
    what: str, own: Mapping[str, Tensor | None], transport: Transport
) -> dict[str, Content | None]:
    """Rank 0's contents on all ranks; collective.

    Raises ``ConfigError`` on all ranks if a rank's tensors differ in name, type or shape.
    """
    kinds = transport.raise_on_all(lambda: {n: kind(t, f"{what} {n!r}") for n, t in own.items()})
    told: Any = transport.collect(kinds)

    def checked() -> dict[str, Content | None]:
        for rank, theirs in enumerate(told):
            for name in {**told[0], **theirs}:
                first, other = (kinds.get(name, "missing") for kinds in (told[0], theirs))
                if first != other:
                    raise ConfigError(
                        f"{what} {name!r} is {first} on rank 0 and {other} on rank {rank}: make the same "
                        "model on all ranks."
                    )
        return contents(own)

    return transport.ask_server(checked)


def warn_of_buffers(parameters: list[nn.Parameter], transport: Transport) -> None:
    """Warn, on the server, if modules that have some of ``parameters`` also have buffers."""
    if transport.is_server and _has_buffers(parameters):
        warnings.warn(
            "the model has buffers, such as BatchNorm's running means, which the ranks do not share: "
            "give module=model.",
            stacklevel=4,
        )


def _has_buffers(parameters: list[nn.Parameter]) -> bool:
    """Whether a module in the program has one of ``parameters``, and buffers that no ``Buffers`` shares."""
    ids = {id(p) for p in parameters}
    found = gc.get_objects()
    shared = {id(m) for one in found if type(one) is Buffers for _, m, _ in one._slots()}
    modules = [m for m in found if issubclass(type(m), nn.Module)]
    return any(
        next(m.buffers(recurse=False), None) is not None
        and id(m) not in shared
        and any(id(p) in ids for p in m.parameters(recurse=False))
        for m in modules
    )
