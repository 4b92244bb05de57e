"""A compressor of one's own that is careless with memory: right, or refused in one line."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, EF21, Aggregator, ConfigError, RandK, TopK
from mpicomp.base.errors import RecordError
from mpicomp.base.given_arrays import in_full
from mpicomp.compressors import Contractive, Identity, Unbiased
from mpicomp.keys import Key


@dataclass(frozen=True)
class Whole(Contractive):
    """Every coordinate, in double precision."""

    def compress(self, x, key):
        return x.copy().view(np.uint8)

    def decompress_add(self, buf, out, key, scale=1.0):
        out += scale * buf.view(np.float64)

    def nbytes(self, d):
        return 8 * d

    def paper_bits(self, buf, d, key):
        return 8 * buf.size

    def alpha(self, d, n):
        return 1.0


@dataclass(frozen=True)
class Own(Whole):
    def compress(self, x, key):
        return x.view(np.uint8)


@dataclass(frozen=True)
class Same(Whole):
    scratch = np.empty(80, np.uint8)

    def compress(self, x, key):
        self.scratch[:] = x.view(np.uint8)
        return self.scratch


@dataclass(frozen=True)
class HalvesX(Whole):
    def compress(self, x, key):
        x *= 0.5
        return super().compress(x, key)


@dataclass(frozen=True)
class ScalesMessage(Whole):
    def decompress_add(self, buf, out, key, scale=1.0):
        values = buf.view(np.float64)
        values *= scale
        out += values


@dataclass(frozen=True)
class Texts(Whole):
    def compress(self, x, key):
        return x.tobytes()


@dataclass(frozen=True)
class Rows(Whole):
    def compress(self, x, key):
        return x.view(np.uint8).reshape(-1, 8)


@dataclass(frozen=True)
class Reversed(Whole):
    def compress(self, x, key):
        return x.view(np.uint8)[::-1]


@dataclass(frozen=True)
class HalfOfTop(TopK):
    """It decodes half of what was sent."""

    def decompress_add(self, buf, out, key, scale=1.0):
        super().decompress_add(buf, out, key, 0.5 * scale)


@dataclass(frozen=True)
class Doubling(RandK):
    """It sends twice what it is given."""

    def compress(self, x, key):
        return super().compress(2 * x, key)


@dataclass(frozen=True)
class Charging(Whole):
    bits: object

    def paper_bits(self, buf, d, key):
        return self.bits


@dataclass(frozen=True)
class Levelled(Whole):
    values: tuple = (0, 1)


@dataclass(frozen=True)
class Unset(Whole):
    cache: object = field(init=False, repr=False, compare=False)  # set by what is never called


def run(compressor, method=EF21):
    return mpicomp.run(method(compressor, gamma=0.1), "quadratics(d=10)", workers=3, rounds=5)


@pytest.mark.parametrize("compressor", [Own(), Same(), Unset()])
def test_a_message_may_be_the_memory_of_x_or_of_the_message_before(compressor):
    assert run(compressor).iterates_sha256 == run(Whole()).iterates_sha256
    first, second = compressor.compress(np.ones(10), None), compressor.compress(np.zeros(10), None)
    assert first.view(np.float64).all() and not second.any()


@pytest.mark.parametrize(
    ("compressor", "said"),
    [
        (HalvesX(), "HalvesX.compress: .* read-only; x is read-only there: write into a copy of it"),
        (
            ScalesMessage(),
            "ScalesMessage.decompress_add: .* read-only; the message is read-only there",
        ),
        (Texts(), r"Texts.compress returned a bytes; expected a contiguous vector of uint8, as .view\(np"),
        (Rows(), r"Rows.compress returned an array of shape \(10, 8\) and type uint8; expected a contiguous"),
        (Reversed(), r"Reversed.compress returned an array of shape \(80,\) and type uint8; expected a cont"),
        *(
            (Charging(bits), rf"Charging.paper_bits={given}; allowed: an integer from 0 to")
            for bits, given in ((12.5, "12.5"), (-8, "-8"), (float("nan"), "nan"), (None, "None"))
        ),
    ],
)
def test_what_a_compressor_may_not_do(compressor, said):
    with pytest.raises(ConfigError, match=said):
        run(compressor)
    with pytest.raises(ConfigError, match=said):
        Aggregator(EF21(compressor), like=np.zeros(10))(np.ones(10))


@pytest.mark.parametrize("bits", [np.uint8(200), np.uint32(2**31), np.array(7)])
def test_bits_of_numpy_s_integers_are_summed_without_overflow(bits, tmp_path):
    """They overflowed, and the summary could not be written at the end of the run."""
    done = mpicomp.run(EF21(Charging(bits), gamma=0.1), "quadratics(d=10)", workers=3, rounds=5, out=tmp_path)
    assert done.rows[-1].paper_bits_up == 15 * int(bits)
    assert mpicomp.load(tmp_path).rows == done.rows


@dataclass(frozen=True)
class Generous(EF21):
    """It charges half a bit for a message and for the broadcast, or for the broadcast alone."""

    up: bool = True

    def paper_bits(self, up, d, key):
        return 0.5 if self.up else 1

    def paper_bits_down(self, broadcast, d, key):
        return 0.5


@pytest.mark.parametrize(("up", "name"), [(True, "paper_bits"), (False, "paper_bits_down")])
def test_bits_of_a_method_of_one_s_own_that_are_no_count_are_refused(up, name):
    with pytest.raises(ConfigError, match=rf"Generous.{name}=0.5; allowed: an integer from 0 to"):
        run(Whole(), partial(Generous, up=up))


@dataclass(frozen=True)
class Promising(Whole):
    value: object = None
    delta: float = 0.5  # its own, and no constant of Contractive

    def alpha(self, d, n):
        return self.value


@dataclass(frozen=True)
class Noisy(Unbiased):
    value: object = None
    compress, decompress_add, nbytes, paper_bits = (
        Whole.compress,
        Whole.decompress_add,
        Whole.nbytes,
        Whole.paper_bits,
    )

    def omega(self, d, n):
        return self.value


@pytest.mark.parametrize("value", [1.5, 0.0, -1.0, float("nan"), None, "half"])
def test_an_alpha_that_no_compressor_has_is_named(value):
    """Of its square root a step of EF21's theorem is made."""
    with pytest.raises(
        ConfigError, match=rf"alpha\(10, 3\) = {value!r}; allowed: a number above 0 and at most 1\.$"
    ):
        mpicomp.run(EF21(Promising(value)), "quadratics(d=10)", workers=3, rounds=5)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_an_omega_that_no_compressor_has_is_named(value):
    with pytest.raises(
        ConfigError, match=rf"omega\(10, 3\) = {value}; allowed: a finite number from 0 on\.$"
    ):
        mpicomp.run(DIANA(Noisy(value)), "quadratics(d=10)", workers=3, rounds=5)


def test_an_omega_of_0_is_one():
    one, other = (
        mpicomp.run(DIANA(C), "quadratics(d=10)", workers=3, rounds=5) for C in (Noisy(0), Identity("f8"))
    )
    assert one.iterates_sha256 == other.iterates_sha256


@pytest.mark.parametrize("compressor", [Unset(), Levelled()])
def test_a_comparison_reads_no_format_off_other_fields(compressor):
    found = mpicomp.compare([EF21(compressor, gamma=0.1)], "quadratics(d=10)", workers=3, rounds=5)
    assert found.lines()[0].formats == ("f4",)  # that of the broadcasts


def test_what_a_subclass_changes_is_what_servers_and_differences_do():
    """They did what its base does, which has these for speed: workers and server kept other numbers."""
    x, y, key = np.arange(1.0, 11.0), np.ones(10), Key(0, 0, 1, 2)
    half = HalfOfTop(k=3)
    message = half.compress(x, key)
    total = half.sum(np.zeros(10), Key(0, 0, None, 2))
    total.take(1, message)
    expected = [0.0] * 7 + [4.0, 4.5, 5.0]
    assert total.close().tolist() == half.decompress(message, 10, key).tolist() == expected
    doubling = Doubling(k=3)
    assert doubling.compress_difference(x, y, key).tobytes() == doubling.compress(x - y, key).tobytes()
    plain = RandK(k=3)
    assert plain.compress_difference(2 * x, 2 * y, key).tobytes() == doubling.compress(x - y, key).tobytes()


def test_a_class_that_other_ranks_could_not_have_is_refused():
    """It ended in an error of pickle's, for which no line of the user's was named."""

    @dataclass(frozen=True)
    class Inner(Whole):
        pass

    with pytest.raises(ConfigError, match=r"<locals>\.Inner.*Define classes of your own at the top level"):
        run(Inner())


def test_an_error_of_the_compressor_itself_stays():
    @dataclass(frozen=True)
    class Wrong(Whole):
        def compress(self, x, key):
            raise ValueError("a fault of its own")

    with pytest.raises(ValueError, match="a fault of its own"):
        Wrong().compress(np.ones(10), None)


@dataclass(frozen=True)
class Weighing(Whole):
    """A long array among its parameters."""

    weights: np.ndarray | None = None


def test_another_array_than_that_of_the_saved_state_is_refused(tmp_path):
    """In an entry that numpy does not print, by less than it prints."""
    weights = np.ones(3000)
    Aggregator(EF21(Weighing(weights), gamma=1.0), like=np.zeros(4)).save(tmp_path / "s")
    Aggregator(EF21(Weighing(weights.copy()), gamma=1.0), like=np.zeros(4)).load(tmp_path / "s")
    weights[1500] += 1e-12
    with pytest.raises(RecordError, match=r"method\.C"):
        Aggregator(EF21(Weighing(weights), gamma=1.0), like=np.zeros(4)).load(tmp_path / "s")


def test_a_run_is_not_resumed_with_another_array(tmp_path):
    options = {
        "problem": mpicomp.Logistic(data="digits", lam=0.1),
        "workers": 2,
        "rounds": 5,
        "out": tmp_path / "run",
    }
    weights = np.ones(3000)
    mpicomp.run(EF21(Weighing(weights), gamma=0.1), **options)
    mpicomp.run(EF21(Weighing(weights.copy()), gamma=0.1), resume=True, **options)
    weights[1500] += 1e-12
    with pytest.raises(RecordError, match=r"method\.C"):
        mpicomp.run(EF21(Weighing(weights), gamma=0.1), resume=True, **options)


def test_arrays_are_told_apart_in_every_entry_type_and_shape():
    """At any length at once; without arrays it is the repr."""
    a = np.arange(10.0**6)
    b = a.copy()
    b[5 * 10**5] = -1
    assert in_full(Weighing(a)) == in_full(Weighing(a.copy())) != in_full(Weighing(b))
    others = [a, a.astype("f4"), a.reshape(1000, 1000), a[:0], [a, a], {"w": (b, 1)}]
    assert len({in_full(Weighing(w)) for w in others}) == len(others)
    assert in_full(Weighing(None)) == repr(Weighing(None))
    with np.printoptions(precision=2, linewidth=40):
        printed = in_full(Weighing(a))
    assert printed == in_full(Weighing(a))
    assert in_full(Weighing(Weighing)) == repr(Weighing(Weighing))  # a class is no array's holder


def test_an_array_is_not_copied_for_its_hash():
    """It may be all data of a problem of one's own, more than half of the memory."""
    a = np.zeros(10**6)
    tracemalloc.start()
    try:
        in_full(a)
        assert tracemalloc.get_traced_memory()[1] < a.nbytes / 8
    finally:
        tracemalloc.stop()


def test_a_field_that_repr_leaves_out_is_not_compared():
    """Such as a table that is made when it is needed."""

    @dataclass(frozen=True)
    class Tabled(Whole):
        table: np.ndarray | None = field(default=None, repr=False, compare=False)

    C = Tabled()
    Aggregator(EF21(C, gamma=1.0), like=np.zeros(4))
    before = in_full(C)
    object.__setattr__(C, "table", np.ones(9))
    assert in_full(C) == before
