"""Who sends in a round of a method of one's own, and what: anything else is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest

import mpicomp
from mpicomp import ConfigError, TopK
from mpicomp.compressors import Contractive, Lossless
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod

TOP = TopK(k=2)


@dataclass(frozen=True)
class Partial(EstimatingMethod, AveragingMethod):
    """EF21 in which the workers ``chosen(n)`` take part."""

    chosen: Any = range
    C: Contractive = TOP
    gamma: StepSize = 0.1
    down: Lossless = Lossless()

    @dataclass
    class Worker:
        g: np.ndarray

    def senders(self, key):
        return self.chosen(key.n)

    def uplink(self, key):
        return self.C

    def worker_step(self, w, r, f, key):
        message = self.C.compress(f.grad(r.x) - w.g, key)
        self.C.decompress_add(message, w.g, key)
        return Message(message)

    def estimate(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.g, key)

    def theory(self, c, d, n):
        return {}


class ReturnsNothing(Partial):
    may_adapt = True

    def worker_step(self, w, r, f, key):
        self.C.compress(f.grad(r.x), key)


class ReturnsTheMessage(Partial):
    def worker_step(self, w, r, f, key):
        return super().worker_step(w, r, f, key).m


class ReturnsAnotherRecord(Partial):
    def worker_step(self, w, r, f, key):
        return Partial.Worker(super().worker_step(w, r, f, key).m)


class InAPlainClass(Partial):
    class Worker:
        g: np.ndarray


class Window(Partial):
    """Keeps an array of another shape than x's."""

    @dataclass
    class Worker:
        g: np.ndarray
        last: np.ndarray = field(default_factory=lambda: np.ones((3, 4)))

    def worker_step(self, w, r, f, key):
        assert w.last.tolist() == [[key.round + 1.0] * 4] * 3
        w.last += 1
        return super().worker_step(w, r, f, key)


def first(n):
    return [0, 2]


def array(n):
    return np.array([0, 2])


def mask(n):
    return [True, False, True, False]


def mask_of_numpy(n):
    return np.array(mask(n))


def twice(n):
    return [1, 1]


def falling(n):
    return [3, 1]


def beyond(n):
    return [0, n]


def below(n):
    return [-1, 0]


def generator(n):
    return (i for i in range(n))


def group(n):
    return {0, 2}


def nothing(n):
    return None


def table(n):
    return np.array([[0, 1]])


ASKED = count()


def next_worker(n):
    return [next(ASKED) % n]


def run(method, rounds=4, **options):
    return mpicomp.run(method, mpicomp.Quadratics(d=10), workers=4, rounds=rounds, **options)


WRONG = [mask, mask_of_numpy, twice, falling, beyond, below, generator, group, nothing, table]


@pytest.mark.parametrize("chosen", WRONG, ids=lambda f: f.__name__)
def test_senders_are_workers_in_increasing_order(chosen):
    """A mask was read as the workers 1, 0, 1, 0; a worker n was left out; on ranks a generator hung."""
    with pytest.raises(ConfigError, match=r"Partial\.senders gives .* from 0 to 3, as in \[i for i in range"):
        run(Partial(chosen))


def test_they_are_the_same_when_asked_again():
    """Ranks that draw from generators of their own wait for messages that nobody sends."""
    said = r"Partial\.senders gives other workers when asked again: draw them from the key alone"
    with pytest.raises(RuntimeError, match=said):
        run(Partial(next_worker))


def test_they_may_be_of_numpy():
    assert run(Partial(array)).iterates_sha256 == run(Partial(first)).iterates_sha256
    assert run(Partial(first)).ledger.up.tolist() == [36, 0, 36, 0]


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        (ReturnsNothing, "None"),
        (ReturnsTheMessage, r"array\("),
        (ReturnsAnotherRecord, r"Partial\.Worker\(g="),
    ],
)
def test_a_worker_returns_its_record(kind, returned):
    """The error named neither the class nor the step; another record was read as this one."""
    said = rf"{kind.__name__}\.worker_step returns {returned}.*; expected Message\(\.\.\), the record "
    with pytest.raises(ConfigError, match=said):
        run(kind())
    if kind.may_adapt:
        with pytest.raises(ConfigError, match=said):
            run(kind(gamma="auto"))


def test_a_record_is_a_dataclass():
    """It ended in an error of our own."""
    with pytest.raises(
        ConfigError, match=r"InAPlainClass\.Worker is no dataclass: write @dataclass above it"
    ):
        run(InAPlainClass())


def test_a_field_begins_as_its_factory_says(tmp_path):
    """The factory was ignored: the field began with zeros of the shape of x."""
    whole = run(Window(), rounds=4)
    run(Window(), rounds=2, out=tmp_path)
    assert run(Window(), rounds=4, out=tmp_path, resume=True).iterates_sha256 == whole.iterates_sha256
