"""Code grey images of one shape with the probabilities of an integer network, and decode them.

Images are coded in runs of ``RUN`` images, each with a coder state of its own.  ``fronts`` defines the order
of the pixels in a run.  The message has the number of words of each run, 32 bits each, and then the words,
one run after the other; all are little-endian.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mpicomp import kernels
from mpicomp.base.arrays import Words
from mpicomp.base.bits import Bytes
from mpicomp.base.blas import one_thread
from mpicomp.base.errors import MessageError
from mpicomp.images.fronts import Canvas
from mpicomp.images.network import IntegerNetwork
from mpicomp.images.tables import tables
from mpicomp.kernels.definition.mixtures import START, open_runs
from mpicomp.kernels.threads import threads

RUN = 256  # images
FRONT = 2**12  # pixels of a front that are worth a call of each function
ENTRIES = 2**22  # of the largest array that the network makes at one time

Pixels = NDArray[np.uint8]
T = TypeVar("T")


def encode(pixels: Pixels, network: IntegerNetwork) -> Bytes:
    """Code ``pixels``, uint8 of shape (m, height, width), into a message."""

    def batch(a: int, b: int) -> list[Words]:
        return _encode(pixels[a:b], network)

    runs = [words for found in _in_batches(batch, pixels.shape, network.horizon) for words in found]
    counts = np.array([words.size for words in runs], dtype="<u4")
    return np.concatenate([counts, *runs]).astype("<u4").view(np.uint8)


def decode(message: Bytes, shape: tuple[int, int, int], network: IntegerNetwork) -> Pixels:
    """The images in ``message``.  Raises ``MessageError`` unless it holds exactly that many pixels."""
    runs = -(-shape[0] // RUN)
    if message.size % 4 or message.size < 4 * runs:
        raise MessageError(f"{message.size} bytes where {runs} runs of images are expected.")
    words = message.view("<u4").astype(np.uint32)
    ends = np.cumsum(words[:runs], dtype=np.int64)
    if ends[-1] != words.size - runs:
        raise MessageError(f"runs of {ends[-1]} words in all, where {words.size - runs} are at hand.")
    words, pixels = words[runs:], np.empty(shape, dtype=np.uint8)

    def batch(a: int, b: int) -> None:
        first, last = a // RUN, -(-b // RUN)
        start = ends[first - 1] if first else 0
        _decode(words[start : ends[last - 1]], ends[first:last] - start, pixels[a:b], network)

    _in_batches(batch, shape, network.horizon)
    return pixels


def cost(shape: tuple[int, int, int], network: IntegerNetwork) -> int:
    """The largest cost of decoding images of this shape, in pixels of usual images under a small network.

    Each pixel of the padded images costs 1.  Each coded pixel costs 1 for 2^8 inputs of the layers, and 1 for
    2^14 weights.  A front costs 32 for each layer, and 128.  A stack costs 2048.  The ratios are of measured
    times.
    """
    m, height, width = shape
    h, layers = network.horizon, network.layers
    padded = m * (height + h) * (width + 2 * h)
    fronts = -(-m // _batch(shape, h)) * (width + (h + 1) * (height - 1))
    a_pixel = sum(layer.W.size + 2**6 * layer.W.shape[1] for layer in layers)  # in 2^-14
    return padded + m * height * width * a_pixel // 2**14 + 32 * fronts * (4 + len(layers)) + 2048


def _batch(shape: tuple[int, int, int], horizon: int) -> int:
    """The number of images in a batch: as many runs as a front needs to have enough pixels for a call."""
    _, height, width = shape
    longest = min(height, -(-width // (horizon + 1)))  # pixels of one image in a front
    return RUN * max(1, FRONT // (longest * RUN))


def _in_batches(work: Callable[[int, int], T], shape: tuple[int, int, int], horizon: int) -> list[T]:
    """``work(a, b)`` for batches of images a .. b - 1, on as many threads as a rank may use; in order."""
    m, step = shape[0], _batch(shape, horizon)
    starts = range(0, m, step)
    ends = [min(a + step, m) for a in starts]
    with one_thread():
        if threads() == 1 or len(starts) == 1:
            return list(map(work, starts, ends))
        with ThreadPoolExecutor(threads()) as pool:
            return list(pool.map(work, starts, ends))


def _logits(canvas: Canvas, at: NDArray[np.int64], network: IntegerNetwork) -> NDArray[np.int32]:
    """The logits of the pixels at ``at``, computed in pieces to bound the memory of a wide network."""
    step = max(1, ENTRIES // max(max(layer.W.shape) for layer in network.layers))
    found = [network.logits(canvas.neighbours(at[a : a + step])) for a in range(0, at.size, step)]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _encode(pixels: Pixels, network: IntegerNetwork) -> list[Words]:
    """The words of each run."""
    pieces = kernels.pieces_on_host(pixels.size)
    canvas = Canvas(pixels.shape, network.horizon)
    canvas.pixels[:] = pixels
    runs = -(-len(pixels) // RUN)
    slots: list[list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]] = [[] for _ in range(runs)]
    for front in canvas.fronts():
        a_run = RUN * (front.at.size // len(pixels))
        logits = _logits(canvas, front.at, network)
        below, counts = pieces.mixture_slots(logits, front.centres, canvas.flat[front.at], tables())
        for run in range(runs):
            part = slice(run * a_run, (run + 1) * a_run)
            slots[run].append((below[part], counts[part]))
    return [pieces.slots_encode(*map(np.concatenate, zip(*run, strict=True))) for run in slots]


def _decode(words: Words, ends: NDArray[np.int64], pixels: Pixels, network: IntegerNetwork) -> None:
    """Fill ``pixels`` from the words of their runs, which end at ``ends``."""
    pieces = kernels.pieces_on_host(pixels.size)
    canvas = Canvas(pixels.shape, network.horizon)
    coded = open_runs(words, ends)
    for front in canvas.fronts():
        a_run = RUN * (front.at.size // len(pixels))
        logits = _logits(canvas, front.at, network)
        canvas.flat[front.at] = pieces.mixture_decode(logits, front.centres, tables(), coded, a_run)
        if coded.states.min() < START:  # no state of an encoder is: the words are used up
            raise MessageError("images whose words end before their pixels do.")
    if (coded.states != START).any() or (coded.left != coded.first).any():
        raise MessageError("images whose words do not end as they should.")
    pixels[:] = canvas.pixels
