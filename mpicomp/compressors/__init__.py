"""A table of the compressors by their names in texts; a class is imported on first use."""

from typing import TYPE_CHECKING

from mpicomp.base.lazy import Table, importing
from mpicomp.compressors.base import Absolute as Absolute
from mpicomp.compressors.base import Compressor as Compressor
from mpicomp.compressors.base import Contractive as Contractive
from mpicomp.compressors.base import Unbiased as Unbiased

if TYPE_CHECKING:
    from mpicomp.compressors.bernoulli import Bernoulli as Bernoulli
    from mpicomp.compressors.bernoulli import Lazy as Lazy
    from mpicomp.compressors.block_float import BlockDithering as BlockDithering
    from mpicomp.compressors.block_float import BlockFloat as BlockFloat
    from mpicomp.compressors.coded import Coded as Coded
    from mpicomp.compressors.coded_gaps import CodedGaps as CodedGaps
    from mpicomp.compressors.dithering import Dithering as Dithering
    from mpicomp.compressors.dithering import Ternary as Ternary
    from mpicomp.compressors.eden import EDEN as EDEN
    from mpicomp.compressors.identity import Identity as Identity
    from mpicomp.compressors.importance import Importance as Importance
    from mpicomp.compressors.layered import Layered as Layered
    from mpicomp.compressors.lossless import Lossless as Lossless
    from mpicomp.compressors.natural import Natural as Natural
    from mpicomp.compressors.natural import NaturalDithering as NaturalDithering
    from mpicomp.compressors.permk import PermK as PermK
    from mpicomp.compressors.quantized import Quantized as Quantized
    from mpicomp.compressors.quantized import QuantizedTopK as QuantizedTopK
    from mpicomp.compressors.quantized import Shrunk as Shrunk
    from mpicomp.compressors.randk import RandK as RandK
    from mpicomp.compressors.rankr import RankR as RankR
    from mpicomp.compressors.rotated_sign import RotatedSign as RotatedSign
    from mpicomp.compressors.sign import Sign as Sign
    from mpicomp.compressors.steps import BlockSteps as BlockSteps
    from mpicomp.compressors.steps import VaryingSteps as VaryingSteps
    from mpicomp.compressors.threshold import HardThreshold as HardThreshold
    from mpicomp.compressors.tiled import TiledTopK as TiledTopK
    from mpicomp.compressors.topk import TopK as TopK
    from mpicomp.compressors.two_means import TwoMeans as TwoMeans

COMPRESSORS: Table[Compressor] = Table(
    __name__,
    {
        "identity": "identity:Identity",
        "lossless": "lossless:Lossless",
        "randk": "randk:RandK",
        "permk": "permk:PermK",
        "bernoulli": "bernoulli:Bernoulli",
        "lazy": "bernoulli:Lazy",
        "dithering": "dithering:Dithering",
        "ternary": "dithering:Ternary",
        "natural": "natural:Natural",
        "natural_dithering": "natural:NaturalDithering",
        "block_dithering": "block_float:BlockDithering",
        "coded": "coded:Coded",
        "coded_gaps": "coded_gaps:CodedGaps",
        "quantized": "quantized:Quantized",
        "topk": "topk:TopK",
        "rankr": "rankr:RankR",
        "sign": "sign:Sign",
        "two_means": "two_means:TwoMeans",
        "block_float": "block_float:BlockFloat",
        "rotated_sign": "rotated_sign:RotatedSign",
        "eden": "eden:EDEN",
        "quantized_topk": "quantized:QuantizedTopK",
        "tiled_topk": "tiled:TiledTopK",
        "shrunk": "quantized:Shrunk",
        "hard_threshold": "threshold:HardThreshold",
        "varying_steps": "steps:VaryingSteps",
        "block_steps": "steps:BlockSteps",
        "importance": "importance:Importance",
        "layered": "layered:Layered",
    },
)

if not TYPE_CHECKING:
    __all__ = [*COMPRESSORS.places, "Absolute", "COMPRESSORS", "Compressor", "Contractive", "Unbiased"]
    __getattr__, __dir__ = importing(__name__, COMPRESSORS.places)
