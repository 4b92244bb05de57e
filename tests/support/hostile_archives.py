"""Archives of images with right sums and wrong contents: `python -m tests.support.hostile_archives`.

Whatever an archive says, decoding it ends in images or in an ``MpicompError``, and the pixels that are
decoded and the memory that is taken are bounded by its size.
"""

from __future__ import annotations

import random
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import click
import numpy as np

from mpicomp.base.errors import MpicompError
from mpicomp.codecs.varint import varint
from mpicomp.images import IntegerNetwork, Stack, coder, compress, decompress
from mpicomp.images.archive import MAGIC, SUM
from mpicomp.images.fronts import Canvas
from mpicomp.images.network import Layer

POINT_MASS = 77  # the expert that gives all to the value 0


def network(horizon: int, hidden: int, blocks: int = 0, certain: bool = False) -> IntegerNetwork:
    """One with weights 0, of a bit each; if ``certain``, all pixels are 0, which take next to no bits."""
    units = [2 * horizon * (horizon + 1), *[hidden] * (1 + 2 * blocks), 79]
    layers = [
        Layer(np.zeros((rows, columns), np.float32), np.zeros(rows, np.float32), 0)
        for columns, rows in pairwise(units)
    ]
    if certain:
        layers[-1].b[POINT_MASS] = 2**22
    return IntegerNetwork(horizon, tuple(layers))


def sealed(content: bytes) -> bytes:
    """An archive whose last sum is right, whatever is in it."""
    return content + blake2b(content, digest_size=SUM).digest()


def claimed(model: IntegerNetwork, *stacks: tuple[tuple[int, ...], bytes, bytes]) -> bytes:
    """The archive that says this: of each stack the four numbers, the names as they are, the message."""
    coded = model.encoded()
    out = MAGIC + varint(len(coded)) + coded + varint(len(stacks))
    for shape, names, message in stacks:
        out += b"".join(map(varint, shape)) + varint(len(names)) + names + varint(len(message)) + message
    return sealed(out + bytes(SUM))


def message(draw: random.Random, runs: int, words: int) -> bytes:
    """As many words for each run, of noise."""
    return np.full(runs, words, "<u4").tobytes() + draw.randbytes(4 * words * runs)


def archives(draw: random.Random) -> Iterator[bytes]:
    """Without end: honest ones with some bytes changed, and ones that claim any shape for noise."""
    models = [network(2, 3), network(2, 1, certain=True), network(3, 4, 1), network(2, 1, 20, certain=True)]
    models += [network(20, 1, certain=True), network(2, 20, certain=True), network(40, 1)]
    pixels = np.random.default_rng(0).integers(0, 9, (3, 5, 7, 3), np.uint8)
    stacks = [Stack(pixels, ("a", "b", "c")), Stack(pixels[..., 0])]
    honest = [compress(stacks, model)[0] for model in models[:4]]
    while True:
        yield _changed(draw, draw.choice(honest)) if draw.random() < 0.5 else _claiming(draw, models)


def _changed(draw: random.Random, archive: bytes) -> bytes:
    content = bytearray(archive[:-SUM])
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(MAGIC), len(content))
        match draw.randrange(4):
            case 0:
                content[at] ^= draw.randrange(1, 256)
            case 1:  # often in place of a number
                content[at : at + 1] = varint(draw.randrange(2 ** draw.randrange(1, 50)))
            case 2:
                del content[at : at + draw.randrange(1, 9)]
            case 3:
                content[at:at] = content[at : at + draw.randrange(1, 99)]
    return sealed(bytes(content))


def _claiming(draw: random.Random, models: list[IntegerNetwork]) -> bytes:
    stacks = []
    for _ in range(draw.choice((1, 1, 1, 2, 30))):
        m, height, width = (2 ** draw.choice((0, 0, draw.randrange(20))) for _ in range(3))
        colours = draw.choice((1, 1, 3))
        runs = min(-(-m * colours // coder.RUN), 20)
        names = (
            zlib.compress(b"".join(b"%d\0" % i for i in range(min(m, 500)))) if draw.random() < 0.2 else b""
        )
        stacks.append(((m, height, width, colours), names, message(draw, runs, draw.choice((1, 2, 9)))))
    return claimed(draw.choice(models), *stacks)


class Work:
    """Pixels decoded, their cost in the network, pixels with zeros, fronts, and the peak of memory."""

    def __init__(self) -> None:
        self.decoded = self.weighed = self.padded = self.fronts = self.peak = 0


@contextmanager
def counted() -> Iterator[Work]:
    """Within, count what decoding does."""
    work = Work()
    logits, fronts, begin = IntegerNetwork.logits, Canvas.fronts, Canvas.__init__

    def counted_logits(self: IntegerNetwork, neighbours: Any) -> Any:
        work.decoded += len(neighbours)
        work.weighed += len(neighbours) * sum(W.size + 64 * W.shape[1] for W in (k.W for k in self.layers))
        return logits(self, neighbours)

    def counted_fronts(self: Canvas) -> Any:
        for front in fronts(self):
            work.fronts += 1
            yield front

    def counted_canvas(self: Canvas, shape: tuple[int, ...], horizon: int) -> None:
        work.padded += shape[0] * (shape[1] + horizon) * (shape[2] + 2 * horizon)
        begin(self, shape, horizon)

    tracemalloc.start()
    try:
        with (
            patch.object(IntegerNetwork, "logits", counted_logits),
            patch.object(Canvas, "fronts", counted_fronts),
            patch.object(Canvas, "__init__", counted_canvas),
        ):
            yield work
    finally:
        work.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def excess(archive: bytes, work: Work) -> list[str]:
    """The bounds that the work on an archive has broken."""
    allowed = max(64 * len(archive), min(1024 * len(archive), 2**28))
    bounds = {
        "pixels with zeros": (work.padded, allowed),
        "fronts": (work.fronts, allowed // 192),  # of two layers, the fewest
        "pixels times inputs and weights": (work.weighed, allowed * 2**14),
        "bytes of memory": (work.peak, 2**26 + 8 * allowed),
    }
    return [f"{found} {what}, allowed {most}" for what, (found, most) in bounds.items() if found > most]


def outcome(archive: bytes) -> tuple[str, Work]:
    """How decoding ends, and what it took; what is no ``MpicompError`` is raised."""
    with counted() as work:
        try:
            decompress(archive)
            return "images", work
        except MpicompError as error:
            assert str(error) and "\n" not in str(error)
            return type(error).__name__, work


@click.command()
@click.option("--count", default=10_000, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(count: int, seed: int) -> None:
    """Decode ``count`` hostile archives; print how they end, the bounds broken, and the longest times."""
    draw = random.Random(seed)
    ends: Counter[str] = Counter()
    slowest, largest, broken = (0.0, 0), (0, 0), 0
    for _, archive in zip(range(count), archives(draw), strict=False):
        start = time.perf_counter()
        end, work = outcome(archive)
        slowest = max(slowest, (time.perf_counter() - start, len(archive)))
        largest = max(largest, (work.peak, len(archive)))
        ends[end] += 1
        broken += len(excess(archive, work)) > 0
    print(f"{count} archives: {dict(ends)}; {broken} beyond their bounds")
    print(f"slowest: {slowest[0]:.2f} s for {slowest[1]} bytes; largest: {largest[0]} for {largest[1]} bytes")


if __name__ == "__main__":
    main()
