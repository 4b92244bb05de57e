"""Data sets: LIBSVM files, images and bundled sets, parsed once, memory-mapped, and cut into shards."""

from mpicomp.data.bundled import BUNDLED, BUNDLED_IMAGES
from mpicomp.data.cache import cache_dir
from mpicomp.data.dataset import Dataset
from mpicomp.data.images import Images
from mpicomp.data.loading import load, load_images
from mpicomp.data.sets import KNOWN, KNOWN_IMAGES, KnownImages, KnownSet, fetch
from mpicomp.data.shards import SPLITS, rows_of

__all__ = [
    "BUNDLED",
    "BUNDLED_IMAGES",
    "KNOWN",
    "KNOWN_IMAGES",
    "SPLITS",
    "Dataset",
    "Images",
    "KnownImages",
    "KnownSet",
    "cache_dir",
    "fetch",
    "load",
    "load_images",
    "rows_of",
]
