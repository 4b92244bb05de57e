"""Gradients that leave block by block give the estimates, the ledger and the state of those that wait."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from mpicomp import DCGD, DIANA, EF21, EF21SGDM, Aggregator, ConfigError, DivergedError, Natural, Sign, TopK
from mpicomp.methods.base import Message
from mpicomp.methods.support.estimating import EstimatingMethod
from tests.support import every_combination

TO_CUT = every_combination.TO_CUT
PARTS = TO_CUT.parts()
OF_THE_FORM = [
    m
    for m in every_combination.methods_in_blocks(every=True)
    if isinstance(m, EstimatingMethod) and not getattr(m, "batch", None)
]
ALONE = [m for m in OF_THE_FORM if m.worker_separable and not m.needs_function]
OTHERS = {type(m): m for m in OF_THE_FORM if m not in ALONE}
METHOD = EF21SGDM(TopK(k=3), eta=0.3)
SHARDED = {"server": "sharded", "blocks": 5}


def arrays(x):
    return {part.name: x[where].reshape(part.shape) for part, where in PARTS}


def trained(method, overlap, blocks, steps=6):
    """The estimates, the ledger and the state after some steps of one worker."""
    rng = np.random.default_rng(5)
    agg = Aggregator(method.with_step(0.01), arrays(TO_CUT.x0()), server="sharded", blocks=blocks)
    blocks = agg.overlap() if overlap else []
    found = []
    for _ in range(steps):
        g = rng.normal(size=TO_CUT.dimension())
        for b in reversed(range(len(blocks))):
            agg.bring(b, g[blocks[b]])
        found += [a.tobytes() for a in agg(arrays(g)).values()]
    agg.settle()
    state = {name: np.asarray(value).tobytes() for name, value in agg.state().items()}
    assert state.pop("training")  # each has its own
    return found, agg.ledger, state


def test_these_methods_wait_for_the_whole_gradient():
    assert {m.__name__ for m in OTHERS} == {
        *("EF21Plus", "PowerSGD", "Dion", "ARCTopK"),  # norms, factors and supports are of whole vectors
        *("MARINA", "PPMARINA"),  # gradients at two points
    }


@pytest.mark.parametrize("method", {type(m): m for m in ALONE}.values(), ids=str)
def test_blocks_that_leave_early_are_the_same(method):
    check_the_same(method)


def test_blocks_of_every_compressor_that_leave_early_are_the_same(subtests):
    for method in ALONE:
        with subtests.test(str(method)):
            check_the_same(method)


def check_the_same(method):
    plain, early = trained(method, False, 7), trained(method, True, 7)
    assert plain[0] == early[0]
    assert vars(plain[1]).keys() == vars(early[1]).keys()
    for name, value in vars(plain[1]).items():
        np.testing.assert_array_equal(value, vars(early[1])[name], name)
    assert plain[2] == early[2]


@pytest.mark.parametrize("method", OTHERS.values(), ids=str)
def test_methods_that_need_more_are_refused(method):
    agg = Aggregator(method.with_step(0.01), arrays(TO_CUT.x0()), **SHARDED)
    with pytest.raises(ConfigError, match=f"{type(method).__name__} needs more than one block"):
        agg.overlap()


@pytest.mark.parametrize("options", [{}, SHARDED | {"workers": 3}, SHARDED | {"blocks": 1}])
def test_only_where_a_rank_serves_blocks_and_has_one_worker(options):
    with pytest.raises(ConfigError, match="server='sharded', blocks=2 or more, and no workers"):
        Aggregator(METHOD, np.zeros(20), **options).overlap()


def test_a_step_that_is_refused_changes_nothing():
    rng = np.random.default_rng(1)
    plain, early = (Aggregator(METHOD, np.zeros(20), on_nonfinite="skip", **SHARDED) for _ in range(2))
    blocks = early.overlap()
    for bad in (None, 3, 19, None, 0):
        g = rng.normal(size=20)
        if bad is not None:
            broken = g.copy()
            broken[bad] = np.nan
            for b in reversed(range(len(blocks))):
                early.bring(b, broken[blocks[b]])
            assert early(broken) is None
        for b in reversed(range(len(blocks))):
            early.bring(b, g[blocks[b]])
        assert early(g).tobytes() == plain(g).tobytes()
    assert early.skipped == 3
    plain.settle()
    early.settle()
    assert early.ledger.up_bytes > plain.ledger.up_bytes  # what a dropped step had sent is counted


def test_it_is_raised_where_nothing_is_skipped():
    agg = Aggregator(DIANA(Natural(), gamma=1), np.zeros(20), **SHARDED)
    blocks = agg.overlap()
    g = np.full(20, np.inf)
    for b in reversed(range(len(blocks))):
        agg.bring(b, g[blocks[b]])
    with pytest.raises(DivergedError, match="worker 0: the gradient is not finite"):
        agg(g)


def test_blocks_have_their_turn():
    agg = Aggregator(METHOD, np.zeros(20), **SHARDED)
    agg.overlap()
    with pytest.raises(ConfigError, match="block 0 was brought; expected 4"):
        agg.bring(0, np.zeros(4))
    for block in ("4", 4.0):
        with pytest.raises(ConfigError, match=rf"block {block!r} was brought; expected 4"):
            agg.bring(block, np.zeros(4))
    for b in (4, 3, 2, 1, 0):
        agg.bring(b, np.zeros(4))
    with pytest.raises(ConfigError, match="block -1 was brought; all are here: make the call"):
        agg.bring(-1, np.zeros(4))
    agg(np.zeros(20))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (np.ones(1), r"given float64 of shape \(1,\); expected numpy's floats .* of shape \(4,\)"),
        (np.ones(4, int), r"given int64 of shape \(4,\)"),
        ([1.0] * 4, r"given a list; expected .*: the slice overlap\(\)\[2\] of the gradient"),
        (np.ma.array(np.ones(4), mask=[0, 0, 0, 1]), "block 2 has a mask"),
    ],
    ids=["broadcast", "integers", "list", "mask"],
)
def test_what_is_no_block_is_refused_by_the_call_and_changes_nothing(block, said):
    plain, agg = (Aggregator(METHOD, np.zeros(20), **SHARDED) for _ in range(2))
    blocks, g = agg.overlap(), np.arange(20.0)
    for wrong in (block, None):
        for b in reversed(range(5)):
            agg.bring(b, block if b == 2 and wrong is not None else g[blocks[b]])
        if wrong is not None:
            with pytest.raises(ConfigError, match=said):
                agg(g)
    assert agg(g).tobytes() == plain(g).tobytes()


def test_the_first_error_of_the_blocks_is_raised():
    """For a later block that is not finite the step would be left out without a word."""
    agg = Aggregator(METHOD, np.zeros(20), on_nonfinite="skip", **SHARDED)
    agg.overlap()
    for b in (4, 3, 2, 1, 0):
        agg.bring(b, {3: np.ones(4, int), 1: np.full(4, np.nan)}.get(b, np.ones(4)))
    with pytest.raises(ConfigError, match="block 3 was given int64"):
        agg(np.ones(20))


def test_a_gradient_that_is_changed_after_its_blocks_have_left_is_refused():
    """As clipping changes it; the blocks would have been used, and the change lost without a word."""
    plain, agg = (Aggregator(METHOD, np.zeros(20), **SHARDED) for _ in range(2))
    blocks, g = agg.overlap(), np.arange(20.0)
    for changed in (g / 2, np.where(g == 9, -g, g)):
        for b in reversed(range(5)):
            agg.bring(b, g[blocks[b]])
        with pytest.raises(ConfigError, match=r"block \d of the gradient is not what bring was given"):
            agg(changed)
    for b in reversed(range(5)):
        agg.bring(b, g[blocks[b]])
    assert agg(g).tobytes() == plain(g).tobytes()


def test_so_is_one_that_is_halved_whatever_its_length():
    """The bits of 4096 halves, as integers of 64 bits, sum to those of the entries modulo 2^64."""
    agg = Aggregator(METHOD, np.zeros(5 * 4096), **SHARDED)
    blocks, g = agg.overlap(), np.repeat(np.random.default_rng(0).normal(size=5 * 4096), 2)[::2]
    for changed in (g / 2, g):
        for b in reversed(range(5)):
            agg.bring(b, g[blocks[b]])
        if changed is not g:
            with pytest.raises(ConfigError, match=r"block \d of the gradient is not what bring was given"):
                agg(changed)
    agg(g.copy())  # whose entries are one after another


def test_blocks_in_single_precision_are_those_of_the_call():
    """The vector is in double precision, and so are the steps of the workers."""
    plain, agg = (Aggregator(METHOD, np.zeros(20), **SHARDED) for _ in range(2))
    blocks = agg.overlap()
    for k in range(3):
        g = np.random.default_rng(k).normal(size=20).astype(np.float32)
        for b in reversed(range(5)):
            agg.bring(b, g[blocks[b]])
        assert agg(g).tobytes() == plain(g).tobytes()


@pytest.mark.parametrize("overlap", [False, True], ids=["call", "blocks"])
def test_entries_too_small_for_the_messages_are_no_error_whatever_the_program_has_set(overlap):
    with np.errstate(all="raise"):
        agg = Aggregator(EF21(Sign()), np.zeros(20), server="sharded", blocks=4)
        g = np.full(20, 1e-40)  # the smallest normal number of float32 is 1.2e-38
        if overlap:
            for where in reversed(blocks := agg.overlap()):
                agg.bring(blocks.index(where), g[where])
        np.testing.assert_allclose(agg(g), g, rtol=1e-4)


@dataclass(frozen=True)
class Aged(DCGD):
    """Divides by the number of rounds, which the worker keeps in an array of a shape of its own."""

    @dataclass
    class Worker:
        age: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def worker_step(self, w, r, f, key):
        w.age += 1
        return Message(self.Q.compress(f.grad(r.x) / w.age[0], key))


def test_arrays_that_are_no_vector_are_those_of_the_step_before_for_every_block():
    check_the_same(Aged(Natural(), gamma=0.01))


class ReturnsNothing(Aged):
    def worker_step(self, w, r, f, key):
        super().worker_step(w, r, f, key)


def test_what_a_step_of_one_s_own_returns_is_checked():
    agg = Aggregator(ReturnsNothing(Natural()), np.zeros(8), **SHARDED)
    blocks = agg.overlap()
    for b in reversed(range(len(blocks))):
        agg.bring(b, np.ones(8)[blocks[b]])
    with pytest.raises(ConfigError, match=r"ReturnsNothing\.worker_step returns None; expected Message"):
        agg(np.ones(8))


def test_a_refused_number_for_all_ranks_gives_up_the_step_of_which_blocks_were_brought():
    """So does an interrupt there: the next block was refused, as all were here."""
    found = []
    for refused in (False, True):
        agg = Aggregator(METHOD, np.zeros(40), **SHARDED)
        blocks = agg.overlap()
        if refused:
            agg.bring(4, np.ones(40)[blocks[4]])
            with pytest.raises(ConfigError, match="number=-1"):
                agg.tell_all(-1)
        for b in reversed(range(len(blocks))):
            agg.bring(b, np.ones(40)[blocks[b]])
        found.append(agg(np.ones(40)).tobytes())
    assert found[0] == found[1]


def test_a_second_overlap_gives_the_same_blocks_also_within_a_step():
    """It forgot the blocks that had left, and the next step took them for its own."""
    plain, agg = (Aggregator(METHOD, np.zeros(20), **SHARDED) for _ in range(2))
    blocks, g = agg.overlap(), np.arange(20.0)
    for b in reversed(range(5)):
        assert agg.overlap() == blocks
        agg.bring(b, g[blocks[b]])
    assert agg(g).tobytes() == plain(g).tobytes()


def test_overlap_within_holding_is_refused():
    """The state that is put aside there would come back to a record that is the method's no more."""
    agg = Aggregator(METHOD, np.zeros(20), **SHARDED)
    with agg.holding([slice(0, 4)]), pytest.raises(ConfigError, match=r"overlap\(\) in agg.holding"):
        agg.overlap()
    later = agg.holding([slice(0, 4)])
    assert len(agg.overlap()) == 5
    with pytest.raises(ConfigError, match=r"does not go with overlap\(\)"), later:
        pass


@pytest.mark.parametrize("kind", ["load", "restore"])
def test_a_state_is_loaded_between_steps(kind, tmp_path):
    """Blocks that have left follow from the state before: with the loaded one they would be wrong."""
    plain, agg = (Aggregator(METHOD, np.zeros(20), **SHARDED) for _ in range(2))
    blocks, g = agg.overlap(), np.arange(20.0)
    plain.save(tmp_path)
    saved = agg.state()
    again = {"load": lambda: agg.load(tmp_path), "restore": lambda: agg.restore(saved)}[kind]
    for k in range(2):
        for b in reversed(range(5)):
            agg.bring(b, (k + 1) * g[blocks[b]])
        if not k:
            agg(g)
    with pytest.raises(ConfigError, match=r"blocks of a step .* by opt.step\(\), or give it up by drop"):
        again()
    agg.drop()
    again()
    for b in reversed(range(5)):
        agg.bring(b, g[blocks[b]])
    assert agg(g).tobytes() == plain(g).tobytes()
