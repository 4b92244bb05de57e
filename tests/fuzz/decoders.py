"""Any bytes whatever, given to every decoder: refused, or decoded to the right shape, alike by both backends.

``make fuzz`` runs it with atheris, which looks for inputs that reach new lines, and with the compiled kernels
checking each index (NUMBA_BOUNDSCHECK=1).  Any other exception than ``MessageError`` is a find.

An input's first byte chooses the decoder, the second how the rest becomes a message: as it is, or cut and
filled up to the length of one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import atheris
import numpy as np

with atheris.instrument_imports(include=["mpicomp"]):
    from mpicomp import kernels
    from mpicomp.base.bits import Bytes
    from mpicomp.base.errors import MessageError
    from mpicomp.codecs import messages
    from mpicomp.codecs.indices import decode_indices, encode_indices
    from mpicomp.codecs.sparse import add_sparse, encode_sparse
    from mpicomp.compressors import CodedGaps
    from mpicomp.images import IntegerNetwork, coder
    from mpicomp.images.local_images import LocalImages
    from mpicomp.kernels import definition
    from mpicomp.kernels.host import host
    from mpicomp.kernels.index_layouts import index_nbytes
    from mpicomp.kernels.loading import load_compiled
    from mpicomp.methods import METHODS
    from mpicomp.methods.support import forwarding
from tests.support.conformance import CASES, Case

Decoder = Callable[[Bytes], list[np.ndarray]]

# Every layout of index sets: raw, Elias-Fano, bitmap, coded bitmap, of one run and of two; and complements.
SETS = [(11, 2), (64, 8), (1000, 40), (1000, 3), (11, 5), (300, 40), (1000, 200), (1000, 930), (1000, 800)]
SETS += [(33_000, 2000)]


class Target:
    """A decoder of messages of ``size`` bytes, None where any length may be one; messages to start from."""

    def __init__(self, decode: Decoder, size: int | None, seeds: list[Bytes]) -> None:
        self.decode, self.size, self.seeds = decode, size, seeds


def targets() -> list[Target]:
    sets = [_of_set(d, k) for d, k in SETS]
    others = [_of_sparse(), _of_forwarded(), *_of_records(), *_of_images()]
    return [*map(_of_case, CASES), *_learned(), *sets, *others]


def _of_case(case: Case) -> Target:
    def decode(buf: Bytes) -> list[np.ndarray]:
        value = case.c.decompress(buf, case.d, case.key())
        assert value.shape == (case.d,)
        return [value]

    seeds = [case.c.compress(x, case.key()) for x in case.vectors()]
    size = case.c.nbytes(case.d)
    return Target(decode, len(seeds[0]) if size is not None else None, seeds)


def _learned() -> Iterator[Target]:
    """Coded gaps whose model the receiver knows."""
    for case in CASES:
        if isinstance(case.c, CodedGaps) and case.c.model is None:
            known = case.c.learned(case.c.compress(case.vectors()[0], case.key()), case.d)
            yield _of_case(Case(known, case.d))


def _of_set(d: int, k: int) -> Target:
    def decode(buf: Bytes) -> list[np.ndarray]:
        indices = decode_indices(buf, d, k)
        assert indices.shape == (k,) and (np.diff(indices) > 0).all()
        assert indices[0] >= 0 and indices[-1] < d
        return [indices]

    draw = np.random.default_rng(k)
    some = [np.arange(k), np.arange(d - k, d), np.sort(draw.choice(d, k, replace=False))]
    return Target(decode, index_nbytes(d, k), [encode_indices(s, d) for s in some])


def _of_sparse() -> Target:
    d = 300

    def decode(buf: Bytes) -> list[np.ndarray]:
        out = np.zeros(d)
        try:
            add_sparse(buf, out, "f2", 1.0)
        except MessageError:
            assert not out.any()
            raise
        return [out]

    return Target(
        decode, None, [encode_sparse(np.arange(k) * 3, np.ones(k), d, "f2") for k in (0, 1, 30, 100)]
    )


def _of_forwarded() -> Target:
    def decode(buf: Bytes) -> list[np.ndarray]:
        if not forwarding.is_forwarded(buf):
            return []
        found = forwarding.split(buf, 3)
        assert len(found) == 3 and sum(map(len, found)) < len(buf)
        return found

    sizes = [(4, 4, 4), (0, 200, 3), (0, 0, 0)]
    return Target(decode, None, [forwarding.joined([np.ones(s, np.uint8) for s in each]) for each in sizes])


def _of_records() -> Iterator[Target]:
    """What methods send: floats, and messages of which all but the last say how long they are."""
    kinds = ("Up", "Down", "Own")
    for record in {getattr(method, kind, method.Up) for method in METHODS.values() for kind in kinds}:

        def decode(buf: Bytes, record: type = record) -> list[np.ndarray]:
            found = messages.decode(record, buf)
            assert messages.encode(found).size <= buf.size
            return []

        yield Target(decode, None, [np.arange(20, dtype=np.uint8), np.zeros(16, np.uint8)])


def _of_images() -> Iterator[Target]:
    """The network of an archive, and images coded under one."""
    problem = LocalImages(np.zeros((1, 9, 9), np.uint8), hidden=3)
    network = IntegerNetwork.of(problem, problem.x0())

    def read(buf: Bytes) -> list[np.ndarray]:
        assert IntegerNetwork.decoded(buf).encoded()
        return []

    yield Target(read, None, [np.frombuffer(network.encoded(), np.uint8)])
    shape = (3, 9, 9)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)

    def decode(buf: Bytes) -> list[np.ndarray]:
        found = coder.decode(buf, shape, network)
        assert found.shape == shape
        return [found]

    yield Target(decode, None, [coder.encode(p, network) for p in (pixels, pixels * 0)])


def outcome(target: Target, buf: Bytes, backend: ModuleType) -> list[bytes] | None:
    """What ``buf`` decodes to with these kernels; None if it is refused."""
    kernels._host = lambda length: host(backend)
    try:
        return [a.tobytes() for a in target.decode(buf)]
    except MessageError:
        return None


TARGETS = targets()
COMPILED = load_compiled()


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    target = TARGETS[data[0] % len(TARGETS)]
    buf = np.frombuffer(data[2:], dtype=np.uint8)
    if target.size is not None and data[1] % 2:
        buf = np.resize(np.append(buf, np.uint8(0)), target.size)
    assert outcome(target, buf, definition) == outcome(target, buf, COMPILED), data.hex()


def write_seeds(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, target in enumerate(TARGETS):
        for i, seed in enumerate(target.seeds):
            (folder / f"{number}-{i}").write_bytes(bytes([number, 0]) + seed.tobytes())


if __name__ == "__main__":
    assert COMPILED is not definition and len(TARGETS) <= 256
    corpus = Path(sys.argv[-1])
    write_seeds(corpus)
    with np.errstate(all="ignore"):
        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
