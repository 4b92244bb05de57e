"""One small run of any method, whole or interrupted, and all of it that does not depend on the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mpicomp
from mpicomp import (
    ADIANA,
    AGD,
    DASHA,
    DASHAMVR,
    DASHAPAGE,
    DCGD,
    DIANA,
    EF14,
    EF21,
    EF21P,
    EF21SGD2M,
    EF21SGDM,
    EFSGD,
    GD,
    MARINA,
    MCM,
    PPMARINA,
    VRDIANA,
    VRMARINA,
    ADIANAPlus,
    Artemis,
    DCGDPlus,
    DIANAPlus,
    Dore,
    DoubleSqueeze,
    EF21Plus,
    PerturbedSGD,
    PowerSGD,
    TwoDirection,
)
from mpicomp.compressors import (
    Bernoulli,
    BlockSteps,
    Dithering,
    HardThreshold,
    Importance,
    Natural,
    PermK,
    QuantizedTopK,
    RandK,
    Shrunk,
    TopK,
    VaryingSteps,
)
from mpicomp.problems import Quadratics
from mpicomp.transports.local import Local

N = 4
PROBLEM = Quadratics(d=13, noise=0.4, lam=0.01)
EVERY_METHOD = [
    GD(),
    AGD(mu=0),  # its t is state as well
    DCGD(Bernoulli(0.3)),
    DIANA(Dithering(3)),
    MARINA(PermK(), p=0.2),
    EF14(HardThreshold(0.05), gamma=0.1),
    EF21(QuantizedTopK(3, Dithering(3))),
    DASHA(Natural()),
    ADIANA(RandK(0.3), p=0.2),
    EF21P(TopK(3), RandK(0.3)),
    TwoDirection(TopK(3), Natural(), Lbar=8.0, p=0.2),
    Artemis(RandK(0.3), Natural(), alpha_down=None),
    MCM(RandK(0.3), Natural()),
    Dore(RandK(0.3), RandK(0.5)),
    DoubleSqueeze(TopK(3), HardThreshold(0.05), gamma=0.1),
    EF21Plus(Shrunk(RandK(3)), gamma="theory*4"),
    EF21SGDM(TopK(3)),
    EF21SGD2M(Shrunk(RandK(3)), eta=0.3),
    EFSGD(HardThreshold(0.05)),
    PerturbedSGD(TopK(3), eta=0.1, r=0.2, I_reset=7, R=0.5),
    PowerSGD(1, rows=1, gamma=0.1),
    VRMARINA(PermK(), batch=None, p=0.2),
    PPMARINA(RandK(3), r=3, p=0.2),
    VRDIANA(RandK(3), batch=None, p=0.3),
    DASHAPAGE(RandK(3), batch=None, p=0.3),
    DASHAMVR(Natural(), batch=None, b=0.3),
    DCGDPlus(Importance(0.3)),
    DIANAPlus(VaryingSteps(6.0), alpha=0.2),
    ADIANAPlus(BlockSteps(6.0, 3), p=0.2, alpha=0.2),
]
every_method = pytest.mark.parametrize("method", EVERY_METHOD, ids=lambda m: type(m).__name__)
METHOD = EVERY_METHOD[4]


def run(method=METHOD, problem=PROBLEM, workers=N, transport=None, **options):
    options = {"rounds": 40, "every": 10, "seed": 3} | options
    return mpicomp.run(method, problem, workers=workers, transport=transport or Local(workers), **options)


def interrupted(at: int, *args, **options):
    """A run that is asked to stop during round number ``at``, counted from 1."""
    transport = Local(options.get("workers", N))

    def ask(round, row):
        transport.stop = round >= at - 1

    transport.stop = at == 1
    result = run(*args, transport=transport, progress=ask, **options)
    assert result.status == "interrupted" and result.rows[-1].round == at
    return result


def outcome(result):
    """All of a run that does not depend on the clock."""
    rows = [replace(row, seconds=0.0) for row in result.rows]
    book = result.ledger
    return (
        result.x.tobytes(),
        result.iterates_sha256,
        book.up.tolist(),
        book.down.tolist(),
        book.paper_bits_up,
        book.paper_bits_down,
        rows,
    )
