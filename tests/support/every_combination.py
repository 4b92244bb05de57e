"""Methods with compressors on a small heterogeneous problem: all that messages differ in, or every pair.

As a script, `every_combination.py HOW` prints one JSON object, name -> [sha256, up, down].  HOW is "plain",
or names some of

every      every method, and every compressor with the methods that take its kind
dedicated  the server hosts no worker
chunked    messages travel in pieces of 7 bytes, or of 101 on the larger problem
crowded    all ranks share one core
observed   each run's ledger is compared with what the MPI library counted
sharded-S  every rank serves its share of S blocks, on a problem that is 42 times as large; with "every", each
           compressor with one of the methods that take its kind
apart      as if each rank were on a host of its own; what is sent unasked is little, in pieces of 11 bytes
trees      broadcasts of blocks spread in trees, with however few ranks
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mpicomp
from mpicomp import (
    ADEF,
    ADIANA,
    AGD,
    DASHA,
    DASHAMVR,
    DASHAPAGE,
    DCGD,
    DIANA,
    EF14,
    EF21,
    EF21LMO,
    EF21P,
    EF21SGD2M,
    EF21SGDM,
    EFSGD,
    GD,
    M3,
    MARINA,
    MARINAP,
    MCM,
    PPMARINA,
    VRDIANA,
    VRMARINA,
    Absolute,
    ADIANAPlus,
    ARCTopK,
    Artemis,
    BlockSteps,
    ByzVRMARINA,
    Contractive,
    DCGDPlus,
    DIANAPlus,
    Dion,
    Dore,
    DoubleSqueeze,
    EControl,
    EF21Muon,
    EF21Plus,
    Identity,
    Importance,
    LoCoDL,
    Lossless,
    Method,
    Natural,
    PermK,
    PerturbedSGD,
    PowerSGD,
    RandK,
    Sign,
    TopK,
    TwoDirection,
    Unbiased,
    VaryingSteps,
)
from mpicomp.base.parts import Part, Parts
from mpicomp.methods.support.robust import RULES
from mpicomp.problems import Noisy, Quadratics
from mpicomp.text.config import parse_method
from mpicomp.transports import Transport, connect
from mpicomp.transports.counters import prepare
from mpicomp.transports.launcher import launched_rank
from tests.support.conformance import CASES, NET
from tests.support.method_cases import METHOD_CASES

WORKERS, ROUNDS = 8, 8


@dataclass(frozen=True)
class Layers(Noisy):
    """A noisy problem whose x has the parts ``net``."""

    net: Parts = NET

    def parts(self) -> Parts:
        return self.net


PROBLEM = Layers(Quadratics(d=24, noise=0.5, lam=0.1), sigma=0.5)
FIT = [case for case in CASES if case.d <= PROBLEM.dimension() and case.parts in (None, NET)]
WIDE = Parts(tuple(Part(part.name, (42 * (part.shape or (1,))[0], *part.shape[1:])) for part, _ in NET))
TO_CUT = Layers(Quadratics(d=1008, noise=0.5, lam=0.1), sigma=0.5, net=WIDE)


def methods() -> list[Method]:
    """Each method once, and each class of compressors once more.

    The ranks see no compressor, but messages: their number, their lengths, which may be 0 or above a piece,
    and who sends them.  All these are here.
    """
    chosen: list[Method] = [AGD(gamma=0.1, mu=0.1), PowerSGD(2, rows=4, gamma=1e-3, momentum=0.5)]
    chosen += [ADIANA(RandK(5), eta=1e-3, mu=0.1, p=0.3, sends="gradient"), PowerSGD(1, gamma=1e-3)]
    chosen += [EF21Plus(TopK(5), gamma=1.0, start="gradient")]
    chosen += [Artemis(Natural(), RandK(5), gamma=1e-3, p=0.2, alpha_down=0.2)]
    chosen += [EFSGD(TopK(5), gamma=1e-3, decay=0.9, average="senders", clip_norm=True)]
    chosen += [DoubleSqueeze(TopK(5), TopK(5), gamma=1e-3, decay=0.5, average="senders")]
    chosen += [EF21SGDM(TopK(2), gamma=1e-3, eta=0.5, down=Lossless(forward=True))]
    chosen += [MARINA(PermK(), gamma=1e-3, p=0.3, down=Lossless("f4", forward=True))]
    chosen += [EF21LMO(TopK(5), gamma=1e-3, norm="spectral", eta="decreasing", batch=2)]
    chosen += [EF21Muon(TopK(5), TopK(5), gamma=1e-3, polar="newton-schulz", eta=0.5, batch=2)]
    chosen += [EF21LMO(TopK(5), gamma=1e-3, eta="decreasing", momentum="igt", batch=2)]
    chosen += [EF21Muon(TopK(5), TopK(5), gamma=1e-3, norm="linf", eta=0.5, momentum="mvr", batch=2)]
    chosen += [DIANA(Natural(), gamma="auto"), MARINA(PermK(), gamma="auto", p=0.3)]
    chosen += [EF21(TopK(5), gamma="auto"), EF21SGDM(TopK(2), gamma="auto", down=Lossless(forward=True))]
    chosen += [EF21SGDM(TopK(2), gamma="auto", batch=2), Artemis(Natural(), RandK(5), gamma="auto", p=0.5)]
    chosen += [MARINAP(PermK(), gamma=1e-3, p=0.3)]
    chosen += of_compressors({type(case.c): case.c for case in reversed(FIT)}.values())
    chosen += [parse_method(case.text) for case in METHOD_CASES]
    return [*dict.fromkeys(chosen)]


def of_compressors(compressors: Iterable[Any]) -> list[Method]:
    """Each with one of the methods that take its kind."""
    kinds: dict[type, Any] = {Unbiased: DIANA, Contractive: EF21, Absolute: EF14}
    return [kinds[kind](C, gamma=1e-3) for C in compressors for kind in kinds if isinstance(C, kind)]


def every_pair() -> list[Method]:
    """Step sizes are small numbers: what matters here is that every path is walked, not how fast."""
    chosen: list[Method] = [GD(gamma=0.1), AGD(gamma=0.1, mu=0.1), PowerSGD(2, rows=4, gamma=1e-3)]
    chosen += [PowerSGD(2, rows=4, gamma=1e-3, momentum=0.5), PowerSGD(1, gamma=1e-3)]
    chosen += [Dion(1, gamma=1e-3), Dion(0.25, gamma=1e-3, columns="orthonormal", batch=2)]
    chosen += [ARCTopK(0.3, r=1, gamma=1e-3), ARCTopK(2, r=2, width=4, gamma=1e-3, batch=2)]
    for C in dict.fromkeys(case.c for case in FIT):
        if isinstance(C, Unbiased):
            chosen += [DCGD(C, gamma=1e-3), DIANA(C, gamma=1e-3), MARINA(C, gamma=1e-3, p=0.3)]
        if isinstance(C, Contractive):
            chosen += [EF21(C, gamma=1e-3), EF21Plus(C, gamma=1.0), EF21SGDM(C, gamma=1e-3)]
            chosen += [PerturbedSGD(C, eta=1e-3, r=0.1, I_reset=3, R=1.0)]
        if isinstance(C, Contractive | Absolute):
            chosen += [EF14(C, gamma=1e-3), DoubleSqueeze(C, TopK(5), gamma=1e-3), EFSGD(C, gamma=1e-3)]
    chosen += [EF21SGD2M(TopK(5), gamma=1e-3), EF21SGD2M(Sign(), gamma=1e-3)]
    chosen += [EF21LMO(Sign(), gamma=1e-3, norm=norm) for norm in ("l2", "linf", "spectral")]
    chosen += [EF21Muon(Sign(), C, gamma=1e-3, norm="l2") for C in (TopK(5), Sign(), Lossless())]
    for momentum in ("igt", "mvr"):
        chosen += [EF21LMO(TopK(5), gamma=1e-3, eta=0.3, momentum=momentum)]
        chosen += [EF21Muon(TopK(5), Sign(), 1e-3, "l2", eta="decreasing", momentum=momentum, batch=2)]
    for Q in (RandK(5), PermK(), Natural(), Identity()):
        chosen += [DASHA(Q, gamma=1e-3)]
        chosen += [VRMARINA(Q, batch=2, gamma=1e-3, p=0.3, sync_batch=b) for b in (None, 9)]
        chosen += [ByzVRMARINA(Q, batch=2, gamma=1e-3, p=0.3, rule=rule) for rule in RULES]
        chosen += [ByzVRMARINA(Q, gamma=1e-3, p=0.3, liars=0, bucket=2, estimates="common")]
        chosen += [PPMARINA(Q, r=3, gamma=1e-3, p=0.2), VRDIANA(Q, batch=2, gamma=1e-3, p=0.3)]
        chosen += [DASHAPAGE(Q, batch=2, gamma=1e-3, p=0.3), DASHAMVR(Q, batch=2, b=0.3, gamma=1e-3)]
        chosen += [DCGD(Q, batch=2, gamma=1e-3), DIANA(Q, batch=2, gamma=1e-3)]
        chosen += [LoCoDL(Q, mu=0.1, gamma=1e-3, p=0.3), MARINAP(Q, gamma=1e-3, p=0.3)]
        chosen += [M3(Q, PermK(), gamma=1e-3, p=0.3, p_down=0.3), M3(RandK(5), Q, gamma=1e-3, p=0.3)]
        chosen += [ADIANA(Q, eta=1e-3, mu=0.1, p=0.3), ADIANA(Q, eta=1e-3, mu=0.1, parameters="refined")]
        chosen += [ADIANA(Q, eta=1e-3, mu=0.1, p=0.3, sends="gradient"), Artemis(Q, RandK(5), 1e-3, p=0.2)]
        chosen += [Artemis(Q, Natural(), gamma=1e-3, alpha_down=0.2), Dore(Q, RandK(5), gamma=1e-3)]
        chosen += [MCM(Q, RandK(5), gamma=1e-3), MCM(Q, Natural(), gamma=1e-3)]
        for C in (TopK(5), Sign()):
            chosen += [EF21P(C, Q, gamma=1e-3), TwoDirection(C, Q, Lbar=100.0, mu=0.1, p=0.3)]
    chosen += [ADEF(C, gamma=1e-3, mu=mu) for C in (TopK(5), Sign(), Lossless()) for mu in (0, 0.1)]
    chosen += [EF21(TopK(5), gamma=1e-3, start="gradient"), EF21Plus(TopK(5), gamma=1e-3, start="gradient")]
    chosen += [EF21SGDM(TopK(5), gamma=1e-3, start="compressed")]
    chosen += [EControl(C, gamma=1e-3, eta=0.2, start="compressed") for C in (TopK(5), Sign())]
    for begin in ("zero", "compressed"):
        chosen += [DASHA(RandK(5), gamma=1e-3, start=begin), MCM(RandK(5), RandK(5), gamma=1e-3, start=begin)]
        chosen += [Artemis(RandK(5), RandK(5), gamma=1e-3, p=0.2, start=begin)]
    for begin in ("gradient", "compressed"):
        chosen += [
            DIANA(RandK(5), gamma=1e-3, start=begin),
            Dore(RandK(5), RandK(5), gamma=1e-3, start=begin),
        ]
        chosen += [EF21P(TopK(5), RandK(5), gamma=1e-3, start=begin)]
    for Q in (RandK(5), Importance(5), VaryingSteps(10.0), BlockSteps(10.0, 4)):
        chosen += [DCGDPlus(Q, gamma=1e-3), DIANAPlus(Q, gamma=1e-3), ADIANAPlus(Q, eta=1e-3, p=0.3)]
    chosen += [parse_method(case.text) for case in METHOD_CASES]
    return [*dict.fromkeys(chosen)]


def methods_in_blocks(every: bool = False) -> list[Method]:
    """Those that can be served in blocks; no compressor has a weight for each coordinate of ``PROBLEM``."""
    compressors = [case.c for case in FIT] if every else []
    return [
        m
        for m in dict.fromkeys([*of_compressors(compressors), *methods()])
        if m.separable and "weights=(" not in repr(m)
    ]


def transport(how: str) -> Transport:
    """One for all the runs: what one leaves behind in it, the next would receive."""
    dedicated, observed = "dedicated" in how, "observed" in how
    if "chunked" not in how:
        return connect(WORKERS, dedicated, observed=observed)
    from mpicomp.transports.mpi import Mpi

    return Mpi(WORKERS, dedicated=dedicated, chunk=101 if "sharded" in how else 7, observed=observed)


def main(how: str) -> None:
    """Run all methods as HOW says, and print what they gave."""
    if "observed" in how:
        prepare()
    if "crowded" in how:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if "trees" in how or "apart" in how:
        from mpicomp.transports import mpi_exchange, rank_exchange  # start MPI; an observer has to come first

        if "trees" in how:
            mpi_exchange.pays = lambda roots, ranks: True
        if "apart" in how:
            mpi_exchange.sent_whole = lambda comm: {comm.rank}
            mpi_exchange.UNASKED = 11
            mpi_exchange.AHEAD = rank_exchange.AHEAD = 100
    found, ranks = {}, transport(how)
    sharded = re.search(r"sharded-(\d+)", how)
    serving = {"server": "sharded", "blocks": int(sharded.group(1))} if sharded else {}
    every = "every" in how
    for method in methods_in_blocks(every) if sharded else every_pair() if every else methods():
        run = mpicomp.run(
            method,
            TO_CUT if sharded else PROBLEM,
            workers=WORKERS,
            rounds=ROUNDS,
            every=ROUNDS,
            transport=ranks,
            **serving,
            verify_bytes="observed" in how,
        )
        if launched_rank() == 0:
            print(repr(method), file=sys.stderr, flush=True)
        found[repr(method)] = [run.iterates_sha256, run.ledger.up_bytes, run.ledger.down_bytes]
    ranks.close()
    if launched_rank() == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
