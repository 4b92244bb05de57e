"""``check_method``: every method of the package passes, and each broken promise is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import mpicomp
from mpicomp import ConfigError, Key, RandK, Shrunk, TopK, check_method
from mpicomp.compressors import Contractive, Layered
from mpicomp.methods.base import Message
from mpicomp.methods.support.averaging import means
from tests.support.own_file import Plain
from tests.support.running import every_method

RANDOM = Shrunk(RandK(k=3))
KEPT: dict[int, float] = {}  # state outside of the records


class NamedByTheServer(Plain):
    def server_step(self, s, r, key):
        return means(self.C, r.x, key, ["m"], lambda mean: Message(self.down.compress(mean, key)))


class NamedByTheWorker(Plain):
    def worker_step(self, w, r, f, key):
        return Message(self.C.compress_difference(f.grad(r.x), 0 * r.x, key.named("m")))


class OfTheRoundBefore(Plain):
    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.x, key.before(), -self.gamma)


class Counting(Plain):
    """Its steps depend on how often it was asked, in this process."""

    def worker_step(self, w, r, f, key):
        KEPT[key.worker] = KEPT.get(key.worker, 0) + 1
        return Message(self.C.compress(f.grad(r.x) / KEPT[key.worker], key))


class CountingAnew(Counting):
    """The same, but for round 0, in which it begins again: only a resumed run differs."""

    def worker_step(self, w, r, f, key):
        if key.round == 0:
            KEPT.pop(key.worker, None)
        return super().worker_step(w, r, f, key)


class Drawing(Plain):
    def worker_step(self, w, r, f, key):
        return Message(self.C.compress(f.grad(r.x) * np.random.random(), key))


@every_method
def test_methods_of_the_package_keep_their_promises(method):
    check_method(method, rounds=4)


@pytest.mark.parametrize("C", [RANDOM, TopK(k=2), Layered({"size>1": RANDOM})], ids=str)
def test_a_method_of_ones_own_that_keeps_them(C):
    check_method(Plain(C), rounds=4)


@dataclass(frozen=True, slots=True)
class InSlots(Contractive):
    """Half of x in float64; its field is in no ``__dict__``."""

    part: float = 0.5

    def alpha(self, d, n):
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
    check_method(Plain(InSlots()), rounds=4)


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
        check_method(kind(RANDOM), rounds=6)


def test_what_is_no_method_is_refused():
    with pytest.raises(ConfigError, match=r"method='gd'; allowed: an object of a class derived from Method"):
        check_method("gd")
    with pytest.raises(ConfigError, match="rounds"):
        check_method(Plain(RANDOM), rounds=1)


def test_the_method_that_is_checked_stays_as_it_is():
    """Its compressors too: they are watched in a copy."""
    C = TopK(k=2)
    method = mpicomp.EF21(C)
    check_method(method, rounds=4)
    assert method.C is C and type(method.C) is TopK and method == mpicomp.EF21(TopK(k=2))
