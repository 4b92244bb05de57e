"""Warn of optimisers and methods whose local steps overshoot or never meet."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields

import torch
from torch.optim import Optimizer

from mpicomp.compressors import Absolute, Contractive
from mpicomp.methods import OneBitAdam
from mpicomp.methods.base import Method
from mpicomp.methods.support.lmo_method import LMOMethod
from mpicomp.torch.alike import numbered
from mpicomp.torch.fragments import Fragment

_BIASED = Contractive | Absolute
# Outer momentum did no harm with block floats of 4 bits, whose alpha is 0.6 (docs/results/local-steps.md).
_KEEPS = 0.55


def warn_of_momentum(fragments: Sequence[Fragment], outer: Optimizer) -> None:
    """Warn if ``outer`` has momentum and the method has error feedback: both repeat earlier changes."""
    if any(group.get("momentum") for group in outer.param_groups) and any(map(_sends_later, fragments)):
        warnings.warn(
            f"outer has momentum, and {type(fragments[0].aggregator.method).__name__} sends later what it "
            "leaves out now: together they may overshoot. Take torch.optim.SGD without momentum for outer; "
            "docs/results/local-steps.md has losses.",
            stacklevel=3,
        )


def _sends_later(fragment: Fragment) -> bool:
    """Whether a compressor of the error feedback may drop much: its worst-case alpha is below ``_KEEPS``."""
    method, d, n = fragment.aggregator.method, fragment.tensors.parts.size, fragment.aggregator.workers
    given = [getattr(method, f.name) for f in fields(method)]
    keeps = [C.alpha(d, n) if isinstance(C, Contractive) else 0.0 for C in given if isinstance(C, _BIASED)]
    return method.keeps_residual and min(keeps, default=1.0) < _KEEPS


def warn_of_length(method: Method) -> None:
    """Warn if the steps of ``method`` are as long for a small change as for a large one.

    Called where ``outer`` is left out, so that their rate is 1.
    """
    if isinstance(method, LMOMethod | OneBitAdam):
        warnings.warn(
            f"{type(method).__name__} gives directions that are as long for a small change as for a large "
            "one, and without outer the rate of their step is 1. Give outer, with a rate of your own.",
            stacklevel=3,
        )


@torch.no_grad()
def warn_of_copies(optimiser: Optimizer) -> None:
    """Warn if the state of ``optimiser`` has a copy of a parameter, such as one of more bits.

    Called after a local step.  An exchange does not change the copy.
    """
    for _, _, p in numbered(optimiser):
        kept = optimiser.state.get(p)
        for name, value in kept.items() if isinstance(kept, dict) else ():
            alike = isinstance(value, torch.Tensor) and value.shape == p.shape and p.any()
            if alike and torch.equal(value.to(p), p):
                warnings.warn(
                    f"{type(optimiser).__name__} keeps a copy of the parameters in its state, {name!r}, and "
                    "no exchange changes it: if a step copies it back, each rank goes on from its own. With "
                    "sync_every take an optimiser without copies, or one whose parameters the copies are.",
                    stacklevel=3,
                )
                return
