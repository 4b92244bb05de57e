"""Image models: train one, compress images losslessly with it, and score how typical an image is."""

from mpicomp.images.archive import Sizes as Sizes
from mpicomp.images.archive import Stack as Stack
from mpicomp.images.archive import compress as compress
from mpicomp.images.archive import decompress as decompress
from mpicomp.images.files import read_images as read_images
from mpicomp.images.files import write_images as write_images
from mpicomp.images.full_images import FullImages as FullImages
from mpicomp.images.local_images import LocalImages as LocalImages
from mpicomp.images.model import KINDS as KINDS
from mpicomp.images.model import ImageModel as ImageModel
from mpicomp.images.network import IntegerNetwork as IntegerNetwork
from mpicomp.images.score import Score as Score
from mpicomp.images.score import auroc as auroc
from mpicomp.images.score import pooled_gaussian as pooled_gaussian
from mpicomp.images.score import scores as scores
from mpicomp.images.training import Trained as Trained
from mpicomp.images.training import train as train
