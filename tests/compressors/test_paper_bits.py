"""What the papers would charge, by hand: for each compressor's message, and for broadcasts."""

from __future__ import annotations

import json
from math import sqrt

import numpy as np
import pytest
from rich.console import Console

from mpicomp import (
    ADEF,
    ADIANA,
    DCGD,
    DIANA,
    EF21P,
    GD,
    MARINA,
    MCM,
    ARCTopK,
    Artemis,
    Dion,
    Dore,
    DoubleSqueeze,
    EF21Muon,
    EF21Plus,
    OneBitAdam,
    PerturbedSGD,
    PowerSGD,
)
from mpicomp.base.units import human_bytes
from mpicomp.compressors import (
    EDEN,
    Bernoulli,
    BlockDithering,
    BlockFloat,
    BlockSteps,
    Coded,
    CodedGaps,
    Dithering,
    Identity,
    Importance,
    Lazy,
    Natural,
    NaturalDithering,
    PermK,
    Quantized,
    QuantizedTopK,
    RandK,
    RotatedSign,
    Shrunk,
    Sign,
    Ternary,
    TiledTopK,
    TopK,
    TwoMeans,
    VaryingSteps,
)
from mpicomp.keys import Key
from mpicomp.lab.experiment.run_tables import summary_table
from mpicomp.runtime.rows import read_rows
from tests.support.running import N, run
from tests.support.sampling import KEY
from tests.support.trajectories import PLACES, start

D = 40
X = np.arange(1.0, D + 1)


@pytest.mark.parametrize(
    ("c", "bits"),
    [
        (Quantized(RandK(6), Natural()), 9 * 6),
        (Quantized(RandK(6), Natural("f8")), 12 * 6),
        (Quantized(RandK(6), Dithering(3)), 32 + 3 * 6),
        (Quantized(RandK(6, "block"), Dithering(4, values="f8")), 32 + 4 * 6),
        (Quantized(RandK(6), Ternary()), 32 + 2 * 6),
        (Quantized(RandK(6), Identity("bf16")), 32 * 6),
        (Quantized(RandK(6), Coded(Ternary())), 32 + 2 * 6),
        (Quantized(PermK(), Natural()), 9 * 13),  # of the owner of 13, as the test on PermK below shows
        (Quantized(Lazy(1.0), Natural()), 9 * 40),
        (QuantizedTopK(6, Dithering(4)), 32 + 4 * 6),
        (QuantizedTopK(6, Natural("f8")), 12 * 6),
        (QuantizedTopK(6, Sign()), 32 + 6),
        (QuantizedTopK(6, TwoMeans()), 64 + 2 * 6),
        (TwoMeans("f8"), 64 + 2 * 40),
        (TiledTopK(3, Natural(), tile=4, rows=5), 9 * 3 * 4),  # 8 columns: two tiles across, two down
        (CodedGaps(QuantizedTopK(6, Natural())), 9 * 6),
        (CodedGaps(TopK(6, "f8")), 32 * 6),
        (Shrunk(Quantized(RandK(6), Natural())), 9 * 6),
        (Coded(Dithering(3)), 32 + 3 * 40),
        (BlockFloat(), 2 * 8 + 8 * 40),  # two blocks
        (BlockDithering(4, 16), 3 * 8 + 4 * 40),
        (RotatedSign(), 32 + 40),
        (RotatedSign(3), 3 * (32 + 40)),
        (EDEN(4), 32 + 4 * 40),
        (EDEN(2, "inner_product"), 32 + 2 * 40),
        (Importance(40, values="f8"), 32 * 40),  # all are kept
        (NaturalDithering(4), 32 + (1 + 3) * 40),  # 1 + ceil(log2(s + 1))
        (NaturalDithering(7), 32 + (1 + 3) * 40),
        (VaryingSteps(3 * sqrt(D)), 32 + 3 * 40),  # s = 3
        (BlockSteps(3 * sqrt(D) * 2, 4), 4 * 32 + 3 * 40),  # sqrt(10)/h in each of 4 blocks, so s = 3
    ],
    ids=repr,
)
def test_what_the_paper_charges(c, bits):
    if isinstance(c, Quantized) and isinstance(c.S, PermK):
        key = next(k for k in (KEY.of(i) for i in range(3)) if len(c.S.compress(X, k)) == 4 * 13)
    else:
        key = KEY
    assert c.paper_bits(c.compress(X, key), D, key) == bits


@pytest.mark.parametrize(("d", "n"), [(40, 3), (13, 5), (4, 13)])
def test_the_blocks_of_permk_are_charged_once_in_all(d, n):
    """9 bits a coordinate, floor(n/d) times where n > d; and nothing for blanks."""
    c, x = Quantized(PermK(), Natural()), np.arange(1.0, d + 1)
    for t in range(10):
        keys = [Key(1, t, i, n) for i in range(n)]
        charged = [c.paper_bits(c.compress(x, k), d, k) for k in keys]
        assert sum(charged) == 9 * d * max(1, n // d)


@pytest.mark.parametrize("Q", [Natural(), Ternary()], ids=repr)
def test_the_support_of_coins_is_charged(Q):
    """As many values as are kept, which natural compression shows: it makes none of them 0."""
    c = Quantized(Bernoulli(0.1), Q)
    shown = Quantized(Bernoulli(0.1), Natural())
    counts = set()
    for t in range(60):
        key = Key(1, t, 0, 1)
        kept = np.count_nonzero(shown.decompress(shown.compress(X[:9], key), 9, key))
        counts.add(kept)
        wanted = 9 * kept if isinstance(Q, Natural) else (32 + 2 * kept) * (kept > 0)
        assert c.paper_bits(c.compress(X[:9], key), 9, key) == wanted
    assert {0, 1, 2} <= counts


def test_the_sparse_code_of_levels_is_charged_without_its_positions():
    """s = 3, so that a level that is not 0 takes ceil(log2(2 s)) = 3 bits; in whole bytes."""
    c = VaryingSteps(3 * sqrt(300), code="sparse")
    x = np.random.default_rng(1).normal(size=300)
    for t in range(5):
        key = Key(1, t, 0, 1)
        message = c.compress(x, key)
        levels = np.count_nonzero(c.decompress(message, 300, key))
        assert c.paper_bits(message, 300, key) == 32 + 8 * -(-3 * levels // 8) < 8 * len(message)


# --- broadcasts ---


def charged_down(method, rounds: int) -> list[int]:
    """The papers' count of bits in each round's broadcasts, for d = 12 and n = 4."""
    loop, charged = start(method, *PLACES[0]), [0]
    for k in range(rounds):
        loop.step(k)
        charged.append(loop.ledger.paper_bits_down)
    return np.diff(charged).tolist()


@pytest.mark.parametrize(
    ("method", "bits"),
    [
        (GD(), 32 * 12),
        (GD(values="f8"), 32 * 12),
        (DIANA(Dithering(1000)), 32 * 12),  # a dense mean
        (DCGD(RandK(2, mask="shared")), 32 * 2),  # a mean of two entries that are not 0
        (MARINA(RandK(2, mask="shared"), p=1e-9), 32 * 2),
        (EF21P(TopK(3), RandK(3)), 32 * 3),
        (EF21Muon(Sign(), TopK(3), gamma=0.01, norm="l2"), 32 * 3),
        (Artemis(RandK(3), Natural()), 9 * 12),
        (MCM(RandK(3), Dithering(3)), 32 + 3 * 12),
        (Dore(Natural(), RandK(4)), 32 * 4),
        (DoubleSqueeze(TopK(3), Sign()), 32 + 12),
        (DoubleSqueeze(Sign(), QuantizedTopK(4, Natural())), 9 * 4),
        (OneBitAdam(1, TopK(3), Sign(), gamma=0.01), 32 + 12),
        (Artemis(RandK(3), Quantized(RandK(4), Natural())), 9 * 4),
        (EF21Plus(Sign(), gamma=0.1), 32 * 12),
        (PerturbedSGD(TopK(12), eta=0.1, r=0.2, I_reset=7), 32 * 12),  # resets too
        (ADIANA(Dithering(1000), eta=0.01, p=0.2, alpha=0.1), 2 * 32 * 12),  # both means
        (ADIANA(Dithering(1000), eta=0.01, p=0.2, alpha=0.1, sends="gradient"), 32 * 12),
        (ADEF(Shrunk(Dithering(1000)), gamma=0.01), 2 * 32 * 12),
    ],
    ids=repr,
)
def test_what_the_paper_charges_for_a_broadcast(method, bits):
    """From the second round on, and once for each worker; d = 12, and nothing is 0 but by compression."""
    assert charged_down(method, 16)[1:] == [4 * bits] * 15


def test_what_the_paper_charges_for_powersgd_s_broadcasts():
    """Of a matrix of 3 by 4 and r = 2, mean P of 3 by 2 and mean Q of 4 by 2 in turn."""
    assert charged_down(PowerSGD(2, rows=3, gamma=0.01), 12) == [4 * 32 * 2 * 3, 4 * 32 * 2 * 4] * 6


def test_what_the_paper_charges_for_dion_s_broadcasts():
    """Of a matrix of 3 by 4 and r = 2, mean P of the longer side, 4 by 2, and R of 3 by 2 in turn."""
    assert charged_down(Dion(2, rows=3, gamma=0.01), 12) == [4 * 32 * 2 * 4, 4 * 32 * 2 * 3] * 6


def test_what_the_paper_charges_for_the_broadcasts_of_arc_top_k():
    """The start whole; then the sketches of 4 rows by 2, and 2 rows of 3, in turn."""
    charged = [4 * 32 * 12] + [4 * 32 * 4 * 2, 4 * 32 * 2 * 3] * 5
    assert charged_down(ARCTopK(2, r=2, width=3, gamma=0.01), 11) == charged


def test_the_x_from_which_a_run_begins_anew_is_charged():
    problem, n = PLACES[0]
    loop = start(GD(gamma=0.1), problem, n)
    loop.step(0)
    loop.restart(1)
    assert loop.ledger.down_bytes == n * (4 + 8) * 12
    assert loop.ledger.paper_bits_down == n * 2 * 32 * 12


def test_both_counts_are_in_rows_and_summary(tmp_path):
    result = run(GD(), out=tmp_path / "run", rounds=10)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    wanted = 10 * N * 32 * 13
    assert summary["paper_bits_up"] == summary["paper_bits_down"] == wanted
    assert read_rows(tmp_path / "run" / "rows.csv")[-1].paper_bits_down == wanted
    assert result.ledger.paper_bits_down == wanted


def test_the_report_of_a_run_has_both_counts(capsys):
    summary = run(EF21P(TopK(3), RandK(5), gamma=0.01, beta=0.1), rounds=10).summary()
    Console(width=140).print(summary_table(summary))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "paper's count" in line)
    up, down = (human_bytes(10 * N * 4 * floats) for floats in (5, 3))
    assert line.split(maxsplit=2)[2].strip() == f"{up} up, by all, {down} down, to all"
