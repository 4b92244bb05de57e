"""Data sets: your own arrays and files, images, bundled and fetched sets; readers, cache and shards."""

from mpicomp.data.bundled import BUNDLED, BUNDLED_IMAGES
from mpicomp.data.cache import cache_dir
from mpicomp.data.dataset import Dataset
from mpicomp.data.files import as_name, has_real_targets
from mpicomp.data.images import Images
from mpicomp.data.loading import load_dataset, load_images
from mpicomp.data.own import ClassRows, own_dataset
from mpicomp.data.sets import KNOWN, KNOWN_IMAGES, KnownImages, KnownSet, fetch
from mpicomp.data.shards import SPLITS, Split, checked_split, rows_of, shard_sizes

__all__ = [
    "BUNDLED",
    "BUNDLED_IMAGES",
    "KNOWN",
    "KNOWN_IMAGES",
    "SPLITS",
    "ClassRows",
    "Dataset",
    "Images",
    "KnownImages",
    "KnownSet",
    "Split",
    "as_name",
    "cache_dir",
    "checked_split",
    "fetch",
    "has_real_targets",
    "load_dataset",
    "load_images",
    "own_dataset",
    "rows_of",
    "shard_sizes",
]
