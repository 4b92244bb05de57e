"""Image models: train one, compress images losslessly with it, and score how typical an image is."""

from mpicomp.images.archive import Sizes, Stack, compress, decompress
from mpicomp.images.auroc import auroc
from mpicomp.images.files import read_images, write_images
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.images.model import KINDS, ImageModel
from mpicomp.images.network import IntegerNetwork
from mpicomp.images.score import Score, pooled_gaussian, scores
from mpicomp.images.training import Trained, train

__all__ = [
    "KINDS",
    "FullImages",
    "ImageModel",
    "IntegerNetwork",
    "LocalImages",
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
