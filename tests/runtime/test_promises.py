"""``check_method``: every method of the package passes, and each broken promise is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp import ConfigError, Key, RandK, Shrunk, TopK, check_method
from mpicomp.compressors import Contractive, Layered, Lossless
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize
from mpicomp.methods.support.averaging import AveragingMethod, means
from mpicomp.problems import Quadratics
from tests.support.running import every_method

RANDOM = Shrunk(RandK(k=3))
KEPT: dict[int, float] = {}  # state outside of the records


@dataclass(frozen=True)
class Compressed(AveragingMethod):
    """x = x - γ mean C(∇f_i(x))."""

    C: Contractive = RANDOM
    gamma: StepSize = 0.01
    down: Lossless = Lossless()

    @dataclass
    class Replica:
        x: np.ndarray

    def uplink(self, key):
        return self.C

    def worker_step(self, w, r, f, key):
        return Message(self.C.compress(self.scaled(f.grad(r.x), key), key))

    def scaled(self, g, key):
        return g

    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.x, key, -self.gamma)

    def theory(self, c, d, n):
        raise ConfigError("no theory")


class NamedByTheServer(Compressed):
    def server_step(self, s, r, key):
        return means(self.C, r.x, key, ["m"], lambda mean: Message(self.down.compress(mean, key)))


class NamedByTheWorker(Compressed):
    def worker_step(self, w, r, f, key):
        return Message(self.C.compress_difference(f.grad(r.x), 0 * r.x, key.named("m")))


class OfTheRoundBefore(Compressed):
    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.x, key.before(), -self.gamma)


class Counting(Compressed):
    """Its steps depend on how often it was asked, in this process."""

    def scaled(self, g, key):
        KEPT[key.worker] = KEPT.get(key.worker, 0) + 1
        return g / KEPT[key.worker]


class CountingAnew(Counting):
    """The same, but for round 0, in which it begins again: only a resumed run differs."""

    def scaled(self, g, key):
        if key.round == 0:
            KEPT.pop(key.worker, None)
        return super().scaled(g, key)


class Drawing(Compressed):
    def scaled(self, g, key):
        return g * np.random.random()


@every_method
def test_methods_of_the_package_keep_their_promises(method):
    check_method(method, rounds=4)


@pytest.mark.parametrize("C", [RANDOM, TopK(k=2), Layered({"size>1": RANDOM})], ids=str)
def test_a_method_of_ones_own_that_keeps_them(C):
    check_method(Compressed(C), rounds=4)


@dataclass(frozen=True, slots=True)
class InSlots(Contractive):
    """Half of x in float64; its field is in no ``__dict__``."""

    part: float = 0.5

    def alpha(self, d):
        return 0.75

    def compress(self, x, key):
        return (self.part * x).view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * d

    def paper_bits(self, *given):
        return 64


def test_a_compressor_may_have_slots():
    check_method(Compressed(InSlots()), rounds=4)


@pytest.mark.parametrize(
    ("kind", "field", "key"),
    [
        (NamedByTheServer, "C", Key(0, 0, 0, 4, "/m")),
        (NamedByTheWorker, "C", Key(0, 0, 0, 4)),
        (OfTheRoundBefore, "down", Key(0, -1, None, 4)),
    ],
)
@pytest.mark.parametrize("C", [RANDOM, TopK(k=2), Layered({"size>1": RANDOM})], ids=str)
def test_another_key_is_named(kind, field, key, C):
    with pytest.raises(ConfigError) as error:
        check_method(kind(C), rounds=4)
    assert str(error.value).startswith(
        f"{kind.__name__}.{field}: a message is decoded with the key {key}, and"
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Counting, "Counting: a second run of 6 rounds has other iterates"),
        (Drawing, "Drawing: a second run of 6 rounds has other iterates"),
        (CountingAnew, "CountingAnew: a run that is resumed after 3 of 6 rounds has other iterates"),
    ],
)
def test_state_outside_of_the_records_is_found(kind, said):
    KEPT.clear()
    with pytest.raises(ConfigError, match=said):
        check_method(kind(), rounds=6)


def test_what_is_no_method_is_refused():
    with pytest.raises(ConfigError, match=r"method='gd'; allowed: an object of a class derived from Method"):
        check_method("gd")
    with pytest.raises(ConfigError, match="rounds"):
        check_method(Compressed(), rounds=1)


def test_a_watched_run_sends_the_same_bytes():
    method, problem = mpicomp.EF21(TopK(k=2)), Quadratics(d=24, noise=0.5, lam=0.01)
    before = mpicomp.run(method, problem, workers=4, rounds=4).ledger.up_bytes
    check_method(method, problem, rounds=4)
    assert mpicomp.run(method, problem, workers=4, rounds=4).ledger.up_bytes == before
