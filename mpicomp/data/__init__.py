"""Data sets: LIBSVM files and two bundled ones, parsed once, memory-mapped afterwards, cut into shards."""

from mpicomp.data.bundled import BUNDLED
from mpicomp.data.cache import cache_dir
from mpicomp.data.dataset import Dataset
from mpicomp.data.loading import load
from mpicomp.data.sets import KNOWN, KnownSet, fetch
from mpicomp.data.shards import SPLITS, rows_of

__all__ = ["BUNDLED", "KNOWN", "SPLITS", "Dataset", "KnownSet", "cache_dir", "fetch", "load", "rows_of"]
