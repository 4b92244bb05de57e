"""Compressors, and the table by which the command line knows them.  A new compressor needs a line here."""

from mpicomp.compressors.base import Absolute, Compressor, Contractive, Unbiased
from mpicomp.compressors.bernoulli import Bernoulli, Lazy
from mpicomp.compressors.coded import Coded
from mpicomp.compressors.coded_gaps import CodedGaps
from mpicomp.compressors.dithering import Dithering, Ternary
from mpicomp.compressors.identity import Identity
from mpicomp.compressors.importance import Importance
from mpicomp.compressors.layered import Layered
from mpicomp.compressors.natural import Natural, NaturalDithering
from mpicomp.compressors.permk import PermK
from mpicomp.compressors.quantized import Quantized, QuantizedTopK, Shrunk
from mpicomp.compressors.randk import RandK
from mpicomp.compressors.rankr import RankR
from mpicomp.compressors.sign import Sign
from mpicomp.compressors.sparse import Sparse
from mpicomp.compressors.steps import BlockSteps, VaryingSteps
from mpicomp.compressors.threshold import HardThreshold
from mpicomp.compressors.topk import TopK
from mpicomp.compressors.two_means import TwoMeans

COMPRESSORS: dict[str, type[Compressor]] = {
    "identity": Identity,
    "sparse": Sparse,
    "randk": RandK,
    "permk": PermK,
    "bernoulli": Bernoulli,
    "lazy": Lazy,
    "dithering": Dithering,
    "ternary": Ternary,
    "natural": Natural,
    "natural_dithering": NaturalDithering,
    "coded": Coded,
    "coded_gaps": CodedGaps,
    "quantized": Quantized,
    "topk": TopK,
    "rankr": RankR,
    "sign": Sign,
    "two_means": TwoMeans,
    "quantized_topk": QuantizedTopK,
    "shrunk": Shrunk,
    "hard_threshold": HardThreshold,
    "varying_steps": VaryingSteps,
    "block_steps": BlockSteps,
    "importance": Importance,
    "layered": Layered,
}

__all__ = [
    "COMPRESSORS",
    "Absolute",
    "Bernoulli",
    "BlockSteps",
    "Coded",
    "CodedGaps",
    "Compressor",
    "Contractive",
    "Dithering",
    "HardThreshold",
    "Identity",
    "Importance",
    "Layered",
    "Lazy",
    "Natural",
    "NaturalDithering",
    "PermK",
    "Quantized",
    "QuantizedTopK",
    "RandK",
    "RankR",
    "Shrunk",
    "Sign",
    "Sparse",
    "Ternary",
    "TopK",
    "TwoMeans",
    "Unbiased",
    "VaryingSteps",
]
