"""The model of the time of a round: its identities, and the break-even of two methods."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.base.units import human_rate, human_time, parse_rate, parse_time
from mpicomp.lab.bench.break_even import break_even, crossing
from mpicomp.lab.bench.cost_model import (
    EAGER,
    HEADERS,
    ByAllreduce,
    ByRoot,
    BySharded,
    Costs,
    Link,
    broadcasting,
    copies,
    depth,
    exchanges,
    latency_of,
    model_of,
)
from mpicomp.lab.bench.link import between_hosts

SMALL = Costs(up=1000.0, down=4000.0, worker=3e-3, server=1e-4, replica=2e-4)
DENSE = Costs(up=4e5, down=4e5, worker=2e-3, server=5e-5, replica=1e-4)


def test_a_round_is_what_the_formulas_say():
    alpha, n = 1e-3, 4
    beta = 8 * HEADERS / 1e8
    small = ByRoot().time(SMALL, Link(1e8, alpha), n, sharing=2.0)
    assert small.worker == 2 * SMALL.worker and small.replica == 2 * SMALL.replica
    assert small.server == n * SMALL.server
    assert small.up == pytest.approx(alpha + 3 * 1000 * beta)
    assert small.down == pytest.approx(2 * alpha + 3 * 4000 * beta)  # the announcement is 2 links deep
    dense = ByRoot().time(DENSE, Link(1e8, alpha), n)
    assert dense.up == pytest.approx(alpha + 3 * 4e5 * beta + 2 * alpha)
    assert dense.down == pytest.approx(3 * alpha + 3 * 4e5 * beta)
    assert dense.total == dense.worker + dense.up + dense.server + dense.down + dense.replica


def test_messages_to_one_worker_alone_leave_through_the_servers_one_link():
    """Beside the broadcast, which a tree spreads where ranks are many."""
    alpha, n = 1e-3, 40
    beta = 8 * HEADERS / 1e8
    for own, asks in ((500.0, 0), (1e5, 1)):
        plain, both = (ByRoot().time(c, Link(1e8, alpha), n) for c in (SMALL, replace(SMALL, own=own)))
        assert both.down - plain.down == pytest.approx(alpha + 39 * own * beta + 2 * asks * alpha)
        assert both.up == plain.up


def test_a_dedicated_server_receives_from_all():
    shared, dedicated = (ByRoot(d).time(SMALL, Link(1e6, 0.0), 4) for d in (False, True))
    assert dedicated.up / shared.up == pytest.approx(4 / 3)
    assert dedicated.down / shared.down == pytest.approx(4 / 3)


def test_where_every_rank_serves_its_share_the_busiest_link_does_not_grow_with_the_workers():
    """A message and a broadcast pass it, with as many blocks as workers; the root's share falls to 1/S."""
    link = Link(1.0, 0.0)
    for n in (4, 64, 1000):
        time = BySharded(n).time(DENSE, link, n)
        assert time.up == pytest.approx(8 * HEADERS * 4e5, rel=1e-3) == pytest.approx(time.down)
        assert time.server == pytest.approx(DENSE.server)
    few = BySharded(8).time(DENSE, Link(inf, 1e-3), 1000)
    assert few.up == pytest.approx(1e-3 + 1007 * 1e-5)
    assert few.server == pytest.approx(1000 / 8 * DENSE.server)


def test_with_far_fewer_blocks_than_ranks_broadcasts_spread_in_trees():
    """Eight blocks between 1000 ranks: ten steps, and some eight blocks a rank in place of 999."""
    assert broadcasting(1000, 1000) == (999, 1) and broadcasting(8, 7) == (7, 1)
    assert broadcasting(1000, 1) == (10, 10) and broadcasting(8, 4) == (7, 1)
    most, steps = broadcasting(1000, 8)
    assert 8 <= most <= 8 + 10 and steps == 10
    few = BySharded(8).time(DENSE, Link(inf, 1e-3), 1000)
    assert few.down == pytest.approx(10e-3 + (9 + most + 8) * 1e-5)
    slow = BySharded(8).time(DENSE, Link(1.0, 0.0), 1000)
    assert slow.down == pytest.approx((most + 9) / 8 * 8 * HEADERS * DENSE.down, rel=1e-6)


@pytest.mark.parametrize(("ranks", "times"), [(1, 0), (2, 1), (3, 3), (4, 2), (7, 4), (8, 3), (1000, 11)])
def test_an_allreduce_exchanges_whole_vectors_in_pairs(ranks, times):
    """log2 of the ranks below, and twice more for those that are left over."""
    link, beta = Link(1e8, 1e-3), 8 * HEADERS / 1e8
    assert exchanges(ranks) == times
    short, long = ByAllreduce().time(SMALL, link, ranks), ByAllreduce().time(DENSE, link, ranks)
    assert short.up == pytest.approx(times * (1e-3 + 1000 * beta)) and short.down == long.down == 0
    assert long.up == pytest.approx(times * (3e-3 + 1.4 * 4e5 * beta))
    in_fragments = ByAllreduce().time(DENSE, between_hosts(1e8, 1e-3), ranks)
    assert in_fragments.up == pytest.approx(times * (3e-3 + 4e5 * beta))
    assert between_hosts(1e10, 1e-3) == Link(1e10, 1e-3)
    assert model_of("allreduce") == ByAllreduce()


def test_limits_of_the_rate():
    """On an infinitely fast link latency and computing are left; on a slow one time is bytes over rate."""
    fast = ByRoot().time(DENSE, Link(inf, 0.0), 4)
    assert fast.up == fast.down == 0.0
    slow = ByRoot().time(DENSE, Link(1.0, 0.0), 4).total
    assert slow == pytest.approx(8 * HEADERS * (3 * 4e5 + 3 * 4e5), rel=1e-9)


def test_messages_above_the_eager_limit_are_asked_for():
    """Messages of 64 KiB and a byte are asked for 64 at a time, 4 MiB in all; longer ones one by one."""
    link = Link(inf, 1.0)
    below, above, long = (replace(SMALL, up=size, down=0) for size in (EAGER, EAGER + 1, 1e8))
    for workers, trips in [(5, 1), (65, 1), (66, 2), (1000, 16)]:
        free = ByRoot().time(below, link, workers).up
        assert ByRoot().time(above, link, workers).up - free == 2 * trips
        assert ByRoot().time(long, link, workers).up - free == 2 * (workers - 1)


@pytest.mark.parametrize(
    ("ranks", "k", "t"), [(2, 1, 1), (4, 3, 2), (8, 7, 3), (16, 4, 4), (33, 6, 6), (64, 9, 3), (1000, 15, 5)]
)
def test_broadcasts(ranks, k, t):
    """One after the other below 16 ranks, a binomial tree below 64, then one of radix 4."""
    assert copies(ranks) == k and depth(ranks) == t


def test_the_latency_of_an_empty_round():
    for ranks in (2, 4, 100):
        empty = ByRoot().time(Costs(0, 0, 0, 0, 0), Link(1e9, 3e-3), ranks)
        assert latency_of(empty.total, ranks) == pytest.approx(3e-3)


def test_the_break_even_makes_the_times_equal():
    slow = replace(SMALL, worker=1e-2)  # compressing takes long
    rate = break_even((300, slow), (200, DENSE), latency=1e-4, workers=4, sharing=2.0)
    times = [
        rounds * ByRoot().time(costs, Link(rate, 1e-4), 4, sharing=2.0).total
        for rounds, costs in ((300, slow), (200, DENSE))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    for factor, wins in ((0.5, True), (2.0, False)):
        link = Link(factor * rate, 1e-4)
        assert (
            300 * ByRoot().time(slow, link, 4, sharing=2.0).total
            < 200 * ByRoot().time(DENSE, link, 4, sharing=2.0).total
        ) is wins


def test_break_evens_that_are_none():
    assert break_even((100, SMALL), (200, DENSE), 1e-4, 4, 1.0) == inf
    assert break_even((10**6, SMALL), (1, DENSE), 1e-4, 4, 1.0) == 0.0


def test_where_measured_times_cross():
    rates = [1e8, 1e9, 1e10]
    assert crossing(rates, [1, 1, 1], [10, 10, 0.1]) == pytest.approx((10**9.5, 10**9.5))
    assert crossing(rates, [1, 1, 1], [10, 1, 0.1]) == pytest.approx((1e9, 1e9))
    assert crossing(rates, [1, 1, 1], [3, 2, 1.5]) == (1e10, inf)
    assert crossing(rates, [3, 1, 1], [1, 1, 1]) == (0.0, 1e8)


def test_rates_and_times_as_people_write_them():
    assert [parse_rate(t) for t in ("100mbit", "2.5gbit", "64kbit")] == [1e8, 2.5e9, 64e3]
    assert [parse_time(t) for t in ("50us", "10ms", "0s")] == pytest.approx([5e-5, 1e-2, 0.0])
    assert [human_rate(r) for r in (1e8, 2.5e9, 64e3)] == ["100 Mbit/s", "2.5 Gbit/s", "64 kbit/s"]
    assert [human_time(t) for t in (2.5, 0.01, 5e-5)] == ["2.5 s", "10 ms", "50 us"]
    assert [human_rate(r) for r in (999.4e6, 999.6e6, 999.6e3)] == ["999 Mbit/s", "1 Gbit/s", "1 Mbit/s"]
    assert [human_time(t) for t in (0.9994, 0.9996, 0.9996e-3)] == ["999 ms", "1 s", "1 ms"]
    for bad in ("100", "fast", "1 tbit", "-1mbit"):
        with pytest.raises(ConfigError, match="such as 100mbit"):
            parse_rate(bad)


@pytest.mark.parametrize("rate", ["0mbit", "-1mbit", "fast", "1"])
def test_a_rate_is_a_positive_number_with_a_unit(rate):
    with pytest.raises(ConfigError, match="allowed: "):
        parse_rate(rate)
