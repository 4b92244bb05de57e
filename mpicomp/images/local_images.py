"""An autoregressive model of grey images that sees a pixel's near neighbours; a sample is a pixel."""

from __future__ import annotations

from dataclasses import dataclass

from mpicomp.images.pixels import PixelModel


@dataclass(frozen=True)
class LocalImages(PixelModel):
    """Mean of -log p(pixel | its neighbours), in nats; f / log 2 is bits per pixel.  Single precision.

    The neighbours are the pixels in the ``horizon`` rows above, at most ``horizon`` columns to either side,
    and the ``horizon`` pixels to the left: 2 horizon (horizon + 1) values, divided by 255; 0 outside the
    image.  The probability of an image is the product over its pixels.  A network of layers that see one
    pixel's neighbours a gives the weights of the 79 fixed distributions e_k of ``experts``::

        h = relu(W_1 a + b_1);   per block: h = h + W_3 relu(W_2 h + b_2) + b_3;   z = W_4 h + b_4
        p(pixel = v | a) = sum_k softmax(z)_k e_k(v | a)

    x = (W_1, b_1, W_2, b_2, ...), matrices row by row; h has ``hidden`` entries, and there are ``blocks``
    blocks.  x0, drawn from ``seed``: biases 0, weights normal with variance 2 / (columns of the matrix), then
    times 0.3 in the last layer of a block and 0.1 in the last layer of all.

    A sample is a pixel; ``split`` shares out images.  ``data`` is a name or path for ``load_grey``, or an
    array of integers from 0 to 255 of shape (images, height, width), which is copied.  f is the unweighted
    mean of the f_i, even if shards differ in size.

    The constants are not known: give step sizes as numbers.

    Source: Zhang, Zhang, McDonagh, "On the out-of-distribution generalization of probabilistic image
    modelling", NeurIPS 2021, written from memory; the mixture of fixed distributions is this library's.
    """
