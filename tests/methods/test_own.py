"""A method of one's own that breaks what is assumed of it: refused in one line, soon, on every rank alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest

import mpicomp
from mpicomp import ConfigError, Descent, TopK
from mpicomp.compressors import Contractive, Lossless
from mpicomp.methods.base import Message
from mpicomp.methods.parameters import StepSize
from mpicomp.methods.support.averaging import AveragingMethod
from mpicomp.methods.support.estimating import EstimatingMethod

TOP = TopK(k=2)


@dataclass(frozen=True)
class Sound(AveragingMethod):
    """EF21, with a field of each kind of number."""

    C: Contractive = TOP
    gamma: StepSize = 0.1
    down: Lossless = Lossless()

    @dataclass
    class Replica:
        x: np.ndarray
        g: np.ndarray

    @dataclass
    class Worker:
        g: np.ndarray
        signs: np.ndarray

    def worker(self, x0):
        return self.Worker(np.zeros_like(x0), np.zeros(x0.size, np.int8))

    def uplink(self, key):
        return self.C

    def worker_step(self, w, r, f, key):
        g = f.grad(r.x)
        w.signs = np.sign(g).astype(np.int8)
        message = self.C.compress(g - w.g, key)
        self.C.decompress_add(message, w.g, key)
        return Message(message)

    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.g, key)
        r.x = r.x - self.gamma * r.g

    def theory(self, c, d, n):
        return {"gamma": np.float32(0.5) / np.float32(c.L)}


class InPlace(Sound):
    """The same in records that are frozen: it changes their arrays."""

    @dataclass(frozen=True)
    class Replica:
        x: np.ndarray
        g: np.ndarray

    @dataclass(frozen=True)
    class Worker:
        g: np.ndarray
        signs: np.ndarray

    def worker_step(self, w, r, f, key):
        g = f.grad(r.x)
        w.signs[:] = np.sign(g)
        message = self.C.compress(g - w.g, key)
        self.C.decompress_add(message, w.g, key)
        return Message(message)

    def replica_step(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.g, key)
        r.x[:] = r.x - self.gamma * r.g


class WritesX(Sound):
    def worker_step(self, w, r, f, key):
        r.x += 1
        return super().worker_step(w, r, f, key)


class PutsX(Sound):
    def worker_step(self, w, r, f, key):
        r.x = r.x + 1
        return super().worker_step(w, r, f, key)


class LooksAhead(Sound):
    """Asks for a second gradient, and does not say so by ``needs_function``."""

    def worker_step(self, w, r, f, key):
        f.grad(r.x - 1)
        return super().worker_step(w, r, f, key)


class Single(Sound):
    def replica_step(self, r, broadcast, key):
        super().replica_step(r, broadcast, key)
        r.x = r.x.astype(np.float32)


class PutsNothing(Sound):
    def replica_step(self, r, broadcast, key):
        r.x = None


class Leaves(Sound):
    def replica_step(self, r, broadcast, key):
        super().replica_step(r, broadcast, key)
        if key.round == 2:
            r.x = None


class Lists(Sound):
    def worker_step(self, w, r, f, key):
        up = super().worker_step(w, r, f, key)
        w.signs = w.signs.tolist()
        return up


class Previous(Sound):
    """Steps with what its workers and its replica kept of the round before."""

    @dataclass
    class Replica:
        x: np.ndarray
        g: np.ndarray
        before: np.ndarray

    @dataclass
    class Worker:
        g: np.ndarray
        x: np.ndarray

    def worker(self, x0):
        return self.Worker(np.zeros_like(x0), np.zeros_like(x0))

    def worker_step(self, w, r, f, key):
        g = f.grad(r.x)
        up = self.C.compress(g + 0.5 * w.g + 0.3 * (r.x - w.x), key)
        self.keep(w, r, g)
        return Message(up)

    def replica_step(self, r, broadcast, key):
        r.g[:] = 0
        self.down.decompress_add(broadcast.m, r.g, key)
        r.x -= self.gamma * r.g
        r.x += 0.1 * (r.x - r.before)
        self.keep_before(r)

    def keep(self, w, r, g):
        w.x, w.g = r.x.copy(), g.copy()

    def keep_before(self, r):
        r.before = r.x.copy()


class PreviousInOneArray(Previous):
    """The same, without copies: arrays of the run's, and one of all workers."""

    shared = np.zeros(10)

    def keep(self, w, r, g):
        self.shared[:] = g
        w.x, w.g = r.x, self.shared

    def keep_before(self, r):
        r.before = r.x[:]


class BeginsInOneArray(Previous):
    """Records that begin with the array that the run gives, or with one of the class."""

    shared = np.zeros(10)

    def replica(self, x0):
        return self.Replica(x0, self.shared, x0)

    def worker(self, x0):
        return self.Worker(self.shared, x0)

    def keep(self, w, r, g):
        w.g[:] = 0.9 * w.g + g

    def keep_before(self, r):
        r.before[:] = 0.5 * (r.before + r.x)


class BeginsWithCopies(BeginsInOneArray):
    def replica(self, x0):
        return self.Replica(x0.copy(), np.zeros_like(x0), x0.copy())

    def worker(self, x0):
        return self.Worker(np.zeros_like(x0), x0.copy())


@dataclass(frozen=True)
class Counts(Sound):
    """It counts its steps where no checkpoint looks."""

    def worker_step(self, w, r, f, key):
        w.steps = getattr(w, "steps", 0) + 1
        return super().worker_step(w, r, f, key)


@dataclass(frozen=True)
class BeginsAsAnInteger(Sound):
    """Its number is called a float, and begins as an int."""

    @dataclass
    class Worker(Sound.Worker):
        mean: float = 0

    def worker_step(self, w, r, f, key):
        w.mean += 0.5
        return super().worker_step(w, r, f, key)


@dataclass(frozen=True)
class CountsInAPlainClass(Sound):
    """It declares the counter, but its record is no dataclass of its own."""

    class Worker(Sound.Worker):
        steps: int = 0

    def worker_step(self, w, r, f, key):
        w.steps += 1
        return super().worker_step(w, r, f, key)


@dataclass(frozen=True)
class CountsInAField(Sound):
    """It counts them in a field, and has a cached property besides, and a constant."""

    @dataclass
    class Worker:
        g: np.ndarray
        signs: np.ndarray
        steps: int = 0

        @cached_property
        def twice(self):
            return 2

    def worker(self, x0):
        w = super().worker(x0)
        w.name = "constant"
        return w

    def worker_step(self, w, r, f, key):
        w.steps += w.twice
        return super().worker_step(w, r, f, key)


@dataclass(frozen=True)
class CountsFromTheStart(CountsInAField):
    """What it counts in is there at the start, and no field."""

    def worker_step(self, w, r, f, key):
        w.name += "!"
        return super().worker_step(w, r, f, key)


@dataclass(frozen=True)
class Marked(Sound):
    """The same, whose workers keep ``mark`` besides, for none as yet."""

    mark: object = 0

    @dataclass
    class Worker(Sound.Worker):
        last: object = None

    def worker(self, x0):
        return self.Worker(np.zeros_like(x0), np.zeros(x0.size, np.int8), self.mark)


class Ratios(Sound):
    """The same, whose workers keep a ratio besides: 0/0 in round 4."""

    @dataclass
    class Worker(Sound.Worker):
        ratio: np.ndarray

    def worker(self, x0):
        return self.Worker(np.zeros_like(x0), np.zeros(x0.size, np.int8), np.zeros(2))

    def worker_step(self, w, r, f, key):
        w.ratio /= np.array([1.0, key.round != 4])
        return super().worker_step(w, r, f, key)


@dataclass(frozen=True)
class Estimates(EstimatingMethod, Sound):
    """The same as ``Sound``, as an estimate and a step."""

    def estimate(self, r, broadcast, key):
        self.down.decompress_add(broadcast.m, r.g, key)


@dataclass(frozen=True)
class StepsTwice(Estimates):
    """It takes a step in its estimate too."""

    def estimate(self, r, broadcast, key):
        super().estimate(r, broadcast, key)
        r.x -= self.gamma * r.g


@dataclass(frozen=True)
class PutsAnotherX(Estimates):
    """The same by a new array."""

    def estimate(self, r, broadcast, key):
        super().estimate(r, broadcast, key)
        r.x = r.x - self.gamma * r.g


@dataclass(frozen=True)
class CopiesX(Estimates):
    """The x that it puts there is the same."""

    def estimate(self, r, broadcast, key):
        super().estimate(r, broadcast, key)
        r.x = r.x.copy()


def run(method, **changed):
    asked = {"workers": 3, "rounds": 6} | changed
    return mpicomp.run(method, "quadratics(d=10)", **asked)


@pytest.mark.parametrize("method", [Sound(), InPlace()], ids=lambda m: type(m).__name__)
def test_a_sound_one_is_resumed_also_with_negative_integers(method, tmp_path):
    """They were taken for damaged counts, so that no checkpoint could be loaded."""
    run(method, rounds=3, out=tmp_path / "run")
    assert run(method, out=tmp_path / "run", resume=True).iterates_sha256 == run(Sound()).iterates_sha256


class Preset(mpicomp.EF21):
    """Its parameters are not those of the dataclass."""

    def __init__(self, lr: float):
        super().__init__(TOP, gamma=lr)


def test_one_that_cannot_be_made_of_its_fields_is_refused():
    """A run, or a comparison, ended in a TypeError of ``dataclasses.replace``."""

    def compared(method):
        return mpicomp.compare([method], mpicomp.Quadratics(d=3), workers=2, rounds=1)

    for play in (run, lambda method: Descent(method, np.zeros(3)), compared):
        with pytest.raises(ConfigError) as raised:
            play(Preset(0.1))
        assert str(raised.value) == (
            "Preset.__init__ does not take the fields of Preset, (C, gamma, batch, down, start, mu): a "
            "method is a frozen dataclass. Declare its parameters as fields, and leave __init__ out."
        )


@dataclass(frozen=True)
class Derived(mpicomp.EF21):
    """A field that is made of the others is no argument of ``__init__``."""

    half: float = field(init=False, default=0.0)

    def __post_init__(self):
        object.__setattr__(self, "half", self.gamma / 2)


def test_a_field_may_be_made_of_others():
    assert run(Derived(TOP, gamma=0.1)).method.half == 0.05


def test_a_field_keeps_what_a_step_has_put_there():
    """Where one array was in two records, a change of one changed the other, on one rank or on several."""
    assert run(PreviousInOneArray()).iterates_sha256 == run(Previous()).iterates_sha256


def test_a_field_keeps_what_it_begins_with():
    assert run(BeginsInOneArray()).iterates_sha256 == run(BeginsWithCopies()).iterates_sha256


def test_records_may_be_frozen():
    assert run(InPlace()).iterates_sha256 == run(Sound()).iterates_sha256


def test_what_cannot_be_measured_is_told_so():
    with pytest.raises(ConfigError, match=r"replica\.x is None\. Keep shape and type"):
        run(PutsNothing(), rounds=1)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (PutsNothing(), "replica.x is None. Keep shape and type"),
        (WritesX(), "WritesX.worker_step: .* read-only; every rank holds the replica"),
        (PutsX(), "PutsX.worker_step puts another value into x of the replica; every rank holds the replica"),
    ],
)
def test_a_worker_s_step_leaves_the_replica_alone(method, said):
    """In one process each worker changed it for those after it; on several ranks the replicas differed."""
    with pytest.raises(ConfigError, match=said):
        run(method)


def test_nor_in_a_loop_of_one_s_own():
    with pytest.raises(ConfigError, match="every rank holds the replica"):
        Descent(WritesX(), np.zeros(10)).step(np.ones(10))


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            Single(),
            r"Single keeps what could not be loaded .*: replica\.x has shape \(10,\) and type float32; exp",
        ),
        (Lists(), r"Lists keeps what could not be loaded from a checkpoint: worker-0\.signs is \["),
        (BeginsAsAnInteger(), r"worker-0\.mean has .* where int is needed.* as in `mean: float = 0\.0`"),
    ],
)
@pytest.mark.parametrize("rounds", [1, 6])
def test_records_keep_shape_and_type(method, said, rounds, tmp_path):
    """Their checkpoints could not be written, or not be loaded, which was found when the work was lost."""
    with pytest.raises(ConfigError, match=said):
        run(method, rounds=rounds, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("value", "said"), [(-1, "negative entries"), (np.nan, "NaN"), (np.array([0.0, np.nan]), "NaN")], ids=repr
)
def test_a_mark_that_no_checkpoint_may_hold_is_refused_with_another(value, said, tmp_path):
    """An array with NaN was refused as damaged when it was loaded; a number was said to have changed."""
    with pytest.raises(
        ConfigError, match=rf"Marked keeps what .* worker-0\.last has .*{said}.* keep inf or 0"
    ):
        run(Marked(mark=value), rounds=1, out=tmp_path / "run")
    run(Marked(mark=np.inf), rounds=3, out=tmp_path / "other")
    assert run(Marked(mark=np.inf), out=tmp_path / "other", resume=True).status == "rounds"


def test_nan_that_comes_later_is_refused_before_a_checkpoint_is_written(tmp_path):
    """It was saved in place of the state before, and then no state could be loaded."""
    said = r"Ratios keeps what could not be loaded .*: worker-0\.ratio has entries that are NaN"
    with pytest.raises(ConfigError, match=said):
        run(Ratios(), rounds=8, out=tmp_path / "run", checkpoint_every=2)
    sound = [place.name for place in (tmp_path / "run" / "checkpoint").glob("round-*")]
    assert sorted(sound) == ["round-2", "round-4"]
    descent = Descent(Ratios(), np.zeros(10))
    for _ in range(4):
        descent.step(np.ones(10))
    descent.save(tmp_path / "descent")
    descent.step(np.ones(10))
    for call in (lambda: descent.save(tmp_path / "descent"), descent.state):
        with pytest.raises(ConfigError, match=said):
            call()
    descent.load(tmp_path / "descent")
    assert descent.steps == 4


def test_they_keep_them_in_later_rounds_too():
    """The iterate of such a round had no bytes to be hashed, which ended in an error of our own."""
    with pytest.raises(
        ConfigError, match=r"Leaves keeps what could not be loaded from a checkpoint: replica\.x is None"
    ):
        run(Leaves(), rounds=6)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Counts(), r"Counts sets worker-0\.steps, which is no field of Worker.* Declare steps in Worker"),
        (CountsInAPlainClass(), r"no field of Worker.* Declare steps in Worker, a dataclass \(@dataclass\)"),
        (CountsFromTheStart(), r"CountsFromTheStart sets worker-0\.name, which is no field of Worker"),
    ],
)
def test_what_is_no_field_of_a_record_is_refused(method, said):
    """A resumed run went on without it, to other iterates than those of the uninterrupted run."""
    with pytest.raises(ConfigError, match=said):
        run(method)


def test_fields_with_a_default_cached_properties_and_constants_are_not():
    assert run(CountsInAField()).iterates_sha256 == run(Sound()).iterates_sha256


@pytest.mark.parametrize("method", [StepsTwice(), PutsAnotherX(), CopiesX()], ids=lambda m: type(m).__name__)
def test_an_estimate_leaves_x_alone(method):
    """The step was taken twice.  Of a copy of x the error said that x had changed."""
    with pytest.raises(
        ConfigError, match=r"\.estimate changes x, or puts another array .* a copy another name"
    ):
        run(method)


def test_an_estimate_and_a_step_are_the_method():
    norms = [run(m).rows[-1].grad_norm_sq for m in (Estimates(), Sound())]
    assert norms[0] == pytest.approx(norms[1], rel=1e-12)


def test_a_step_of_numpy_s_numbers_is_a_step():
    assert type(run(Sound(gamma="theory*2"), rounds=1).method.gamma) is float


@pytest.mark.parametrize("given", [None, 0.5])
def test_theory_gives_numbers_by_name(given, monkeypatch):
    monkeypatch.setattr(Sound, "theory", lambda self, c, d, n: given)
    with pytest.raises(ConfigError, match=rf"Sound\.theory gives {given}; expected a dict of numbers"):
        run(Sound(gamma="theory"))


def test_a_second_point_is_asked_of_a_function():
    """A gradient alone was refused by an assertion."""
    with pytest.raises(ConfigError, match=r"a gradient at another point than .*needs_function = True"):
        Descent(LooksAhead(), np.ones(10)).step(np.ones(10))
    assert Descent(LooksAhead(), np.ones(10)).step(lambda x: x)
