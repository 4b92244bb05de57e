"""The list of compressors that the suite runs over.  A new compressor is entered here, and nowhere else.

Each ``Case`` is a compressor in dimension d on n workers.  ``compressors/test_compressors.py`` checks it for
all that is exact (sizes, determinism, edge cases, bytes), ``compressors/test_moments.py`` for all that its
class promises in the mean (unbiased, contractive or absolute).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import settings

from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import (
    EDEN,
    Bernoulli,
    BlockDithering,
    BlockFloat,
    BlockSteps,
    Coded,
    CodedGaps,
    Compressor,
    Dithering,
    HardThreshold,
    Identity,
    Importance,
    Layered,
    Lazy,
    Lossless,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    RankR,
    RotatedSign,
    Shrunk,
    Sign,
    Ternary,
    TiledTopK,
    TopK,
    TwoMeans,
    VaryingSteps,
)
from mpicomp.keys import Key

fuzz = settings(deadline=None, derandomize=True)  # no failure depends on the machine or the day


@dataclass(frozen=True)
class Case:
    """``draws`` says what C(x) varies with: nothing, the round alone, or round and worker.

    ``keeps`` is what C does beyond the promise of its class: "zeros", C(x)_j = 0 where x_j = 0; "signs",
    C(x)_j is never on the other side of 0.  A compressor that mixes coordinates keeps neither.

    ``on_device`` is false for a compressor that has no kernels for a GPU, and refuses vectors that are there.

    ``golden`` is false if its bytes are not recorded: they may differ between machines, as far as sums do.
    Else ``python -m tests.golden.regenerate`` records the messages of a new case.

    ``parts`` are the parts of the vector, of d entries in all, to which ``c`` is bound; None for a compressor
    to which parts do not matter.
    """

    c: Compressor
    d: int = 24
    n: int = 4
    draws: str = "worker"
    keeps: tuple[str, ...] = ("zeros", "signs")
    on_device: bool = True
    golden: bool = True
    parts: Parts | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "c", self.bound(self.c))

    def bound(self, c: Compressor) -> Compressor:
        """``c`` for vectors with the parts of this case."""
        return c if self.parts is None else c.bound(self.parts)

    def __str__(self) -> str:
        return f"{self.c} d={self.d} n={self.n}".replace("'", "")

    def key(self, t: int = 0, worker: int = 0, seed: int = 20240229) -> Key:
        """The key of a worker in round t."""
        return Key(seed, t, worker, self.n)

    def vectors(self) -> np.ndarray:
        """One vector for each worker: multiples of 1/4 up to 4, exact in every wire format; some are 0."""
        x = np.random.default_rng([self.d, self.n]).integers(-16, 17, (self.n, self.d)) / 4
        x[:, self.d // 2] = 0.0
        return x


# All vectors of ``Case`` are 0 where the weight is, so that nothing is lost there.
WEIGHTS = tuple(0.0 if j == 12 else float((1 + j % 5) ** 2) for j in range(24))

NET = Parts(
    (Part("fc.weight", (4, 4)), Part("fc.bias", (4,)), Part("out.weight", (1, 3)), Part("out.scale", ()))
)
TINY = Parts((Part("w", (2, 4)), Part("b", (2,)), Part("scale", ())))  # as many entries as GOLDEN_X

CASES = [
    Case(Identity(), draws="nothing"),
    Case(Identity("f8"), draws="nothing"),
    Case(Identity("f2"), draws="nothing"),
    Case(Identity("bf16"), draws="nothing"),
    Case(Lossless(), draws="nothing"),
    Case(Lossless("f8"), draws="nothing"),
    Case(Lossless("f4"), draws="nothing"),
    Case(Lossless("f2"), draws="nothing"),
    Case(Lossless("bf16"), draws="nothing"),
    Case(RandK(5)),
    Case(RandK(1)),
    Case(RandK(24), draws="nothing"),
    Case(RandK(0.25, values="f8")),
    Case(RandK(7, values="f2"), d=31),
    Case(RandK(0.5, values="bf16"), n=1),
    Case(RandK(5, layout="block")),
    Case(RandK(23, layout="block", values="f8")),
    Case(RandK(0.2, layout="block", values="bf16"), d=31),
    Case(RandK(6, mask="shared"), draws="round"),
    Case(RandK(6, mask="shared", layout="block"), draws="round"),
    Case(RandK(500), d=1030, n=1),
    Case(PermK()),
    Case(PermK(), d=13, n=5),
    Case(PermK(), d=5, n=5),
    Case(PermK(), d=4, n=12),
    Case(PermK(), d=4, n=13),
    Case(PermK(), d=9, n=16),
    Case(PermK("uniform", "f8"), n=1, draws="nothing"),
    Case(PermK("uniform", "f2"), d=13, n=5),
    Case(PermK("block")),
    Case(PermK("block", "f8"), d=13, n=5),
    Case(PermK("block"), d=4, n=13),
    Case(PermK("block", "bf16"), n=1, draws="nothing"),
    Case(PermK(), d=1031, n=2),
    Case(Bernoulli(0.3)),
    Case(Bernoulli(0.9, "f8")),
    Case(Bernoulli(0.1, "f2"), d=9),
    Case(Bernoulli(0.5, "bf16")),
    Case(Bernoulli(1.0), draws="nothing"),
    Case(Lazy(0.4)),
    Case(Lazy(0.8, "f8")),
    Case(Lazy(0.5, "f2")),
    Case(Lazy(0.5, "bf16")),
    Case(Lazy(1.0), draws="nothing"),
    Case(Dithering(1)),
    Case(Dithering(4)),
    Case(Dithering(7, p="inf")),
    Case(Dithering(2, p="inf", values="f8"), d=13),
    Case(Dithering(127, values="f8")),
    Case(Dithering(2**15 - 1)),
    Case(Ternary()),
    Case(Ternary("f8"), d=13),
    Case(Natural()),
    Case(Natural("f8"), d=13),
    Case(NaturalDithering(1)),
    Case(NaturalDithering(3), d=13),
    Case(NaturalDithering(8, p="inf")),
    Case(NaturalDithering(127, values="f8")),
    Case(BlockDithering(), draws="nothing"),  # multiples of 1/4 up to 4 are exact
    Case(BlockDithering(4, 16)),
    Case(BlockDithering(4, 64), d=13),
    Case(Quantized(RandK(19), BlockDithering(4, 16))),
    Case(QuantizedTopK(6, BlockDithering(4, 64))),
    Case(Shrunk(BlockDithering(4, 16)), d=31),
    Case(Coded(Dithering(4))),
    Case(Coded(Dithering(7, p="inf", values="f8"), model=(4370, *(4369,) * 14)), d=31),
    Case(Coded(Ternary()), d=31),
    Case(Coded(Natural())),
    Case(Coded(NaturalDithering(3)), d=13),
    Case(Quantized(RandK(6), Coded(Ternary()))),
    Case(CodedGaps(TopK(6)), draws="nothing"),
    Case(CodedGaps(TopK(20, "f8"), model=(4096,) * 16 + (0,) * 240), d=31, draws="nothing"),
    Case(CodedGaps(QuantizedTopK(6, Coded(Dithering(4))))),
    Case(Quantized(RandK(6), Natural())),
    Case(Quantized(RandK(0.3, layout="block"), Dithering(3)), d=31),
    Case(Quantized(RandK(6, mask="shared"), NaturalDithering(5))),
    Case(Quantized(RandK(6), Identity("bf16"))),
    Case(Quantized(PermK(), Dithering(4)), d=13, n=5),
    Case(Quantized(PermK(), Dithering(4)), d=9, n=16),
    Case(Quantized(PermK(), Natural("f8")), d=4, n=13),
    Case(Quantized(PermK("block"), Ternary())),
    Case(Quantized(Bernoulli(0.5), Ternary())),
    Case(Quantized(Bernoulli(0.1), Dithering(2)), d=9),
    Case(Quantized(Lazy(0.3), Dithering(3))),
    Case(TopK(5), draws="nothing"),
    Case(TopK(1), draws="nothing"),
    Case(TopK(0.25, "f8"), draws="nothing"),
    Case(TopK(20, "f2"), draws="nothing"),
    Case(TopK(7, "bf16"), d=31, draws="nothing"),
    Case(TopK(24), draws="nothing"),
    Case(RankR(1, rows=4), keeps=()),
    Case(RankR(2, rows=6, values="f8"), keeps=()),
    Case(RankR(1, rows=2, values="f8"), d=30, n=1, keeps=()),
    Case(RankR(4, rows=12), d=144, n=2, keeps=()),
    Case(RankR(3, rows=6), draws="nothing", keeps=()),  # no shorter than x, which is sent
    Case(Sign(), draws="nothing", keeps=("signs",)),
    Case(Sign("f8"), d=13, draws="nothing", keeps=("signs",)),
    Case(BlockFloat(), draws="nothing"),
    Case(BlockFloat(4, 16), draws="nothing"),
    Case(BlockFloat(4, 64), d=13, draws="nothing"),
    Case(BlockFloat(8, 16), d=300, n=1, draws="nothing"),
    Case(RotatedSign(), keeps=()),
    Case(RotatedSign(3), d=13, keeps=()),
    Case(RotatedSign(2, 128), d=300, n=1, keeps=()),
    Case(EDEN(), keeps=()),
    Case(EDEN(3), d=13, keeps=()),
    Case(EDEN(4, block=128), d=300, n=1, keeps=()),
    Case(EDEN(0.5), keeps=()),
    Case(EDEN(1, "inner_product"), keeps=()),
    Case(EDEN(2, "inner_product", 128), d=300, n=1, keeps=()),
    Case(EDEN(0.3, "inner_product"), d=31, keeps=()),
    Case(QuantizedTopK(6, Dithering(4))),
    Case(QuantizedTopK(0.5, Natural())),
    Case(QuantizedTopK(24, Ternary())),
    Case(QuantizedTopK(6, Sign()), draws="nothing", keeps=("signs",)),
    Case(TwoMeans(), draws="nothing", keeps=("signs",)),
    Case(TwoMeans("f8"), d=13, draws="nothing", keeps=("signs",)),
    Case(QuantizedTopK(12, TwoMeans()), draws="nothing", keeps=("signs",)),
    Case(TiledTopK(1, tile=2, rows=4), draws="nothing"),
    Case(TiledTopK(0.25, Identity("f8"), tile=3, rows=5), d=35, draws="nothing"),  # tiles of four shapes
    Case(TiledTopK(5, tile=3, rows=6), draws="nothing"),
    Case(TiledTopK(9, Identity("bf16"), tile=2, rows=1), d=11, draws="nothing"),  # above the size of a tile
    Case(TiledTopK(3, Natural(), tile=4, rows=1), d=31),
    Case(TiledTopK(3, Coded(Dithering(4)), tile=4, rows=2)),
    Case(TiledTopK(2, TwoMeans(), tile=2, rows=6), draws="nothing", keeps=("signs",)),
    Case(Shrunk(RandK(6))),
    Case(Shrunk(Dithering(4))),
    Case(Shrunk(PermK()), d=13, n=5),
    Case(Shrunk(Quantized(RandK(6), Natural()))),
    Case(HardThreshold(2.0), draws="nothing"),
    Case(HardThreshold(0.0, "f8"), draws="nothing"),
    Case(HardThreshold(1.5, "bf16"), draws="nothing"),
    Case(VaryingSteps(10.0)),
    Case(VaryingSteps(1.5, values="f8"), d=13),
    Case(VaryingSteps(30.0, WEIGHTS)),
    Case(VaryingSteps(4.0, code="sparse")),
    Case(VaryingSteps(9.0, WEIGHTS, code="sparse")),
    Case(BlockSteps(6.0, 4, values="f8", code="sparse")),
    Case(BlockSteps(10.0, 4)),
    Case(BlockSteps(25.0, 5, values="f8"), d=13),
    Case(BlockSteps(12.0, 3, WEIGHTS)),
    Case(Importance(5)),
    Case(Importance(24, values="f8"), draws="nothing"),
    Case(Importance(0.3, values="f2"), d=31),
    Case(Importance(0.5, WEIGHTS, "bf16")),
    Case(Layered({"b": Identity(), "ndim<2": Lossless()}, TopK(3)), d=11, draws="nothing", parts=TINY),
    Case(Layered({"ndim<2": Lossless()}, RandK(0.5)), d=11, parts=TINY),
    Case(Layered({"w": Lazy(0.5, "f8"), "b": Natural(), "scale": Identity("f8")}), d=11, parts=TINY),
    Case(Layered({"ndim==1": HardThreshold(2.0)}, HardThreshold(0.0)), d=11, draws="nothing", parts=TINY),
    Case(Layered({"*.weight": Shrunk(Bernoulli(0.5))}, Sign()), parts=NET, keeps=("signs",)),
    Case(Layered({"*.bias": Identity()}, RankR(1)), parts=NET, keeps=()),
    Case(Layered({"ndim<2": Identity()}, TiledTopK(1, tile=2)), d=11, draws="nothing", parts=TINY),
    Case(Layered({}, TiledTopK(0.4, tile=2)), parts=NET, draws="nothing"),
    Case(Layered({"fc.*": Quantized(PermK(), Ternary()), "*": PermK()}), parts=NET),
    Case(Layered({"*.bias": Identity("f8")}, Lossless()), draws="nothing", parts=NET),
    Case(Shrunk(Layered({"*.weight": Quantized(RandK(0.3), Coded(Dithering(4)))}, Natural())), parts=NET),
]

# The vector behind the golden bytes: zeros of both signs, ties, an exact power of two.
GOLDEN_X = np.array([0.75, -3.0, 0.0, 3.0, -0.0, 1.0, -1.0, 0.0, 2.5, -3.0, 0.125])


def golden() -> dict[str, str]:
    """The recorded messages: of the cases for ``GOLDEN_X``, in hex, by the compressor and its key."""
    wire = {}
    for case in CASES:
        if not case.golden:
            continue
        key = case.key(t=3, worker=case.n // 2, seed=11)
        try:
            message = case.c.compress(GOLDEN_X, key)
        except ConfigError:
            continue  # k exceeds these eleven dimensions
        wire[f"{case.c} with {key}"] = message.tobytes().hex()
    return wire
