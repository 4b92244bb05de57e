"""Images: a trained model, the archive it compresses into, and the score by which it tells images apart."""

from mpicomp.imaging.archive import Sizes, Stack, compress, decompress
from mpicomp.imaging.auroc import auroc
from mpicomp.imaging.files import read_images, write_images
from mpicomp.imaging.model import KINDS, ImageModel
from mpicomp.imaging.network import IntegerNetwork
from mpicomp.imaging.score import Score, pooled_gaussian, scores
from mpicomp.imaging.training import Trained, train

__all__ = [
    "KINDS",
    "ImageModel",
    "IntegerNetwork",
    "Score",
    "Sizes",
    "Stack",
    "Trained",
    "auroc",
    "compress",
    "decompress",
    "pooled_gaussian",
    "read_images",
    "scores",
    "train",
    "write_images",
]
