"""The bytes a round that pass the busiest rank, by the number of workers, each on a rank of its own.

They are counted in one process: the bytes of messages do not depend on where workers and blocks are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpicomp.averaging.sharded import Sharded
from mpicomp.base.blocks import Blocks
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Parts
from mpicomp.compressors import Lossless, TopK
from mpicomp.keys import Key
from mpicomp.loops.given import Given
from mpicomp.loops.packing import Packing
from mpicomp.methods import EF21SGDM, GD, DoubleSqueeze
from mpicomp.methods.base import Method
from mpicomp.runtime.rounds import Rounds
from mpicomp.transports.local import Local

METHODS: dict[str, Method] = {
    "dense": GD(gamma=1.0),
    "TopK 1 % up": EF21SGDM(TopK(k=0.01), gamma=1.0, start="compressed", down=Lossless("f4")),
    "TopK 1 % both ways": DoubleSqueeze(TopK(k=0.01), TopK(k=0.01), gamma=1.0),
}
ROUNDS = 3


def traffic(workers: Sequence[int], d: int) -> Iterator[dict[str, Any]]:
    """Yield, for each method and number of workers, the bytes sent and received by the busiest rank.

    Gradients are random and independent, so the workers' TopK supports are too.  With the root, its broadcast
    counts once for each receiver.  All ranks serve a block each, where they serve their share.  Raises
    ``ConfigError`` if there are fewer coordinates than workers, or fewer than 2 workers.
    """
    if not 2 <= min(workers) <= max(workers) <= d:
        raise ConfigError(f"workers={list(workers)} with d={d}; allowed: from 2 to d, a block for each rank.")
    for label, method in METHODS.items():
        for n in workers:
            for server, blocks in (("shared", None), ("sharded", Blocks.cut(Parts.single(d), n))):
                rounds = _played(method, d, n, server, blocks)
                crossed = _root(rounds) if blocks is None else _busiest(rounds.averaging)
                yield {"method": label, "workers": n, "server": server, "d": d, "bytes": crossed / ROUNDS}


def _played(method: Method, d: int, n: int, server: str, blocks: Blocks | None) -> Rounds:
    transport, packing = Local(n), Packing(np.zeros(d, np.float32))
    objectives = {i: Given(i, packing, transport.clock) for i in range(n)}
    rounds = Rounds(method, np.zeros(d, np.float32), objectives, transport, server=server, blocks=blocks)
    for k in range(ROUNDS):
        for i, f in objectives.items():
            draw = np.random.default_rng((k, i)).standard_normal(d, dtype=np.float32)
            f.give(draw, rounds.x)
        rounds.play(Key(0, k, None, n), f"round {k}")
    return rounds


def _root(rounds: Rounds) -> int:
    """Sent and received by rank 0."""
    return int(rounds.ledger.up[1:].sum() + rounds.ledger.down[1:].sum())


def _busiest(serving: Any) -> int:
    """Sent and received by the busiest of n ranks; rank i has worker i and block i."""
    assert isinstance(serving, Sharded)
    up, down = serving.up_by_block, serving.down_by_block
    own, n = np.diagonal(up), len(down)
    sent = up.sum(axis=1) - own + (n - 1) * down
    received = up.sum(axis=0) - own + down.sum() - down
    return int((sent + received).max())
