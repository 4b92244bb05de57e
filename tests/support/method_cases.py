"""Every method once: the list that the suite runs over.  A new method is entered here, and nowhere else.

``methods/test_each.py`` checks that the list is complete.  ``running``, ``fault_injection`` and
``every_combination`` take their methods from it, as do the tests of text, of starts and of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpicomp import (
    ADEF,
    ADIANA,
    AGD,
    CG,
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
    LBFGS,
    M3,
    MARINA,
    MARINAP,
    MCM,
    PPMARINA,
    VRDIANA,
    VRMARINA,
    ADIANAPlus,
    ARCTopK,
    Artemis,
    Bernoulli,
    BlockSteps,
    ByzVRMARINA,
    DCGDPlus,
    DIANAPlus,
    Dion,
    Dithering,
    Dore,
    DoubleSqueeze,
    EControl,
    EF21Muon,
    EF21Plus,
    HardThreshold,
    HeavyBall,
    Importance,
    LoCoDL,
    Method,
    Natural,
    OneBitAdam,
    PermK,
    PerturbedSGD,
    PowerSGD,
    QuantizedTopK,
    RandK,
    Shrunk,
    TopK,
    TwoDirection,
    VaryingSteps,
)


@dataclass(frozen=True)
class MethodCase:
    """A method, and what the suite has to know of it.

    ``method`` runs on convex problems of 12, 13 or 30 coordinates, its step by theory where there is one.

    ``text`` is the method as the command line is given it, for 24 coordinates: written as ``to_text`` writes
    it, all step sizes numbers, so small that any 8 workers converge.

    ``replica`` names the arrays and numbers that every rank holds, in their order.

    ``start`` is the default of the parameter of that name, from the paper or from its authors' code, and
    "zero" where both leave it open; empty for a method without that parameter.

    ``second`` is the method with another compressor, and is ``method`` unless given.  Its iterates depend on
    the seed if ``draws`` is true.
    """

    method: Method
    text: str
    replica: str
    start: str = ""
    second: Method | None = None
    draws: bool = True

    @property
    def name(self) -> str:
        """The method's name in the table."""
        return self.text.partition("(")[0]

    @property
    def other(self) -> Method:
        """``second``, or ``method`` where there is no second."""
        return self.second or self.method

    def __str__(self) -> str:
        return type(self.method).__name__


METHOD_CASES = [
    MethodCase(GD(), "gd(gamma=0.1)", "x g", draws=False),
    MethodCase(
        AGD(mu=0),  # where its t is state as well
        "agd(gamma=0.1, mu=0.1)",
        "x y t",
        second=AGD(),
        draws=False,
    ),
    MethodCase(HeavyBall(gamma=0.1), "heavyball(gamma=0.1, mu=0.1)", "x v", draws=False),
    MethodCase(
        CG(gamma=1.0),
        "cg(gamma=1.0)",
        "x start p g first rounding",
        second=CG(gamma=1.0, values="f8"),
        draws=False,
    ),
    MethodCase(
        LBFGS(memory=3),
        "lbfgs(memory=5)",
        "x y p g S Z low high slope t pairs steps trials",
        second=LBFGS(),
        draws=False,
    ),
    MethodCase(
        DCGD(Bernoulli(0.3)),
        "dcgd(Q=natural, gamma=0.001, batch=2)",
        "x g",
        second=DCGD(RandK(3)),
    ),
    MethodCase(
        DIANA(Dithering(3)),
        "diana(Q=randk(k=5), gamma=0.001)",
        "x g h",
        start="zero",
        second=DIANA(Natural()),
    ),
    MethodCase(
        VRDIANA(RandK(3), batch=None, p=0.3),
        "vrdiana(Q=randk(k=5), batch=2, gamma=0.001, p=0.3)",
        "x g h w",
        start="zero",
        second=VRDIANA(RandK(3), batch=None),
    ),
    MethodCase(
        MARINA(PermK(), p=0.2),
        "marina(Q=permk, gamma=0.001, p=0.3)",
        "x g",
        second=MARINA(PermK()),
    ),
    MethodCase(
        VRMARINA(PermK(), batch=None, p=0.2),
        "vrmarina(Q=randk(k=5), batch=2, gamma=0.001, p=0.3)",
        "x g previous",
        second=VRMARINA(RandK(3), batch=None),
    ),
    MethodCase(
        PPMARINA(RandK(3), r=3, p=0.2),
        "ppmarina(Q=randk(k=5), r=3, gamma=0.001, p=0.2)",
        "x g previous",
        second=PPMARINA(RandK(3), r=2),
    ),
    MethodCase(
        ByzVRMARINA(RandK(3), p=0.2),
        "byzvrmarina(Q=randk(k=5), batch=2, gamma=0.001, p=0.3, rule=trimmed)",
        "x g previous",
        second=ByzVRMARINA(PermK(), None, 0.05, 0.3, "geometric", liars=0, bucket=2),
    ),
    MethodCase(
        EF14(HardThreshold(0.05), gamma=0.1),
        "ef14(C=topk(k=5), gamma=0.001)",
        "x g",
        second=EF14(QuantizedTopK(3, Natural())),
    ),
    MethodCase(
        EFSGD(HardThreshold(0.05)),
        "efsgd(C=hard_threshold(lam=0.1), gamma=0.001)",
        "x g",
        second=EFSGD(Shrunk(RandK(3)), gamma=0.1, decay=0.9, average="senders", clip_norm=True),
    ),
    MethodCase(
        EF21(QuantizedTopK(3, Dithering(3))),
        "ef21(C=topk(k=5), gamma=0.001)",
        "x g",
        start="compressed",
        second=EF21(Shrunk(RandK(3))),
    ),
    MethodCase(
        EF21Plus(Shrunk(RandK(3)), gamma="theory*4"),
        "ef21plus(C=sign, gamma=1.0)",
        "x g",
        start="compressed",
        second=EF21Plus(Shrunk(RandK(3))),
    ),
    MethodCase(
        EF21SGDM(TopK(3)),
        "ef21sgdm(C=topk(k=5), gamma=0.001)",
        "x g",
        start="gradient",
        second=EF21SGDM(QuantizedTopK(3, Natural())),
    ),
    MethodCase(
        EF21SGD2M(Shrunk(RandK(3)), eta=0.3),
        "ef21sgd2m(C=topk(k=5), gamma=0.001)",
        "x g",
        start="gradient",
    ),
    MethodCase(
        EF21LMO(TopK(3), eta=0.5, rounds=50, gap=1.0),
        "ef21lmo(C=topk(k=5), gamma=0.001)",
        "x g h",
        start="gradient",
        second=EF21LMO(QuantizedTopK(3, Natural()), gamma=0.05, norm="linf", eta="decreasing"),
    ),
    MethodCase(
        EF21Muon(TopK(3), TopK(2), norm="l2", eta=0.5, rounds=50, gap=1.0),
        "ef21muon(C=topk(k=5), down=topk(k=5), gamma=0.001, norm=linf)",
        "x g",
        start="gradient",
        second=EF21Muon(
            QuantizedTopK(3, Natural()), Shrunk(RandK(3)), gamma=0.05, norm="linf", eta="decreasing"
        ),
    ),
    MethodCase(
        EControl(TopK(3)),
        "econtrol(C=topk(k=5), gamma=0.001, eta=0.1)",
        "x g",
        start="gradient",
        second=EControl(Shrunk(RandK(3))),
    ),
    MethodCase(
        DASHA(Natural()),
        "dasha(Q=randk(k=5), gamma=0.001)",
        "x g",
        start="gradient",
        second=DASHA(RandK(3)),
    ),
    MethodCase(
        DASHAPAGE(RandK(3), batch=None, p=0.3),
        "dashapage(Q=randk(k=5), batch=2, gamma=0.001, p=0.3)",
        "x g previous",
        start="gradient",
        second=DASHAPAGE(RandK(3), batch=None),
    ),
    MethodCase(
        DASHAMVR(Natural(), batch=None, b=0.3),
        "dashamvr(Q=randk(k=5), batch=2, b=0.3, gamma=0.001)",
        "x g previous",
        start="gradient",
        second=DASHAMVR(RandK(3), batch=None, b=0.5),
    ),
    MethodCase(
        ADIANA(RandK(0.3), p=0.2),
        "adiana(Q=randk(k=5), eta=0.001, mu=0.1, p=0.3)",
        "x y z w h",
        second=ADIANA(Natural()),
    ),
    MethodCase(
        ADEF(TopK(3), gamma=0.1),
        "adef(C=topk(k=5), gamma=0.001, mu=0.1, batch=2)",
        "x y h t",
        second=ADEF(Shrunk(RandK(3)), gamma=0.1, mu=0.05),
    ),
    MethodCase(
        LoCoDL(RandK(0.3), mu=0.01, p=0.4),
        "locodl(Q=randk(k=5), mu=0.1, gamma=0.001, p=0.3)",
        "y v d",
        second=LoCoDL(Natural(), mu=0.01),
    ),
    MethodCase(
        DoubleSqueeze(TopK(3), HardThreshold(0.05), gamma=0.1),
        "doublesqueeze(C=sign, down=topk(k=5), gamma=0.001)",
        "x g",
        second=DoubleSqueeze(
            QuantizedTopK(3, Natural()), TopK(3), gamma=0.1, decay=0.9, average="senders", clip_norm=True
        ),
    ),
    MethodCase(
        OneBitAdam(2, TopK(3), HardThreshold(0.05), gamma=0.001),
        "onebitadam(warmup=3, gamma=0.001)",
        "x g m v",
        second=OneBitAdam(1, QuantizedTopK(3, Natural()), TopK(3), gamma=0.01),
    ),
    MethodCase(
        Artemis(RandK(0.3), Natural(), alpha_down=None),
        "artemis(Q=randk(k=5), down=randk(k=5), gamma=0.001, p=0.5)",
        "x g H",
        start="gradient",
        second=Artemis(RandK(3), Natural(), p=0.6),
    ),
    MethodCase(
        Dore(RandK(0.3), RandK(0.5)),
        "dore(Q=randk(k=5), down=randk(k=5), gamma=0.001)",
        "x g",
        start="zero",
        second=Dore(RandK(3), Natural()),
    ),
    MethodCase(
        MCM(RandK(0.3), Natural()),
        "mcm(Q=randk(k=5), down=randk(k=5), gamma=0.001)",
        "w H",
        start="gradient",
        second=MCM(RandK(3), Natural()),
    ),
    MethodCase(
        EF21P(TopK(3), RandK(0.3)),
        "ef21p(C=topk(k=5), Q=randk(k=5), gamma=0.001)",
        "w",
        start="zero",
        second=EF21P(TopK(3), RandK(3)),
    ),
    MethodCase(
        MARINAP(PermK(), p=0.2),
        "marinap(Q=randk(k=5), gamma=0.001, p=0.3)",
        "z",
        second=MARINAP(RandK(3)),
    ),
    MethodCase(
        M3(RandK(0.3), PermK(), p=0.3, p_down=0.2),
        "m3(Q=randk(k=5), Q_down=permk, gamma=0.001, beta=0.5, p=0.3, p_down=0.2)",
        "z",
        second=M3(Natural(), RandK(3)),
    ),
    MethodCase(
        TwoDirection(TopK(3), Natural(), Lbar=8.0, p=0.2),
        "twodirection(C=topk(k=5), Q=randk(k=5), Lbar=100.0, mu=0.1, p=0.3)",
        "w z k Gamma",
        second=TwoDirection(TopK(3), RandK(3)),
    ),
    MethodCase(
        PerturbedSGD(TopK(3), eta=0.1, r=0.2, I_reset=7, R=0.5),
        "perturbed_sgd(C=topk(k=5), eta=0.001, r=0.1, I_reset=3, R=1.0)",
        "x anchor age",
        second=PerturbedSGD(TopK(3), eta=0.1, r=0.2, I_reset=4),
    ),
    MethodCase(
        PowerSGD(1, rows=1, gamma=0.1),
        "powersgd(r=2, rows=4, gamma=0.001)",
        "x g P Q m",
        second=PowerSGD(2, rows=3, gamma=0.1),
    ),
    MethodCase(
        Dion(1, rows=1, gamma=0.01),
        "dion(r=2, rows=4, gamma=0.001)",
        "x g P Q product",
        second=Dion(2, rows=3, gamma=0.01),
    ),
    MethodCase(
        ARCTopK(3, r=1, width=1),
        "arctopk(k=2, r=2, width=4, gamma=0.001)",
        "x g rows",
        second=ARCTopK(2, r=1, width=3),
    ),
    MethodCase(
        DCGDPlus(Importance(0.3)),
        "dcgd_plus(Q=importance(k=5), gamma=0.001)",
        "x g",
    ),
    MethodCase(
        DIANAPlus(VaryingSteps(6.0), alpha=0.2),
        "diana_plus(Q=importance(k=5), gamma=0.001)",
        "x g h",
        second=DIANAPlus(VaryingSteps(6.0)),
    ),
    MethodCase(
        ADIANAPlus(BlockSteps(6.0, 3), p=0.2),
        "adiana_plus(Q=importance(k=5), eta=0.001, p=0.3)",
        "x y z w h",
        second=ADIANAPlus(BlockSteps(6.0, 3)),
    ),
]
