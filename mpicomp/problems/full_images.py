"""A full autoregressive model of grey images, beside which a local one gives a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mpicomp.data import Split
from mpicomp.problems.pixels import PixelModel


@dataclass(frozen=True)
class FullImages(PixelModel):
    """As ``LocalImages``, but the network also sees far neighbours and where in the image the pixel is.

    The first layer has p + height + width inputs: the p = 2 horizon (horizon + 1) neighbours divided by 255,
    and a 1 for the pixel's row and for its column, 0 elsewhere.  So a model belongs to images of one shape;
    with 28 x 28 pixels d = 64,847.

    log p of this model minus log p of a local one tells images like those of the training from others: the
    part of the likelihood that is due to nearby pixels, which others have as well, is taken away.

    Source: Zhang, Zhang, McDonagh, "On the out-of-distribution generalization of probabilistic image
    modelling", NeurIPS 2021, written from memory; this network is the library's.
    """

    paper: ClassVar[str] = "Zhang, Zhang, McDonagh, OOD generalization of image models (NeurIPS 2021)"
    tag: ClassVar[str] = "full_images"

    data: Any
    split: Split = "shuffled"
    horizon: int = 7
    hidden: int = 128
    blocks: int = 1
    seed: int = 0

    def positions(self) -> tuple[int, int]:
        _, height, width = self.images().pixels.shape
        return height, width
