"""Bits a pixel of grey images, of one model and of other lossless codecs: one by one, and all together."""

from __future__ import annotations

import bz2
import lzma
import time
import zlib
from collections.abc import Callable, Iterator
from math import isqrt, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import ConfigError
from mpicomp.images import ImageModel, Stack, coder, compress, decompress

Pixels = NDArray[np.uint8]
ALONE = 1000  # images that the model codes one by one


def image_costs(pixels: Pixels, model: ImageModel) -> Iterator[dict[str, Any]]:
    """Yield the bits a pixel of each codec for ``pixels``, (m, height, width).

    each      every image coded by itself; None for zlib and other codecs of strings.  The model codes the
              first ``ALONE`` images, without its network
    together  all images at once: image formats code one mosaic, nearly square; codecs of strings code all
              pixels in a row; the model writes an archive, with its network of ``model_bytes`` bytes

    The model's row comes first.  It also has the entropy of the trained network, in bits a pixel, and pixels
    a second to compress and to decompress.  The other codecs have slow settings.
    Raises ``ConfigError`` if imagecodecs is not installed.
    """
    try:
        import imagecodecs
    except ImportError:
        raise ConfigError("other codecs need imagecodecs: pip install 'mpicomp[peers]'.") from None

    webp: dict[str, Any] = {"lossless": True, "level": 100, "method": 6}
    yield _of_model(pixels, model)
    mosaic = mosaic_of(pixels)
    formats: dict[str, Callable[[Pixels], Any]] = {
        "PNG": lambda a: imagecodecs.png_encode(a, level=9),
        "WebP": lambda a: imagecodecs.webp_encode(np.repeat(a[..., None], 3, axis=2), **webp),
        "JPEG-LS": lambda a: imagecodecs.jpegls_encode(a),
        "JPEG-XL": lambda a: imagecodecs.jpegxl_encode(a, lossless=True, effort=10),
    }
    for name, encode in formats.items():
        each = sum(len(encode(image)) for image in pixels)
        yield _row(name, 8 * each / pixels.size, 8 * len(encode(mosaic)) / pixels.size)
    raw = pixels.tobytes()
    strings: dict[str, Callable[[bytes], Any]] = {
        "zlib": lambda b: zlib.compress(b, 9),
        "bz2": lambda b: bz2.compress(b, 9),
        "xz": lambda b: lzma.compress(b, preset=9 | lzma.PRESET_EXTREME),
        "zstd": lambda b: imagecodecs.zstd_encode(b, level=22),
        "brotli": lambda b: imagecodecs.brotli_encode(b, level=11, lgwin=24),
    }
    for name, shrink in strings.items():
        yield _row(name, None, 8 * len(shrink(raw)) / pixels.size)


def mosaic_of(pixels: Pixels) -> Pixels:
    """The images side by side, in about as many rows as columns; the rest of the last row is black."""
    m, height, width = pixels.shape
    columns = isqrt(m - 1) + 1
    rows = -(-m // columns)
    tiles = np.zeros((rows * columns, height, width), dtype=np.uint8)
    tiles[:m] = pixels
    grid = tiles.reshape(rows, columns, height, width).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(grid.reshape(rows * height, columns * width))


def _of_model(pixels: Pixels, model: ImageModel) -> dict[str, Any]:
    network = model.integers()
    coder.encode(pixels[: 2 * coder.RUN], network)  # loads the kernels
    started = time.perf_counter()
    archive, sizes = compress([Stack(pixels)], network)
    compressed = time.perf_counter()
    back = decompress(archive, coder.cost(pixels.shape, network))  # our own: no limit
    ended = time.perf_counter()
    assert np.array_equal(back[0].pixels, pixels)
    some = pixels[:ALONE]
    alone = sum(coder.encode(image[None], network).size for image in some)
    return _row("model", 8 * alone / some.size, 8 * len(archive) / pixels.size) | {
        "entropy": -float(model.log_likelihoods(pixels).sum()) / log(2) / pixels.size,
        "images_only": 8 * sizes.images / pixels.size,
        "model_bytes": sizes.model,
        "compressed_per_second": pixels.size / (compressed - started),
        "decompressed_per_second": pixels.size / (ended - compressed),
    }


def _row(codec: str, each: float | None, together: float) -> dict[str, Any]:
    return {"codec": codec, "each": each, "together": together}
