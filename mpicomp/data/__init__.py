"""Data sets: your own arrays and files, images, bundled and fetched sets; readers, cache and shards."""

from mpicomp.data.bundled import BUNDLED as BUNDLED
from mpicomp.data.bundled import BUNDLED_IMAGES as BUNDLED_IMAGES
from mpicomp.data.cache import cache_dir as cache_dir
from mpicomp.data.dataset import Dataset as Dataset
from mpicomp.data.files import as_name as as_name
from mpicomp.data.files import has_real_targets as has_real_targets
from mpicomp.data.images import Images as Images
from mpicomp.data.loading import load_dataset as load_dataset
from mpicomp.data.loading import load_images as load_images
from mpicomp.data.own import ClassRows as ClassRows
from mpicomp.data.own import own_dataset as own_dataset
from mpicomp.data.sets import KNOWN as KNOWN
from mpicomp.data.sets import KNOWN_IMAGES as KNOWN_IMAGES
from mpicomp.data.sets import KnownImages as KnownImages
from mpicomp.data.sets import KnownSet as KnownSet
from mpicomp.data.sets import fetch as fetch
from mpicomp.data.shards import SPLITS as SPLITS
from mpicomp.data.shards import Split as Split
from mpicomp.data.shards import checked_split as checked_split
from mpicomp.data.shards import rows_of as rows_of
from mpicomp.data.shards import shard_sizes as shard_sizes
